package lease

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/raftmeta/api"
)

// quotaOf returns a quota without limits.
func quotaOf(owner string) *fsm.Quota {
	return &fsm.Quota{Owner: owner, Bytes: math.MaxInt64, AllBytes: math.MaxInt64, Sessions: math.MaxInt64, AllSessions: math.MaxInt64,
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
	if _, err := v.Set(ctx, "/f", nil, api.AnyGeneration, api.SetOptions{}); err != nil {
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
		return len(k.mu.waits["/l"]), k.mu.ledger.usages["ann"].bytes
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
	if len(k.mu.ledger.usages) != 2 || k.mu.ledger.allUsers.bytes != 3*264 {
		t.Errorf("%d users have %d bytes", len(k.mu.ledger.usages), k.mu.ledger.allUsers.bytes)
	}
}

// TestSetForOwner: a file that the cluster writes for a user is charged to that user's quota. An
// owner named by a user is ignored.
func TestSetForOwner(t *testing.T) {
	r, v := newSolo(t)
	v.quotaOf = func(owner string) fsm.Quota {
		quota := *quotaOf(owner)
		quota.Bytes = 300
		return quota
	}
	ctx := t.Context()
	held := func(owner string) (bytes int64) {
		v.machine.View(func(ns *fsm.Namespace, _ uint64) { bytes = ns.UsageOf(owner).Bytes })
		return bytes
	}
	if _, err := v.Set(ctx, "/f", nil, 0, api.SetOptions{Owner: "ann"}); err != nil || held("ann") != 258 {
		t.Errorf("%v, ann holds %d bytes", err, held("ann"))
	}
	proposed := r.commands[fsm.OpSet].Load()
	_, err := v.Set(ctx, "/g", nil, 0, api.SetOptions{Owner: "ann"})
	wantLimit(t, err, api.LimitUser, 300)
	if r.commands[fsm.OpSet].Load() == proposed { // an earlier attempt may be in flight
		t.Error("refused before the log has all earlier commands")
	}
	if _, err := v.Set(ctx, "/g", nil, 0, api.SetOptions{Owner: strings.Repeat("x", api.OwnerBytesMax+1)}); err != nil {
		t.Errorf("a long name: %v", err)
	}
	if _, err := (&userService{v, quotaOf("bob")}).Set(ctx, "/b", nil, 0, api.SetOptions{Owner: "carl"}); err != nil || held("bob") != 258 || held("carl") != 0 {
		t.Errorf("%v, bob holds %d bytes and carl %d", err, held("bob"), held("carl"))
	}
	if _, err := v.Set(ctx, "/f", nil, api.AnyGeneration, api.SetOptions{}); err != nil || held("ann") != 0 {
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
	if got := k.mu.ledger.usages["ann"].queued; got > queuedOfUserMax {
		t.Errorf("%d events of one user, at most %d", got, queuedOfUserMax)
	}
	k.pushLocked(node, api.Event{Kind: api.ContentsChanged, Path: "/locks/f", Index: 1})
	k.pushLocked(node, api.Event{Kind: api.ContentsChanged, Path: "/locks/f", Index: 2})
	if len(node.events) != 2 {
		t.Errorf("a node's events: %v", node.events)
	}
}
