package blobfs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/timing"
)

// event calls f, which reports an event to the state machine, and applies the effects. Blocking
// effects run in other goroutines, except writes to the local disk, which run in the caller's: use
// it where the caller may wait.
func (w *SpreadLogWriter) event(f func()) { w.handle(f, func(g func()) { g() }) }

// eventAsync is event for callers that must not wait.
func (w *SpreadLogWriter) eventAsync(f func()) {
	w.handle(f, func(g func()) {
		if !w.s.work.Go(g) {
			g() // the store is closed, so g fails at once
		}
	})
}

func (w *SpreadLogWriter) handle(f func(), run func(func())) {
	w.mu.Lock()
	f()
	for w.m != nil {
		effects := w.m.Take()
		if len(effects) == 0 {
			break
		}
		for _, e := range slices.Clone(effects) {
			w.do(e)
		}
	}
	after := w.after
	w.after = nil
	w.mu.Unlock()
	for _, g := range after {
		run(g)
	}
}

// do applies one effect of the state machine. Called with mu held.
func (w *SpreadLogWriter) do(e logproto.Effect) {
	if w.ctx.Err() != nil {
		return
	}
	switch e.Kind {
	case logproto.EffectPlace:
		nodes := w.choose(e.Seq)
		w.salts[e.Seq] = newSalt()
		w.m.Place(e.Seq, nodes)
		if len(nodes) == 0 {
			w.placeErr = w.placementError()
			w.withdraw()
			// Nodes that do not answer may be starting, as this one is, so this error is retried.
			if !w.begun && w.placeErr != nil && !errors.Is(w.placeErr, api.ErrUnreachable) {
				w.stop(w.placeErr)
			}
		}
	case logproto.EffectOpen:
		salt := w.salts[e.Seq]
		w.opening[linkKey{e.Seq, e.Node}] = &openingReplica{since: w.s.cluster.Clock.Now()}
		reserve := w.reserved[e.Seq]
		w.s.work.Go(func() { w.open(e, salt, reserve) })
	case logproto.EffectAppend:
		w.sendFrames(e)
	case logproto.EffectAcked:
		w.acknowledge(e.Pos)
	case logproto.EffectSave:
		w.s.work.Go(func() { w.save(e) })
	case logproto.EffectLoad:
		w.s.work.Go(w.load)
	case logproto.EffectCut:
		l, _ := w.m.List()
		c := local.LogCut{Log: w.id, CutRequest: logproto.CutRequest{Seq: e.Seq, Epoch: e.Epoch, Start: e.Start, Length: e.Length}}
		w.dropLink(e.Seq, e.Node)
		delete(w.salts, e.Seq)
		delete(w.reserved, e.Seq)
		w.s.work.Go(func() { _ = w.s.cutReplica(w.s.ctx, c, e.Node, replicasOf(&l, e.Seq)) })
	case logproto.EffectDrop:
		w.dropLink(e.Seq, e.Node)
		delete(w.salts, e.Seq)
		delete(w.reserved, e.Seq)
		w.s.work.Go(func() { w.s.dropReplica(w.id, e.Seq, e.Node) })
	case logproto.EffectDone:
		w.stop(ErrSealed)
		close(w.sealed)
	case logproto.EffectFailed:
		w.stop(writerError(w.m.Err()))
	}
}

func writerError(err error) error {
	var fenced *logproto.FencedError
	if errors.As(err, &fenced) {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	return fmt.Errorf("%w: %w", ErrLogFailed, err)
}

func replicasOf(l *logproto.List, seq uint64) []string {
	for _, x := range l.Extents {
		if x.Seq == seq {
			return x.Replicas
		}
	}
	return nil
}

// withdraw fails the appends that were sent to no replica and wait for space: for an extent that
// cannot be created, or a list that cannot be saved.
func (w *SpreadLogWriter) withdraw() {
	full := w.full()
	if full == nil {
		return
	}
	end := w.m.Withdraw()
	for n := len(w.frames); n > 0 && w.frames[n-1].end > end; n-- {
		w.withdrawn = full
		w.bytes -= len(w.frames[n-1].b)
		w.frames = w.frames[:n-1]
	}
	for n := len(w.waiters); n > 0 && w.waiters[n-1].end > end; n-- {
		w.waiters[n-1].done <- full
		w.waiters = w.waiters[:n-1]
	}
	w.signalSpace()
}

func (w *SpreadLogWriter) signalSpace() {
	if w.space != nil {
		close(w.space)
		w.space = nil
	}
}

// acknowledge completes the appends up to a position. Called with mu held.
func (w *SpreadLogWriter) acknowledge(to int64) {
	n := 0
	now := w.s.cluster.Clock.Now()
	for n < len(w.frames) && w.frames[n].end <= to {
		f := w.frames[n]
		w.bytes -= len(f.b)
		w.timer.observe(now - f.sent)
		if !f.shared {
			w.s.frames.put(f.b)
		}
		w.frames[n] = nil
		n++
	}
	w.frames = w.frames[n:]
	n = 0
	for n < len(w.waiters) && w.waiters[n].end <= to {
		w.waiters[n].done <- nil
		n++
	}
	w.waiters = w.waiters[n:]
	w.signalSpace()
}

// save stores the list.
func (w *SpreadLogWriter) save(e logproto.Effect) {
	ctx, cancel := context.WithTimeout(w.ctx, w.s.cluster.Logs.OpenTimeout)
	defer cancel()
	gen, err := w.s.cluster.Lists.Save(ctx, w.path, EncodeLogList(&e.List), e.Gen)
	w.eventAsync(func() {
		if err != nil {
			w.s.log.Warn("log list not saved, or outcome unknown", "log", w.id, "err", err)
			if errors.Is(err, ErrFenced) {
				w.stop(err)
				return
			}
			w.listErr = err
			w.m.Unsaved()
			w.withdraw()
			return
		}
		w.listErr = nil
		w.m.Saved(gen)
		w.begin()
	})
}

// load reads the list, and retries until it succeeds or the writer ends.
func (w *SpreadLogWriter) load() {
	for {
		ctx, cancel := context.WithTimeout(w.ctx, w.s.cluster.Logs.OpenTimeout)
		l, gen, err := w.s.loadLogList(ctx, w.path)
		cancel()
		// Also before the first use of the list: a save that failed would fail again at once.
		if timing.SleepOn(w.ctx, w.s.cluster.Clock, w.s.cluster.Logs.Retry) != nil {
			return
		}
		if err == nil {
			w.eventAsync(func() {
				w.m.Loaded(l, gen)
				if _, saved := w.m.List(); saved != 0 {
					w.begin()
				}
			})
			return
		}
	}
}

// cutReplica truncates a replica, or refills it from one of the nodes if it is short or corrupt. It
// does not create a replica: a missing one may have been dropped.
func (s *Store) cutReplica(ctx context.Context, c local.LogCut, node string, from []string) error {
	ctx, cancel := context.WithTimeout(ctx, s.cluster.SealTimeout)
	defer cancel()
	p, err := s.peers.Any(ctx, node)
	if err != nil {
		return err
	}
	if err = p.CutLog(ctx, c); err == nil {
		return nil
	}
	var short *logproto.ShortError
	var corrupt *CorruptError
	if errors.As(err, &short) || errors.As(err, &corrupt) {
		return p.RefillLog(ctx, c, slices.DeleteFunc(slices.Clone(from), func(n string) bool { return n == node }))
	}
	return err
}

func (s *Store) dropReplica(log ID, seq uint64, node string) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cluster.ReplyTimeout)
	defer cancel()
	if p, err := s.peers.Any(ctx, node); err == nil {
		_ = p.DropLog(ctx, log, seq) // what remains is garbage for the next rounds
	}
}
