package timing

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Min: 3 * time.Second, Max: 10 * time.Second}
		want := []time.Duration{3 * time.Second, 6 * time.Second, 10 * time.Second, 10 * time.Second}
		for range 2 {
			var got []time.Duration
			for i := range want {
				start := time.Now()
				if i%2 == 0 {
					got = append(got, b.Next())
				} else if err := b.Sleep(t.Context()); err != nil {
					t.Fatal(err)
				} else {
					got = append(got, time.Since(start))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("pauses %v, want %v", got, want)
			}
			b.Reset()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Sleep(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the context ended, Sleep returned %v", err)
		}
	})
}

// handClock is a clock whose timers fire when the test sends.
type handClock struct {
	fire    chan time.Time
	stopped bool
}

func (c *handClock) Timer(time.Duration) (<-chan time.Time, func()) {
	return c.fire, func() { c.stopped = true }
}

func TestSleepOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{0, -time.Second} { // no timer
			if err := SleepOn(t.Context(), nil, d); err != nil {
				t.Errorf("sleep of %v: %v", d, err)
			}
		}
		clock := &handClock{fire: make(chan time.Time)}
		start := time.Now()
		go func() { time.Sleep(time.Minute); clock.fire <- time.Now() }()
		if err := SleepOn(t.Context(), clock, time.Second); err != nil || time.Since(start) != time.Minute || !clock.stopped {
			t.Errorf("slept until %v after the start, timer stopped: %v, %v", time.Since(start), clock.stopped, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := SleepOn(ctx, clock, time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the context ended, SleepOn returned %v", err)
		}
		if err := SleepOn(ctx, nil, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of the context, SleepOn returned %v", err)
		}
	})
}

func (c *handClock) Now() time.Duration { return 0 }
