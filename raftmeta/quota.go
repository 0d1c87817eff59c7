package raftmeta

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
	// Owner is the name of the user: 1 to OwnerBytesMax bytes.
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

// OwnerBytesMax bounds Quota.Owner.
const OwnerBytesMax = api.OwnerBytesMax

// The charge for each item beside its path, content and name, in bytes. Measured: a file takes 185
// bytes, a session with a lock 400, and with a pending KeepAlive up to 2 KiB on the leader. The
// state machine adds these up, so they must never change.
const (
	nodeOverhead    = 256
	holdOverhead    = 256
	sessionOverhead = 2048
)

// usage is what one owner holds. It is immutable once it is in a namespace.
type usage struct {
	owner    string
	bytes    int64
	sessions int64
}

func usageLess(a, b *usage) bool { return a.owner < b.owner }

// usageOf returns the usage of an owner, zero if it holds nothing.
func (ns *namespace) usageOf(owner string) usage {
	if u, ok := ns.usages.Get(&usage{owner: owner}); ok {
		return *u
	}
	return usage{owner: owner}
}

// charge adds to the usage of an owner; negative numbers are released. Nothing is counted for the
// cluster, whose owner is empty.
func (ns *namespace) charge(owner string, bytes, sessions int64) {
	if owner == "" || bytes == 0 && sessions == 0 {
		return
	}
	u := ns.usageOf(owner)
	u.bytes += bytes
	u.sessions += sessions
	ns.used.bytes += bytes
	ns.used.sessions += sessions
	if u.bytes == 0 && u.sessions == 0 {
		ns.usages.Delete(&u)
		return
	}
	ns.usages.ReplaceOrInsert(&u)
}

// charged returns the charge for a node to its owner. The root has no owner.
func (n *node) charged() int64 {
	if n.owner == "" {
		return 0
	}
	return n.size() + nodeOverhead
}

func (s *sessionState) charged() int64 { return sessionOverhead + int64(len(s.name)) }

// fits returns codeDone if the quota has space for additional bytes and sessions of its owner. A
// change that does not grow always fits, so that an owner above a lowered limit can still release
// what it holds.
func (ns *namespace) fits(quota *Quota, bytes, sessions int64) result {
	if quota == nil {
		return result{}
	}
	own := ns.usageOf(quota.Owner)
	for _, l := range []struct {
		what              string
		grows, got, limit int64
	}{
		{api.LimitUser, bytes, own.bytes + bytes, quota.Bytes},
		{api.LimitUsers, bytes, ns.used.bytes + bytes, quota.AllBytes},
		{api.LimitUserSessions, sessions, own.sessions + sessions, quota.Sessions},
		{api.LimitUsersSessions, sessions, ns.used.sessions + sessions, quota.AllSessions},
	} {
		if l.grows > 0 && l.got > l.limit {
			return result{code: codeQuota, reason: l.what, size: l.got, limit: l.limit}
		}
	}
	return result{}
}

// checkQuota returns codeDone if the quota of c has space for what c would add, or if c has no
// quota. It checks nothing else about c.
func (ns *namespace) checkQuota(c *command) result {
	if c.quota == nil {
		return result{}
	}
	switch c.op {
	case opSet:
		bytes := ns.fileGrowth(c.path, c.quota.Owner, int64(len(c.data)))
		if c.ephemeral && ns.get(c.path) == nil {
			bytes += holdOverhead
		}
		return ns.fits(c.quota, bytes, 0)
	case opSetACL:
		n := ns.get(c.path)
		if n == nil || n.path == root {
			return result{}
		}
		grown := *n
		grown.owner, grown.acl = c.quota.Owner, &aclState{name: c.name}
		return ns.fits(c.quota, grown.charged()-n.chargedTo(c.quota.Owner), 0)
	case opAcquire:
		if _, held := ns.holds.Get(hold{session: c.session, path: c.path}); held {
			return result{}
		}
		bytes := int64(holdOverhead)
		if ns.get(c.path) == nil {
			bytes += ns.fileGrowth(c.path, c.quota.Owner, 0)
		}
		return ns.fits(c.quota, bytes, 0)
	case opOpenSession:
		s := sessionState{name: c.name}
		return ns.fits(c.quota, s.charged(), 1)
	}
	return result{}
}

// chargedTo returns the charge for a node to owner.
func (n *node) chargedTo(owner string) int64 {
	if n.owner != owner {
		return 0
	}
	return n.charged()
}

// fileGrowth returns by how much the usage of owner grows if it writes data bytes to the file at
// path, including missing parent directories.
func (ns *namespace) fileGrowth(path, owner string, data int64) int64 {
	if n := ns.get(path); n != nil {
		grown := n.size() - int64(len(n.data)) + data + nodeOverhead
		return grown - n.chargedTo(owner)
	}
	bytes := int64(len(path)) + data + nodeOverhead
	for dir, _ := split(path); dir != "" && ns.get(dir) == nil; dir, _ = split(dir) {
		bytes += int64(len(dir)) + nodeOverhead
	}
	return bytes
}

// recount recomputes the usage of all owners.
func (ns *namespace) recount() {
	ns.usages.Clear(false)
	ns.used = usage{}
	ns.sessions.Ascend(func(s *sessionState) bool {
		if s.owner != "" {
			ns.charge(s.owner, s.charged()+int64(s.holds)*holdOverhead, 1)
		}
		return true
	})
	ns.nodes.Ascend(func(n *node) bool {
		ns.charge(n.owner, n.charged(), 0)
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
	if s.Owner == "" || len(s.Owner) > OwnerBytesMax {
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
