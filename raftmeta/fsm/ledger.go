package fsm

import (
	"github.com/google/btree"

	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/raftmeta/api"
)

// Usage is what one owner holds. It is immutable once it is in a namespace.
type Usage struct {
	Owner    string
	Bytes    int64
	Sessions int64
}

func usageLess(a, b *Usage) bool { return a.Owner < b.Owner }

// ledger has the usage of each user, and of all users together.
type ledger struct {
	usages *btree.BTreeG[*Usage]
	total  Usage
}

func newLedger() ledger { return ledger{usages: btree.NewG(treeDegree, usageLess)} }

// clone returns an independent copy, in constant time.
func (l *ledger) clone() ledger { return ledger{usages: l.usages.Clone(), total: l.total} }

// of returns the usage of an owner, zero if it holds nothing.
func (l *ledger) of(owner string) Usage {
	if u, ok := l.usages.Get(&Usage{Owner: owner}); ok {
		return *u
	}
	return Usage{Owner: owner}
}

// largest returns the largest usage of one owner, in bytes.
func (l *ledger) largest() (most int64) {
	l.usages.Ascend(func(u *Usage) bool {
		most = max(most, u.Bytes)
		return true
	})
	return most
}

// charge adds to the usage of an owner; negative numbers are released. Nothing is counted for the
// cluster, whose owner is empty.
func (l *ledger) charge(owner string, bytes, sessions int64) {
	if owner == "" || bytes == 0 && sessions == 0 {
		return
	}
	u := l.of(owner)
	u.Bytes += bytes
	u.Sessions += sessions
	invariant.Check(u.Bytes >= 0 && u.Sessions >= 0, "a user is charged %d bytes and %d sessions", u.Bytes, u.Sessions)
	l.total.Bytes += bytes
	l.total.Sessions += sessions
	if u.Bytes == 0 && u.Sessions == 0 {
		l.usages.Delete(&u)
		return
	}
	l.usages.ReplaceOrInsert(&u)
}

// fits returns CodeDone if the quota has space for additional bytes and sessions of its owner. A
// change that does not grow always fits, so that an owner above a lowered limit can still release
// what it holds.
func (l *ledger) fits(quota *Quota, bytes, sessions int64) Result {
	if quota == nil {
		return Result{}
	}
	own := l.of(quota.Owner)
	for _, limit := range []struct {
		what            string
		grows, got, max int64
	}{
		{api.LimitUser, bytes, own.Bytes + bytes, quota.Bytes},
		{api.LimitUsers, bytes, l.total.Bytes + bytes, quota.AllBytes},
		{api.LimitUserSessions, sessions, own.Sessions + sessions, quota.Sessions},
		{api.LimitUsersSessions, sessions, l.total.Sessions + sessions, quota.AllSessions},
	} {
		if limit.grows > 0 && limit.got > limit.max {
			return Result{Code: CodeQuota, reason: limit.what, size: limit.got, limit: limit.max}
		}
	}
	return Result{}
}

// UsageOf returns the usage of an owner, zero if it holds nothing.
func (ns *Namespace) UsageOf(owner string) Usage { return ns.users.of(owner) }

// LargestUsage returns the largest usage of one owner, in bytes.
func (ns *Namespace) LargestUsage() int64 { return ns.users.largest() }
