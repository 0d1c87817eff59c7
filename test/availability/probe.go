package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client"
)

// write is one write of a prober.
type write struct {
	began, ended time.Time
	err          error
}

// prober writes a row of one tablet repeatedly.
type prober struct {
	t     *client.Table
	row   string
	pause atomic.Int64 // between two writes, in ns

	mu  sync.Mutex
	all []write
}

const (
	// probePause is the pause between two writes to a tablet, probeFast that during a measurement
	// of the tablet.
	probePause = 20 * time.Millisecond
	probeFast  = time.Millisecond
	// probeTimeout is the time after which a write counts as failed.
	probeTimeout = time.Minute
)

// run writes until ctx ends.
func (p *prober) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		m := client.NewRowMutation(p.row).Set("f:probe", fmt.Append(nil, n))
		short, cancel := context.WithTimeout(ctx, probeTimeout)
		w := write{began: time.Now()}
		w.err = p.t.Apply(short, m)
		w.ended = time.Now()
		cancel()
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		p.all = append(p.all, w)
		p.mu.Unlock()
		time.Sleep(time.Duration(p.pause.Load()))
	}
}

// forget drops the writes that ended earlier.
func (p *prober) forget(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.all[:0]
	for _, w := range p.all {
		if w.ended.After(before) {
			kept = append(kept, w)
		}
	}
	p.all = kept
}

// answered returns when the first write that began after t succeeded.
func (p *prober) answered(t time.Time) (at time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.all {
		if w.began.After(t) && w.err == nil {
			return w.ended, true
		}
	}
	return at, false
}

// slowest returns the duration of the slowest write that was pending between two times, and the
// number of failed ones.
func (p *prober) slowest(from, to time.Time) (most time.Duration, failed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.all {
		if w.ended.Before(from) || w.began.After(to) {
			continue
		}
		most = max(most, w.ended.Sub(w.began))
		if w.err != nil {
			failed++
		}
	}
	return most, failed
}

func slowestOf(ps []*prober, from, to time.Time) (most time.Duration, failed int) {
	for _, p := range ps {
		d, n := p.slowest(from, to)
		most, failed = max(most, d), failed+n
	}
	return most, failed
}
