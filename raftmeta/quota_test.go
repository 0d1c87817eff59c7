package raftmeta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/steledb/stele/raftmeta/api"
)

// usages returns what each user holds, one line per user.
func usages(ns *namespace) string {
	var b bytes.Buffer
	ns.usages.Ascend(func(u *usage) bool {
		fmt.Fprintf(&b, "%s: %d bytes, %d sessions\n", u.owner, u.bytes, u.sessions)
		return true
	})
	fmt.Fprintf(&b, "all: %d bytes, %d sessions\n", ns.used.bytes, ns.used.sessions)
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
	var e *TooLargeError
	if !errors.As(err, &e) || e.What != what || e.Limit != limit || e.Got <= limit {
		t.Errorf("got %v, want a %s of %d", err, what, limit)
	}
}

// TestQuotaCounts checks what each command adds to the quota of its user, and what it releases.
func TestQuotaCounts(t *testing.T) {
	ns := newNamespace()
	index := uint64(9)
	ann, bob := quotaOf("ann"), quotaOf("bob")
	for i, step := range []struct {
		c    command
		want string // bytes and sessions of ann and of bob
	}{
		{command{op: opOpenSession, name: "w", duration: 2 * time.Second, quota: ann}, "2049 1 0 0"},
		{command{op: opSet, path: "/f", data: make([]byte, 100), generation: AnyGeneration, quota: ann}, "2407 1 0 0"},
		{command{op: opSet, path: "/f", data: make([]byte, 10), generation: AnyGeneration, quota: ann}, "2317 1 0 0"},
		// The last writer owns the file.
		{command{op: opSet, path: "/f", data: make([]byte, 20), generation: AnyGeneration, quota: bob}, "2049 1 278 0"},
		{command{op: opSetACL, path: "/f", name: "acl", quota: ann}, "2330 1 0 0"},
		{command{op: opSetACL, path: "/", name: "acl", quota: ann}, "2330 1 0 0"},
		{command{op: opMarkCached, path: "/f", generation: 12}, "2330 1 0 0"},
		// A lock creates a file and its directory.
		{command{op: opAcquire, session: 10, path: "/d/l", mode: api.Exclusive, duration: time.Second, quota: ann}, "3104 1 0 0"},
		{command{op: opAcquire, session: 10, path: "/d/l", mode: api.Exclusive, quota: ann}, "3104 1 0 0"},
		{command{op: opSet, path: "/d/e", session: 10, ephemeral: true, generation: AnyGeneration, quota: ann}, "3620 1 0 0"},
		{command{op: opDelete, path: "/f", generation: AnyGeneration, quota: bob}, "3339 1 0 0"},
		// What the cluster holds is charged to no user.
		{command{op: opSet, path: "/tables/t", data: make([]byte, 100), generation: AnyGeneration}, "3339 1 0 0"},
		{command{op: opExpireSession, sessions: []api.SessionID{10}}, "518 0 0 0"},
		{command{op: opEndLockDelay, delays: []delayRef{{"/d/l", 22}}}, "518 0 0 0"},
		{command{op: opSet, path: "/d/l", generation: AnyGeneration}, "258 0 0 0"},
		{command{op: opDelete, path: "/d/l", generation: AnyGeneration}, "258 0 0 0"},
		{command{op: opDelete, path: "/d", generation: AnyGeneration}, "0 0 0 0"},
	} {
		index++
		r := ns.apply(index, 1, &step.c)
		if step.c.op == opMarkCached {
			r = result{}
		}
		a, b := ns.usageOf("ann"), ns.usageOf("bob")
		if got := fmt.Sprint(a.bytes, a.sessions, b.bytes, b.sessions); r.code != codeDone || got != step.want {
			t.Errorf("step %d: code %d, %s; want %s", i, r.code, got, step.want)
		}
		checkNamespace(t, ns)
	}
}

// TestQuotaLimits rejects what exceeds a limit, only for that user, and accepts what does not grow.
func TestQuotaLimits(t *testing.T) {
	limited := func(owner string) *Quota {
		return &Quota{Owner: owner, Bytes: 4000, AllBytes: 6000, Sessions: 1, AllSessions: 2}
	}
	ns := newNamespace()
	index := uint64(9)
	do := func(c command, owner string) error {
		index++
		if owner != "" {
			c.quota = limited(owner)
		}
		before := usages(ns)
		err := ns.apply(index, 1, &c).error(0)
		if err != nil && usages(ns) != before {
			t.Errorf("refused with %v, and yet %s became %s", err, before, usages(ns))
		}
		return err
	}
	set := func(path string, n int) command {
		return command{op: opSet, path: path, data: make([]byte, n), generation: AnyGeneration}
	}
	done := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	open := command{op: opOpenSession, name: "s", duration: 2 * time.Second}
	done(do(open, "ann")) // 2049 bytes, session 10
	wantLimit(t, do(open, "ann"), api.LimitUser, 4000)
	done(do(set("/a", 4000-2049-258), "ann"))
	wantLimit(t, do(set("/b", 0), "ann"), api.LimitUser, 4000)
	wantLimit(t, do(set("/a", 4000-2049-257), "ann"), api.LimitUser, 4000)
	wantLimit(t, do(command{op: opSetACL, path: "/a", name: "x"}, "ann"), api.LimitUser, 4000)
	wantLimit(t, do(command{op: opAcquire, session: 10, path: "/a", mode: api.Shared}, "ann"), api.LimitUser, 4000)
	done(do(set("/a", 4000-2049-258), "ann"))
	// Another user is not affected, until all users together are at their limit.
	done(do(set("/b", 2000-258), "bob"))
	wantLimit(t, do(set("/c", 0), "bob"), api.LimitUsers, 6000)
	// Neither is the cluster.
	done(do(set("/tables/t", 100_000), ""))
	done(do(open, ""))
	// What does not grow is accepted above a lowered limit too.
	low := set("/a", 4000-2049-300)
	low.quota = &Quota{Owner: "ann", Bytes: 100, AllBytes: 100}
	done(do(low, ""))
	done(do(command{op: opDelete, path: "/a", generation: AnyGeneration}, "ann"))
	// Sessions have a separate limit.
	roomy := limited("ann")
	roomy.Bytes, roomy.AllBytes = 1<<20, 1<<20
	more := open
	more.quota = roomy
	wantLimit(t, do(more, ""), api.LimitUserSessions, 1)
	many := *roomy
	many.Sessions, many.AllSessions = 5, 1
	more.quota = &many
	wantLimit(t, do(more, ""), api.LimitUsersSessions, 1)
}

// TestQuotaOfOldLog replays commands from before quotas existed: what they create belongs to the
// cluster.
func TestQuotaOfOldLog(t *testing.T) {
	m := newMachine(func(err error) { t.Error(err) })
	for i, c := range []command{
		{op: opOpenSession, term: 1, name: "s", duration: 2 * time.Second},
		{op: opSet, term: 1, path: "/locks/f", data: make([]byte, 100), generation: AnyGeneration},
	} {
		m.Apply(&raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand, Data: c.encode()})
	}
	if got := usages(m.mu.ns); got != "all: 0 bytes, 0 sessions\n" {
		t.Error(got)
	}
	c := command{op: opSet, term: 1, path: "/locks/f", data: make([]byte, 10), generation: AnyGeneration, quota: quotaOf("ann")}
	m.Apply(&raft.Log{Index: 3, Term: 1, Type: raft.LogCommand, Data: c.encode()})
	if got := m.mu.ns.usageOf("ann").bytes; got != 8+10+256 {
		t.Errorf("%d bytes", got)
	}
}

// TestQuotaFills has a user fill the lock service until it is rejected. Nothing more of that user
// gets into the log, and another user and the cluster are not affected. The same holds after a
// restart, from the log and from a snapshot.
func TestQuotaFills(t *testing.T) {
	dir := t.TempDir()
	g := openGroup(t, Config{Dir: dir})
	limits := Quota{Bytes: 1 << 20, AllBytes: 3 << 20, Sessions: 10, AllSessions: 20, LeaderBytes: 1000, AllLeaderBytes: 1500}
	as := func(g *Group, owner string) api.Service {
		quota := limits
		quota.Owner = owner
		return g.ServiceFor(quota)
	}
	fill := func(g *Group) (files int, err error) {
		for {
			if _, err = as(g, "ann").Set(t.Context(), fmt.Sprintf("/locks/ann/%d", files), make([]byte, 100<<10), 0, api.SetOptions{}); err != nil {
				return files, err
			}
			files++
		}
	}
	files, err := fill(g)
	wantLimit(t, err, api.LimitUser, 1<<20)
	if files != 10 {
		t.Errorf("%d files of 100 KiB in 1 MiB", files)
	}
	others := func(g *Group, n int) {
		t.Helper()
		last := g.Stats().LastIndex
		_, err := as(g, "ann").Set(t.Context(), "/locks/ann/more", make([]byte, 100<<10), AnyGeneration, api.SetOptions{})
		wantLimit(t, err, api.LimitUser, 1<<20)
		if _, _, err := as(g, "ann").OpenSession(t.Context(), "s", 0); err != nil {
			t.Errorf("a session of ann with some KiB left: %v", err)
		}
		if got := g.Stats().LastIndex; got > last+1 {
			t.Errorf("what was refused has taken %d entries of the log", got-last-1)
		}
		if _, err := as(g, "bob").Set(t.Context(), fmt.Sprintf("/locks/bob/%d", n), make([]byte, 100<<10), 0, api.SetOptions{}); err != nil {
			t.Errorf("another user: %v", err)
		}
		mustSet(t, g, fmt.Sprintf("/tables/%d", n), string(make([]byte, 200<<10)), 0)
	}
	others(g, 1)
	want := usages(g.machine.mu.ns)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}

	g = openGroup(t, Config{Dir: dir})
	if got := usages(g.machine.mu.ns); got != want {
		t.Errorf("after a restart: %s, want %s", got, want)
	}
	others(g, 2)
	if err := g.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	want = usages(g.machine.mu.ns)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}

	g = openGroup(t, Config{Dir: dir})
	if got := usages(g.machine.mu.ns); got != want {
		t.Errorf("after a restart from a snapshot: %s, want %s", got, want)
	}
	others(g, 3)
	if err := as(g, "ann").Delete(t.Context(), "/locks/ann/0", AnyGeneration, api.SetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := as(g, "ann").Set(t.Context(), "/locks/ann/0", make([]byte, 50<<10), 0, api.SetOptions{}); err != nil {
		t.Errorf("after a file was deleted: %v", err)
	}
	if s := g.Stats(); s.Users != 2 || s.UsersBytes < 1<<20 || s.UsersBytesMost > 1<<20 || s.UsersSessions != 3 {
		t.Errorf("stats: %+v", s)
	}
}

// TestQuotaOfLeader bounds what the leader keeps for the sessions of a user.
func TestQuotaOfLeader(t *testing.T) {
	_, v := newSolo(t)
	quota := *quotaOf("ann")
	quota.LeaderBytes, quota.AllLeaderBytes = 1000, 1500
	ann := &userService{v, &quota}
	other := quota
	other.Owner = "bob"
	bob := &userService{v, &other}
	ctx := t.Context()
	a, _, err := ann.OpenSession(ctx, "a", 0)
	b, _, err2 := bob.OpenSession(ctx, "b", 0)
	n, _, err3 := v.OpenSession(ctx, "node", 0)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	watch := func(s api.Service, id api.SessionID, path string) error {
		_, err := s.Watch(ctx, id, path, api.ContentsChanged, 0)
		return err
	}
	for _, path := range []string{"/locks/1", "/locks/2", "/locks/3", "/locks/3"} { // 264 bytes each
		if err := watch(ann, a, path); err != nil {
			t.Fatal(err)
		}
	}
	wantLimit(t, watch(ann, a, "/locks/4"), api.LimitUserWatches, 1000)
	a2, _, err := ann.OpenSession(ctx, "a2", 0)
	if err != nil {
		t.Fatal(err)
	}
	wantLimit(t, watch(ann, a2, "/locks/4"), api.LimitUserWatches, 1000)
	for _, path := range []string{"/locks/1", "/locks/2"} {
		if err := watch(bob, b, path); err != nil {
			t.Errorf("another user: %v", err)
		}
	}
	wantLimit(t, watch(bob, b, "/locks/3"), api.LimitUsersWatches, 1500)
	if err := watch(v, n, "/tables/t"); err != nil {
		t.Errorf("a node: %v", err)
	}
	// A file that a client may cache counts as well; without space there is no permission.
	if _, err := v.Set(ctx, "/f", nil, AnyGeneration, api.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	for s, want := range map[api.SessionID]bool{a: false, n: true} {
		svc := api.Service(ann)
		if s == n {
			svc = v
		}
		if _, perm, err := svc.Get(ctx, "/f", s); err != nil || perm.OK != want {
			t.Errorf("session %d: permission %v, %v; want %v", s, perm.OK, err, want)
		}
	}
	// So does an Acquire that waits, which a session without space may not.
	if _, err := v.Acquire(ctx, n, "/l", api.Exclusive, 0, 0); err != nil {
		t.Fatal(err)
	}
	_, err = ann.Acquire(ctx, a2, "/l", api.Exclusive, time.Hour, 0)
	wantLimit(t, err, api.LimitUserWatches, 1000)
	if _, err := ann.Acquire(ctx, a2, "/l", api.Exclusive, 0, 0); !errors.Is(err, api.ErrLocked) {
		t.Errorf("an acquire that does not wait: %v", err)
	}
	roomy := &userService{v, quotaOf("ann")}
	k, _, _ := v.current()
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	waited := make(chan error)
	go func() { _, err := roomy.Acquire(short, a2, "/l", api.Exclusive, time.Hour, 0); waited <- err }()
	tallied := func() (waiting int, bytes int64) {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.mu.waits["/l"]), k.mu.usages["ann"].bytes
	}
	waiting, bytes := tallied()
	for ; waiting == 0; waiting, bytes = tallied() {
		runtime.Gosched()
	}
	if bytes != 3*264+waitOverhead+2 {
		t.Errorf("%d bytes while an acquire waits", bytes)
	}
	cancel()
	<-waited
	if _, bytes := tallied(); bytes != 3*264 {
		t.Errorf("%d bytes after it was given up", bytes)
	}
	if err := ann.CloseSession(ctx, a); err != nil {
		t.Fatal(err)
	}
	if err := watch(ann, a2, "/locks/4"); err != nil {
		t.Errorf("after a session was closed: %v", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.mu.usages) != 2 || k.mu.allUsers.bytes != 3*264 {
		t.Errorf("%d users have %d bytes", len(k.mu.usages), k.mu.allUsers.bytes)
	}
}

// TestSetForOwner: a file that the cluster writes for a user is charged to that user's quota. An
// owner named by a user is ignored.
func TestSetForOwner(t *testing.T) {
	r, v := newSolo(t)
	v.quotaOf = func(owner string) Quota {
		quota := *quotaOf(owner)
		quota.Bytes = 300
		return quota
	}
	ctx := t.Context()
	held := func(owner string) (bytes int64) {
		v.machine.view(func(ns *namespace, _ uint64) { bytes = ns.usageOf(owner).bytes })
		return bytes
	}
	if _, err := v.Set(ctx, "/f", nil, 0, api.SetOptions{Owner: "ann"}); err != nil || held("ann") != 258 {
		t.Errorf("%v, ann holds %d bytes", err, held("ann"))
	}
	proposed := r.commands[opSet].Load()
	_, err := v.Set(ctx, "/g", nil, 0, api.SetOptions{Owner: "ann"})
	wantLimit(t, err, api.LimitUser, 300)
	if r.commands[opSet].Load() == proposed { // an earlier attempt may be in flight
		t.Error("refused before the log has all earlier commands")
	}
	if _, err := v.Set(ctx, "/g", nil, 0, api.SetOptions{Owner: strings.Repeat("x", OwnerBytesMax+1)}); err != nil {
		t.Errorf("a long name: %v", err)
	}
	if _, err := (&userService{v, quotaOf("bob")}).Set(ctx, "/b", nil, 0, api.SetOptions{Owner: "carl"}); err != nil || held("bob") != 258 || held("carl") != 0 {
		t.Errorf("%v, bob holds %d bytes and carl %d", err, held("bob"), held("carl"))
	}
	if _, err := v.Set(ctx, "/f", nil, AnyGeneration, api.SetOptions{}); err != nil || held("ann") != 0 {
		t.Errorf("%v, ann holds %d bytes of a file that the cluster has written", err, held("ann"))
	}
}

// TestQuotaOfEvents has a user's sessions leave their events unacknowledged: those of other
// sessions are kept.
func TestQuotaOfEvents(t *testing.T) {
	_, v := newSolo(t)
	ann := &userService{v, quotaOf("ann")}
	ctx := t.Context()
	n, _, err := v.OpenSession(ctx, "node", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Watch(ctx, n, "/locks/f", api.ContentsChanged, 0); err != nil {
		t.Fatal(err)
	}
	k, _, _ := v.current()
	k.mu.Lock()
	node := k.mu.sessions[n]
	k.mu.Unlock()
	for range queuedOfUserMax/queueMax + 1 {
		id, _, err := ann.OpenSession(ctx, "s", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		k.mu.Lock()
		for s := k.mu.sessions[id]; len(s.events) < queueMax-1; {
			k.pushLocked(s, api.Event{Kind: api.ContentsChanged, Path: "/locks/f"})
			if len(s.events) == 1 && s.events[0].Kind == api.FailedOver {
				break // they gave way
			}
		}
		k.mu.Unlock()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if got := k.mu.usages["ann"].queued; got > queuedOfUserMax {
		t.Errorf("%d events of one user, at most %d", got, queuedOfUserMax)
	}
	k.pushLocked(node, api.Event{Kind: api.ContentsChanged, Path: "/locks/f", Index: 1})
	k.pushLocked(node, api.Event{Kind: api.ContentsChanged, Path: "/locks/f", Index: 2})
	if len(node.events) != 2 {
		t.Errorf("a node's events: %v", node.events)
	}
}
