package raftmeta

import (
	"errors"
	"fmt"
	"testing"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/raftmeta/api"
)

// TestQuotaFills has a user fill the lock service until it is rejected. Nothing more of that user
// gets into the log, and another user and the cluster are not affected. The same holds after a
// restart, from the log and from a snapshot.
func TestQuotaFills(t *testing.T) {
	dir := t.TempDir()
	g := openGroup(t, Config{Dir: dir})
	limits := fsm.Quota{Bytes: 1 << 20, AllBytes: 3 << 20, Sessions: 10, AllSessions: 20, LeaderBytes: 1000, AllLeaderBytes: 1500}
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
		_, err := as(g, "ann").Set(t.Context(), "/locks/ann/more", make([]byte, 100<<10), api.AnyGeneration, api.SetOptions{})
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
	want := userUsages(g)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}

	g = openGroup(t, Config{Dir: dir})
	if got := userUsages(g); got != want {
		t.Errorf("after a restart: %s, want %s", got, want)
	}
	others(g, 2)
	if err := g.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	want = userUsages(g)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}

	g = openGroup(t, Config{Dir: dir})
	if got := userUsages(g); got != want {
		t.Errorf("after a restart from a snapshot: %s, want %s", got, want)
	}
	others(g, 3)
	if err := as(g, "ann").Delete(t.Context(), "/locks/ann/0", api.AnyGeneration, api.SetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := as(g, "ann").Set(t.Context(), "/locks/ann/0", make([]byte, 50<<10), 0, api.SetOptions{}); err != nil {
		t.Errorf("after a file was deleted: %v", err)
	}
	if s := g.Stats(); s.Users != 2 || s.UsersBytes < 1<<20 || s.UsersBytesMost > 1<<20 || s.UsersSessions != 3 {
		t.Errorf("stats: %+v", s)
	}
}

// userUsages returns what the users of TestQuotaFills hold.
func userUsages(g *Group) (s string) {
	g.machine.View(func(ns *fsm.Namespace, _ uint64) { s = fmt.Sprint(ns.Counts(), ns.UsageOf("ann"), ns.UsageOf("bob")) })
	return s
}

// wantLimit fails the test unless err names that limit.
func wantLimit(t *testing.T, err error, what string, limit int64) {
	t.Helper()
	var e *api.TooLargeError
	if !errors.As(err, &e) || e.What != what || e.Limit != limit || e.Got <= limit {
		t.Errorf("got %v, want a %s of %d", err, what, limit)
	}
}
