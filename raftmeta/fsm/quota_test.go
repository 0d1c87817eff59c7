package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// usages returns what each user holds, one line per user.
func usages(ns *Namespace) string {
	var b bytes.Buffer
	ns.users.usages.Ascend(func(u *Usage) bool {
		fmt.Fprintf(&b, "%s: %d bytes, %d sessions\n", u.Owner, u.Bytes, u.Sessions)
		return true
	})
	fmt.Fprintf(&b, "all: %d bytes, %d sessions\n", ns.users.total.Bytes, ns.users.total.Sessions)
	return b.String()
}

// quotaOf returns a quota without limits.
func quotaOf(owner string) *Quota {
	return &Quota{Owner: owner, Bytes: math.MaxInt64, AllBytes: math.MaxInt64, Sessions: math.MaxInt64, AllSessions: math.MaxInt64,
		LeaderBytes: math.MaxInt64, AllLeaderBytes: math.MaxInt64}
}

// wantLimit fails the test unless err names that limit.
func wantLimit(t *testing.T, err error, what string, limit int64) {
	t.Helper()
	var e *api.TooLargeError
	if !errors.As(err, &e) || e.What != what || e.Limit != limit || e.Got <= limit {
		t.Errorf("got %v, want a %s of %d", err, what, limit)
	}
}

// TestQuotaCounts checks what each command adds to the quota of its user, and what it releases.
func TestQuotaCounts(t *testing.T) {
	ns := NewNamespace()
	index := uint64(9)
	ann, bob := quotaOf("ann"), quotaOf("bob")
	for i, step := range []struct {
		c    Command
		want string // bytes and sessions of ann and of bob
	}{
		{Command{Op: OpOpenSession, Name: "w", Duration: 2 * time.Second, Quota: ann}, "2049 1 0 0"},
		{Command{Op: OpSet, Path: "/f", Data: make([]byte, 100), Generation: api.AnyGeneration, Quota: ann}, "2407 1 0 0"},
		{Command{Op: OpSet, Path: "/f", Data: make([]byte, 10), Generation: api.AnyGeneration, Quota: ann}, "2317 1 0 0"},
		// The last writer owns the file.
		{Command{Op: OpSet, Path: "/f", Data: make([]byte, 20), Generation: api.AnyGeneration, Quota: bob}, "2049 1 278 0"},
		{Command{Op: OpSetACL, Path: "/f", Name: "acl", Quota: ann}, "2330 1 0 0"},
		{Command{Op: OpSetACL, Path: "/", Name: "acl", Quota: ann}, "2330 1 0 0"},
		{Command{Op: OpMarkCached, Path: "/f", Generation: 12}, "2330 1 0 0"},
		// A lock creates a file and its directory.
		{Command{Op: OpAcquire, Session: 10, Path: "/d/l", Mode: api.Exclusive, Duration: time.Second, Quota: ann}, "3104 1 0 0"},
		{Command{Op: OpAcquire, Session: 10, Path: "/d/l", Mode: api.Exclusive, Quota: ann}, "3104 1 0 0"},
		{Command{Op: OpSet, Path: "/d/e", Session: 10, Ephemeral: true, Generation: api.AnyGeneration, Quota: ann}, "3620 1 0 0"},
		{Command{Op: OpDelete, Path: "/f", Generation: api.AnyGeneration, Quota: bob}, "3339 1 0 0"},
		// What the cluster holds is charged to no user.
		{Command{Op: OpSet, Path: "/tables/t", Data: make([]byte, 100), Generation: api.AnyGeneration}, "3339 1 0 0"},
		{Command{Op: OpExpireSession, Sessions: []api.SessionID{10}}, "518 0 0 0"},
		{Command{Op: OpEndLockDelay, Delays: []DelayRef{{"/d/l", 22}}}, "518 0 0 0"},
		{Command{Op: OpSet, Path: "/d/l", Generation: api.AnyGeneration}, "258 0 0 0"},
		{Command{Op: OpDelete, Path: "/d/l", Generation: api.AnyGeneration}, "258 0 0 0"},
		{Command{Op: OpDelete, Path: "/d", Generation: api.AnyGeneration}, "0 0 0 0"},
	} {
		index++
		r := ns.Apply(index, 1, &step.c)
		if step.c.Op == OpMarkCached {
			r = Result{}
		}
		a, b := ns.UsageOf("ann"), ns.UsageOf("bob")
		if got := fmt.Sprint(a.Bytes, a.Sessions, b.Bytes, b.Sessions); r.Code != CodeDone || got != step.want {
			t.Errorf("step %d: code %d, %s; want %s", i, r.Code, got, step.want)
		}
		checkNamespace(t, ns)
	}
}

// TestQuotaLimits rejects what exceeds a limit, only for that user, and accepts what does not grow.
func TestQuotaLimits(t *testing.T) {
	limited := func(owner string) *Quota {
		return &Quota{Owner: owner, Bytes: 4000, AllBytes: 6000, Sessions: 1, AllSessions: 2}
	}
	ns := NewNamespace()
	index := uint64(9)
	do := func(c Command, owner string) error {
		index++
		if owner != "" {
			c.Quota = limited(owner)
		}
		before := usages(ns)
		err := ns.Apply(index, 1, &c).Err(0)
		if err != nil && usages(ns) != before {
			t.Errorf("refused with %v, and yet %s became %s", err, before, usages(ns))
		}
		return err
	}
	set := func(path string, n int) Command {
		return Command{Op: OpSet, Path: path, Data: make([]byte, n), Generation: api.AnyGeneration}
	}
	done := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	open := Command{Op: OpOpenSession, Name: "s", Duration: 2 * time.Second}
	done(do(open, "ann")) // 2049 bytes, session 10
	wantLimit(t, do(open, "ann"), api.LimitUser, 4000)
	done(do(set("/a", 4000-2049-258), "ann"))
	wantLimit(t, do(set("/b", 0), "ann"), api.LimitUser, 4000)
	wantLimit(t, do(set("/a", 4000-2049-257), "ann"), api.LimitUser, 4000)
	wantLimit(t, do(Command{Op: OpSetACL, Path: "/a", Name: "x"}, "ann"), api.LimitUser, 4000)
	wantLimit(t, do(Command{Op: OpAcquire, Session: 10, Path: "/a", Mode: api.Shared}, "ann"), api.LimitUser, 4000)
	done(do(set("/a", 4000-2049-258), "ann"))
	// Another user is not affected, until all users together are at their limit.
	done(do(set("/b", 2000-258), "bob"))
	wantLimit(t, do(set("/c", 0), "bob"), api.LimitUsers, 6000)
	// Neither is the cluster.
	done(do(set("/tables/t", 100_000), ""))
	done(do(open, ""))
	// What does not grow is accepted above a lowered limit too.
	low := set("/a", 4000-2049-300)
	low.Quota = &Quota{Owner: "ann", Bytes: 100, AllBytes: 100}
	done(do(low, ""))
	done(do(Command{Op: OpDelete, Path: "/a", Generation: api.AnyGeneration}, "ann"))
	// Sessions have a separate limit.
	roomy := limited("ann")
	roomy.Bytes, roomy.AllBytes = 1<<20, 1<<20
	more := open
	more.Quota = roomy
	wantLimit(t, do(more, ""), api.LimitUserSessions, 1)
	many := *roomy
	many.Sessions, many.AllSessions = 5, 1
	more.Quota = &many
	wantLimit(t, do(more, ""), api.LimitUsersSessions, 1)
}

// TestQuotaOfOldLog replays commands from before quotas existed: what they create belongs to the
// cluster.
func TestQuotaOfOldLog(t *testing.T) {
	m := NewMachine(func(err error) { t.Error(err) })
	for i, c := range []Command{
		{Op: OpOpenSession, Term: 1, Name: "s", Duration: 2 * time.Second},
		{Op: OpSet, Term: 1, Path: "/locks/f", Data: make([]byte, 100), Generation: api.AnyGeneration},
	} {
		m.Apply(Entry{uint64(i + 1), 1, c.Encode()})
	}
	if got := usages(m.mu.ns); got != "all: 0 bytes, 0 sessions\n" {
		t.Error(got)
	}
	c := Command{Op: OpSet, Term: 1, Path: "/locks/f", Data: make([]byte, 10), Generation: api.AnyGeneration, Quota: quotaOf("ann")}
	m.Apply(Entry{3, 1, c.Encode()})
	if got := m.mu.ns.UsageOf("ann").Bytes; got != 8+10+256 {
		t.Errorf("%d bytes", got)
	}
}
