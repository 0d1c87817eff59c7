package node_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// bulkWrite writes mutations as parts of bulk imports, and begins those again that have ended. It returns how many parts it took.
func bulkWrite(ctx context.Context, t *client.Table, ms []*client.RowMutation) (parts int, err error) {
	rows, _ := client.BulkOrder(ms)
	for at := 0; at < len(rows); {
		n, _, err := t.BulkSpan(ctx, rows[at:])
		if err == nil {
			err = t.BulkWrite(ctx, rows[at:at+n])
		}
		again := errors.Is(err, client.ErrBulkExpired) || errors.Is(err, client.ErrNotServing) || errors.Is(err, client.ErrOverloaded) || errors.Is(err, client.ErrUnavailable)
		switch {
		case err == nil:
			at, parts = at+n, parts+1
		case !again:
			return parts, err
		case ctx.Err() != nil:
			return parts, ctx.Err()
		}
	}
	return parts, nil
}

// I1, I2, I3: two bulk imports and ordinary writes of the same rows go on while tablets split, move and merge. Each row has all cells of both, and no write
// is lost.
func TestBulkBesideTabletChanges(t *testing.T) {
	t.Parallel()
	ctx := within(t, 120*time.Second)
	f := form(t, 3)
	admin := f.client(0)
	if _, err := admin.Tables().CreateSplit(ctx, "t", []string{"r3", "r6"}, table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g", Group: "second"}); err != nil {
		t.Fatal(err)
	}
	const rows, rounds = 300, 8
	value := bytes.Repeat([]byte("v"), 2000)
	var changed, left atomic.Int64
	done := make(chan struct{})
	var work, changes sync.WaitGroup
	for importer := range 2 {
		work.Go(func() {
			c := f.client(importer + 1)
			for round := range rounds {
				var ms []*client.RowMutation
				for i := range rows {
					m := client.NewRowMutation(fmt.Sprintf("r%d", (i*7919)%1000))
					ms = append(ms, m.SetAt(fmt.Sprintf("f:%d", importer), int64(round+1), value).SetAt(fmt.Sprintf("g:%d", importer), int64(round+1), value))
				}
				n, err := bulkWrite(ctx, c.Table("t"), ms)
				if err != nil {
					t.Errorf("importer %d, round %d: %v", importer, round, err)
				}
				left.Add(int64(n))
			}
		})
	}
	var counted, unknown int64 // increments
	work.Go(func() {
		for n := 0; n < 200 && ctx.Err() == nil; n++ {
			switch _, err := admin.Table("t").Increment(ctx, "r0", "f:counter", 1); {
			case errors.Is(err, client.ErrAmbiguous): // on a slow machine, a node may lose its lease
				unknown++
			case err != nil:
				t.Error(err)
			default:
				counted++
			}
		}
	})
	changes.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
			row := fmt.Sprintf("r%d", n*37%1000)
			var err error
			switch n % 3 {
			case 0:
				_, err = admin.Tablets().Split(ctx, "t", row)
			case 1:
				_, err = admin.Tablets().Move(ctx, "t", client.TabletRef{Row: row}, f.cfgs[n/3%3].Name)
			default:
				_, err = admin.Tablets().Merge(ctx, "t", client.TabletRef{Row: row})
			}
			if err == nil {
				changed.Add(1)
			}
		}
	})
	work.Wait()
	close(done)
	changes.Wait()
	t.Logf("%d parts beside %d changes of tablets", left.Load(), changed.Load())
	if changed.Load() < 5 {
		t.Errorf("only %d changes of tablets", changed.Load())
	}
	seen := 0
	s := admin.Table("t").Scan(ctx)
	defer s.Close()
	for s.Next() {
		seen++
		cells := map[string]int{}
		for _, c := range s.Row().Cells {
			cells[c.Family]++
		}
		least, most := 2*rounds, 2*rounds
		if string(s.Row().Key) == "r0" {
			least, most = least+int(counted), most+int(counted+unknown)
		}
		if cells["f"] < least || cells["f"] > most || cells["g"] != 2*rounds {
			t.Errorf("row %q has %v cells", s.Row().Key, cells)
		}
	}
	if s.Err() != nil || seen != rows {
		t.Errorf("%d rows, %v; want %d", seen, s.Err(), rows)
	}
	if n, err := admin.Table("t").Increment(ctx, "r0", "f:counter", 0); err != nil || n < counted || n > counted+unknown {
		t.Errorf("the counter is %d, want %d to %d: %v", n, counted, counted+unknown, err)
	}
}

// bulkCalls are the requests of one part with one row.
func bulkCalls(row string) (write *api.BulkWriteRequest, commit *api.BulkRequest) {
	write = &api.BulkWriteRequest{MutateRowsRequest: api.MutateRowsRequest{Table: "t", Rows: rowsOf(row)}}
	_, _ = rand.Read(write.Part[:])
	return write, &api.BulkRequest{Table: "t", Part: write.Part, Row: []byte(row), Requests: 1}
}

// I12: a part needs the right to write at each of its requests, belongs to its user, and cannot be committed when the right is lost. A user
// leaves parts to others.
func TestBulkRights(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	admin := f.client(0)
	if _, err := admin.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}, table.FamilySpec{Name: "g"}); err != nil {
		t.Fatal(err)
	}
	conns := map[string]*rpc.Conn{}
	for _, user := range []string{"writer", "other", "reader"} {
		conns[user] = f.dialAs(0, f.user(admin, user))
		right := "write"
		if user == "reader" {
			right = "read"
		}
		if err := admin.Grants().Add(ctx, client.Grant{Principal: user, Rights: right, Table: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	write, commit := bulkCalls("a")
	for i := range 100 { // rights are checked once for all rows of a request
		write.Rows = append(write.Rows, rowsOf(fmt.Sprintf("a%03d", i))...)
	}
	if got := answerOf(t, conns["reader"], api.MethodBulkWrite, write.Append); got == nil || got.Code != rpc.CodePermissionDenied {
		t.Errorf("write by a reader: %v", got)
	}
	if got := answerOf(t, conns["writer"], api.MethodBulkWrite, write.Append); got != nil {
		t.Fatal(got)
	}
	if got := answerOf(t, conns["writer"], api.MethodBulkWrite, write.Append); got != nil {
		t.Errorf("the same request again: %v", got)
	}
	for _, user := range []string{"other", "reader"} {
		want := map[string]rpc.Code{"other": api.CodeBulkExpired, "reader": rpc.CodePermissionDenied}[user]
		if got := answerOf(t, conns[user], api.MethodBulkCommit, commit.Append); got == nil || got.Code != want {
			t.Errorf("commit of a part of another user by %s: %v", user, got)
		}
	}
	if err := admin.Grants().Revoke(ctx, client.Grant{Principal: "writer", Rights: "write", Table: "t"}); err != nil {
		t.Fatal(err)
	}
	if got := answerOf(t, conns["writer"], api.MethodBulkCommit, commit.Append); got == nil || got.Code != api.CodeTableNotFound {
		t.Errorf("commit without the right: %v", got)
	}
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "writer", Rights: "write", Table: "t"}); err != nil {
		t.Fatal(err)
	}
	if got := answerOf(t, conns["writer"], api.MethodBulkCommit, commit.Append); got == nil || got.Code != api.CodeBulkExpired {
		t.Errorf("commit of a part that has ended: %v", got)
	}
	gap, _ := bulkCalls("a")
	gap.Number = 1
	if got := answerOf(t, conns["writer"], api.MethodBulkWrite, gap.Append); got == nil || got.Code != api.CodeBulkExpired {
		t.Errorf("a part without its first request: %v", got)
	}
	view, commit := bulkCalls("a")
	view.View, commit.View = "v", "v"
	for method, params := range map[string]func(*wire.Encoder){api.MethodBulkWrite: view.Append, api.MethodBulkCommit: commit.Append, api.MethodBulkAbort: commit.Append} {
		if got := answerOf(t, conns["writer"], method, params); got == nil || got.Code != rpc.CodeBadRequest {
			t.Errorf("%s within a view: %v", method, got)
		}
	}
	write, commit = bulkCalls("a")
	if got := answerOf(t, conns["writer"], api.MethodBulkWrite, write.Append); got != nil {
		t.Fatal(got)
	}
	commit.Requests = 2
	if got := answerOf(t, conns["writer"], api.MethodBulkCommit, commit.Append); got == nil || got.Code != rpc.CodeBadRequest {
		t.Errorf("commit without a request that was announced: %v", got)
	}
	commit.Requests = 1
	for range 2 {
		if got := answerOf(t, conns["writer"], api.MethodBulkCommit, commit.Append); got != nil {
			t.Errorf("commit, and again: %v", got)
		}
	}
	if row, err := admin.Table("t").Get(ctx, "a"); err != nil || row == nil || len(row.Cells) != 1 {
		t.Errorf("read %v, %v", row, err)
	}
	refused := false
	for range api.BulkPartsMax {
		write, _ := bulkCalls("b")
		if got := answerOf(t, conns["writer"], api.MethodBulkWrite, write.Append); got != nil {
			refused = got.Code == rpc.CodeOverloaded && strings.Contains(got.Message, "writer")
			break
		}
	}
	write, commit = bulkCalls("b")
	if got := answerOf(t, conns["other"], api.MethodBulkWrite, write.Append); got != nil || !refused {
		t.Errorf("a part of another user: %v; refused: %v", got, refused)
	}
	if got := answerOf(t, conns["other"], api.MethodBulkAbort, commit.Append); got != nil {
		t.Error(got)
	}
	if got := answerOf(t, conns["other"], api.MethodBulkCommit, commit.Append); got == nil || got.Code != api.CodeBulkExpired {
		t.Errorf("commit of a part that was aborted: %v", got)
	}
}

// I12: rights are checked before a part is opened, and before quotas and the number of parts: callers without them learn and use nothing.
func TestBulkAuthorizedFirst(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	admin := f.client(0)
	_, err := admin.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"})
	if err == nil {
		_, err = admin.Tables().CreateFrom(ctx, "streamed", &client.TableSpec{Families: []table.FamilySpec{{Name: "f"}}, ChangeRetention: time.Hour})
	}
	if err != nil {
		t.Fatal(err)
	}
	conns := map[string]*rpc.Conn{}
	for _, user := range []string{"filler", "writer", "reader", "stranger"} {
		conns[user] = f.dialAs(0, f.user(admin, user))
	}
	for user, right := range map[string]string{"filler": "write", "writer": "write", "reader": "read"} {
		for _, name := range []string{"t", "streamed"} {
			if err := admin.Grants().Add(ctx, client.Grant{Principal: user, Rights: right, Table: name}); err != nil {
				t.Fatal(err)
			}
		}
	}
	call := func(user, name string) *rpc.Error {
		t.Helper()
		write, _ := bulkCalls("a")
		write.Table = name
		return answerOf(t, conns[user], api.MethodBulkWrite, write.Append)
	}
	refused := func(when string) {
		t.Helper()
		for _, c := range []struct {
			user, table string
			want        rpc.Code
		}{
			{"stranger", "t", api.CodeTableNotFound}, {"stranger", "streamed", api.CodeTableNotFound}, {"stranger", "absent", api.CodeTableNotFound},
			{"reader", "t", rpc.CodePermissionDenied}, {"reader", "streamed", rpc.CodePermissionDenied},
		} {
			if got := call(c.user, c.table); got == nil || got.Code != c.want {
				t.Errorf("%s, table %s by %s: %v, want code %v", when, c.table, c.user, got, c.want)
			}
		}
	}
	if got := call("writer", "streamed"); got == nil || got.Code != api.CodeBulkRefused {
		t.Errorf("a table with a change stream: %v", got)
	}
	if err := admin.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{api.QuotaWriteOps: 1}, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		refused("within quotas")
	}
	if got := call("filler", "t"); got != nil {
		t.Fatalf("the quota was used by requests that were refused: %v", got)
	}
	refused("with an exhausted quota")
	if err := admin.Quotas().Remove(ctx, client.QuotaOfTable, "t"); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"filler", "writer"} {
		var got *rpc.Error
		for n := 0; got == nil && n < api.BulkPartsMax; n++ {
			got = call(user, "t")
		}
		if got == nil || got.Code != rpc.CodeOverloaded {
			t.Fatalf("all parts of %s: %v", user, got)
		}
	}
	refused("without free parts")
}

// A part stays open while a quota delays it, and is committed with what was added.
func TestBulkQuota(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	c := f.client(0)
	if _, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{api.QuotaWriteOps: 1}, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	conn := good(rpc.Dial(ctx, f.addrs[0], rpc.ConnConfig{}))
	defer conn.Close()
	write, commit := bulkCalls("a")
	send := func() *rpc.Error { return answerOf(t, conn, api.MethodBulkWrite, write.Append) }
	for got := send(); got != nil; got = send() {
		if got.Code != api.CodeQuotaExceeded {
			t.Fatal(got)
		}
	}
	write.Number, write.Rows = 1, rowsOf("b", "c")
	if got := send(); got == nil || got.Code != api.CodeQuotaExceeded {
		t.Errorf("above the quota: %v", got)
	}
	if err := c.Quotas().Remove(ctx, client.QuotaOfTable, "t"); err != nil {
		t.Fatal(err)
	}
	if got := send(); got != nil {
		t.Errorf("the same request without the quota: %v", got)
	}
	commit.Requests = 2
	if got := answerOf(t, conn, api.MethodBulkCommit, commit.Append); got != nil {
		t.Error(got)
	}
	n := 0
	for s := c.Table("t").Scan(ctx); s.Next(); n++ {
	}
	if n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
}

// BU1: a backup has the parts that were committed before it, and so has a table that is restored from it, after major compactions and garbage collection.
func TestBackupOfParts(t *testing.T) {
	t.Parallel()
	f := newBackupCluster(t, 1)
	f.create("t")
	f.fill("t", 1)
	var ms []*client.RowMutation
	for i := range 60 {
		ms = append(ms, client.NewRowMutation(fmt.Sprintf("row%03d", i)).SetAt("f:bulk", 7, fmt.Appendf(nil, "bulk %d", i)))
	}
	if n, err := bulkWrite(f.ctx, f.c.Table("t"), ms); err != nil || n != 3 {
		t.Fatalf("%d parts: %v", n, err)
	}
	want := f.rows("t")
	b := f.backup("t")
	f.fill("t", 2)
	if err := f.c.Tables().Compact(f.ctx, "t", true); err != nil {
		t.Fatal(err)
	}
	f.rounds(2)
	s, err := f.c.Backups().Restore(f.ctx, b.ID, "t", "copy")
	if err != nil || s == nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		if got := f.rows("copy"); len(want) != 60 || !maps.Equal(got, want) {
			t.Errorf("%s: %d rows, want %d", when, len(got), len(want))
		}
	}
	check("restored")
	if err := f.c.Tables().Compact(f.ctx, "copy", true); err != nil {
		t.Fatal(err)
	}
	check("after a major compaction")
}
