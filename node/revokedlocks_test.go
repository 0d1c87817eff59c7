package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// locker uses the lock service without the client library.
type locker struct {
	conn    *rpc.Conn
	session int64
}

// locker opens a session of half a minute, of which the leader knows that it lives.
func (f *testCluster) locker(t *testing.T, caller *pki.Credential) *locker {
	l := &locker{conn: f.dialAs(0, caller)}
	err := l.conn.Call(within(t, 20*time.Second), metaapi.MethodOpenSession, values("test", map[string]any{"lease_ms": 30_000}), number("session", &l.session))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *locker) acquire(ctx context.Context, path string, wait time.Duration) error {
	return l.conn.Call(ctx, metaapi.MethodAcquire, values(l.session, path, "exclusive", map[string]any{"wait_ms": wait.Milliseconds()}), nil)
}

// number reads one of an answer.
func number(key string, to *int64) func(*wire.Decoder) error {
	return func(d *wire.Decoder) error {
		for range d.Map() {
			if d.Str() == key {
				*to = int64(d.Uint())
			} else {
				d.Skip()
			}
		}
		return d.Err()
	}
}

// keepAlive hangs for that long, or until something happens, and returns the leader's term.
func (l *locker) keepAlive(ctx context.Context, term int64, hang time.Duration) (now int64, err error) {
	err = l.conn.Call(ctx, metaapi.MethodKeepAlive, values(l.session, term, 0, map[string]any{"hang_ms": hang.Milliseconds()}), number("term", &now))
	return now, err
}

// TestLocksOfTheRevoked (I12): when the right to the lock service was taken, a keep_alive that hung meanwhile
// extends nothing and its session ends with its locks, and an acquire that waited gets no lock.
func TestLocksOfTheRevoked(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	lockers := map[string]*locker{}
	for _, name := range []string{"ann", "bob", "carl"} {
		cred := f.user(admin, name)
		if err := admin.Grants().Add(ctx, client.Grant{Principal: name, Rights: "write"}); err != nil {
			t.Fatal(err)
		}
		lockers[name] = f.locker(t, cred)
	}
	ann, bob, carl := lockers["ann"], lockers["bob"], lockers["carl"]
	for path, l := range map[string]*locker{"/locks/a": ann, "/locks/b": bob} {
		if err := l.conn.Call(ctx, metaapi.MethodSet, values(path, []byte{}, nil), nil); err != nil {
			t.Fatal(err)
		}
		if err := l.acquire(ctx, path, 0); err != nil {
			t.Fatal(err)
		}
	}
	term := int64(0)
	eventually(t, "the rights of ann are known", func() (ok bool) {
		now, err := ann.keepAlive(ctx, term, 0)
		term = max(term, now)
		return err == nil
	})
	if _, err := ann.keepAlive(ctx, term, 0); err != nil {
		t.Fatal(err)
	}
	hung, waited := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := ann.keepAlive(ctx, term, 5*time.Second)
		hung <- err
	}()
	go func() { waited <- carl.acquire(ctx, "/locks/b", 20*time.Second) }()
	time.Sleep(500 * time.Millisecond) // both are there by now
	if len(hung)+len(waited) > 0 {
		t.Fatal("nothing hangs")
	}
	for _, name := range []string{"ann", "carl"} {
		if err := admin.Grants().Revoke(ctx, client.Grant{Principal: name, Rights: "write"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-hung; !errors.Is(err, rpc.CodePermissionDenied) {
		t.Errorf("the keep_alive that hung: %v", err)
	}
	if err := bob.acquire(ctx, "/locks/a", 0); err != nil {
		t.Errorf("the lock of one who has no right to it: %v", err)
	}
	if err := bob.conn.Call(ctx, metaapi.MethodRelease, values(bob.session, "/locks/b"), nil); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; !errors.Is(err, rpc.CodePermissionDenied) {
		t.Errorf("the acquire that waited: %v", err)
	}
	if err := bob.acquire(ctx, "/locks/b", 0); err != nil {
		t.Errorf("the lock that one got who had no right to it any more: %v", err)
	}
}
