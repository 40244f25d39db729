package main

import (
	"encoding/json"
	"os"
	"time"
)

const samples = 2000

type waitReport struct {
	P50     float64   `json:"p50"`
	P99     float64   `json:"p99"`
	Max     float64   `json:"max"`
	Samples []float64 `json:"samples"`
}

// The line of JSON that the runner reads.
type line struct {
	Pairs       uint64     `json:"pairs"`
	AllPairs    uint64     `json:"all_pairs"`
	Seconds     float64    `json:"seconds"`
	PerTask     []uint64   `json:"per_task"`
	ClientCPUus int64      `json:"client_cpu_us"`
	Wait        waitReport `json:"wait_us"`
	Gap         []float64  `json:"gap_us"`
	Changes     uint64     `json:"changes"`
	Overlaps    uint64     `json:"overlaps"`
	Stuck       int        `json:"stuck"`
}

func report(seconds float64, cpu time.Duration, tallies []tally, waits, gaps *recorder) {
	wait := waits.sorted()
	out := line{
		Seconds:     seconds,
		ClientCPUus: cpu.Microseconds(),
		Wait:        waitReport{quantile(wait, 0.5), quantile(wait, 0.99), waits.longest, thinned(wait, samples)},
		Gap:         thinned(gaps.sorted(), samples),
	}
	for task := range tallies {
		tally := &tallies[task]
		if !tally.ended.Load() {
			out.Stuck++
		}
		out.Pairs += tally.pairs
		out.AllPairs += tally.allPairs
		out.Changes += tally.changes
		out.Overlaps += tally.overlaps
		out.PerTask = append(out.PerTask, tally.pairs)
	}
	check(json.NewEncoder(os.Stdout).Encode(out))
}
