package fair

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// newPolledPacer returns a Pacer for which the network is polled when poll is called, and not before.
func newPolledPacer(steps int) (p *Pacer, poll func() bool) {
	var then func()
	p = NewPacer(steps, func(next func()) { then = next })
	return p, func() bool {
		next := then
		if then = nil; next != nil {
			next()
		}
		return next != nil
	}
}

// TestPacerRotation: as many steps as may are taken between two polls, users one after the other, however many of their goroutines
// wait; and none without a poll.
func TestPacerRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, poll := newPolledPacer(3)
		on := make(chan string, 20)
		gone := func() string { // the goroutines that had a step since the last call
			var names []string
			for len(on) > 0 {
				names = append(names, <-on)
			}
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		wait := func(ctx context.Context, name string) {
			go func() {
				p.Wait(ctx, name[:1])
				on <- name
			}()
			synctest.Wait()
		}
		ended, end := context.WithCancel(t.Context())
		for _, name := range []string{"a1", "a2", "a3", "a4", "a5"} {
			wait(t.Context(), name)
		}
		wait(ended, "a ended")
		wait(ended, "d ended")
		wait(t.Context(), "b1")
		wait(t.Context(), "a6")
		wait(t.Context(), "c1")
		end()
		synctest.Wait()
		if got, want := gone(), "a ended a1 a2 a3 d ended"; got != want {
			t.Fatalf("before a poll %q go on, want %q", got, want)
		}
		for _, want := range []string{"a4 b1 c1", "a5 a6"} {
			if !poll() {
				t.Fatal("no poll of the network was asked for")
			}
			synctest.Wait()
			if got := gone(); got != want {
				t.Errorf("after a poll %q go on, want %q", got, want)
			}
		}
		if poll() {
			t.Error("a poll is asked for though a step is left")
		}
		wait(t.Context(), "b2")
		if gone() != "b2" {
			t.Error("the step that is left was not taken")
		}
		p.Wait(t.Context(), "") // has no step to wait for
		if p.Try("a") {
			t.Error("a step was taken though none is left")
		}
		if !poll() || poll() {
			t.Error("want one poll after the last step")
		}
	})
}

// TestPacerRandomly: every goroutine gets its step or gives up, also when the Pacer is closed meanwhile, and the rotation is empty afterwards.
func TestPacerRandomly(t *testing.T) {
	for _, steps := range []int{1, 7} {
		for range 20 {
			p := NewPacer(steps, nil)
			var all sync.WaitGroup
			for g := range 40 {
				all.Go(func() {
					r := rand.New(rand.NewPCG(uint64(g), 1))
					for range 100 {
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(400))*time.Microsecond)
						if r.IntN(2) == 0 {
							ctx = context.Background()
						}
						p.Wait(ctx, fmt.Sprint(r.IntN(4)))
						cancel()
					}
				})
			}
			all.Go(func() { time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond); p.Close() })
			all.Wait()
			p.mu.Lock()
			if len(p.mu.waiters.ring)+len(p.mu.waiters.queues) != 0 {
				t.Fatal("the rotation is not empty")
			}
			p.mu.Unlock()
		}
	}
}

// BenchmarkPacer is one goroutine that goes on without ever waiting for others.
func BenchmarkPacer(b *testing.B) {
	p := NewPacer(8*runtime.GOMAXPROCS(0), nil)
	defer p.Close()
	for b.Loop() {
		p.Wait(b.Context(), "user")
	}
}

// TestPacerPipe: steps are granted by a pipe, of which nothing is left after Close. Without a pipe a Pacer grants them too.
func TestPacerPipe(t *testing.T) {
	p := NewPacer(2, nil)
	for range 20 {
		p.Wait(t.Context(), "a")
	}
	if p.mu.w == nil {
		t.Error("there is no pipe")
	}
	p.Close()
	for range 20 {
		p.Wait(t.Context(), "a")
	}
	if _, err := p.mu.r.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the pipe after Close: %v", err)
	}
	p = NewPacer(2, nil)
	p.Close()
	for range 20 {
		p.Wait(t.Context(), "a")
	}
	if p.mu.w != nil {
		t.Error("a pipe was made after Close")
	}
}
