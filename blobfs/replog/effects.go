package replog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/timing"
)

// event calls f, which reports an event to the state machine, and applies the effects. Blocking
// effects run in other goroutines, except writes to the local disk, which run in the caller's: use
// it where the caller may wait.
func (w *Writer) event(f func()) { w.handle(f, func(g func()) { g() }) }

// eventAsync is event for callers that must not wait.
func (w *Writer) eventAsync(f func()) {
	w.handle(f, func(g func()) {
		if !w.logs.deps.Work.Go(g) {
			g() // the store is closed, so g fails at once
		}
	})
}

func (w *Writer) handle(f func(), run func(func())) {
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
func (w *Writer) do(e logproto.Effect) {
	if w.ctx.Err() != nil {
		return
	}
	switch e.Kind {
	case logproto.EffectPlace:
		nodes := w.choose(e.Seq)
		// Without nodes no effect will end the extent, and the next attempt has another number.
		if len(nodes) == 0 {
			w.placement.forget(e.Seq)
		} else {
			w.salts[e.Seq] = newSalt()
		}
		w.m.Place(e.Seq, nodes)
		if len(nodes) == 0 {
			err := w.placement.noNodes()
			w.withdraw()
			// Nodes that do not answer may be starting, as this one is, so this error is retried.
			if !w.begun && err != nil && !errors.Is(err, api.ErrUnreachable) {
				w.stop(err)
			}
		}
	case logproto.EffectOpen:
		salt := w.salts[e.Seq]
		w.opening[linkKey{e.Seq, e.Node}] = &openingReplica{since: w.now()}
		reserve := w.placement.reserved[e.Seq]
		w.logs.deps.Work.Go(func() { w.open(e, salt, reserve) })
	case logproto.EffectAppend:
		w.sendFrames(e)
	case logproto.EffectAcked:
		w.acknowledged()
		w.window.acknowledge(e.Pos, w.now(), &w.timer, w.logs.frames)
	case logproto.EffectSave:
		w.logs.deps.Work.Go(func() { w.save(e) })
	case logproto.EffectLoad:
		w.logs.deps.Work.Go(w.load)
	case logproto.EffectCut:
		l, _ := w.m.List()
		c := local.LogCut{Log: w.id, CutRequest: logproto.CutRequest{Seq: e.Seq, Epoch: e.Epoch, Start: e.Start, Length: e.Length}}
		w.links.drop(e.Seq, e.Node)
		delete(w.salts, e.Seq)
		w.placement.forget(e.Seq)
		w.logs.deps.Work.Go(func() { _ = w.logs.cutReplica(w.logs.ctx, c, e.Node, replicasOf(&l, e.Seq)) })
	case logproto.EffectDrop:
		w.links.drop(e.Seq, e.Node)
		delete(w.weak.lost, linkKey{e.Seq, e.Node})
		delete(w.salts, e.Seq)
		w.placement.forget(e.Seq)
		w.logs.deps.Work.Go(func() { w.logs.dropReplica(w.id, e.Seq, e.Node) })
	case logproto.EffectListFull:
		w.withdraw()
	case logproto.EffectDone:
		w.stop(local.ErrSealed)
		close(w.sealed)
	case logproto.EffectFailed:
		w.stop(writerError(w.m.Err()))
	}
}

func writerError(err error) error {
	var fenced *logproto.FencedError
	if errors.As(err, &fenced) {
		return fmt.Errorf("%w: %w", local.ErrFenced, err)
	}
	return fmt.Errorf("%w: %w", local.ErrLogFailed, err)
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
// cannot be created, or a list that is full or cannot be saved.
func (w *Writer) withdraw() {
	full := w.full()
	if full == nil {
		return
	}
	if w.window.withdraw(w.m.Withdraw(), full) {
		w.withdrawn = full
	}
}

// save stores the list.
func (w *Writer) save(e logproto.Effect) {
	ctx, cancel := context.WithTimeout(w.ctx, w.logs.cfg.OpenTimeout)
	defer cancel()
	gen, err := w.logs.deps.Lists.Save(ctx, w.path, EncodeList(&e.List), e.Gen)
	if e.Gen == 0 {
		moment.Pass("the list of a new log is saved", w.placement.users())
	} else {
		moment.Pass("the list of a log is saved", "")
	}
	w.eventAsync(func() {
		if err != nil {
			w.logs.deps.Logger.Warn("log list not saved, or outcome unknown", "log", w.id, "err", err)
			if errors.Is(err, local.ErrFenced) {
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
func (w *Writer) load() {
	for {
		ctx, cancel := context.WithTimeout(w.ctx, w.logs.cfg.OpenTimeout)
		l, gen, err := w.logs.load(ctx, w.path)
		cancel()
		// Also before the first use of the list: a save that failed would fail again at once.
		if timing.SleepOn(w.ctx, w.logs.deps.Clock, w.logs.cfg.Retry) != nil {
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
func (logs *Logs) cutReplica(ctx context.Context, c local.LogCut, node string, from []string) error {
	ctx, cancel := context.WithTimeout(ctx, logs.deps.CallTimeout)
	defer cancel()
	p, err := logs.deps.Peers.Any(ctx, node)
	if err != nil {
		return err
	}
	if err = p.CutLog(ctx, c); err == nil {
		return nil
	}
	var short *logproto.ShortError
	var corrupt *local.CorruptError
	if errors.As(err, &short) || errors.As(err, &corrupt) {
		return p.RefillLog(ctx, c, slices.DeleteFunc(slices.Clone(from), func(n string) bool { return n == node }))
	}
	return err
}

func (logs *Logs) dropReplica(log local.ID, seq uint64, node string) {
	ctx, cancel := context.WithTimeout(logs.ctx, logs.deps.ReplyTimeout)
	defer cancel()
	if p, err := logs.deps.Peers.Any(ctx, node); err == nil {
		_ = p.DropLog(ctx, log, seq) // what remains is garbage for the next rounds
	}
}
