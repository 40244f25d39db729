package main

import (
	"sort"
	"sync"
	"time"
)

const most = 65_536

// Samples of a time, thinned so that memory stays bounded: when it is full, every second one goes.
type recorder struct {
	mutex   sync.Mutex
	samples []float64 // in microseconds
	count   uint64
	stride  uint64 // one of so many is kept
	longest float64
}

func (r *recorder) add(time time.Duration) {
	sample := float64(time.Nanoseconds()) / 1000
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.samples == nil {
		r.samples, r.stride = make([]float64, 0, most), 1
	}
	r.longest = max(r.longest, sample)
	if r.count%r.stride == 0 {
		if len(r.samples) == most {
			for index := range most / 2 {
				r.samples[index] = r.samples[2*index]
			}
			r.samples = r.samples[:most/2]
			r.stride *= 2
		}
		r.samples = append(r.samples, sample)
	}
	r.count++
}

func (r *recorder) sorted() []float64 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	sort.Float64s(r.samples)
	return r.samples
}

// The sample below which this part of them lies.
func quantile(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(part*float64(len(sorted))), len(sorted)-1)]
}

// At most so many of them, evenly spread.
func thinned(sorted []float64, most int) []float64 {
	if len(sorted) <= most {
		return append([]float64{}, sorted...)
	}
	kept := make([]float64, most)
	for n := range kept {
		kept[n] = quantile(sorted, (float64(n)+0.5)/float64(most))
	}
	return kept
}
