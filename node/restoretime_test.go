package node_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// timed is a table, and what its rows were at some times.
type timed struct {
	*backupCluster
	r    *rand.Rand
	n    int
	at   []time.Time
	want []map[string]string
}

// newTimed creates a table with a change stream: plain versions, a family in a group of its own, and sums.
func newTimed(f *backupCluster) *timed {
	f.t.Helper()
	var specs []table.FamilySpec
	for _, text := range []string{"f:versions=3", "g:group=other", "sum:aggregate=sum"} {
		specs = append(specs, good(table.ParseFamilySpec(text)))
	}
	good(f.c.Tables().CreateSplit(f.ctx, "t", []string{"row020", "row040"}, specs...))
	good(f.c.Tables().Alter(f.ctx, "t", table.Change{Op: table.ChangeStream, Retention: time.Hour}))
	return &timed{backupCluster: f, r: rand.New(rand.NewPCG(testseed.New(f.t), 1))}
}

// step makes one random change.
func (x *timed) step() {
	x.t.Helper()
	x.n++
	m := client.NewRowMutation(fmt.Sprintf("row%03d", x.r.IntN(60)))
	for range 1 + x.r.IntN(3) {
		switch x.r.IntN(9) {
		case 0:
			m.DeleteRow()
		case 1:
			m.DeleteFamily("f")
		case 2:
			m.Delete("f:q")
		case 3:
			m.DeleteFamily("sum")
		case 4, 5:
			m.AddInt("sum:n", 0, int64(x.r.IntN(100)))
		case 6:
			m.SetAt("f:q", int64(x.r.IntN(5)*1000), fmt.Append(nil, x.n))
		case 7:
			m.Set("g:q", fmt.Append(nil, x.n))
		default:
			m.Set("f:q", fmt.Append(nil, x.n))
		}
	}
	if err := x.c.Table("t").Apply(x.ctx, m); err != nil {
		x.t.Fatal(err)
	}
}

// clear deletes a range of rows.
func (x *timed) clear() {
	x.t.Helper()
	from := x.r.IntN(60)
	if err := x.c.Tables().ClearRows(x.ctx, "t", fmt.Sprintf("row%03d", from), fmt.Sprintf("row%03d", from+1+x.r.IntN(30))); err != nil {
		x.t.Fatal(err)
	}
}

// tablets splits or merges the table's tablets.
func (x *timed) tablets() {
	row := fmt.Sprintf("row%03d", x.r.IntN(60))
	if x.r.IntN(2) == 0 {
		_, _ = x.c.Tablets().Split(x.ctx, "t", row) // a tablet may end there
	} else {
		_, _ = x.c.Tablets().Merge(x.ctx, "t", client.TabletRef{Row: row}) // it may be the last one
	}
}

// record records what the rows are now.
func (x *timed) record() {
	x.at, x.want = append(x.at, time.Now()), append(x.want, x.rows("t"))
}

// restore restores the i-th time as a table, and compares it.
func (x *timed) restore(id string, i int) {
	x.t.Helper()
	name := fmt.Sprintf("r%d-%d", i, x.r.IntN(1e9))
	made, err := x.c.Backups().CreateAt(x.ctx, time.Hour, id, "t", x.at[i])
	if err != nil {
		x.t.Fatalf("time %d: %v", i, err)
	}
	good(x.c.Backups().Wait(x.ctx, made))
	good(x.c.Backups().Restore(x.ctx, made, "t", name))
	if err := x.c.Backups().Delete(x.ctx, made); err != nil {
		x.t.Fatal(err)
	}
	x.same(name, i)
	if err := x.c.Tables().Compact(x.ctx, name, true); err != nil {
		x.t.Fatal(err)
	}
	x.same(name, i)
}

func (x *timed) same(name string, i int) {
	x.t.Helper()
	if got := x.rows(name); !maps.Equal(got, x.want[i]) {
		for row := range x.want[i] {
			if got[row] != x.want[i][row] {
				x.t.Errorf("at time %d row %s is %s, want %s", i, row, got[row], x.want[i][row])
			}
		}
		x.t.Fatalf("at time %d there are %d rows, want %d", i, len(got), len(x.want[i]))
	}
}

// TestRestoreToTime (BU6): a table is restored to the state of each row at a time, with all versions, deletions and sums, whatever has become of its
// tablets since the backup: splits, merges, compactions, later changes, and its drop.
func TestRestoreToTime(t *testing.T) {
	t.Parallel()
	x := newTimed(newBackupCluster(t, 1))
	for range 50 {
		x.step()
	}
	b := x.backup("t")
	x.record()
	for i := range 200 {
		x.step()
		if i%20 == 7 {
			x.tablets()
		}
		if i%40 == 13 {
			x.clear()
		}
		if i%70 == 69 {
			if err := x.c.Tables().Compact(x.ctx, "t", i > 100); err != nil {
				t.Fatal(err)
			}
		}
		if i%25 == 0 {
			x.record()
		}
	}
	x.rounds(2)
	for _, i := range x.r.Perm(len(x.at))[:5] {
		x.restore(b.ID, i)
	}
	if err := x.c.Tables().Drop(x.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		x.restore(b.ID, x.r.IntN(len(x.at)))
	}
	x.rounds(2)
}

// TestRestoreTimeRefused: a time that a table cannot be restored to is refused with the limit.
func TestRestoreTimeRefused(t *testing.T) {
	t.Parallel()
	x := newTimed(newBackupCluster(t, 1))
	x.step()
	before := time.Now()
	x.step()
	b := x.backup("t")
	for _, c := range []struct {
		at     time.Time
		reason string
	}{{before, api.RestoreBeforeBackup}, {time.Now().Add(time.Hour), api.RestoreInFuture}} {
		_, err := x.c.Backups().CreateAt(x.ctx, 0, b.ID, "t", c.at)
		var refused *api.RestoreTimeError
		if !errors.As(err, &refused) || refused.Reason != c.reason || refused.Limit == 0 {
			t.Errorf("a restore to %v: %v, want %s", c.at, err, c.reason)
		}
	}
	x.create("plain")
	plain := x.backup("plain")
	if _, err := x.c.Backups().CreateAt(x.ctx, 0, plain.ID, "plain", time.Now()); !errors.Is(err, api.ErrNoChangeStream) {
		t.Errorf("of a table without a stream: %v", err)
	}
	if _, err := x.c.Backups().CreateAt(x.ctx, 0, b.ID, "other", time.Now()); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("of a table that is not in the backup: %v", err)
	}
	made := good(x.c.Backups().CreateAt(x.ctx, 0, b.ID, "t", time.Now()))
	good(x.c.Backups().Wait(x.ctx, made))
	var refused *api.RestoreTimeError
	if _, err := x.c.Backups().CreateAt(x.ctx, 0, made, "t", time.Now()); !errors.As(err, &refused) || refused.Reason != api.RestoreOfRestore {
		t.Errorf("of a restored backup: %v", err)
	}
	// The changes until the stream is on again are missing.
	good(x.c.Tables().Alter(x.ctx, "t", table.Change{Op: table.ChangeStream}))
	x.step()
	good(x.c.Tables().Alter(x.ctx, "t", table.Change{Op: table.ChangeStream, Retention: time.Hour}))
	x.step()
	made, err := x.c.Backups().CreateAt(x.ctx, 0, b.ID, "t", time.Now())
	if err == nil { // METADATA does not have it yet
		_, err = x.c.Backups().Wait(x.ctx, made)
	}
	if !errors.Is(err, api.ErrRestoreTime) && !errors.Is(err, client.ErrBackupNotMade) {
		t.Errorf("across a time without a stream: %v", err)
	}
	if err := x.c.Tables().DropNow(x.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if _, err := x.c.Backups().CreateAt(x.ctx, 0, b.ID, "t", time.Now()); !errors.Is(err, client.ErrNoTable) {
		t.Errorf("of a table that was deleted: %v", err)
	}
}

// TestRestoreToTimeFailover (BU6): the master dies while it makes a backup for a time, twice. The next one makes it, and each operand counts once.
func TestRestoreToTimeFailover(t *testing.T) {
	t.Parallel()
	f := newBackupCluster(t, 3)
	f.await(0, "three voters", votersAlive(3))
	awaitAllLogReplicas(t, f.testCluster)
	f.c = good(client.Open(f.ctx, f.addrs[0]+","+f.addrs[1]+","+f.addrs[2], client.Config{RetryTimeMax: 30 * time.Second}))
	t.Cleanup(func() { f.c.Close() })
	x := newTimed(f)
	for range 50 {
		x.step()
	}
	b := x.backup("t")
	for i := range 150 {
		x.step()
		if i%30 == 0 {
			x.tablets()
			x.record()
		}
	}
	for i := range 2 {
		made := good(x.c.Backups().CreateAt(x.ctx, time.Hour, b.ID, "t", x.at[i+2]))
		m := f.master()
		f.stop(m)
		good(x.c.Backups().Wait(x.ctx, made))
		f.start(m)
		f.await(m, "three voters again", votersAlive(3))
		awaitAllLogReplicas(t, f.testCluster)
		good(x.c.Backups().Restore(x.ctx, made, "t", made))
		x.same(made, i+2)
	}
}

// TestRestoreBeforeClear (BU6): a clear before the backup is not in what is restored to a time before the clear: the restore is refused, or has the rows.
func TestRestoreBeforeClear(t *testing.T) {
	x := newTimed(newBackupCluster(t, 1))
	for range 20 {
		x.step()
	}
	time.Sleep(20 * time.Millisecond)
	x.record()
	time.Sleep(20 * time.Millisecond)
	if err := x.c.Tables().ClearRows(x.ctx, "t", "", ""); err != nil {
		t.Fatal(err)
	}
	b := x.backup("t")
	if len(x.want[0]) == 0 {
		t.Fatal("no rows")
	}
	made, err := x.c.Backups().CreateAt(x.ctx, time.Hour, b.ID, "t", x.at[0])
	if err != nil {
		t.Logf("refused: %v", err)
		return
	}
	good(x.c.Backups().Wait(x.ctx, made))
	good(x.c.Backups().Restore(x.ctx, made, "t", "r"))
	x.same("r", 0)
}

// TestRestoredOrder (T5): the files of a tablet that was restored to a time are sorted by their first sequence numbers.
func TestRestoredOrder(t *testing.T) {
	x := newTimed(newBackupCluster(t, 1))
	put := func(row string) {
		t.Helper()
		if err := x.c.Table("t").Apply(x.ctx, client.NewRowMutation(row).Set("f:q", []byte(row))); err != nil {
			t.Fatal(err)
		}
	}
	put("row050")
	b := x.backup("t")
	if _, err := x.c.Tablets().Split(x.ctx, "t", "row055"); err != nil {
		t.Fatal(err)
	}
	put("row059") // the upper part
	put("row041") // the lower part
	x.record()
	made := good(x.c.Backups().CreateAt(x.ctx, time.Hour, b.ID, "t", x.at[0]))
	good(x.c.Backups().Wait(x.ctx, made))
	good(x.c.Backups().Restore(x.ctx, made, "t", "r"))
	x.same("r", 0)
	info := good(x.c.Tables().Describe(x.ctx, "r"))
	row := good(x.c.Table(metadata.Name).Get(x.ctx, string(metadata.Key(nil, info.Schema.ID, nil)), client.Filter(metadata.Rows())))
	m := good(tablet.DecodeMeta(good(metadata.Decode(row)).Meta))
	for _, g := range m.Groups {
		for i, f := range g.Files {
			if i > 0 && f.MinSeq < g.Files[i-1].MinSeq {
				t.Errorf("group %s, file %d: sequence numbers from %d on, and those of the file before from %d on", g.Name, i, f.MinSeq, g.Files[i-1].MinSeq)
			}
		}
	}
}

// TestClearWithoutStream (BU6): a clear of a time without a change stream is missing in it: a restore across that time is refused.
func TestClearWithoutStream(t *testing.T) {
	x := newTimed(newBackupCluster(t, 1))
	for range 20 {
		x.step()
	}
	b := x.backup("t")
	good(x.c.Tables().Alter(x.ctx, "t", table.Change{Op: table.ChangeStream}))
	x.rows("t") // tablet servers learn that the stream has ended
	if err := x.c.Tables().ClearRows(x.ctx, "t", "", ""); err != nil {
		t.Fatal(err)
	}
	good(x.c.Tables().Alter(x.ctx, "t", table.Change{Op: table.ChangeStream, Retention: time.Hour}))
	time.Sleep(20 * time.Millisecond)
	x.record()
	time.Sleep(20 * time.Millisecond)
	made, err := x.c.Backups().CreateAt(x.ctx, time.Hour, b.ID, "t", x.at[0])
	if err == nil {
		_, err = x.c.Backups().Wait(x.ctx, made)
	}
	if err != nil {
		t.Logf("refused: %v", err)
		return
	}
	good(x.c.Backups().Restore(x.ctx, made, "t", "r"))
	if rows := x.rows("r"); len(rows) != len(x.want[0]) {
		t.Errorf("restored %d rows, want %d", len(rows), len(x.want[0]))
	}
}
