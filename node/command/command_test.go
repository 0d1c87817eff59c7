package command

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/master"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// slowLocks confirms sequencers on request, and counts waiting callers.
type slowLocks struct {
	asked   atomic.Int64
	answers map[uint64]chan error // by lock generation
}

func (l *slowLocks) CheckSequencer(ctx context.Context, q metaapi.Sequencer) error {
	l.asked.Add(1)
	select {
	case err := <-l.answers[q.LockGeneration]:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func commandOf(node string, epoch uint64) Header {
	return Header{Master: node, Sequencer: metaapi.Sequencer{Path: master.LockPath, Mode: metaapi.Exclusive, LockGeneration: epoch}}
}

func isStale(err error) bool {
	var e *rpc.Error
	return errors.As(err, &e) && e.Code == api.CodeStaleEpoch
}

// I9: the answer to whether an older master is one may come late, when a newer one has commanded. The older one is refused then,
// although it was confirmed, and the newer one's epoch stays.
func TestNewerMasterArrivesWhileAnOlderIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, locks := &Gate{}, &slowLocks{answers: map[uint64]chan error{5: make(chan error), 7: make(chan error)}}
		older, newer := make(chan error, 1), make(chan error, 1)
		go func() { older <- g.Admit(t.Context(), commandOf("n1", 5), locks) }()
		synctest.Wait()
		go func() { newer <- g.Admit(t.Context(), commandOf("n2", 7), locks) }()
		synctest.Wait()
		if locks.asked.Load() != 2 {
			t.Fatalf("the lock service was asked about %d masters, want 2 at a time", locks.asked.Load())
		}
		locks.answers[7] <- nil
		if err := <-newer; err != nil {
			t.Fatalf("the newer master: %v", err)
		}
		locks.answers[5] <- nil
		if err := <-older; !isStale(err) {
			t.Errorf("the older master, confirmed after the newer: %v, want stale_epoch", err)
		}
		if node, epoch := g.Last(); node != "n2" || epoch != 7 {
			t.Errorf("node %s is master by epoch %d, want n2 by 7", node, epoch)
		}
		if err := g.Admit(t.Context(), commandOf("n1", 5), locks); !isStale(err) {
			t.Errorf("the older master again: %v, want stale_epoch", err)
		}
	})
}

// The first commands of a master may come at once: each is checked, and each passes.
func TestFirstCommandsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, locks := &Gate{}, &slowLocks{answers: map[uint64]chan error{5: make(chan error)}}
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- g.Admit(t.Context(), commandOf("n1", 5), locks) }()
		}
		synctest.Wait()
		for range 2 {
			locks.answers[5] <- nil
			if err := <-errs; err != nil {
				t.Errorf("a command of the only master: %v", err)
			}
		}
		if node, epoch := g.Last(); node != "n1" || epoch != 5 || locks.asked.Load() != 2 {
			t.Errorf("node %s is master by epoch %d after %d questions", node, epoch, locks.asked.Load())
		}
	})
}

// I9: an epoch has one master. Of two nodes whose first commands are of the same epoch only the one that is confirmed first commands.
func TestEpochHasOneMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, locks := &Gate{}, &slowLocks{answers: map[uint64]chan error{5: make(chan error)}}
		errs := make(chan error, 2)
		for _, node := range []string{"n1", "n2"} {
			go func() { errs <- g.Admit(t.Context(), commandOf(node, 5), locks) }()
			synctest.Wait()
		}
		locks.answers[5] <- nil
		if err := <-errs; err != nil {
			t.Errorf("the node that is confirmed first: %v", err)
		}
		first, _ := g.Last()
		locks.answers[5] <- nil
		if err := <-errs; !isStale(err) {
			t.Errorf("the other node: %v, want stale_epoch", err)
		}
		if node, epoch := g.Last(); node != first || epoch != 5 {
			t.Errorf("node %s is master by epoch %d, want %s by 5", node, epoch, first)
		}
	})
}

func TestEpochGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("not a master")
		locks := &slowLocks{answers: map[uint64]chan error{}}
		for epoch := range uint64(10) {
			locks.answers[epoch] = make(chan error, 1)
		}
		g := &Gate{}
		admit := func(node string, epoch uint64) error { return g.Admit(t.Context(), commandOf(node, epoch), locks) }

		locks.answers[4] <- nil
		if err := admit("n1", 4); err != nil {
			t.Fatal(err)
		}
		if err := admit("n1", 4); err != nil || locks.asked.Load() != 1 {
			t.Errorf("the master again: %v after %d questions, want none after 1", err, locks.asked.Load())
		}
		if err := admit("n2", 4); !isStale(err) {
			t.Errorf("another node in the master's epoch: %v, want stale_epoch", err)
		}
		locks.answers[6] <- refused
		if err := admit("n3", 6); !errors.Is(err, refused) {
			t.Errorf("who the lock service does not know: %v", err)
		}
		begun := time.Now()
		if err := admit("n3", 8); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != epochCheckTimeout {
			t.Errorf("when the lock service does not answer: %v after %v, want a deadline of %v", err, time.Since(begun), epochCheckTimeout)
		}
		if err := admit("n1", 4); err != nil {
			t.Errorf("the master after impostors: %v", err)
		}
		if err := admit("n1", 3); !isStale(err) {
			t.Errorf("the master's own older epoch: %v, want stale_epoch", err)
		}
		asked := locks.asked.Load()
		for _, q := range []metaapi.Sequencer{
			{Path: "/other", Mode: metaapi.Exclusive, LockGeneration: 9},
			{Path: master.LockPath, Mode: metaapi.Shared, LockGeneration: 9},
		} {
			var e *rpc.Error
			if err := g.Admit(t.Context(), Header{Master: "n4", Sequencer: q}, locks); !errors.As(err, &e) || e.Code != rpc.CodeBadRequest {
				t.Errorf("sequencer %s: %v, want bad_request", q, err)
			}
		}
		if locks.asked.Load() != asked {
			t.Error("the lock service was asked about sequencers that make no master")
		}
	})
}
