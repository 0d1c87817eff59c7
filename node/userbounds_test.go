package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// refusedAt makes calls until one is refused, and returns how many were not.
func refusedAt(t *testing.T, most int, call func(i int) error) (n int, refused *rpc.Error) {
	t.Helper()
	for n = range most {
		if err := call(n); err != nil {
			if !errors.As(err, &refused) {
				t.Fatal(err)
			}
			return n, refused
		}
	}
	t.Fatalf("none of %d calls was refused", most)
	return n, nil
}

// set writes a file of that many bytes.
func (l *locker) set(ctx context.Context, path string, n int) error {
	return l.conn.Call(ctx, metaapi.MethodSet, values(path, make([]byte, n), nil), nil)
}

// wantLimitOf fails the test unless a refusal names that limit and a remedy.
func wantLimitOf(t *testing.T, e *rpc.Error, what string) {
	t.Helper()
	var limit *metaapi.TooLargeError
	if !errors.As(metaapi.FromRPC(e), &limit) || limit.What != what || e.Code != metaapi.CodeNamespaceLimit || e.Retryable ||
		!strings.Contains(e.Message, what) || !strings.Contains(e.Message, "; ") {
		t.Errorf("refused with %v, want the limit %q", e, what)
	}
}

// TestUserFillsLockService: a user takes all of the lock service that a user may,
// then several users all that users may. Others are not affected by one, and the
// cluster by neither; a restart changes nothing.
func TestUserFillsLockService(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	names := []string{"ann", "bob", "carl", "dora", "erin"}
	as := map[string]*locker{}
	var dial []func()
	for _, name := range names {
		cred := f.user(admin, name)
		if err := admin.Grants().Add(ctx, client.Grant{Principal: name, Rights: "write"}); err != nil {
			t.Fatal(err)
		}
		dial = append(dial, func() { as[name] = &locker{conn: f.dialAs(0, cred)} })
	}
	connect := func() {
		for _, d := range dial {
			d()
		}
	}
	connect()
	fill := func(name string) *rpc.Error {
		t.Helper()
		_, refused := refusedAt(t, 1000, func(i int) error { return as[name].set(ctx, fmt.Sprintf("/locks/%s/%d", name, i), 200<<10) })
		return refused
	}
	cluster := func(round int) {
		t.Helper()
		if _, err := admin.Tables().Create(ctx, fmt.Sprintf("made%d", round), table.FamilySpec{Name: "f"}); err != nil {
			t.Errorf("create a table: %v", err)
		}
		if err := admin.Grants().Add(ctx, client.Grant{Principal: "ann", Table: fmt.Sprintf("made%d", round), Rights: "read"}); err != nil {
			t.Errorf("grant: %v", err)
		}
	}
	wantLimitOf(t, fill("ann"), metaapi.LimitUser)
	cluster(1)
	if err := as["bob"].set(ctx, "/locks/bob/0", 200<<10); err != nil {
		t.Errorf("another user: %v", err)
	}
	for _, name := range names[1:4] {
		fill(name)
	}
	wantLimitOf(t, fill("erin"), metaapi.LimitUsers)
	cluster(2)

	f.stop(0)
	f.start(0)
	connect()
	admin = f.client(0)
	wantLimitOf(t, fill("erin"), metaapi.LimitUsers)
	cluster(3)
	if err := as["ann"].conn.Call(ctx, metaapi.MethodDelete, values("/locks/ann/0", nil), nil); err != nil {
		t.Fatal(err)
	}
	if err := as["bob"].set(ctx, "/locks/bob/more", 100); err != nil {
		t.Errorf("a user below the limit, after another has released something: %v", err)
	}
}

// fill writes files below a directory until the caller of the lock service has no space for an empty one.
func (l *locker) fill(ctx context.Context, t *testing.T, dir string) {
	t.Helper()
	for _, size := range []int{200 << 10, 10 << 10, 500, 0} {
		refusedAt(t, 1000, func(i int) error { return l.set(ctx, fmt.Sprintf("%s/%d-%d", dir, size, i), size) })
	}
}

// putSmall stores a blob of a few bytes.
func putSmall(ctx context.Context, c *client.Client) (client.BlobInfo, error) {
	return c.Blobs().Put(ctx, "small", strings.NewReader("small"))
}

// TestBlobsCountForUser: the names of a user's blobs count in the user's share of the lock service, and no longer
// when the blobs are deleted, by any user.
func TestBlobsCountForUser(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	ann, bob := f.user(admin, "ann"), f.user(admin, "bob")
	for _, name := range []string{"ann", "bob"} {
		if err := admin.Grants().Add(ctx, client.Grant{Principal: name, Rights: "write"}); err != nil {
			t.Fatal(err)
		}
	}
	l, c := &locker{conn: f.dialAs(0, ann)}, f.clientAs(0, client.Config{Credential: ann})
	l.fill(ctx, t, "/locks/ann")
	_, err := putSmall(ctx, c)
	if limit := (*table.LimitError)(nil); !errors.As(err, &limit) || !strings.Contains(limit.What, "delete blobs") {
		t.Errorf("a blob of a user without space: %v", err)
	}
	if _, err := putSmall(ctx, f.clientAs(0, client.Config{Credential: bob})); err != nil {
		t.Errorf("another user's: %v", err)
	}
	large := fmt.Sprintf("/locks/ann/%d-0", 200<<10)
	if err := l.conn.Call(ctx, metaapi.MethodDelete, values(large, nil), nil); err != nil {
		t.Fatal(err)
	}
	b, err := putSmall(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	_, refused := refusedAt(t, 1, func(int) error { return l.set(ctx, large, 200<<10) })
	wantLimitOf(t, refused, metaapi.LimitUser)
	if err := admin.Blobs().Delete(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	if err := l.set(ctx, large, 200<<10); err != nil {
		t.Errorf("a file in the place of a deleted blob: %v", err)
	}
}

// TestUserOpensSessions: sessions and watches of a user are bounded, and those of
// another are not affected.
func TestUserOpensSessions(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	as := map[string]*locker{}
	for _, name := range []string{"ann", "bob"} {
		cred := f.user(admin, name)
		if err := admin.Grants().Add(ctx, client.Grant{Principal: name, Rights: "write"}); err != nil {
			t.Fatal(err)
		}
		as[name] = f.locker(t, cred)
	}
	watch := func(name string, i int) error {
		return as[name].conn.Call(ctx, metaapi.MethodWatch, values(as[name].session, fmt.Sprintf("/locks/%d%s", i, strings.Repeat("x", 200)), 1), nil)
	}
	n, refused := refusedAt(t, 2000, func(i int) error { return watch("ann", i) })
	wantLimitOf(t, refused, metaapi.LimitUserWatches)
	if n < 250 || n > 300 { // of 128 KiB
		t.Errorf("%d watches", n)
	}
	if err := watch("bob", 0); err != nil {
		t.Errorf("another user: %v", err)
	}
	open := func(name string) error {
		return as[name].conn.Call(ctx, metaapi.MethodOpenSession, values("more", map[string]any{"lease_ms": 60_000}), nil)
	}
	n, refused = refusedAt(t, 1000, func(int) error { return open("ann") })
	wantLimitOf(t, refused, metaapi.LimitUser)
	if n < 350 || n > 410 { // of 819 KiB
		t.Errorf("%d sessions", n)
	}
	if err := errors.Join(open("bob"), as["bob"].acquire(ctx, "/locks/b", 0)); err != nil {
		t.Errorf("another user: %v", err)
	}
	_, refused = refusedAt(t, 10, func(i int) error { return as["ann"].acquire(ctx, fmt.Sprint("/locks/a", i), 0) })
	wantLimitOf(t, refused, metaapi.LimitUser)
}

// TestClientsFillOpenLockService: clients of a cluster without access control fill
// what clients may have together; the cluster goes on.
func TestClientsFillOpenLockService(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	conn, err := rpc.Dial(ctx, f.nodes[0].RPCAddr(), rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l := &locker{conn: conn}
	n, refused := refusedAt(t, 1000, func(i int) error { return l.set(ctx, fmt.Sprintf("/mine/%d", i), 200<<10) })
	wantLimitOf(t, refused, metaapi.LimitUser)
	if n != 16 { // of 3.2 MiB
		t.Errorf("%d files", n)
	}
	l.fill(ctx, t, "/mine")
	if _, err := putSmall(ctx, f.client(0)); !errors.Is(err, table.ErrLimit) {
		t.Errorf("a blob: %v", err)
	}
	if _, err := f.client(0).Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Errorf("create a table: %v", err)
	}
}

// TestUserOpensScans: a user opens scans with keys of 60 KiB until the memory of a
// user's cursors is used up. Another user's scan succeeds, also when all memory of
// cursors is used up by several.
func TestUserOpensScans(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, f)
	as := map[string]*rpc.Conn{}
	for _, name := range []string{"ann", "bob", "carl", "dora", "erin"} {
		cred := f.user(admin, name)
		if err := admin.Grants().Add(ctx, client.Grant{Principal: name, Table: "t", Rights: "read"}); err != nil {
			t.Fatal(err)
		}
		as[name] = f.dialAs(0, cred)
	}
	open := func(name string) (cursor int64, err error) {
		r := api.ScanOpenRequest{Table: "t", End: append([]byte("s"), bytes.Repeat([]byte{'x'}, 60<<10)...), BatchRows: 1}
		err = as[name].Call(ctx, api.MethodScanOpen, r.Append, number("cursor", &cursor))
		if err == nil && cursor == 0 {
			t.Fatal("the scan has ended")
		}
		return cursor, err
	}
	next := func(name string, cursor int64) error {
		return as[name].Call(ctx, api.MethodScanNext, func(e *wire.Encoder) { e.Array(1); e.Int(cursor) }, nil)
	}
	var first int64
	n, refused := refusedAt(t, 1000, func(i int) error {
		cursor, err := open("ann")
		if i == 0 {
			first = cursor
		}
		return err
	})
	if n < 3 || n > 4 || refused.Code != rpc.CodeOverloaded || !refused.Retryable || !strings.Contains(refused.Message, "user ann") {
		t.Errorf("%d scans, then %v", n, refused)
	}
	if _, err := open("bob"); err != nil {
		t.Errorf("another user: %v", err)
	}
	if err := next("ann", first); err != nil {
		t.Errorf("a scan of the user at the limit: %v", err)
	}
	for _, name := range []string{"bob", "carl", "dora"} {
		refusedAt(t, 1000, func(int) error { _, err := open(name); return err })
	}
	for range 3 {
		cursor, err := open("erin")
		if err == nil {
			err = next("erin", cursor)
		}
		if err != nil {
			t.Errorf("a user without scans, while four have all: %v", err)
		}
	}
}
