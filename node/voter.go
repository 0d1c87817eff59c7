package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/rpc"
)

// voter is the node's part in the Raft group of the lock service, if it has one: a
// node may be made a voter, and cease to be one, while it runs.
type voter struct {
	n      *Node
	claims net.Listener // of Raft's connections, for as long as the node runs

	// changing serializes opening and closing.
	changing sync.Mutex
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		group *raftmeta.Group
		// feed takes what claims accepts; nil while there is no group.
		feed *handedOver
		// changed is closed, and replaced, when group changes.
		changed chan struct{}
		// unheard is since when servers are looked at that have never answered.
		unheard map[string]time.Time
	}
}

// silence returns for how long a server of the group has not answered this one, which
// leads.
func (v *voter) silence(m raftmeta.Member) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if m.Contact >= 0 {
		delete(v.mu.unheard, m.ID)
		return m.Contact
	}
	since, ok := v.mu.unheard[m.ID]
	if !ok {
		since = time.Now()
		v.mu.unheard[m.ID] = since
	}
	return time.Since(since)
}

func newVoter(n *Node, claims net.Listener) *voter {
	v := &voter{n: n, claims: claims}
	v.mu.changed = make(chan struct{})
	return v
}

// group returns the node's part, nil if it has none, and a channel that is closed
// when that changes.
func (v *voter) group() (*raftmeta.Group, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.mu.group, v.mu.changed
}

// accept hands Raft's connections to the group that there is, until the server ends.
func (v *voter) accept() {
	for {
		c, err := v.claims.Accept()
		if err != nil {
			return
		}
		v.mu.Lock()
		feed := v.mu.feed
		v.mu.Unlock()
		if feed == nil || !feed.offer(c) {
			_ = c.Close()
		}
	}
}

// open opens the log in dir. With join a new log waits for the group's leader.
func (v *voter) open(dir string, join bool) error {
	n := v.n
	feed := newHandedOver(v.claims.Addr())
	log := n.log.With("part", "raftmeta")
	// Blobs and logs that are vital take half of the reserve, and need the lock service for what becomes of them: a
	// log that goes is a change of its list.
	group, err := raftmeta.Open(raftmeta.Config{
		Dir: dir, ID: n.id(), Join: join, Logger: log, OnFatal: n.fail, ReserveBytes: max(n.reserve()/4, 1),
		OnRemoved: func() {
			if err := n.stopVoting(); err != nil {
				log.Error("give up the vote", "error", err)
			}
		},
		AddressOf: func(id string) string { addr, _ := n.addressOf(id); return addr },
		ShareOf:   n.cfg.lockShare,
		Streams: &streams{
			Listener: feed, self: greeting{cluster: n.cluster(), epoch: n.raftEpoch(), from: n.id()}, resolve: n.addressOf, log: log, security: n.security,
		},
	})
	if err != nil {
		return err
	}
	v.set(group, feed)
	return nil
}

func (v *voter) set(group *raftmeta.Group, feed *handedOver) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.group, v.mu.feed = group, feed
	v.mu.unheard = map[string]time.Time{}
	close(v.mu.changed)
	v.mu.changed = make(chan struct{})
}

// close ends the node's part until the next open.
func (v *voter) close() error {
	group, _ := v.group()
	if group == nil {
		return nil
	}
	v.set(nil, nil)
	return group.Close()
}

// startVoting makes the node a server of the group: its log is there, empty, when it
// returns, and the leader may add it.
func (n *Node) startVoting(ctx context.Context, m command) error {
	n.voter.changing.Lock()
	defer n.voter.changing.Unlock()
	// Without more voters things are worse than without the key.
	if err := n.takeAuthority(ctx, []string{m.master}); err != nil && !errors.Is(err, errNoAuthority) {
		return err
	}
	if group, _ := n.voter.group(); group != nil {
		return nil
	}
	if err := n.roomToVote(); err != nil {
		return err
	}
	if own := n.raftEpoch(); m.raftEpoch != own {
		return &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true,
			Message: fmt.Sprintf("the group is of epoch %d, and node %s knows of epoch %d", m.raftEpoch, n.id(), own)}
	}
	dir := ""
	err := n.self.change(func(f *identity.Folders) (err error) {
		dir, err = f.BeginVoter(m.raftEpoch)
		return err
	})
	if err != nil {
		return err
	}
	if err := n.voter.open(dir, true); err != nil {
		return fmt.Errorf("become a voter: open the lock service's log: %w", err)
	}
	if err := n.self.change(func(f *identity.Folders) error { return f.CompleteVoter() }); err != nil {
		return errors.Join(err, n.voter.close())
	}
	n.tellOthers()
	return nil
}

// roomToVote returns an error if the disk on which the lock service's log would be has less room than what it keeps free. The log
// grows there from nothing, and a node that cannot write it ends.
func (n *Node) roomToVote() error {
	dir := n.cfg.DataDirs[0]
	if free, ok := freeBytes(dir); ok && free < n.reserve() {
		return &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true,
			Message: fmt.Sprintf("%s has %d bytes free of the %d that it keeps, too few for the lock service's log", dir, free, n.reserve())}
	}
	return nil
}

// stopVoting gives up the node's part in the group, which has removed it.
func (n *Node) stopVoting() error {
	n.voter.changing.Lock()
	defer n.voter.changing.Unlock()
	if group, _ := n.voter.group(); group == nil {
		return nil
	}
	if err := n.voter.close(); err != nil {
		return fmt.Errorf("close the lock service's log: %w", err)
	}
	if err := n.self.change(func(f *identity.Folders) error { return f.EndVoter() }); err != nil {
		return err
	}
	n.log.Info("this node votes no more in the lock service")
	n.tellOthers()
	return nil
}

// handedOver is a listener whose connections somebody else accepts.
type handedOver struct {
	addr  net.Addr
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

// handedOverMax is the number of connections that may wait for Accept.
const handedOverMax = 64

func newHandedOver(addr net.Addr) *handedOver {
	return &handedOver{addr: addr, conns: make(chan net.Conn, handedOverMax), done: make(chan struct{})}
}

// offer hands a connection over, and tells whether it was taken.
func (h *handedOver) offer(c net.Conn) bool {
	select {
	case <-h.done:
		return false
	default:
	}
	select {
	case h.conns <- c:
		return true
	default:
		return false
	}
}

// Accept implements net.Listener.
func (h *handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handedOver) Close() error {
	h.once.Do(func() { close(h.done) })
	for {
		select {
		case c := <-h.conns:
			_ = c.Close()
		default:
			return nil
		}
	}
}

// Addr implements net.Listener.
func (h *handedOver) Addr() net.Addr { return h.addr }
