// Acquires and releases locks with one of the libraries in Go, and prints what it measured as one line of JSON.
//
// lock-bench PEER URL WORKLOAD TASKS SECONDS HOLD_MS [REGISTER]: see bench/README.md.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The same load runs for so long before anything is counted.
const warmUp = time.Second

// A task that has not got the lock so long after the end, when nobody else wants it any more, is stuck.
const patience = 8 * time.Second

// In "wait", one task keeps the lock for so long after it has said that the time is over, so that the runner can look at
// the server.
const look = 300 * time.Millisecond

// What became of one task.
type tally struct {
	pairs, allPairs, overlaps uint64
	changes                   uint64 // counted holds that came after one of another process
	ended                     atomic.Bool
}

type session struct {
	start, end time.Time
	hold       time.Duration
	register   *register
	waits      recorder
	gaps       recorder
}

func main() {
	if len(os.Args) < 7 {
		fmt.Fprintln(os.Stderr, "usage: lock-bench PEER URL own|hot|wait TASKS SECONDS HOLD_MS [REGISTER]")
		os.Exit(2)
	}
	runtime.GOMAXPROCS(2)
	own, waits := os.Args[3] == "own", os.Args[3] == "wait"
	tasks, err := strconv.Atoi(os.Args[4])
	check(err)
	seconds, err := strconv.ParseFloat(os.Args[5], 64)
	check(err)
	holdMs, err := strconv.Atoi(os.Args[6])
	check(err)
	newLock := connect(os.Args[1], os.Args[2])
	locks := make([]lock, tasks)
	for task := range locks {
		key := "bench:hot"
		if own {
			key = "bench:own:" + strconv.Itoa(task)
		}
		locks[task] = newLock(key)
	}
	shared := session{hold: time.Duration(holdMs) * time.Millisecond}
	if len(os.Args) > 7 {
		shared.register = openRegister(os.Args[7])
	}

	fmt.Fprintln(os.Stderr, "ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	var release func()
	if waits {
		release = newLock("bench:hot")()
	}
	shared.start = time.Now().Add(warmUp)
	shared.end = shared.start.Add(time.Duration(seconds * float64(time.Second)))
	tallies := make([]tally, tasks)
	var all sync.WaitGroup
	for task := range tallies {
		all.Add(1)
		go func() {
			defer all.Done()
			if waits {
				shared.once(locks[task], &tallies[task])
			} else {
				shared.cycle(locks[task], &tallies[task])
			}
			tallies[task].ended.Store(true)
		}()
	}
	time.Sleep(time.Until(shared.start))
	before := cpuTime()
	if waits {
		fmt.Fprintln(os.Stderr, "begun")
	}
	time.Sleep(time.Until(shared.end))
	cpu := cpuTime() - before
	if waits {
		fmt.Fprintln(os.Stderr, "over")
		time.Sleep(look)
		release()
	}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
	}
	report(seconds, cpu, tallies, &shared.waits, &shared.gaps)
}

func (shared *session) cycle(lock lock, tally *tally) {
	for {
		asked := time.Now()
		if !asked.Before(shared.end) {
			return
		}
		release := lock()
		acquired := time.Now()
		counts := !acquired.Before(shared.start)
		if shared.register != nil {
			overlap, gap, known := shared.register.enter()
			if overlap {
				tally.overlaps++
			}
			if known && counts {
				shared.gaps.add(gap)
				tally.changes++
			}
		}
		if shared.hold > 0 {
			time.Sleep(shared.hold)
		}
		if shared.register != nil && shared.register.leave() {
			tally.overlaps++
		}
		release()
		released := time.Now()
		tally.allPairs++
		if !released.Before(shared.start) && released.Before(shared.end) {
			tally.pairs++
		}
		if counts {
			shared.waits.add(acquired.Sub(asked))
		}
	}
}

// Waits for the one who has the lock, has it once, and tells how long after the release everybody before it was done.
func (shared *session) once(lock lock, tally *tally) {
	lock()()
	shared.waits.add(max(0, time.Since(shared.end.Add(look))))
	tally.pairs, tally.allPairs = 1, 1
}

// What this process has used of all processors.
func cpuTime() time.Duration {
	var time unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &time))
	return duration(time)
}

func duration(time_ unix.Timespec) time.Duration {
	return time.Duration(time_.Nano())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
