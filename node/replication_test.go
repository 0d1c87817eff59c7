package node_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/replication"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// replicated is a table of a source and its follower in another cluster.
type replicated struct {
	t        testing.TB
	ctx      context.Context
	from, to *backupCluster
	x        *timed // makes changes of the source
}

// newReplicated creates the clusters, and a source with some rows.
func newReplicated(t *testing.T, nodes int) *replicated {
	t.Helper()
	r := &replicated{t: t, from: newBackupCluster(t, 1), to: newBackupCluster(t, nodes)}
	r.ctx, r.x = r.from.ctx, newTimed(r.from)
	if nodes > 1 {
		r.to.await(0, "three voters", votersAlive(3))
		awaitAllLogReplicas(t, r.to.testCluster)
		r.to.c = good(client.Open(r.ctx, r.to.addrs[0]+","+r.to.addrs[1]+","+r.to.addrs[2], client.Config{RetryTimeMax: 30 * time.Second}))
		t.Cleanup(func() { r.to.c.Close() })
	}
	for range 100 {
		r.x.step()
	}
	return r
}

// add creates the replication.
func (r *replicated) add() {
	r.t.Helper()
	if err := r.to.c.Replications().Create(r.ctx, &client.ReplicationSpec{Name: "east", Addrs: r.from.addrs, Tables: []string{"t"}}); err != nil {
		r.t.Fatal(err)
	}
}

// equal waits until both tables have equal cells.
func (r *replicated) equal(what string) {
	r.t.Helper()
	if !r.becomesEqual(40 * time.Second) {
		from, to := r.from.rows("t"), r.to.rows("t")
		for row := range from {
			if from[row] != to[row] {
				r.t.Errorf("%s: row %s is %q, want %q", what, row, to[row], from[row])
			}
		}
		r.t.Fatalf("%s: %d rows, want %d; %+v", what, len(to), len(from), good(r.to.c.Replications().List(r.ctx)))
	}
}

func (r *replicated) becomesEqual(within time.Duration) bool {
	r.t.Helper()
	for end := time.Now().Add(within); !maps.Equal(r.from.rows("t"), r.to.rows("t")); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// TestReplication (RE1, RE2, RE3): a table follows one of another cluster cell by cell, sums included, while rows are copied, the source's tablets
// split and merge, families come and go, and either side restarts. It rejects other changes until it is promoted.
func TestReplication(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	done := make(chan struct{})
	go func() { // changes while the rows are copied
		defer close(done)
		for range 200 {
			r.x.step()
		}
	}()
	r.add()
	<-done
	r.equal("after the copy")
	for i := range 100 {
		r.x.step()
		if i%20 == 0 {
			r.x.tablets()
		}
	}
	good(r.from.c.Tables().SetFamily(r.ctx, "t", good(table.ParseFamilySpec("new"))))
	if err := r.from.c.Table("t").Apply(r.ctx, client.NewRowMutation("row001").Set("new:q", []byte("v"))); err != nil {
		t.Fatal(err)
	}
	r.equal("after a new family")
	r.checkRejected()

	if err := r.to.c.Replications().Pause(r.ctx, "east"); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		r.x.step()
	}
	r.to.stop(0)
	r.to.start(0)
	r.to.c = r.to.client(0)
	r.x.step()
	if err := r.to.c.Replications().Resume(r.ctx, "east"); err != nil {
		t.Fatal(err)
	}
	r.equal("after a pause")
	r.from.stop(0)
	r.from.start(0)
	r.from.c = r.from.client(0)
	for range 50 {
		r.x.step()
	}
	r.equal("after a restart of the source")

	if err := r.to.c.Replications().Promote(r.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	want := r.to.rows("t")
	r.x.step()
	if got := r.to.rows("t"); !maps.Equal(got, want) {
		t.Error("a promoted table follows its source")
	}
	if err := r.to.c.Table("t").Apply(r.ctx, client.NewRowMutation("row001").Set("f:q", []byte("own"))); err != nil {
		t.Errorf("a write to a promoted table: %v", err)
	}
	if all := good(r.to.c.Replications().List(r.ctx)); len(all) != 0 {
		t.Errorf("replications %+v", all)
	}
}

// checkRejected checks that the table rejects other changes, and shows no positions.
func (r *replicated) checkRejected() {
	r.t.Helper()
	c := r.to.c
	_, check := c.Table("t").CheckAndMutate(r.ctx, "row001", nil, client.NewRowMutation("row001").DeleteRow(), nil)
	_, add := c.Table("t").ReadModifyWrite(r.ctx, "row001", client.AppendRule("f:q", []byte("x")))
	for what, err := range map[string]error{
		"apply": c.Table("t").Apply(r.ctx, client.NewRowMutation("row001").Set("f:q", nil)),
		"check": check, "modify": add, "clear": c.Tables().ClearRows(r.ctx, "t", "", ""),
	} {
		var rejected *api.FollowerError
		if !errors.As(err, &rejected) || rejected.Replication != "east" {
			r.t.Errorf("%s of a follower: %v", what, err)
		}
	}
	for _, seq := range []uint64{1, 1 << 60} { // the row has changes after the first, and not yet the second
		if _, err := c.Table("t").Follow(r.ctx, "west", 0, &client.Change{Row: []byte("row001"), Seq: seq, Mutations: []table.Mutation{table.DeleteRow()}}, nil); !errors.Is(err, api.ErrNotFollower) {
			r.t.Errorf("change %d of another replication: %v", seq, err)
		}
	}
	if row, err := c.Table("t").Get(r.ctx, "row001", client.Filter(table.FamilyRegex(table.PositionFamily))); err != nil || row != nil && len(row.Cells) > 0 {
		r.t.Errorf("positions are shown: %v, %v", row, err)
	}
}

// TestReplicationFamilies (RE2): a family that was dropped in the source is dropped in the follower, and one that was created again has none of the cells of
// the former, whether rows are copied or changes are made.
func TestReplicationFamilies(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	again := func(spec string) {
		t.Helper()
		parsed := good(table.ParseFamilySpec(spec))
		good(r.from.c.Tables().DropFamily(r.ctx, "t", parsed.Name))
		good(r.from.c.Tables().SetFamily(r.ctx, "t", parsed))
	}
	done := make(chan struct{})
	go func() { // while the rows are copied
		defer close(done)
		for range 5 {
			r.x.step()
			again("f:versions=3")
		}
	}()
	r.add()
	<-done
	r.equal("after the copy")
	for i := range 40 {
		r.x.step()
		if i%10 == 0 {
			again([]string{"f:versions=3", "sum:aggregate=sum"}[i/10%2])
		}
	}
	r.equal("after families were created again")
	again("f:versions=3")
	r.equal("after a family without cells") // no change comes
	again("sum")                            // its cells are set now
	if err := r.from.c.Table("t").Apply(r.ctx, client.NewRowMutation("row001").Set("sum:n", []byte("text"))); err != nil {
		t.Fatal(err)
	}
	r.equal("after an aggregate became a plain family")
	good(r.from.c.Tables().DropFamily(r.ctx, "t", "g"))
	for end := time.Now().Add(20 * time.Second); good(r.to.c.Tables().Describe(r.ctx, "t")).Schema.Family("g") != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the follower keeps a family that was dropped")
		}
	}
	r.equal("after a family was dropped")

	change := &client.Change{Row: []byte("row001"), Seq: 1 << 40, Mutations: []table.Mutation{table.Set("f", nil, 0, nil)}, FamilyIDs: []uint32{1}}
	good(r.to.c.Table("t").Follow(r.ctx, "east", 0, change, nil)) // as a former master may, that does not know of the present family
	r.equal("after a change of a former family")
	change.Seq, change.FamilyIDs = 1<<41, []uint32{1000}
	if _, err := r.to.c.Table("t").Follow(r.ctx, "east", 0, change, nil); !errors.Is(err, table.ErrNoFamily) {
		t.Errorf("a change of a later family: %v", err)
	}
}

// TestReplicationLargeRows (RE1, RE2, RE5): rows with more cells, and more bytes, than a change may have are copied, while they change and while the work is
// interrupted. Then the largest changes are made.
func TestReplicationLargeRows(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	good(r.from.c.Tables().SetFamily(r.ctx, "t", good(table.ParseFamilySpec("f:versions=1000000"))))
	src := r.from.c.Table("t")
	apply := func(m *client.RowMutation) {
		t.Helper()
		if err := src.Apply(r.ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	many := func(row string, n int, add func(m *client.RowMutation, i int)) {
		t.Helper()
		for i := 0; i < n; {
			m := client.NewRowMutation(row)
			for ; i < n && m.Len() < 50_000; i++ {
				add(m, i)
			}
			apply(m)
		}
	}
	many("columns", 120_000, func(m *client.RowMutation, i int) { m.Set(fmt.Sprintf("g:%06d", i), fmt.Append(nil, i)) })
	many("columns", 30_000, func(m *client.RowMutation, i int) { m.AddInt(fmt.Sprintf("sum:%06d", i), int64(i%3)*1000, 1) })
	many("versions", 120_000, func(m *client.RowMutation, i int) { m.SetAt("f:q", int64(i)*1000, nil) })
	value := make([]byte, 2<<20)
	for i := range 5 {
		apply(client.NewRowMutation("values").SetAt("f:q", int64(i)*1000, value).Set("g:q", value))
	}
	random := rand.New(rand.NewPCG(testseed.New(t), 3))
	done, copied := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-copied:
				return
			case <-time.After(time.Millisecond):
			}
			m, column := client.NewRowMutation([]string{"columns", "versions"}[i%2]), fmt.Sprintf("%06d", random.IntN(130_000))
			switch random.IntN(6) {
			case 0:
				m.Delete("g:" + column)
			case 1:
				m.SetAt("f:q", int64(random.IntN(130_000))*1000, fmt.Append(nil, i))
			case 2, 3:
				m.AddInt("sum:"+column, 1000, 1)
			default:
				m.Set("g:"+column, fmt.Append(nil, i))
			}
			if err := src.Apply(r.ctx, m); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	if err := r.to.c.Replications().Create(r.ctx, &client.ReplicationSpec{Name: "east", Addrs: r.from.addrs, Tables: []string{"t"}, Rate: 8 << 20}); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		time.Sleep(500 * time.Millisecond)
		if err := r.to.c.Replications().Pause(r.ctx, "east"); err != nil {
			t.Fatal(err)
		}
		if err := r.to.c.Replications().Resume(r.ctx, "east"); err != nil {
			t.Fatal(err)
		}
	}
	for state := ""; state != api.ReplicationFollowing; time.Sleep(20 * time.Millisecond) {
		x := good(r.to.c.Replications().List(r.ctx))[0].Tables[0]
		if state = x.State; state == api.ReplicationFailed {
			t.Fatal(x.Error)
		}
	}
	close(copied)
	<-done
	r.equal("after the copy")
	m := client.NewRowMutation("change")
	for i := range 100_000 {
		m.Set(fmt.Sprintf("g:%06d", i), nil)
	}
	apply(m)
	r.equal("after the largest change")

	// As a former master might leave a row, if the progress did not keep it from beginning a copy.
	at := good(src.ChangePositionAfter(r.ctx, []byte("chang")))
	begin := &client.Change{Row: []byte("change"), Seq: at.Next, Mutations: []table.Mutation{table.DeleteRow()}, FamilyIDs: []uint32{0}}
	if made, err := r.to.c.Table("t").Follow(r.ctx, "east", 0, begin, &api.RowPart{Copy: 1}); err != nil || made != api.FollowedNow {
		t.Fatal(made, err)
	}
	for range 5 {
		apply(client.NewRowMutation("change").Set("g:q", nil))
	}
	r.equal("after a change of an incomplete row")
}

// TestReplicationSecured: a table follows one of another cluster, both of which have certificates, with the rights of an access token. An error of the source
// is none of the caller's rights.
func TestReplicationSecured(t *testing.T) {
	t.Parallel()
	here, _, _ := secureTestCluster(t, 1)
	admin, ctx := secureOne(t, here)
	there, _, _ := secureTestCluster(t, 1)
	other, _ := secureOne(t, there)
	for _, name := range []string{"orders", "plain"} {
		good(other.Tables().Create(ctx, name, good(table.ParseFamilySpec("f"))))
	}
	good(other.Tables().Alter(ctx, "orders", table.Change{Op: table.ChangeStream, Retention: time.Hour}))
	tok, _, err := other.Users().AddToken(ctx, "replica", 0, "")
	if err != nil {
		t.Fatal(err)
	}
	spec := func() *client.ReplicationSpec {
		return &client.ReplicationSpec{Name: "east", Addrs: there.addrs, Secret: []byte(tok.Reveal()), Tables: []string{"orders"}}
	}
	refused := func(what, text string, want error, change func(s *client.ReplicationSpec)) {
		t.Helper()
		s := spec()
		change(s)
		err := admin.Replications().Create(ctx, s)
		if errors.Is(err, client.ErrAmbiguous) || errors.Is(err, client.ErrPermission) || !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a table that the user may not see", `the source, with the given credential: table "orders": no such table`, rpc.CodeBadRequest, func(*client.ReplicationSpec) {})
	for _, g := range []client.Grant{{Principal: "replica", Rights: "read", Table: "orders"}, {Principal: "replica", Rights: "read", Table: "plain"}} {
		if err := other.Grants().Add(ctx, g); err != nil {
			t.Fatal(err)
		}
	}
	refused("no change stream", "the source", api.ErrNoChangeStream, func(s *client.ReplicationSpec) { s.Tables = []string{"plain"} })
	refused("no node", "connection refused", rpc.CodeBadRequest, func(s *client.ReplicationSpec) { s.Addrs = []string{"127.0.0.1:1"} })
	refused("a user of another cluster", "the source, with the given credential", rpc.CodeBadRequest, func(s *client.ReplicationSpec) {
		s.Secret = good(here.user(admin, "ann").PEM())
	})
	if err := admin.Replications().Create(ctx, spec()); err != nil {
		t.Fatal(err)
	}
	if err := other.Table("orders").Apply(ctx, client.NewRowMutation("row").Set("f:q", []byte("v"))); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if row, err := admin.Table("orders").Get(ctx, "row"); err == nil && row != nil && string(row.Cells[0].Value) == "v" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", good(admin.Replications().List(ctx)))
		}
	}
}

// TestReplicationSourceDown: a source that does not answer shows soon in the state of the table, as a problem of the cluster and in the metrics, and until it
// answers again. A paused replication is no problem.
func TestReplicationSourceDown(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	r.add()
	r.equal("after the copy")
	problem := func() string {
		for _, line := range health.Of(r.ctx, r.to.c).Problems() {
			if strings.HasPrefix(line, "replication east") {
				return line
			}
		}
		return ""
	}
	gauge := func(name string) float64 { // -1: there is none
		if v, ok := good(r.to.nodes[0].Gauge(name))["east t"]; ok {
			return v
		}
		return -1
	}
	failed := func() float64 { return gauge("stele_replication_failed") }
	await := func(what string, within time.Duration, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(within); !ok(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v, %q", what, good(r.to.c.Replications().List(r.ctx)), problem())
			}
		}
	}
	await("following", 10*time.Second, func() bool {
		lag := gauge("stele_replication_lag_seconds")
		return problem() == "" && failed() == 0 && lag >= 0 && lag < 10 && gauge("stele_replication_bytes_total") > 0 && gauge("stele_replication_changes_total") > 0
	})
	r.from.stop(0)
	await("after the source has stopped", 6*time.Second, func() bool {
		x := good(r.to.c.Replications().List(r.ctx))[0].Tables[0]
		return x.State == api.ReplicationFailed && strings.Contains(x.Error, "connection refused")
	})
	if line := problem(); !strings.Contains(line, "table t") || !strings.Contains(line, "connection refused") || failed() != 1 {
		t.Errorf("problem %q, failed %v", line, failed())
	}
	if err := r.to.c.Replications().Pause(r.ctx, "east"); err != nil {
		t.Fatal(err)
	}
	await("paused", 5*time.Second, func() bool { return problem() == "" && failed() < 0 })
	if err := r.to.c.Replications().Resume(r.ctx, "east"); err != nil {
		t.Fatal(err)
	}
	await("resumed", 10*time.Second, func() bool { return problem() != "" })
	r.from.start(0)
	r.from.c = r.from.client(0)
	await("after the source has started", 20*time.Second, func() bool { return problem() == "" && failed() == 0 })
}

// TestReplicationIdle (RE4): a replication without changes saves its position, so that it does not become stale.
func TestReplicationIdle(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	r.add()
	r.equal("after the copy")
	master, path := r.to.nodes[0], replication.StateDir+"/east/t"
	saved := func(change time.Duration) time.Time { // and writes it, with another age
		t.Helper()
		d := wire.NewDecoder(good(master.File(r.ctx, path)))
		e := wire.GetEncoder()
		defer e.Release()
		e.Array(d.Array())
		e.Int(d.Int())
		e.Bool(d.Bool())
		e.Bin(d.Bytes())
		e.Str(d.Str())
		e.Uint(d.Uint())
		at := time.UnixMicro(d.Int())
		e.Int(at.Add(change).UnixMicro())
		e.Bool(d.Bool())
		if e.Uint(d.Uint()); change != 0 {
			if err := master.PutFile(r.ctx, path, e.Bytes()); err != nil {
				t.Fatal(err)
			}
		}
		return at
	}
	if err := r.to.c.Replications().Pause(r.ctx, "east"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // until it has stopped
	saved(-29 * 24 * time.Hour)
	if err := r.to.c.Replications().Resume(r.ctx, "east"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); time.Since(saved(0)) > time.Hour; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the position is not saved")
		}
	}
	if x := good(r.to.c.Replications().List(r.ctx))[0].Tables[0]; x.Rows > 0 {
		t.Errorf("%d rows were copied again", x.Rows)
	}
}

// TestReplicationFailover (RE1): the worker's node, which is the master, dies again and again while changes come. Each operand counts once.
func TestReplicationFailover(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 3)
	random := rand.New(rand.NewPCG(testseed.New(t), 2))
	r.add()
	for range 3 {
		for range 100 {
			r.x.step()
		}
		m := r.to.master()
		if random.IntN(2) == 0 {
			if _, err := r.to.c.Tablets().Split(r.ctx, "t", fmt.Sprintf("row%03d", random.IntN(60))); err != nil && !errors.Is(err, client.ErrBadSplit) { // at a row where one ends
				t.Fatal(err)
			}
		}
		r.to.stop(m)
		for range 50 {
			r.x.step()
		}
		r.to.start(m)
		r.to.await(m, "three voters again", votersAlive(3))
		awaitAllLogReplicas(t, r.to.testCluster)
	}
	r.equal("after three masters")
}

// TestReplicationCreatedAgain (RE2): a table of a replication that was removed accepts no changes of another source under the same name. Without the table, all of the
// other source is copied.
func TestReplicationCreatedAgain(t *testing.T) {
	r := newReplicated(t, 1)
	r.add()
	r.equal("the first source")
	if err := r.to.c.Replications().Remove(r.ctx, "east"); err != nil {
		t.Fatal(err)
	}
	r.from = newBackupCluster(t, 1) // its sequence numbers are lower
	r.x = newTimed(r.from)
	for _, row := range []string{"row001", "row002", "row050"} {
		if err := r.from.c.Table("t").Apply(r.ctx, client.NewRowMutation(row).Set("f:q", []byte("of the second source"))); err != nil {
			t.Fatal(err)
		}
	}
	err := r.to.c.Replications().Create(r.ctx, &client.ReplicationSpec{Name: "east", Addrs: r.from.addrs, Tables: []string{"t"}})
	if !errors.Is(err, client.ErrTableExists) {
		t.Errorf("with the table of the first source: %v", err)
	}
	if err := r.to.c.Tables().Drop(r.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	r.add()
	r.equal("the second source")
}

// TestReplicationRemoved (RE2): tables of a removed replication accept no changes of another source under its name, also one that was renamed, and one that was dropped
// while the replication was removed.
func TestReplicationRemoved(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	families := []table.FamilySpec{good(table.ParseFamilySpec("f"))}
	good(r.from.c.Tables().Create(r.ctx, "u", families...))
	good(r.from.c.Tables().Alter(r.ctx, "u", table.Change{Op: table.ChangeStream, Retention: time.Hour}))
	spec := &client.ReplicationSpec{Name: "east", Addrs: r.from.addrs, Tables: []string{"t", "u"}}
	if err := r.to.c.Replications().Create(r.ctx, spec); err != nil {
		t.Fatal(err)
	}
	r.equal("the first source")
	good(r.to.c.Tables().Rename(r.ctx, "u", "v"))
	if err := r.to.c.Tables().Drop(r.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if err := r.to.c.Replications().Remove(r.ctx, "east"); err != nil {
		t.Fatal(err)
	}
	good(r.to.c.Tables().Undrop(r.ctx, client.DroppedRef{Name: "t"}, ""))
	for _, name := range []string{"t", "v"} {
		if s := good(r.to.c.Tables().Describe(r.ctx, name)).Schema; s.Follows != table.RemovedReplication("east") {
			t.Errorf("table %s follows %q", name, s.Follows)
		}
	}
	other := newBackupCluster(t, 1)
	spec.Addrs = other.addrs
	for _, name := range []string{"t", "v"} {
		good(other.c.Tables().Create(r.ctx, name, families...))
		good(other.c.Tables().Alter(r.ctx, name, table.Change{Op: table.ChangeStream, Retention: time.Hour}))
		spec.Tables = []string{name}
		if err := r.to.c.Replications().Create(r.ctx, spec); !errors.Is(err, client.ErrTableExists) {
			t.Errorf("a replication of table %s of another source: %v", name, err)
		}
	}
}
