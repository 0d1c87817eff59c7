package master

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// refusing is a cluster in which no server can load one tablet.
type refusing struct {
	*masterView
	key   string
	tries []time.Time
}

func (r *refusing) Load(ctx context.Context, v *TabletServer, t *Tablet, q api.Sequencer) error {
	if t.Key != r.key {
		return r.masterView.Load(ctx, v, t, q)
	}
	r.locked(func() { r.tries = append(r.tries, time.Now()) })
	return errors.New("a file of it is damaged")
}

// TestOrderThatCannotBeDone: a tablet that no server can load is retried less and less often: each
// attempt is an event in its METADATA row, and would push out the earlier ones.
func TestOrderThatCannotBeDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSimCluster(rand.New(rand.NewPCG(1, 1)), 5)
		f.start()
		f.start()
		view := &refusing{masterView: &masterView{simCluster: f}}
		f.locked(func() {
			for key, row := range f.rows {
				if row.Level() == 2 {
					view.key = key
				}
			}
		})
		ctx, cancel := context.WithCancel(context.Background())
		lock := &worldLock{seq: api.Sequencer{LockGeneration: 1}, done: make(chan struct{})}
		a := newAssigner(Config{Tablets: view, Pause: time.Second, Logger: slog.New(slog.DiscardHandler)}, lock)
		view.a = a
		var work sync.WaitGroup
		work.Go(func() { a.run(ctx) })
		time.Sleep(10 * time.Minute)
		reported := a.unserved(time.Now())
		if len(reported) != 1 || reported[0].Key != view.key || reported[0].Tries != len(view.tries) || reported[0].Err.Error() != "a file of it is damaged" ||
			time.Since(reported[0].Since) < 9*time.Minute {
			t.Errorf("of %q, tried %d times, got %+v", view.key, len(view.tries), reported)
		}
		lock.lose()
		cancel()
		work.Wait()
		view.flushes.Wait()
		if n := len(view.tries); n < 20 || n > 40 {
			t.Fatalf("tried %d times in 10 minutes", n)
		}
		last := view.tries[len(view.tries)-1].Sub(view.tries[len(view.tries)-2])
		if first := view.tries[1].Sub(view.tries[0]); first > 2*retryPause+time.Second || last < retryPauseMax {
			t.Errorf("the first pause is %v, the last one %v", first, last)
		}
	})
}
