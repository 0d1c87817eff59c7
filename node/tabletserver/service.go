package tabletserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/budget"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/roots"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/tablet"
)

// Config is what the package needs.
type Config struct {
	Ctx        context.Context // of the node
	Background *sync.WaitGroup
	Log        *slog.Logger
	ID         func() string // of the node
	Addr       func() string // of the node's port
	Locks      Locks
	Catalog    *namespace.Catalog
	Table      func() *metarows.Table
	Roots      *roots.Reader
	Store      func() *blobfs.Store
	Members    Members
	// MetadataNodes returns the nodes that METADATA's tablets are believed to be on.
	MetadataNodes func() []string
	Commands      *command.Service
	Fail          func(error) // ends the node
	Budget        budget.Budget
	Reservation   *budget.Reservation
	// Sizes are those of tablets and of commit logs.
	Sizes Sizes
}

// Locks holds the lock of the node's server file.
type Locks interface {
	ServerLock() *session.Lock
	// Hold acquires another lock after the current one is lost.
	Hold(ctx context.Context) error
}

// Members has the nodes of the block store.
type Members interface {
	Members() []blobfs.Member
	// Changed is closed when Members changes.
	Changed() <-chan struct{}
}

// Service has the node's current tablet server.
type Service struct {
	Config
	current atomic.Pointer[Server] // or the last one; nil before the first
	// sorting is a semaphore of the pieces of dead servers' logs that are sorted here.
	sorting chan struct{}
}

// New creates a service without a server.
func New(cfg Config) *Service {
	return &Service{Config: cfg, sorting: make(chan struct{}, cfg.Budget.Sorts)}
}

// Current returns the current tablet server, or the last one. It is nil before Start has returned.
func (s *Service) Current() *Server { return s.current.Load() }

// Users returns the tablet server of users' tables. It may be closed, and then serves nothing.
func (s *Service) Users() *tablet.Server { return s.Current().Users }

// Metadata returns the tablet server of METADATA.
func (s *Service) Metadata() *tablet.Server { return s.Current().Metadata }

// Of returns the tablet server of a table.
func (s *Service) Of(table string) *tablet.Server {
	if table == metadata.Name {
		return s.Metadata()
	}
	return s.Users()
}

// Stats returns the sum of both servers' statistics.
func (s *Service) Stats() tablet.Stats {
	t, m := s.Users().Stats(), s.Metadata().Stats()
	t.Add(&m)
	return t
}

// Leased reports whether the node's lock is certainly held, or it has none yet.
func (s *Service) Leased() bool {
	c := s.Current()
	return c == nil || c.Serving() == nil
}

// Start opens the tablet server, under another lock if the current one is lost meanwhile: a commit log can be begun only under a lock.
func (s *Service) Start(ctx context.Context) error {
	for {
		lock := s.Locks.ServerLock()
		err := s.Open(ctx, lock)
		if err == nil || ctx.Err() != nil || !lostSoon(ctx, lock, err) {
			return err
		}
		s.Log.Warn("server lock lost during the start; acquiring it again", "err", err)
		if err := s.Locks.Hold(ctx); err != nil {
			return err
		}
	}
}

// Restart opens another tablet server under another lock. The last one has lost its lock.
func (s *Service) Restart(ctx context.Context) error {
	err := s.Current().closeWithin(context.Background())
	if err == nil || ctx.Err() == nil {
		err = s.Locks.Hold(ctx)
	}
	if err != nil {
		return err
	}
	return s.Start(ctx)
}

// CancelWaits cancels what waits for the commit logs, before Close.
func (s *Service) CancelWaits() {
	if c := s.Current(); c != nil {
		c.Users.CancelWaits()
		c.Metadata.CancelWaits()
	}
}

// Close closes the current server, if any. It waits for commits that were accepted until ctx ends.
func (s *Service) Close(ctx context.Context) error {
	if c := s.Current(); c != nil {
		return c.closeWithin(ctx)
	}
	return nil
}

// lostSoon reports whether the lock is lost. If the log is fenced, the lock is lost, and the session learns of it within fencedWait.
func lostSoon(ctx context.Context, lock *session.Lock, err error) bool {
	if errors.Is(err, blobfs.ErrFenced) {
		t := time.NewTimer(fencedWait)
		defer t.Stop()
		select {
		case <-lock.Done():
		case <-ctx.Done():
		case <-t.C:
		}
	}
	select {
	case <-lock.Done():
		return true
	default:
		return false
	}
}

// fencedWait bounds the time between the fencing of the log and the session's learning that the lock is lost: longer than a session
// may be in jeopardy.
const fencedWait = time.Minute

// Register registers the master's commands to the tablet server.
func (s *Service) Register(r method.Registrar) {
	for method, do := range map[string]func(context.Context, *Server, *command.Request) (reply.Result, error){
		command.MethodHeld: func(_ context.Context, s *Server, _ *command.Request) (reply.Result, error) { return s.held(), nil },
		command.MethodLoad: func(ctx context.Context, s *Server, r *command.Request) (reply.Result, error) {
			err := s.Load(ctx, r.Key, r.Generation)
			if errors.Is(err, metarows.ErrNoRow) || errors.Is(err, metarows.ErrChanged) {
				err = reply.Recode(api.ErrConflict, err)
			}
			return nil, err
		},
		command.MethodUnload: func(ctx context.Context, s *Server, r *command.Request) (reply.Result, error) {
			generation, err := s.Unload(ctx, r.Key)
			return func(e *wire.Encoder) { e.Uint(generation) }, err
		},
		command.MethodMerge: func(ctx context.Context, s *Server, r *command.Request) (reply.Result, error) {
			return nil, s.Merge(ctx, r.Key, r.Upper)
		},
		command.MethodSort: func(ctx context.Context, s *Server, r *command.Request) (reply.Result, error) { return s.sort(ctx, r) },
	} {
		r.Handle(method, rpc.Waiting, authz.Guard{}, func(c *rpc.Call) {
			var q command.Request
			if err := q.Decode(&c.Params, c.NumParams, method); err != nil {
				c.Fail(&rpc.Error{Code: rpc.CodeBadRequest, Message: fmt.Sprintf("%s: %v", method, err)})
				return
			}
			a, err := s.execute(c, &q, do)
			if err != nil {
				c.Fail(reply.ToAPI(err))
				return
			}
			c.Reply(a)
		})
	}
}

// execute executes a command if it comes from the master and is for the current tablet server.
func (s *Service) execute(c *rpc.Call, r *command.Request, do func(context.Context, *Server, *command.Request) (reply.Result, error)) (reply.Result, error) {
	current := s.Current()
	if current == nil || !current.is(r.Server) {
		return nil, &rpc.Error{Code: rpc.CodeUnavailable, Message: fmt.Sprintf("tablet server %s is not running here", r.Server)}
	}
	if err := s.Commands.Admit(c, r.Header); err != nil {
		return nil, err
	}
	return do(c.Context(), current, r)
}
