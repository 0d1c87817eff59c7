package lockclient

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/rpc"
)

// Config has what the client needs. All fields are required.
type Config struct {
	Ctx     context.Context // ends when the node closes
	Log     *slog.Logger
	Name    string // the node's name
	Self    *identity.Self
	Meta    *namespace.Access
	Catalog *namespace.Catalog
	// Group returns the node's Raft group; nil if the node does not vote.
	Group func() Group
	// Members returns the members by gossip; none if gossip is off. Addresses returns the known addresses of the other nodes.
	Members   func() []gossip.Member
	Addresses func() []string
	// Connect connects to a node of the cluster at an address.
	Connect func(ctx context.Context, addr string) (*rpc.Conn, error)
}

// Group is the part of the node's Raft group that the client needs.
type Group interface {
	Service() metaapi.Service
	// OnlyMember reports whether the node is the group's only member.
	OnlyMember() bool
}

// Client is the node's client of the lock service.
type Client struct {
	Config
	// lock is the lock that makes this process the node, held by the session lockOf. Both are set by hold, which has one caller at a time.
	lock   atomic.Pointer[session.Lock]
	lockOf *session.Session
}

// New returns a client without a session.
func New(cfg Config) *Client { return &Client{Config: cfg} }

// ServerLock returns the lock that makes this process the node, which may be lost; nil before the first.
func (cl *Client) ServerLock() *session.Lock { return cl.lock.Load() }

// Guard makes a write depend on this process being the node.
func (cl *Client) Guard() metaapi.SetOptions {
	return metaapi.SetOptions{Guard: cl.ServerLock().Sequencer()}
}

// Open opens the node's first session with the lock service.
func (cl *Client) Open(ctx context.Context) (err error) {
	cl.Meta.Client, err = session.NewClient(session.Config{
		Locator: leaderLocator{cl}, Dialer: leaderDialer{cl}, Logger: cl.Log.With("part", "session"),
	})
	if err != nil {
		return err
	}
	return cl.UntilLeader(ctx, func(ctx context.Context) error { return cl.Meta.Open(ctx, cl.sessionName()) })
}

// sessionName is the name of the node's sessions, which lock conflicts report.
func (cl *Client) sessionName() string { return cl.Name + " " + cl.Self.ID() }

// sessionRetry is the pause between attempts to open a session.
const sessionRetry = 500 * time.Millisecond

// UntilLeader calls f until the lock service has answered, or ctx ends. That the leader's disk is full, or the outcome of a change unknown,
// counts as no answer. So f must be safe to repeat.
func (cl *Client) UntilLeader(ctx context.Context, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if !isNoAnswer(err) || ctx.Err() != nil {
			return err
		}
		cl.Log.Warn("lock service unavailable; retrying", "err", err)
		timing.Sleep(ctx, sessionRetry)
	}
}

// isNoAnswer reports whether a call should be repeated.
func isNoAnswer(err error) bool {
	return errors.Is(err, metaapi.ErrNotReady) || errors.Is(err, metaapi.ErrDiskFull) || errors.Is(err, metaapi.ErrOutcomeUnknown)
}
