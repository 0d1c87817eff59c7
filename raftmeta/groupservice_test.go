package raftmeta

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// TestServiceOfGroup uses the service of a group with a real log.
func TestServiceOfGroup(t *testing.T) {
	dir := t.TempDir()
	g := openGroup(t, Config{Dir: dir})
	v := g.Service()
	s, lease, err := v.OpenSession(t.Context(), "n1", 0)
	if err != nil || lease != api.LeaseDefault {
		t.Fatal(lease, err)
	}
	grant, err := v.Acquire(t.Context(), s, "/master", api.Exclusive, 0, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Set(t.Context(), "/e", nil, 0, api.SetOptions{Session: s, Ephemeral: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := v.SetACL(t.Context(), "/e", "ops", api.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := g.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Stat(t.Context(), "/e"); !errors.Is(err, api.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	g = openGroup(t, Config{Dir: dir})
	v = g.Service()
	if err := v.CheckSequencer(t.Context(), grant.Sequencer); err != nil {
		t.Errorf("sequencer after a restart: %v", err)
	}
	list, err := v.List(t.Context(), "/")
	if err != nil || len(list) != 2 || list[0].Ephemeral != s || list[0].ACL != "ops" || !slices.Equal(list[1].Holders, []api.SessionID{s}) {
		t.Errorf("%+v, %v", list, err)
	}
	resp, err := keepAlive(v, api.KeepAliveRequest{Session: s})
	for errors.Is(err, api.ErrNotReady) { // the lease manager starts shortly after the election
		time.Sleep(time.Millisecond)
		resp, err = keepAlive(v, api.KeepAliveRequest{Session: s})
	}
	if err != nil || len(resp.Events) != 1 || resp.Events[0].Kind != api.FailedOver {
		t.Errorf("%+v, %v", resp, err)
	}
	if err := v.CloseSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Get(t.Context(), "/e"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("ephemeral file: %v", err)
	}
}

// keepAlive calls KeepAlive and waits for its answer.
func keepAlive(v api.Service, req api.KeepAliveRequest) (resp api.KeepAliveResponse, err error) {
	done := make(chan struct{})
	v.KeepAlive(context.Background(), req, func(r api.KeepAliveResponse, e error) {
		resp, err = r, e
		close(done)
	})
	<-done
	return resp, err
}
