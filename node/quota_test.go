package node_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// impatient returns a client of node i that does not retry.
func (f *testCluster) impatient(i int) *client.Client {
	return f.clientAs(i, client.Config{Credential: f.as, RetryTimeMax: -1})
}

// awaitQuota waits until do is refused for a quota, which it is soon if the node goes by it.
func awaitQuota(t testing.TB, do func() error) *client.QuotaError {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		var used *client.QuotaError
		switch err := do(); {
		case errors.As(err, &used):
			return used
		case err == nil, errors.Is(err, client.ErrUnreachable), errors.Is(err, client.ErrNotServing), errors.Is(err, client.ErrUnavailable):
		default:
			t.Fatal(err)
		}
	}
	t.Fatal("nothing is refused")
	return nil
}

// TestTableRates: what is over a table's quota is refused with the time to come back, which is true; clients wait that long by
// themselves; a quota is kept across a restart, ends with its removal, and with its table.
func TestTableRates(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	create := func() {
		t.Helper()
		if _, err := c.Tables().Create(ctx, "t", good(table.ParseFamilySpec("f:versions=1"))); err != nil {
			t.Fatal(err)
		}
	}
	create()
	value := make([]byte, 1000)
	quick := f.impatient(0)
	put := func() error {
		return quick.Table("t").Apply(ctx, client.NewRowMutation("r").Set("f:q", value))
	}
	get := func() error {
		_, err := quick.Table("t").Get(ctx, "r")
		return err
	}
	scan := func() error {
		s := quick.Table("t").Scan(ctx)
		defer s.Close()
		for s.Next() {
		}
		return s.Err()
	}
	incr := func() error {
		_, err := quick.Table("t").Increment(ctx, "r", "f:n", 1)
		return err
	}
	cas := func() error {
		_, err := quick.Table("t").CheckAndMutate(ctx, "r", nil, client.NewRowMutation("r").Set("f:q", value), nil)
		return err
	}
	many := func() error {
		ms := []*client.RowMutation{client.NewRowMutation("r").Set("f:q", value), client.NewRowMutation("s").Set("f:q", value)}
		err := quick.Table("t").ApplyAll(ctx, ms)
		var all *client.BatchError
		if errors.As(err, &all) {
			return all.Errs[0]
		}
		return err
	}
	getAll := func() error {
		_, err := quick.Table("t").GetAll(ctx, []string{"r", "s"})
		return err
	}
	for _, x := range []struct {
		kind string
		rate int64
		do   map[string]func() error
	}{
		{api.QuotaWriteOps, 20, map[string]func() error{"put": put, "incr": incr, "cas": cas, "many": many}},
		{api.QuotaWriteBytes, 20_000, map[string]func() error{"put": put, "cas": cas, "many": many}},
		{api.QuotaReadOps, 20, map[string]func() error{"get": get, "getAll": getAll, "scan": scan, "incr": incr, "cas": cas}},
		{api.QuotaReadBytes, 20_000, map[string]func() error{"get": get, "getAll": getAll, "scan": scan}},
	} {
		if err := c.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{x.kind: x.rate}, 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		for name, do := range x.do {
			used := awaitQuota(t, do)
			if used.Quota != `table "t" `+x.kind || used.Limit != x.rate || used.Bytes || used.RetryAfter <= 0 || used.RetryAfter > 5*time.Second {
				t.Errorf("%s: refused with %+v", name, used)
			}
			for range 5 { // there is no other user
				time.Sleep(used.RetryAfter)
				if err := do(); err != nil {
					t.Errorf("%s after %v, as it was told: %v", name, used.RetryAfter, err)
				}
				used = awaitQuota(t, do)
			}
		}
		if err := c.Quotas().Remove(ctx, client.QuotaOfTable, "t"); err != nil {
			t.Fatal(err)
		}
		for free := 0; free < 50; free++ {
			for _, do := range x.do {
				if errors.Is(do(), client.ErrQuotaRate) {
					free = 0
				}
			}
		}
	}

	if err := c.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{api.QuotaWriteOps: 100}, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	awaitQuota(t, put)
	f.stop(0)
	f.start(0)
	awaitQuota(t, put)
	began := time.Now()
	for i := range 200 { // this client waits
		if err := c.Table("t").Apply(ctx, client.NewRowMutation("r").Set("f:q", value)); err != nil {
			t.Fatalf("write %d by a client that waits: %v", i, err)
		}
	}
	if took := time.Since(began); took < 1700*time.Millisecond {
		t.Errorf("200 writes at 100 a second took %v", took)
	}
	all := good(c.Quotas().List(ctx))
	if len(all) != 1 || all[0].Of != client.QuotaOfTable || all[0].Name != "t" || len(all[0].Bounds) != 1 || all[0].Bounds[0] != (client.QuotaBound{Kind: api.QuotaWriteOps, Limit: 100, BurstMS: 100, Used: -1}) {
		t.Errorf("quotas: %+v", all)
	}
	if err := c.Tables().DropNow(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	create()
	for i := range 300 {
		if err := put(); err != nil && !errors.Is(err, client.ErrNotServing) && !errors.Is(err, client.ErrTableReplaced) && (!errors.Is(err, client.ErrQuota) || i > 200) {
			t.Fatalf("write %d to another table of that name: %v", i, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if all := good(c.Quotas().List(ctx)); len(all) != 0 {
		t.Errorf("quotas after the table was dropped: %+v", all)
	}
	for _, err := range []error{
		c.Quotas().Remove(ctx, client.QuotaOfTable, "t"), c.Quotas().Set(ctx, client.QuotaOfTable, "none", map[string]int64{api.QuotaReadOps: 1}, 0),
		c.Quotas().Set(ctx, client.QuotaOfTable, "METADATA", map[string]int64{api.QuotaReadOps: 1}, 0), c.Quotas().Set(ctx, client.QuotaOfUser, "ann", map[string]int64{api.QuotaReadOps: 1}, 0),
		c.Quotas().Set(ctx, "cluster", "x", map[string]int64{api.QuotaReadOps: 1}, 0), c.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{api.QuotaReadOps: -1}, 0),
		c.Quotas().Set(ctx, client.QuotaOfTable, "t", nil, 0), c.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{api.QuotaReadOps: 1}, 24*time.Hour),
	} {
		if err == nil {
			t.Error("a quota that cannot be was set or removed")
		}
	}
}

// writers write to rows as fast as they are let, each to the row that is set for it, until they are stopped.
type writers struct {
	row  []atomic.Pointer[string]
	let  atomic.Int64
	stop context.CancelFunc
	done sync.WaitGroup
	bad  atomic.Pointer[error]
}

func startWriters(ctx context.Context, t *client.Table, n int, row string) *writers {
	ctx, cancel := context.WithCancel(ctx)
	w := &writers{row: make([]atomic.Pointer[string], n), stop: cancel}
	for i := range n {
		w.row[i].Store(&row)
		w.done.Go(func() {
			for ctx.Err() == nil {
				switch err := t.Apply(ctx, client.NewRowMutation(*w.row[i].Load()).Set("f:q", []byte("v"))); {
				case err == nil:
					w.let.Add(1)
				case ctx.Err() == nil && !errors.Is(err, client.ErrQuotaRate):
					w.bad.Store(&err)
				}
			}
		})
	}
	return w
}

func (w *writers) move(row string) {
	for i := range w.row {
		w.row[i].Store(&row)
	}
}

// TestRatesOfCluster: on three nodes what is let in together stays within the quota while the load moves between
// them, and while the master is restarted.
func TestRatesOfCluster(t *testing.T) {
	t.Parallel()
	f := form(t, 3)
	ctx := within(t, 180*time.Second)
	c := f.client(0)
	rows := []string{"a", "b", "c"}
	if _, err := c.Tables().CreateSplit(ctx, "t", []string{"a", "b"}, table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		if _, err := c.Tablets().Move(ctx, "t", client.TabletRef{Row: row}, f.cfgs[i].Name); err != nil {
			t.Fatal(err)
		}
	}
	const rate = 200
	if err := c.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{api.QuotaWriteOps: rate}, 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	quick := f.impatient(0)
	awaitQuota(t, func() error { return quick.Table("t").Apply(ctx, client.NewRowMutation("a").Set("f:q", nil)) })
	w := startWriters(ctx, c.Table("t"), 8, "a")
	span := func(d time.Duration) float64 {
		began, before := time.Now(), w.let.Load()
		time.Sleep(d)
		return float64(w.let.Load()-before) / time.Since(began).Seconds()
	}
	time.Sleep(3500 * time.Millisecond) // a master that is new learns
	sum, spans := 0.0, 0
	for _, row := range []string{"a", "b", "c"} {
		w.move(row)
		got := span(5 * time.Second)
		t.Logf("all to %s: %.0f a second", row, got)
		if got > rate*1.1 {
			t.Errorf("all to %s: %.0f a second, of %d", row, got, rate)
		}
		sum += got
		spans++
	}
	if mean := sum / float64(spans); mean < rate*0.5 {
		t.Errorf("%.0f a second were let in, of %d", mean, rate)
	}
	for i := range w.row { // each node could let the whole rate in
		w.row[i].Store(&rows[i%len(rows)])
	}
	time.Sleep(2 * time.Second)
	got := span(5 * time.Second)
	t.Logf("to all three: %.0f a second", got)
	if got > rate*1.1 || got < rate*0.5 {
		t.Errorf("to all three: %.0f a second, of %d", got, rate)
	}
	w.move("a")
	masterID := f.master()
	if masterID == 0 { // the client's own node stays
		w.move("b")
	}
	f.stop(masterID)
	got = span(4 * time.Second)
	t.Logf("without the master's node: %.0f a second", got)
	if got > rate*1.1 {
		t.Errorf("without the master's node: %.0f a second, of %d", got, rate)
	}
	f.start(masterID)
	time.Sleep(4 * time.Second)
	got = span(4 * time.Second)
	t.Logf("with another master: %.0f a second", got)
	if got > rate*1.1 || got < rate*0.5 {
		t.Errorf("with another master: %.0f a second, of %d", got, rate)
	}
	w.stop()
	w.done.Wait()
	if err := c.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{api.QuotaBytes: 10_000}, 0); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows { // also where the master is not
		used := &client.QuotaError{}
		for end := time.Now().Add(20 * time.Second); !used.Bytes && time.Now().Before(end); {
			used = awaitQuota(t, func() error { return quick.Table("t").Apply(ctx, client.NewRowMutation(row).Set("f:q", nil)) })
		}
		if used.Quota != `table "t" bytes` || used.Used < used.Limit {
			t.Errorf("row %s: refused with %+v", row, used)
		}
	}
	if err := w.bad.Load(); err != nil {
		t.Logf("a write failed with %v", *err)
	}
}

// master returns which node is master.
func (f *testCluster) master() int {
	f.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for i, n := range f.nodes {
			if n != nil && n.IsMaster() {
				return i
			}
		}
	}
	f.t.Fatal("there is no master")
	return 0
}

// TestQuotasOfUsers: a principal has its own quota besides that of the table, and only administrators manage quotas.
func TestQuotasOfUsers(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	admin := f.client(0)
	if _, err := admin.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	people := map[string]*client.Client{}
	for _, name := range []string{"ann", "bob"} {
		people[name] = f.clientAs(0, client.Config{Credential: f.user(admin, name), RetryTimeMax: -1})
		if err := admin.Grants().Add(ctx, client.Grant{Principal: name, Table: "t", Rights: "read,write"}); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name string) error {
		return people[name].Table("t").Apply(ctx, client.NewRowMutation("r").Set("f:q", []byte("v")))
	}
	if err := admin.Quotas().Set(ctx, client.QuotaOfUser, "ann", map[string]int64{api.QuotaWriteOps: 10}, 0); err != nil {
		t.Fatal(err)
	}
	if used := awaitQuota(t, func() error { return put("ann") }); used.Quota != `user "ann" write_ops` {
		t.Errorf("refused with %+v", used)
	}
	for range 100 {
		if err := put("bob"); err != nil {
			t.Fatalf("by another principal: %v", err)
		}
	}
	// A caller without rights on a table is not charged and learns nothing about its quota. A caller with the right to read is not charged for writes.
	if err := admin.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{api.QuotaWriteOps: 5}, 200*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{"eve": client.ErrNoTable, "reader": client.ErrPermission} {
		people[name] = f.clientAs(0, client.Config{Credential: f.user(admin, name), RetryTimeMax: -1})
		if name == "reader" {
			if err := admin.Grants().Add(ctx, client.Grant{Principal: name, Table: "t", Rights: "read"}); err != nil {
				t.Fatal(err)
			}
		}
		used := awaitQuota(t, func() error { return put("bob") })
		for range 100 {
			if err := put(name); !errors.Is(err, want) {
				t.Fatalf("%s writes to a table that is over its quota: %v", name, err)
			}
		}
		time.Sleep(used.RetryAfter)
		if err := put("bob"); err != nil {
			t.Errorf("%s has used up what is another's: %v", name, err)
		}
	}
	if err := admin.Quotas().Remove(ctx, client.QuotaOfTable, "t"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"set":    people["ann"].Quotas().Set(ctx, client.QuotaOfUser, "ann", map[string]int64{api.QuotaWriteOps: 1000}, 0),
		"remove": people["ann"].Quotas().Remove(ctx, client.QuotaOfUser, "ann"),
		"list":   func() error { _, err := people["ann"].Quotas().List(ctx); return err }(),
	} {
		if !errors.Is(err, client.ErrPermission) {
			t.Errorf("%s by one who may not: %v", what, err)
		}
	}
	if err := admin.Quotas().Set(ctx, client.QuotaOfUser, "nobody", map[string]int64{api.QuotaWriteOps: 10}, 0); !errors.Is(err, client.ErrNoUser) {
		t.Errorf("of one whom the cluster does not know: %v", err)
	}
	if all := good(admin.Quotas().List(ctx)); len(all) != 1 || all[0].Of != client.QuotaOfUser || all[0].Name != "ann" {
		t.Errorf("quotas: %+v", all)
	}
	report := func(e *wire.Encoder) { e.Array(0) }
	if e := answerOf(t, f.dialAs(0, f.as), "cluster.quota_report", report); e == nil || e.Details["method"] != "cluster.quota_report" {
		t.Errorf("a principal reports as a server: %v", e)
	}
	for server, refused := range map[string]bool{f.nodes[0].ID() + ".7": false, "another.7": true} { // by a node
		whole := func(e *wire.Encoder) {
			e.Array(3)
			e.Str(server)
			e.Array(0)
			e.Nil()
		}
		if e := answerOf(t, f.dialAs(0, f.credential(0)), "cluster.quota_report", whole); (e != nil) != refused || refused && !errors.Is(api.FromRPC(e), api.ErrPermission) {
			t.Errorf("a report for %s: %v", server, e)
		}
	}
	if err := admin.Users().Remove(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	if all := good(admin.Quotas().List(ctx)); len(all) != 0 {
		t.Errorf("quotas of who was removed: %+v", all)
	}
}

// TestTableBytes: a table at its byte quota accepts only deletions, also after a restart, until it is smaller or the quota is raised.
func TestTableBytes(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	if _, err := c.Tables().Create(ctx, "t", good(table.ParseFamilySpec("f:versions=1"))); err != nil {
		t.Fatal(err)
	}
	const most = 2 << 20
	if err := c.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{api.QuotaBytes: most}, 0); err != nil {
		t.Fatal(err)
	}
	rows := 0
	put := func() error {
		rows++
		return c.Table("t").Apply(ctx, client.NewRowMutation(fmt.Sprintf("row%06d", rows)).Set("f:q", someBytes(uint64(rows), 10_000)))
	}
	fill := func() *client.QuotaError {
		t.Helper()
		return awaitQuota(t, func() error {
			time.Sleep(10 * time.Millisecond)
			return put()
		})
	}
	used := fill()
	if used.Quota != `table "t" bytes` || !used.Bytes || used.Limit != most || used.Used < most || used.RetryAfter != 0 {
		t.Errorf("refused with %+v", used)
	}
	tab := c.Table("t")
	began := time.Now()
	_, errIncr := tab.Increment(ctx, "row000001", "f:n", 1)
	_, errCas := tab.CheckAndMutate(ctx, "row000001", nil, nil, client.NewRowMutation("row000001").Set("f:q", nil))
	errAll := tab.ApplyAll(ctx, []*client.RowMutation{client.NewRowMutation("row000002").DeleteRow(), client.NewRowMutation("row000003").Set("f:q", nil)})
	var all *client.BatchError
	if !errors.As(errAll, &all) || all.Errs[0] != nil || !errors.Is(all.Errs[1], client.ErrQuotaBytes) {
		t.Errorf("a deletion and an addition together: %v", errAll)
	}
	for what, err := range map[string]error{"increment": errIncr, "condition": errCas, "put": put()} {
		if !errors.Is(err, client.ErrQuotaBytes) || errors.Is(err, client.ErrQuotaRate) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("what is refused until something is deleted is tried for %v", took)
	}
	if _, err := tab.CheckAndMutate(ctx, "row000004", nil, nil, client.NewRowMutation("row000004").DeleteRow()); err != nil {
		t.Errorf("a condition that only deletes: %v", err)
	}
	if row, err := tab.Get(ctx, "row000005"); err != nil || row == nil {
		t.Errorf("a read: %v, %v", row, err)
	}
	if q := good(c.Quotas().List(ctx)); len(q) != 1 || len(q[0].Bounds) != 1 || q[0].Bounds[0].Kind != api.QuotaBytes || q[0].Bounds[0].Used < most/2 {
		t.Errorf("quotas: %+v", q)
	}

	f.stop(0)
	f.start(0)
	fill()
	for i := range rows {
		if err := tab.Apply(ctx, client.NewRowMutation(fmt.Sprintf("row%06d", i)).DeleteRow()); err != nil {
			t.Fatalf("a deletion: %v", err)
		}
	}
	open := func() {
		t.Helper()
		if err := c.Tables().Compact(ctx, "t", true); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			err := put()
			if err == nil {
				return
			}
			if !errors.Is(err, client.ErrQuotaBytes) || time.Now().After(end) {
				t.Fatalf("after all was deleted: %v", err)
			}
		}
	}
	open()
	fill()
	bound := func(bytes int64) error {
		return c.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{api.QuotaBytes: bytes}, 0)
	}
	for _, err := range []error{bound(100 * most), put(), bound(most)} {
		if err != nil {
			t.Fatalf("at once after more was given: %v", err)
		}
	}
	fill()
	if err := bound(most / 2); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := put(); !errors.Is(err, client.ErrQuotaBytes) {
			t.Fatalf("after the quota of a table that is full was lowered: %v", err)
		}
	}
	for _, err := range []error{c.Quotas().Remove(ctx, client.QuotaOfTable, "t"), put()} {
		if err != nil {
			t.Fatalf("at once after the quota was removed: %v", err)
		}
	}
}

// TestBytesOfUsers: the tables of an owner count together for its quota, whatever users write to them.
func TestBytesOfUsers(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 120*time.Second)
	admin := f.client(0)
	for _, name := range []string{"a", "b", "c"} {
		if _, err := admin.Tables().Create(ctx, name, table.FamilySpec{Name: "f"}); err != nil {
			t.Fatal(err)
		}
	}
	ann := f.user(admin, "ann")
	owner := func(name string) string { return good(admin.Tables().Usage(ctx, name)).Tables[0].Owner }
	if caller := owner("a"); caller != "admin" {
		t.Errorf("the table of who made it is %q's", caller)
	}
	for _, err := range []error{
		admin.Tables().SetOwner(ctx, "a", "ann"), admin.Tables().SetOwner(ctx, "b", "ann"),
		admin.Quotas().Set(ctx, client.QuotaOfUser, "ann", map[string]int64{api.QuotaBytes: 1 << 20}, 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if owner("b") != "ann" || owner("c") != "admin" {
		t.Errorf("tables are %q's and %q's", owner("b"), owner("c"))
	}
	rows := 0
	put := func(name string) error {
		rows++
		time.Sleep(5 * time.Millisecond)
		return admin.Table(name).Apply(ctx, client.NewRowMutation(fmt.Sprint(rows)).Set("f:q", someBytes(uint64(rows), 10_000)))
	}
	used := awaitQuota(t, func() error { return put("a") })
	if used.Quota != `user "ann" bytes` || !used.Bytes || used.Used < used.Limit {
		t.Errorf("refused with %+v", used)
	}
	if err := put("b"); !errors.Is(err, client.ErrQuotaBytes) {
		t.Errorf("another table of hers: %v", err)
	}
	// A user that may not see a family learns that the quota is used up, but not the size of the table.
	bob := f.clientAs(0, client.Config{Credential: f.user(admin, "bob"), RetryTimeMax: -1})
	good(admin.Tables().SetFamily(ctx, "a", table.FamilySpec{Name: "hidden"}))
	if err := admin.Grants().Add(ctx, client.Grant{Principal: "bob", Table: "a", Family: "f", Rights: "write"}); err != nil {
		t.Fatal(err)
	}
	var refused *client.QuotaError
	if err := bob.Table("a").Apply(ctx, client.NewRowMutation("row").Set("f:q", nil)); !errors.As(err, &refused) || !refused.Bytes || refused.Used != 0 || refused.Limit != 1<<20 {
		t.Errorf("refused to who sees one family: %v", err)
	}
	if err := put("c"); err != nil {
		t.Errorf("a table of another's: %v", err)
	}
	if q := good(admin.Quotas().List(ctx)); len(q) != 1 || q[0].Of != client.QuotaOfUser || q[0].Bounds[0].Used < 1<<20 {
		t.Errorf("quotas: %+v", q)
	}
	if err := f.clientAs(0, client.Config{Credential: ann}).Tables().SetOwner(ctx, "a", ""); !errors.Is(err, client.ErrPermission) {
		t.Errorf("by herself: %v", err)
	}
	for name, caller := range map[string]string{"none": "ann", "a": "nobody", "METADATA": "ann"} {
		if err := admin.Tables().SetOwner(ctx, name, caller); err == nil {
			t.Errorf("table %s was given to %s", name, caller)
		}
	}
	if err := admin.Tables().SetOwner(ctx, "a", ""); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		err := errors.Join(put("a"), put("b"))
		if err == nil {
			break
		}
		if !errors.Is(err, client.ErrQuotaBytes) || time.Now().After(end) {
			t.Fatalf("after the large table was taken from her: %v", err)
		}
	}
	if err := admin.Users().Remove(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	if caller := owner("b"); caller != "" {
		t.Errorf("the table of who was removed is %q's", caller)
	}
}
