package timing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := Sleep(t.Context(), time.Second); err != nil || time.Since(start) != time.Second {
			t.Errorf("slept for %v: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if err := Sleep(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("slept for %v: %v", time.Since(start), err)
		}
	})
}

// untimed is a context with a deadline but without a timer: it does not end.
type untimed struct {
	context.Context
	at time.Time
}

func (u untimed) Deadline() (time.Time, bool) { return u.at, true }

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for name, c := range map[string]struct {
			ctx  context.Context
			want time.Duration
		}{
			"its own time":           {t.Context(), time.Second},
			"the context's deadline": {untimed{t.Context(), start.Add(100 * time.Millisecond)}, 100 * time.Millisecond},
			"a later deadline":       {untimed{t.Context(), start.Add(time.Hour)}, time.Second},
		} {
			ctx, cancel := Within(c.ctx, time.Second)
			if at, _ := ctx.Deadline(); at.Sub(start) != c.want {
				t.Errorf("%s: ends after %v, want %v", name, at.Sub(start), c.want)
			}
			cancel()
		}
		outer, end := context.WithCancel(t.Context())
		ctx, cancel := Within(outer, time.Second)
		defer cancel()
		end()
		<-ctx.Done()
		if time.Since(start) != 0 {
			t.Errorf("ends %v after the context", time.Since(start))
		}
	})
}
