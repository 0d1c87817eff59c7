package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/timing"
)

const (
	// sortsMax bounds the pieces that one server sorts at a time: each takes memory for the piece
	// twice.
	sortsMax = 2
	// sortTimeout is how long a server may take for a piece before another server gets it. 64 MiB
	// take half a second of CPU, and some seconds on a slow network. Each failed attempt doubles
	// it, up to 16 times.
	sortTimeout = 30 * time.Second
	// savePause is the pause before a recovery is read again whose save failed.
	savePause = 200 * time.Millisecond
)

// sorter has the logs of a dead server sorted by live servers, piece by piece.
type sorter struct {
	rs     Recoveries
	log    *slog.Logger
	server string // the dead server
	// alive returns a context that is cancelled when a server is known to be gone.
	alive func(server string) context.Context
	// held reports whether this node is certainly still the master.
	held func() bool

	todo   chan int      // unassigned pieces; its capacity is the number of pieces
	done   chan struct{} // closed when all are sorted
	saving chan struct{} // holds a value while the recovery is being saved
	// mu guards the fields below. Only the holder of saving changes r and gen.
	mu    sync.Mutex
	r     *Recovery
	gen   uint64
	left  int
	tries map[int]int // failed attempts by piece
	last  error       // the last failure
}

// run closes the logs, unless that was done, and has helpers sort the remaining pieces. Pieces
// sorted before, perhaps by order of another master, are not sorted again. The error is the last
// one that kept a piece from being sorted.
func (s *sorter) run(ctx context.Context, helpers []TabletServer) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.todo, s.done = make(chan int, len(s.r.Pieces)), make(chan struct{})
	s.saving, s.tries = make(chan struct{}, 1), map[int]int{}
	for i := range s.r.Pieces {
		if s.r.Pieces[i].Run == nil {
			s.todo <- i
			s.left++
		}
	}
	if s.left == 0 {
		return nil
	}
	if len(helpers) == 0 {
		return errors.New("no live server can sort the logs")
	}
	var work sync.WaitGroup
	for i := range helpers {
		for range sortsMax {
			work.Go(func() { s.help(ctx, &helpers[i]) })
		}
	}
	work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 {
		return nil
	}
	return fmt.Errorf("sort logs: %d of %d pieces remain: %w", s.left, len(s.r.Pieces), errors.Join(s.last, ctx.Err()))
}

// begin reads the progress of the recovery, or creates it.
func (s *sorter) begin(ctx context.Context) (err error) {
	if s.r, s.gen, err = s.rs.Recovery(ctx, s.server); err != nil {
		return fmt.Errorf("read recovery: %w", err)
	}
	if s.r != nil {
		return nil
	}
	s.r = &Recovery{Server: s.server}
	if s.r.Pieces, err = s.rs.EndLogs(ctx, s.server); err != nil {
		return fmt.Errorf("close logs: %w", err)
	}
	// If it was saved in spite of the error, the next attempt finds it.
	if s.gen, err = s.rs.SaveRecovery(ctx, s.r, s.gen); err != nil {
		return fmt.Errorf("create recovery: %w", err)
	}
	return nil
}

// help has one server sort pieces until all are sorted or one fails. After a failure the server
// gets no more, and its piece goes to another server.
func (s *sorter) help(ctx context.Context, by *TabletServer) {
	alive, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.alive(by.Name), cancel)()
	for {
		select {
		case <-alive.Done():
			return
		case <-s.done:
			return
		case i := <-s.todo:
			err := s.sortOne(ctx, alive, by, i)
			if err != nil {
				s.mu.Lock()
				s.tries[i]++
				s.last = err
				s.mu.Unlock()
				s.todo <- i
				s.log.Warn("log piece of dead server not sorted", "server", s.server, "sorter", by.Name, "err", err)
				return
			}
		}
	}
}

// sortOne has a piece sorted while its server is alive, and records the result.
func (s *sorter) sortOne(ctx, alive context.Context, by *TabletServer, i int) error {
	if !s.held() {
		return ErrNotMaster
	}
	s.mu.Lock()
	piece := s.r.Pieces[i]
	limit := sortTimeout << min(s.tries[i], 4)
	s.mu.Unlock()
	if piece.Run != nil {
		return nil // another master had it sorted meanwhile
	}
	short, cancel := context.WithTimeout(alive, limit)
	defer cancel()
	run, err := s.rs.Sort(short, by, s.server, &piece)
	if err == nil {
		err = s.sorted(ctx, i, run)
	}
	if err != nil {
		return fmt.Errorf("sort %d to %d of log %s: %w", piece.Start, piece.End, piece.Log, err)
	}
	return nil
}

// sorted saves a piece's run. It retries until the save succeeds, so as not to lose the work.
func (s *sorter) sorted(ctx context.Context, i int, run []byte) error {
	select {
	case s.saving <- struct{}{}:
		defer func() { <-s.saving }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for s.r.Pieces[i].Run == nil {
		next := &Recovery{Server: s.server, Pieces: slices.Clone(s.r.Pieces)}
		next.Pieces[i].Run = run
		moment.Pass("before a sorted piece is recorded", "")
		gen, err := s.rs.SaveRecovery(ctx, next, s.gen)
		if err == nil {
			s.adopt(next, gen)
		}
		// The save may have succeeded, or another master may have saved something else.
		for err != nil {
			if !s.held() {
				return errors.Join(ErrNotMaster, err)
			}
			if timing.Sleep(ctx, savePause); ctx.Err() != nil {
				return errors.Join(ctx.Err(), err)
			}
			if err = s.reread(ctx, i); errors.Is(err, errRecoveryGone) {
				return err
			}
		}
	}
	return nil
}

var errRecoveryGone = errors.New("the recovery has ended or was started again")

// reread adopts the stored recovery. Piece i must still be the same.
func (s *sorter) reread(ctx context.Context, i int) error {
	r, gen, err := s.rs.Recovery(ctx, s.server)
	if err != nil {
		return err
	}
	if was := s.r.Pieces; r == nil || len(r.Pieces) != len(was) || r.Pieces[i].Log != was[i].Log || r.Pieces[i].Start != was[i].Start {
		return errRecoveryGone
	}
	s.adopt(r, gen)
	return nil
}

// adopt replaces the recovery by the stored one.
func (s *sorter) adopt(r *Recovery, gen uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.r, s.gen = r, gen
	left := 0
	for i := range r.Pieces {
		if r.Pieces[i].Run == nil {
			left++
		}
	}
	if left == 0 && s.left > 0 {
		close(s.done)
	}
	s.left = left
}
