package voter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/raftstreams"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/raftmeta/storage"
	"github.com/steledb/stele/rpc"
)

// Config has what a voter needs. All fields are required, except where they state what nil means.
type Config struct {
	Ctx context.Context // ends when the node closes
	Log *slog.Logger
	// Claims accepts Raft's connections, while the node runs.
	Claims  net.Listener
	Self    *identity.Self
	Catalog *namespace.Catalog
	// AddressOf returns the current address of a node, Addresses those of all other nodes that are known.
	AddressOf func(id string) (string, bool)
	Addresses func() []string
	// Members returns the nodes that gossip knows, with their epochs.
	Members func() []gossip.Member
	// Dial connects to a node at an address, DialAny to any node of the cluster at one.
	Dial    func(ctx context.Context, id, addr string) (net.Conn, error)
	DialAny func(ctx context.Context, addr string) (net.Conn, error)
	// RequireNode returns an error unless the connection is from that node. Nil on an open node.
	RequireNode func(c net.Conn, id string) error
	// FS is the file system of the data directories. Nil means the operating system's. OpenLog opens the store of the Raft log; nil means bbolt.
	FS      vfs.FS
	OpenLog storage.OpenFunc
	// SnapshotBytes and TrailingLogs are those of raftmeta.Config.
	SnapshotBytes int64
	TrailingLogs  uint64
	// QuotaOf returns what a user may hold of the lock service.
	QuotaOf func(owner string) raftmeta.Quota
	// Reserve returns the free disk space, in bytes, that the log leaves to others.
	Reserve func() int64
	// CheckSpace returns an error if the disk for the log has too little free space.
	CheckSpace func() error
	// TakeAuthority fetches the authority's key for a node that is about to vote, from the master.
	TakeAuthority func(ctx context.Context, master string) error
	// Publish is called when the node's vote or epoch has changed, Enter with what a start waits for.
	Publish func()
	Enter   func(stage string)
	// Fail stops the node.
	Fail func(error)
}

// Voter is the node's member of the Raft group of the lock service, if any. A node may become a voter, and stop being one, while it
// runs.
type Voter struct {
	Config
	// leaderless is the time since which the node's own group has had no leader; zero if it has one. Owned by checkEpochs.
	leaderless time.Time
	// started is when Start was called: gossip publishes the node's epoch at least since.
	started time.Time
	// changing serializes opening and closing. Held across I/O, and before mu.
	changing sync.Mutex
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		group *raftmeta.Group
		// feed receives what Claims accepts; nil while there is no group.
		feed *raftstreams.Feed
		// changed is closed, and replaced, when group changes.
		changed chan struct{}
		// unheard has the time since which servers that never answered have been observed.
		unheard map[string]time.Time
	}
}

// New returns a voter without a group.
func New(cfg Config) *Voter {
	v := &Voter{Config: cfg}
	v.mu.changed = make(chan struct{})
	return v
}

// Group returns the node's Raft group, nil if it has none, and a channel that is closed when that changes.
func (v *Voter) Group() (*raftmeta.Group, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mu.group, v.mu.changed
}

// DiskFull reports whether the disk of the node's Raft log is full, and whether it has one.
func (v *Voter) DiskFull() (full, votes bool) {
	group, _ := v.Group()
	return group != nil && group.DiskFull(), group != nil
}

// Votes reports whether the node votes, and returns a channel that is closed when that changes.
func (v *Voter) Votes() (votes bool, changed <-chan struct{}) {
	group, changed := v.Group()
	return group != nil, changed
}

// VotesToo reports whether the node's group has that node, too.
func (v *Voter) VotesToo(id string) bool {
	group, _ := v.Group()
	return group != nil && slices.ContainsFunc(group.Members(), func(m raftmeta.Member) bool { return m.ID == id })
}

// Lock prevents the node from becoming a voter, or no longer being one, until Unlock.
func (v *Voter) Lock() { v.changing.Lock() }

// Unlock ends Lock.
func (v *Voter) Unlock() { v.changing.Unlock() }

// Accept passes Raft's connections to the current group, until the server ends.
func (v *Voter) Accept() {
	for {
		c, err := v.Claims.Accept()
		if err != nil {
			return
		}
		v.mu.Lock()
		feed := v.mu.feed
		v.mu.Unlock()
		if feed == nil || !feed.Offer(c) {
			_ = c.Close()
		}
	}
}

// open opens the Raft log in dir. With an invitation, a new log waits for the leader of the group that invites the node.
func (v *Voter) open(dir string, i *raftmeta.Invitation) error {
	join, invitation := i != nil, raftmeta.Invitation{}
	if join {
		invitation = *i
	}
	feed := raftstreams.NewFeed(v.Claims.Addr())
	log := v.Log.With("part", "raftmeta")
	// High-priority blobs and logs use half of the reserve, and need the lock service: deleting
	// a log changes its list.
	group, err := raftmeta.Open(raftmeta.Config{
		FS: v.FS, OpenLog: v.OpenLog, Dir: dir, ID: v.Self.ID(), Join: join, Invitation: invitation, Logger: log, OnFatal: v.Fail, ReserveBytes: max(v.Reserve()/4, 1),
		SnapshotBytes: v.SnapshotBytes, TrailingLogs: v.TrailingLogs,
		OnRemoved: func() {
			if err := v.stopVoting(); err != nil {
				log.Error("voting not stopped", "err", err)
			}
		},
		AddressOf: func(id string) string { addr, _ := v.AddressOf(id); return addr },
		QuotaOf:   v.QuotaOf,
		Streams: raftstreams.New(raftstreams.Config{
			Listener: feed, Cluster: v.Self.Cluster(), Epoch: v.Self.RaftEpoch(), Node: v.Self.ID(), Resolve: v.AddressOf,
			Dial: v.Dial, RequireNode: v.RequireNode, Log: log,
		}),
	})
	if err != nil {
		return err
	}
	v.set(group, feed)
	return nil
}

// set replaces the group, and the feed of its connections.
func (v *Voter) set(group *raftmeta.Group, feed *raftstreams.Feed) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.group, v.mu.feed = group, feed
	v.mu.unheard = map[string]time.Time{}
	close(v.mu.changed)
	v.mu.changed = make(chan struct{})
}

// close closes the node's Raft group until the next open.
func (v *Voter) close() error {
	group, _ := v.Group()
	if group == nil {
		return nil
	}
	v.set(nil, nil)
	return group.Close()
}

// Stop closes the node's Raft group when the node stops.
func (v *Voter) Stop() error {
	v.changing.Lock()
	defer v.changing.Unlock()
	return v.close()
}

// handOverTimeout bounds the transfer of leadership before the node stops.
const handOverTimeout = 3 * time.Second

// TransferLeadership makes another voter the leader, if the node leads, so that the others need not detect that this node is gone.
func (v *Voter) TransferLeadership(ctx context.Context) {
	group, _ := v.Group()
	if group == nil || len(group.Members()) < 2 {
		return
	}
	if leads, _ := group.Leads(); !leads {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	if err := group.TransferLeadership(ctx, ""); err != nil {
		v.Log.Info("leadership of the lock service not transferred", "err", err)
	}
}

// StartVoting makes the node a server of the group that invites it. When it returns, the node has a log with the invitation, which is empty
// unless the node had one already, and the leader may add the node.
func (v *Voter) StartVoting(ctx context.Context, m command.Header, i master.Invitation) error {
	v.changing.Lock()
	defer v.changing.Unlock()
	if err := v.TakeAuthority(ctx, m.Master); err != nil {
		return err
	}
	// An invitation must not be used late: the node may have been a voter since.
	if err := ctx.Err(); err != nil {
		return err
	}
	if own := v.Self.RaftEpoch(); m.RaftEpoch != own {
		return &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true,
			Message: fmt.Sprintf("the group has epoch %d, but node %s has epoch %d", m.RaftEpoch, v.Self.ID(), own)}
	}
	if group, _ := v.Group(); group != nil {
		return group.Invited(raftmeta.Invitation(i))
	}
	if err := v.CheckSpace(); err != nil {
		return err
	}
	return v.join(m.RaftEpoch, raftmeta.Invitation(i))
}

// join creates an empty log with an invitation to the group of that epoch. The caller holds changing.
func (v *Voter) join(epoch uint64, i raftmeta.Invitation) error {
	dir := ""
	err := v.Self.Change(func(f *identity.Folders) (err error) {
		dir, err = f.BeginVoter(epoch)
		return err
	})
	if err != nil {
		return err
	}
	if err := v.open(dir, &i); err != nil {
		return fmt.Errorf("become a voter: open the lock service's log: %w", err)
	}
	if err := v.Self.Change(func(f *identity.Folders) error { return f.CompleteVoter() }); err != nil {
		return errors.Join(err, v.close())
	}
	v.Publish()
	return nil
}

// stopVoting closes the node's log after the group has removed the node.
func (v *Voter) stopVoting() error {
	v.changing.Lock()
	defer v.changing.Unlock()
	if group, _ := v.Group(); group == nil {
		return nil
	}
	if err := v.close(); err != nil {
		return fmt.Errorf("close the lock service's log: %w", err)
	}
	if err := v.Self.Change(func(f *identity.Folders) error { return f.EndVoter() }); err != nil {
		return err
	}
	v.Log.Info("node stopped voting in the lock service")
	v.Publish()
	return nil
}

// Start opens the node's Raft group, if it has one, and reports whether that founds the cluster.
func (v *Voter) Start(ctx context.Context) (founding bool, err error) {
	v.started = time.Now()
	if err := v.checkReturn(ctx); err != nil {
		return false, err
	}
	v.changing.Lock()
	defer v.changing.Unlock()
	dir := ""
	v.Self.View(func(f *identity.Folders) {
		founding = f.Founding
		if f.Voter() || f.Founding {
			dir = f.RaftDir()
		}
	})
	if dir == "" {
		return false, nil
	}
	if err := v.open(dir, nil); err != nil {
		return false, fmt.Errorf("open the lock service: %w", err)
	}
	// A single voter becomes leader at once; searching for a leader would take longer.
	if group, _ := v.Group(); group.OnlyMember() {
		if err := group.WaitReady(ctx); err != nil {
			return false, fmt.Errorf("wait for the lock service: %w", err)
		}
	}
	return founding, nil
}
