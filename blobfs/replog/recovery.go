package replog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/timing"
)

// Open fences and closes a server's log and opens it for reading. The writer gets no more
// acknowledgements, and every later Open reads the same payloads. It waits until ctx ends for one
// replica of each extent. It returns local.ErrNoLog, ErrNoReplica with the errors of the nodes if
// ctx ended, or the error of the lists.
func (logs *Logs) Open(ctx context.Context, server string, id local.ID) (*Reader, error) {
	l, err := logs.endLog(ctx, server, id)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", id, err)
	}
	_, end := l.Sealed()
	return logs.newReader(id, l, 0, Piece{l.Start, end}), nil
}

// endLog fences and truncates a log, and returns its closed list.
func (logs *Logs) endLog(ctx context.Context, server string, id local.ID) (*logproto.List, error) {
	if err := logs.usable(ctx); err != nil {
		return nil, err
	}
	l, err := logs.recoverLog(ctx, listPath(server, id), id)
	if err != nil {
		return nil, err
	}
	return l, logs.cutLog(ctx, id, l)
}

// ErrNoReplica means that no replica with the acknowledged data of an extent is reachable.
var ErrNoReplica = errors.New("no replica of a log extent is reachable")

// recoverLog fences a log and records its end. Of concurrent recoveries the last one to begin wins,
// and all return the same end.
func (logs *Logs) recoverLog(ctx context.Context, path string, id local.ID) (*logproto.List, error) {
	for {
		r := &recovery{logs: logs, id: id, path: path, m: logproto.NewRecoverer(rand.Uint64()|1, false), replies: make(chan func(), 64)}
		l, err := r.run(ctx)
		if !errors.Is(err, logproto.ErrLost) {
			return l, err
		}
		if timing.SleepOn(ctx, logs.deps.Clock, logs.cfg.Retry/2+time.Duration(rand.Int64N(int64(logs.cfg.Retry)))) != nil {
			return nil, ctx.Err()
		}
	}
}

// recovery drives a logproto.Recoverer.
type recovery struct {
	logs *Logs
	id   local.ID
	path string
	m    *logproto.Recoverer
	// claimed is the epoch of the list in the lock service, as last read or saved.
	claimed uint64
	// replies are the answers of nodes, to be run by the goroutine that owns m.
	replies    chan func()
	fencing    sync.WaitGroup
	last       error         // the last error of a node that could not be fenced
	missing    error         // local.ErrNoLog
	lastWarned time.Duration // when a warning was last logged, or the first failure
}

func (r *recovery) run(ctx context.Context) (*logproto.List, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(r.logs.ctx, cancel)
	defer func() {
		stop()
		cancel()
		go func() { // no longer read
			for range r.replies {
			}
		}()
		r.fencing.Wait()
		close(r.replies)
	}()
	var grace <-chan time.Time
	long := false // grace is the longer one, for an end that is not sure
	for {
		if err := r.act(ctx); err != nil {
			return nil, err
		}
		switch {
		case r.missing != nil:
			return nil, r.missing
		case r.m.Err() != nil:
			return nil, r.m.Err()
		case r.m.Done():
			l, _ := r.m.List()
			return &l, nil
		case r.m.Ready() && !r.m.Waiting():
			moment.Pass("replicas of a log are fenced", "")
			r.m.Decide()
			continue
		case r.m.Ready() && (grace == nil || long && r.m.Sure()):
			// One replica is enough. With more of them fenced, fewer have to be refilled. And a
			// restarted replica may have lost its end to corruption, which another replica would
			// show.
			wait := r.logs.cfg.Retry / 2
			if long = !r.m.Sure(); long {
				wait = r.logs.deps.ReplyTimeout
			}
			var stopGrace func()
			grace, stopGrace = r.logs.deps.Clock.Timer(wait)
			defer stopGrace()
		}
		select {
		case f := <-r.replies:
			f()
		case <-grace:
			r.m.Decide()
		case <-ctx.Done():
			return nil, errors.Join(ErrNoReplica, ctx.Err(), r.last)
		}
	}
}

// act applies the effects of the state machine.
func (r *recovery) act(ctx context.Context) error {
	for {
		effects := r.m.Take()
		if len(effects) == 0 {
			return nil
		}
		all := append([]logproto.Effect(nil), effects...)
		for _, e := range all {
			switch e.Kind {
			case logproto.EffectLoad:
				l, gen, err := r.logs.load(ctx, r.path)
				if err != nil {
					return err
				}
				if gen == 0 {
					r.missing = local.ErrNoLog
					return nil
				}
				r.claimed = l.Epoch
				r.m.Loaded(l, gen)
			case logproto.EffectSave:
				moment.Pass("before the list of a recovered log is saved", "")
				gen, err := r.logs.deps.Lists.Save(ctx, r.path, EncodeList(&e.List), e.Gen)
				moment.Pass("the list of a recovered log is saved", "")
				if err == nil {
					r.claimed = e.List.Epoch
					r.m.Saved(gen)
				} else if ctx.Err() != nil || errors.Is(err, local.ErrFenced) || timing.SleepOn(ctx, r.logs.deps.Clock, r.logs.cfg.Retry/4) != nil {
					return errors.Join(err, ctx.Err())
				} else {
					r.m.Unsaved()
				}
			case logproto.EffectFence:
				// Before, the writer could register an extent that this recovery does not fence (L2).
				invariant.Check(e.Epoch <= r.claimed, "a recovery fences at epoch %d, and the list has %d", int64(e.Epoch), int64(r.claimed))
				r.fencing.Go(func() { r.fence(ctx, e.Node, e.Epoch) })
			}
		}
	}
}

// fence fences one node, and retries until it succeeds or ctx ends.
func (r *recovery) fence(ctx context.Context, node string, epoch uint64) {
	for ctx.Err() == nil {
		states, err := r.fenceOnce(ctx, node, epoch)
		var fenced *logproto.FencedError
		switch {
		case err == nil:
			r.replies <- func() { r.m.Fenced(node, states) }
			return
		case errors.As(err, &fenced):
			r.replies <- func() { r.m.Refused(fenced.Epoch) }
			return
		}
		r.replies <- func() { r.failed(node, err) }
		_ = timing.SleepOn(ctx, r.logs.deps.Clock, r.logs.cfg.Retry)
	}
}

// failed records why a node could not be fenced, and warns every waitingPeriod.
func (r *recovery) failed(node string, err error) {
	r.last = nodeError(node, err)
	now := r.logs.deps.Clock.Now()
	if r.lastWarned == 0 {
		r.lastWarned = now
	}
	if !r.m.Ready() && now-r.lastWarned >= waitingPeriod {
		r.lastWarned = now
		r.logs.deps.Logger.Warn("log recovery waits for one replica of each open extent: start the nodes that have them",
			"log", r.id, "err", r.last)
	}
}

// nodeError wraps err with the name of its node.
func nodeError(node string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", node, err)
}

func (r *recovery) fenceOnce(ctx context.Context, node string, epoch uint64) ([]logproto.State, error) {
	ctx, cancel := context.WithTimeout(ctx, r.logs.deps.CallTimeout)
	defer cancel()
	p, err := r.logs.deps.Peers.Any(ctx, node)
	if err != nil {
		return nil, err
	}
	return p.FenceLog(ctx, r.id, epoch)
}

// cutLog truncates the replicas of a log to the lengths in its list. It returns once one replica of
// each extent is truncated; the others follow in the background.
func (logs *Logs) cutLog(ctx context.Context, id local.ID, l *logproto.List) error {
	start := l.Start
	for _, x := range l.Extents {
		c := local.LogCut{Log: id, CutRequest: logproto.CutRequest{Seq: x.Seq, Epoch: l.Epoch, Start: start, Length: x.Length}}
		start += x.Length
		if x.Length == 0 {
			continue
		}
		if err := logs.cutExtent(ctx, c, x.Replicas); err != nil {
			return fmt.Errorf("extent %d: %w", x.Seq, err)
		}
	}
	return nil
}

// waitingPeriod is the interval between warnings about a waiting recovery.
const waitingPeriod = 10 * time.Second

// cutExtent retries until one replica is truncated, or ctx ends.
func (logs *Logs) cutExtent(ctx context.Context, c local.LogCut, nodes []string) error {
	lastWarned := logs.deps.Clock.Now() - waitingPeriod
	for {
		done := make(chan error, len(nodes))
		for _, node := range nodes {
			if !logs.deps.Work.Go(func() { done <- nodeError(node, logs.cutReplica(logs.ctx, c, node, nodes)) }) {
				return local.ErrClosed
			}
		}
		var errs []error
		for range nodes {
			select {
			case err := <-done:
				if err == nil {
					return nil
				}
				errs = append(errs, err)
			case <-ctx.Done():
				return errors.Join(append(errs, ErrNoReplica, ctx.Err())...)
			}
		}
		if now := logs.deps.Clock.Now(); now-lastWarned >= waitingPeriod {
			lastWarned = now
			logs.deps.Logger.Warn("log recovery waits for a replica: start the nodes that have one, with their disks",
				"log", c.Log, "extent", c.Seq, "bytes", c.Length, "nodes", nodes, "err", errors.Join(errs...))
		}
		if timing.SleepOn(ctx, logs.deps.Clock, logs.cfg.Retry) != nil {
			return errors.Join(append(errs, ErrNoReplica, ctx.Err())...)
		}
	}
}

// Remove removes a server's log. The caller has made sure that no tablet needs it and none ever will:
// invariant T4 of package tablet for a server's own log, A2 of package master for a dead server's.
// Remove does not check that. The change of the list is guarded by the server lock of this node, not
// by the mastership: a removal by a former master takes effect, and is right. The writer gets no more
// acknowledgements once the replicas are gone. Garbage collection removes replicas on nodes that do
// not answer. It returns local.ErrNoLog if there is no such log.
func (logs *Logs) Remove(ctx context.Context, server string, id local.ID) error {
	if err := logs.usable(ctx); err != nil {
		return fmt.Errorf("remove log %s: %w", id, err)
	}
	path := listPath(server, id)
	for {
		l, gen, err := logs.load(ctx, path)
		if err == nil && gen == 0 {
			err = local.ErrNoLog
		}
		if err != nil {
			return fmt.Errorf("remove log %s: %w", id, err)
		}
		// A writer must not continue in a removed log. A new epoch fences a writer with an older
		// list.
		if !l.Closed {
			l.Epoch, l.Owner = l.Epoch+1, rand.Uint64()|1
			if gen, err = logs.deps.Lists.Save(ctx, path, EncodeList(&l), gen); err != nil {
				if timing.SleepOn(ctx, logs.deps.Clock, logs.cfg.Retry/4) != nil {
					return fmt.Errorf("remove log %s: %w", id, errors.Join(err, ctx.Err()))
				}
				continue
			}
		}
		if err := logs.deps.Lists.Delete(ctx, path, gen); err != nil {
			return fmt.Errorf("remove log %s: %w", id, err)
		}
		for _, x := range l.Extents {
			for _, node := range x.Replicas {
				logs.deps.Work.Go(func() { logs.dropReplica(id, x.Seq, node) })
			}
		}
		return nil
	}
}
