package fsm

import (
	"math"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/raftmeta/api"
)

// Quota is the quota of a user in the lock service: it names the user, and bounds what that user
// and all users together may hold. The cluster itself acts without a quota and is bounded only by
// the constants of the namespace. What quotas leave free is therefore reserved for the cluster.
//
// The leader adds the quota to commands that allocate memory, and the state machine compares it
// with its own count. So each limit is exact, all voters compute the same result, and a leader with
// more memory may allow more.
type Quota struct {
	// Owner is the name of the user: 1 to api.OwnerBytesMax bytes.
	Owner string
	// Bytes and AllBytes bound the memory of files, locks and sessions of the user, and of all
	// users together, in bytes: see nodeOverhead.
	Bytes, AllBytes int64
	// Sessions and AllSessions bound the open sessions of the user, and of all users together.
	Sessions, AllSessions int64
	// LeaderBytes and AllLeaderBytes bound the memory, in bytes, that the leader alone keeps for
	// sessions of the user, and of all users together: watches, waiting Acquires, and files that
	// clients cache.
	LeaderBytes, AllLeaderBytes int64
}

// The charge for each item beside its path, content and name, in bytes. Measured: a file takes 185
// bytes, a session with a lock 400, and with a pending KeepAlive up to 2 KiB on the leader. The
// state machine adds these up, so they must never change.
const (
	nodeOverhead    = 256
	holdOverhead    = 256
	sessionOverhead = 2048
)

// charged returns the charge for a node to its owner. The root has no owner.
func (n *Node) charged() int64 {
	if n.owner == "" {
		return 0
	}
	return n.size() + nodeOverhead
}

func (s *Session) charged() int64 { return sessionOverhead + int64(len(s.Name)) }

// CheckQuota returns CodeDone if the quota of c has space for what c would add, or if c has no
// quota. It checks nothing else about c.
func (ns *Namespace) CheckQuota(c *Command) Result {
	if c.Quota == nil {
		return Result{}
	}
	switch c.Op {
	case OpSet:
		bytes := ns.fileGrowth(c.Path, c.Quota.Owner, int64(len(c.Data)))
		if c.Ephemeral && ns.Get(c.Path) == nil {
			bytes += holdOverhead
		}
		return ns.users.fits(c.Quota, bytes, 0)
	case OpSetACL:
		n := ns.Get(c.Path)
		if n == nil || n.Path == root {
			return Result{}
		}
		grown := *n
		grown.owner, grown.acl = c.Quota.Owner, &aclState{name: c.Name}
		return ns.users.fits(c.Quota, grown.charged()-n.chargedTo(c.Quota.Owner), 0)
	case OpAcquire:
		if _, held := ns.holds.Get(hold{session: c.Session, path: c.Path}); held {
			return Result{}
		}
		bytes := int64(holdOverhead)
		if ns.Get(c.Path) == nil {
			bytes += ns.fileGrowth(c.Path, c.Quota.Owner, 0)
		}
		return ns.users.fits(c.Quota, bytes, 0)
	case OpOpenSession:
		s := Session{Name: c.Name}
		return ns.users.fits(c.Quota, s.charged(), 1)
	}
	return Result{}
}

// chargedTo returns the charge for a node to owner.
func (n *Node) chargedTo(owner string) int64 {
	if n.owner != owner {
		return 0
	}
	return n.charged()
}

// fileGrowth returns by how much the usage of owner grows if it writes data bytes to the file at
// path, including missing parent directories.
func (ns *Namespace) fileGrowth(path, owner string, data int64) int64 {
	if n := ns.Get(path); n != nil {
		grown := n.size() - int64(len(n.Data)) + data + nodeOverhead
		return grown - n.chargedTo(owner)
	}
	bytes := int64(len(path)) + data + nodeOverhead
	for dir, _ := split(path); dir != "" && ns.Get(dir) == nil; dir, _ = split(dir) {
		bytes += int64(len(dir)) + nodeOverhead
	}
	return bytes
}

// recount recomputes the usage of all owners.
func (ns *Namespace) recount() {
	ns.users = newLedger()
	ns.sessions.Ascend(func(s *Session) bool {
		if s.Owner != "" {
			ns.users.charge(s.Owner, s.charged()+int64(s.Holds)*holdOverhead, 1)
		}
		return true
	})
	ns.nodes.Ascend(func(n *Node) bool {
		ns.users.charge(n.owner, n.charged(), 0)
		return true
	})
}

// encode encodes the part of a quota that the state machine uses.
func (s *Quota) encode(e *wire.Encoder) {
	e.Array(5)
	e.Str(s.Owner)
	e.Uint(uint64(s.Bytes))
	e.Uint(uint64(s.AllBytes))
	e.Uint(uint64(s.Sessions))
	e.Uint(uint64(s.AllSessions))
}

func decodeQuota(d *wire.Decoder) *Quota {
	if d.Array() != 5 {
		d.Fail(errShape)
		return nil
	}
	s := &Quota{Owner: d.Str()}
	if s.Owner == "" || len(s.Owner) > api.OwnerBytesMax {
		d.Fail(errShape)
	}
	for _, field := range []*int64{&s.Bytes, &s.AllBytes, &s.Sessions, &s.AllSessions} {
		n := d.Uint()
		if n > math.MaxInt64 {
			d.Fail(errShape)
		}
		*field = int64(n)
	}
	return s
}
