package blobfs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/timing"
)

// OpenSpreadLog fences and closes a server's log and opens it for reading. The writer gets no more
// acknowledgements, and every later OpenSpreadLog reads the same payloads. It waits until ctx ends
// for one replica of each extent. It returns ErrNoLog, ErrNoReplica with the errors of the nodes if
// ctx ended, or the error of the lists.
func (s *Store) OpenSpreadLog(ctx context.Context, server string, id ID) (*SpreadLogReader, error) {
	l, err := s.endLog(ctx, server, id)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", id, err)
	}
	_, end := l.Sealed()
	return s.newLogReader(id, l, 0, LogPiece{l.Start, end}), nil
}

// endLog fences and truncates a log, and returns its closed list.
func (s *Store) endLog(ctx context.Context, server string, id ID) (*logproto.List, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	l, err := s.recoverLog(ctx, logPath(server, id), id)
	if err != nil {
		return nil, err
	}
	return l, s.cutLog(ctx, id, l)
}

// ErrNoReplica means that no replica with the acknowledged data of an extent is reachable.
var ErrNoReplica = errors.New("no replica of a log extent is reachable")

// recoverLog fences a log and records its end. Of concurrent recoveries the last one to begin wins,
// and all return the same end.
func (s *Store) recoverLog(ctx context.Context, path string, id ID) (*logproto.List, error) {
	for {
		r := &logRecovery{s: s, id: id, path: path, m: logproto.NewRecoverer(rand.Uint64()|1, false), replies: make(chan func(), 64)}
		l, err := r.run(ctx)
		if !errors.Is(err, logproto.ErrLost) {
			return l, err
		}
		if timing.SleepOn(ctx, s.cluster.Clock, s.cluster.Logs.Retry/2+time.Duration(rand.Int64N(int64(s.cluster.Logs.Retry)))) != nil {
			return nil, ctx.Err()
		}
	}
}

// logRecovery drives a logproto.Recoverer.
type logRecovery struct {
	s    *Store
	id   ID
	path string
	m    *logproto.Recoverer
	// replies are the answers of nodes, to be run by the goroutine that owns m.
	replies    chan func()
	fencing    sync.WaitGroup
	last       error         // the last error of a node that could not be fenced
	missing    error         // ErrNoLog
	lastWarned time.Duration // when a warning was last logged, or the first failure
}

func (r *logRecovery) run(ctx context.Context) (*logproto.List, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(r.s.ctx, cancel)
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
			r.m.Decide()
			continue
		case r.m.Ready() && (grace == nil || long && r.m.Sure()):
			// One replica is enough. With more of them fenced, fewer have to be refilled. And a
			// restarted replica may have lost its end to corruption, which another replica would
			// show.
			wait := r.s.cluster.Logs.Retry / 2
			if long = !r.m.Sure(); long {
				wait = r.s.cluster.ReplyTimeout
			}
			var stopGrace func()
			grace, stopGrace = r.s.cluster.Clock.Timer(wait)
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
func (r *logRecovery) act(ctx context.Context) error {
	for {
		effects := r.m.Take()
		if len(effects) == 0 {
			return nil
		}
		all := append([]logproto.Effect(nil), effects...)
		for _, e := range all {
			switch e.Kind {
			case logproto.EffectLoad:
				l, gen, err := r.s.loadLogList(ctx, r.path)
				if err != nil {
					return err
				}
				if gen == 0 {
					r.missing = ErrNoLog
					return nil
				}
				r.m.Loaded(l, gen)
			case logproto.EffectSave:
				gen, err := r.s.cluster.Lists.Save(ctx, r.path, EncodeLogList(&e.List), e.Gen)
				if err == nil {
					r.m.Saved(gen)
				} else if ctx.Err() != nil || errors.Is(err, ErrFenced) || timing.SleepOn(ctx, r.s.cluster.Clock, r.s.cluster.Logs.Retry/4) != nil {
					return errors.Join(err, ctx.Err())
				} else {
					r.m.Unsaved()
				}
			case logproto.EffectFence:
				r.fencing.Go(func() { r.fence(ctx, e.Node, e.Epoch) })
			}
		}
	}
}

// fence fences one node, and retries until it succeeds or ctx ends.
func (r *logRecovery) fence(ctx context.Context, node string, epoch uint64) {
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
		_ = timing.SleepOn(ctx, r.s.cluster.Clock, r.s.cluster.Logs.Retry)
	}
}

// failed records why a node could not be fenced, and warns every waitingPeriod.
func (r *logRecovery) failed(node string, err error) {
	r.last = nodeError(node, err)
	now := r.s.cluster.Clock.Now()
	if r.lastWarned == 0 {
		r.lastWarned = now
	}
	if !r.m.Ready() && now-r.lastWarned >= waitingPeriod {
		r.lastWarned = now
		r.s.log.Warn("log recovery waits for one replica of each open extent: start the nodes that have them",
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

func (r *logRecovery) fenceOnce(ctx context.Context, node string, epoch uint64) ([]logproto.State, error) {
	ctx, cancel := context.WithTimeout(ctx, r.s.cluster.SealTimeout)
	defer cancel()
	p, err := r.s.peers.Any(ctx, node)
	if err != nil {
		return nil, err
	}
	return p.FenceLog(ctx, r.id, epoch)
}

// cutLog truncates the replicas of a log to the lengths in its list. It returns once one replica of
// each extent is truncated; the others follow in the background.
func (s *Store) cutLog(ctx context.Context, id ID, l *logproto.List) error {
	start := l.Start
	for _, x := range l.Extents {
		c := local.LogCut{Log: id, CutRequest: logproto.CutRequest{Seq: x.Seq, Epoch: l.Epoch, Start: start, Length: x.Length}}
		start += x.Length
		if x.Length == 0 {
			continue
		}
		if err := s.cutExtent(ctx, c, x.Replicas); err != nil {
			return fmt.Errorf("extent %d: %w", x.Seq, err)
		}
	}
	return nil
}

// waitingPeriod is the interval between warnings about a waiting recovery.
const waitingPeriod = 10 * time.Second

// cutExtent retries until one replica is truncated, or ctx ends.
func (s *Store) cutExtent(ctx context.Context, c local.LogCut, nodes []string) error {
	lastWarned := s.cluster.Clock.Now() - waitingPeriod
	for {
		done := make(chan error, len(nodes))
		for _, node := range nodes {
			if !s.work.Go(func() { done <- nodeError(node, s.cutReplica(s.ctx, c, node, nodes)) }) {
				return ErrClosed
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
		if now := s.cluster.Clock.Now(); now-lastWarned >= waitingPeriod {
			lastWarned = now
			s.log.Warn("log recovery waits for a replica: start the nodes that have one, with their disks",
				"log", c.Log, "extent", c.Seq, "bytes", c.Length, "nodes", nodes, "err", errors.Join(errs...))
		}
		if timing.SleepOn(ctx, s.cluster.Clock, s.cluster.Logs.Retry) != nil {
			return errors.Join(append(errs, ErrNoReplica, ctx.Err())...)
		}
	}
}

// RemoveSpreadLog removes a server's log. The writer gets no more acknowledgements once the
// replicas are gone. Garbage collection removes replicas on nodes that do not answer. It returns
// ErrNoLog if there is no such log.
func (s *Store) RemoveSpreadLog(ctx context.Context, server string, id ID) error {
	if err := s.usable(ctx); err != nil {
		return fmt.Errorf("remove log %s: %w", id, err)
	}
	path := logPath(server, id)
	for {
		l, gen, err := s.loadLogList(ctx, path)
		if err == nil && gen == 0 {
			err = ErrNoLog
		}
		if err != nil {
			return fmt.Errorf("remove log %s: %w", id, err)
		}
		// A writer must not continue in a removed log. A new epoch fences a writer with an older
		// list.
		if !l.Closed {
			l.Epoch, l.Owner = l.Epoch+1, rand.Uint64()|1
			if gen, err = s.cluster.Lists.Save(ctx, path, EncodeLogList(&l), gen); err != nil {
				if timing.SleepOn(ctx, s.cluster.Clock, s.cluster.Logs.Retry/4) != nil {
					return fmt.Errorf("remove log %s: %w", id, errors.Join(err, ctx.Err()))
				}
				continue
			}
		}
		if err := s.cluster.Lists.Delete(ctx, path, gen); err != nil {
			return fmt.Errorf("remove log %s: %w", id, err)
		}
		for _, x := range l.Extents {
			for _, node := range x.Replicas {
				s.work.Go(func() { s.dropReplica(id, x.Seq, node) })
			}
		}
		return nil
	}
}
