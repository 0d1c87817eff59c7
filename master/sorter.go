package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

const (
	// sortsMax bounds the pieces that one server sorts at a time: each takes memory for the piece twice.
	sortsMax = 2
	// sortTimeout is how long a server may take for a piece before another is given it: 64 MiB take half
	// a second of a processor, and some seconds on a slow network. Each time a piece is not sorted in time
	// it gets twice as long.
	sortTimeout = 30 * time.Second
	// savePause is the pause before a recovery is saved again that may not have been.
	savePause = 200 * time.Millisecond
)

// sorter has the logs of a dead server sorted by those that live, piece by piece.
type sorter struct {
	rs     Recoveries
	log    *slog.Logger
	server string // the dead
	// alive returns a context that ends when a server is known to be gone.
	alive func(server string) context.Context
	// held says whether this is surely the master still.
	held func() bool

	todo   chan int      // pieces that nobody sorts; has room for all
	done   chan struct{} // closed when all are sorted
	saving chan struct{} // has a value while the recovery is being saved
	// mu guards what follows; who saves alone changes r and gen.
	mu    sync.Mutex
	r     *Recovery
	gen   uint64
	left  int
	tries map[int]int // of pieces that were not sorted
	last  error       // why one was not
}

// run ends the logs, if nobody has, and has what is not sorted yet sorted by helpers. What was sorted before,
// perhaps by another master's order, is not sorted again. The error is what kept some piece from
// being sorted.
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
		return errors.New("there is no server to sort its logs")
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
	return fmt.Errorf("%d of %d pieces are not sorted: %w", s.left, len(s.r.Pieces), errors.Join(s.last, ctx.Err()))
}

// begin reads how far the recovery has come, or begins it.
func (s *sorter) begin(ctx context.Context) (err error) {
	if s.r, s.gen, err = s.rs.Recovery(ctx, s.server); err != nil {
		return fmt.Errorf("read how far it has come: %w", err)
	}
	if s.r != nil {
		return nil
	}
	s.r = &Recovery{Server: s.server}
	if s.r.Pieces, err = s.rs.EndLogs(ctx, s.server); err != nil {
		return fmt.Errorf("end its logs: %w", err)
	}
	// If it was saved though there is an error, the next try finds it.
	if s.gen, err = s.rs.SaveRecovery(ctx, s.r, s.gen); err != nil {
		return fmt.Errorf("begin to sort: %w", err)
	}
	return nil
}

// help has one server sort pieces until all are sorted, or it fails: it gets no more then, and others
// what it was to sort.
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
				s.log.Warn("a piece of a dead server's log was not sorted", "server", s.server, "by", by.Name, "error", err)
				return
			}
		}
	}
}

// sortOne has a piece sorted while its server is alive, and notes that it is.
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

// sorted notes that a piece is. What cannot be saved at the moment is saved later: the work is done.
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
		gen, err := s.rs.SaveRecovery(ctx, next, s.gen)
		if err == nil {
			s.adopt(next, gen)
		}
		// It may be saved, or another master may have saved something else.
		for err != nil {
			if !s.held() {
				return errors.Join(ErrNotMaster, err)
			}
			if pause(ctx, savePause); ctx.Err() != nil {
				return errors.Join(ctx.Err(), err)
			}
			if err = s.reread(ctx, i); errors.Is(err, errRecoveryGone) {
				return err
			}
		}
	}
	return nil
}

var errRecoveryGone = errors.New("its recovery has ended, or begun anew")

// reread takes over what is saved of the recovery. Piece i must be the same still.
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

// adopt takes what is saved.
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
