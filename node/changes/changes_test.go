package changes

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/raftmeta/session/sessiontest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
)

// newChanges returns the changes of a node with that authorizer.
func newChanges(t *testing.T, z *authz.Authorizer) *Changes {
	t.Helper()
	var background sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		background.Wait()
	})
	return New(Config{Log: slog.New(slog.DiscardHandler), Ctx: ctx, Cancel: cancel, Background: &background, Authz: z})
}

// TestBegunChangeIsFinished: a change goes on when its caller's time is up, the next one waits for it, and so does End.
func TestBegunChangeIsFinished(t *testing.T) {
	c := newChanges(t, &authz.Authorizer{Open: true})
	ctx, cancel := context.WithCancel(t.Context())
	release, ended := make(chan struct{}), make(chan error, 1)
	err := c.Do(ctx, authz.ChangeRequest{}, func(ctx context.Context) error {
		cancel()
		<-release
		ended <- ctx.Err()
		return ctx.Err()
	})
	var e *rpc.Error
	if !errors.As(err, &e) || e.Code != rpc.CodeDeadlineExceeded || e.Details["executed"] != nil {
		t.Errorf("the caller got %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err = c.Do(short, authz.ChangeRequest{}, func(context.Context) error { t.Error("two changes at a time"); return nil })
	if !errors.As(err, &e) || e.Details["executed"] != 0 {
		t.Errorf("the second caller got %v", err)
	}
	time.AfterFunc(20*time.Millisecond, func() { close(release) })
	c.End(t.Context())
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the change was given up: %v", err)
		}
	default:
		t.Error("End did not wait for the change")
	}
	if err := c.Do(t.Context(), authz.ChangeRequest{}, func(context.Context) error { return nil }); !errors.Is(err, metaapi.ErrClosed) {
		t.Errorf("a change after End: %v", err)
	}
}

// TestEndCancelsChange: a change that does not end in time is cancelled.
func TestEndCancelsChange(t *testing.T) {
	c := newChanges(t, &authz.Authorizer{Open: true})
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- c.Do(t.Context(), authz.ChangeRequest{}, func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	<-begun
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	c.End(short)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the change: %v", err)
	}
}

// alone is a Raft group whose leader is this node. It implements master.Group.
type alone struct{ master.Group }

func (alone) Leads() (bool, <-chan struct{}) { return true, nil }
func (alone) Voters() []master.Voter         { return nil }

// masterNode is a node with certificates that may be the master.
type masterNode struct {
	*Changes
	m      *namespace.Access
	rights *authztest.Rights
	end    func() // ends the mastership
}

// newMasterNode returns a node that is the master.
func newMasterNode(t *testing.T) *masterNode {
	t.Helper()
	meta := &namespace.Access{Client: sessiontest.NewClient(t)}
	if err := meta.Open(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := meta.Set(t.Context(), master.LockPath, nil, 0); err != nil {
		t.Fatal(err)
	}
	led := func() error { return nil }
	n := &masterNode{m: meta, rights: &authztest.Rights{}}
	n.Changes = newChanges(t, &authz.Authorizer{Ctx: t.Context(), Meta: meta, CheckLeader: led, Rights: &authz.Rights{Cache: acl.NewCache(n.rights), CheckLeader: led}})
	m := master.New(master.Config{
		ID: "n1", Group: alone{}, Pause: time.Minute, Logger: slog.New(slog.DiscardHandler),
		Servers: func(context.Context) ([]master.Server, error) { return nil, errors.New("no servers") },
		Acquire: func(ctx context.Context) (master.Lock, error) {
			return meta.Current().Acquire(ctx, master.LockPath, metaapi.Exclusive, session.LockOptions{})
		},
	})
	n.Meta, n.Master = meta, func() *master.Master { return m }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	n.end = func() {
		cancel()
		<-ended
	}
	t.Cleanup(func() {
		n.end()
		meta.Close(context.Background(), slog.New(slog.DiscardHandler))
	})
	for m.Epoch() == 0 {
		if t.Context().Err() != nil {
			t.Fatal("the node does not become the master")
		}
		time.Sleep(time.Millisecond)
	}
	return n
}

var asNode = authz.ChangeRequest{Caller: &authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: "n1"}}}

// TestChangeByMaster: writes of a change succeed while the node is the master, and no change begins after that. A change that runs when
// the mastership ends is cancelled, its writes fail, and its outcome is unknown.
func TestChangeByMaster(t *testing.T) {
	n := newMasterNode(t)
	ctx := t.Context()
	begun, lost, outcome := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var late []error
	go func() {
		outcome <- n.Do(ctx, asNode, func(ctx context.Context) error {
			gen, err := n.SetAsMaster(ctx, "/x", []byte("1"), 0)
			if err != nil {
				return err
			}
			if f, err := n.m.Get(ctx, "/x"); err != nil || f.Generation != gen || string(f.Data) != "1" {
				t.Errorf("the file is %q at generation %d, %v; want generation %d", f.Data, f.Generation, err, gen)
			}
			if _, err := n.SetAsMaster(ctx, "/x", nil, 0); !errors.Is(err, metaapi.ErrGeneration) {
				t.Errorf("a write of another generation: %v", err)
			}
			for range 2 { // the second time there is none
				if err := n.DeleteAsMaster(ctx, "/x"); err != nil {
					t.Errorf("remove a file: %v", err)
				}
			}
			close(begun)
			<-lost
			<-ctx.Done()
			still := context.WithoutCancel(ctx)
			_, set := n.SetAsMaster(still, "/y", nil, 0)
			_, plain := n.m.Set(still, "/z", nil, 0)
			late = []error{set, n.DeleteAsMaster(still, "/x"), NotMasterNow(plain)}
			return ctx.Err()
		})
	}()
	select {
	case <-begun:
	case err := <-outcome:
		t.Fatalf("the change: %v", err)
	}
	n.end()
	close(lost)
	if err := <-outcome; !errors.Is(err, api.ErrOutcomeUnknown) {
		t.Errorf("a change whose node is no longer the master: %v, want %v", err, api.ErrOutcomeUnknown)
	}
	for i, err := range late {
		if !errors.Is(err, ErrNotMaster) {
			t.Errorf("write %d after the mastership: %v, want %v", i, err, ErrNotMaster)
		}
	}
	for _, path := range []string{"/y", "/z"} {
		if _, err := n.m.Get(ctx, path); !errors.Is(err, metaapi.ErrNotFound) {
			t.Errorf("%s after the mastership: %v", path, err)
		}
	}
	err := n.Do(ctx, asNode, func(context.Context) error { t.Error("a change begins at a node that is not the master"); return nil })
	if !errors.Is(err, ErrNotMaster) {
		t.Errorf("the next change: %v, want %v", err, ErrNotMaster)
	}
	if _, err := n.SetAsMaster(ctx, "/y", nil, 0); !errors.Is(err, ErrNotMaster) {
		t.Errorf("a write outside of a change: %v, want %v", err, ErrNotMaster)
	}
	if err := n.DeleteAsMaster(ctx, "/y"); !errors.Is(err, ErrNotMaster) {
		t.Errorf("a removal outside of a change: %v, want %v", err, ErrNotMaster)
	}
}

// TestChangeIsAuthorizedAgain (I12): a change whose caller has lost its right while it waited is not made.
func TestChangeIsAuthorizedAgain(t *testing.T) {
	n := newMasterNode(t)
	n.rights.Set(t, map[string]acl.Rights{"ann": acl.Admin})
	a := authz.ChangeRequest{Caller: &authz.Subject{Peer: pki.Peer{Kind: pki.Principal, Name: "ann"}}, Method: api.MethodGrant}
	ran := 0
	do := func(context.Context) error { ran++; return nil }
	if err := n.Do(t.Context(), a, do); err != nil || ran != 1 {
		t.Fatalf("with the right: %v, made %d times", err, ran)
	}
	release := n.Hold()
	waiting := make(chan error, 1)
	go func() { waiting <- n.Do(t.Context(), a, do) }()
	n.rights.Set(t, map[string]acl.Rights{"ann": 0})
	release()
	if err := <-waiting; !errors.Is(err, api.ErrPermission) || ran != 1 {
		t.Errorf("without the right: %v, made %d times", err, ran)
	}
	if err := n.Do(t.Context(), authz.ChangeRequest{}, do); err == nil || ran != 1 {
		t.Errorf("without a caller: %v, made %d times", err, ran)
	}
}

// TestNotMasterNow: a write whose outcome is unknown is not one that was rejected.
func TestNotMasterNow(t *testing.T) {
	unknown := errors.Join(metaapi.ErrOutcomeUnknown, metaapi.ErrStale)
	for _, c := range []struct{ err, want error }{{nil, nil}, {metaapi.ErrStale, ErrNotMaster}, {unknown, unknown}, {metaapi.ErrNotFound, metaapi.ErrNotFound}} {
		if got := NotMasterNow(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}
