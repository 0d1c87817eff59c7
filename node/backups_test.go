package node_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/gc"
	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/backup"
	"github.com/steledb/stele/raftmeta/journal"
	"github.com/steledb/stele/table"
)

// backupCluster is a cluster whose garbage goes at once.
type backupCluster struct {
	*testCluster
	c   *client.Client
	ctx context.Context
}

func newBackupCluster(t *testing.T, n int) *backupCluster {
	t.Helper()
	return newBackupClusterOf(t, n, func(*node.Config) {})
}

// newBackupClusterOf is newBackupCluster with other configurations of nodes.
func newBackupClusterOf(t *testing.T, n int, change func(*node.Config)) *backupCluster {
	t.Helper()
	f := newTestCluster(t, n)
	for i := range f.cfgs {
		change(&f.cfgs[i])
		f.cfgs[i].Tuning.SweepDelay = 10 * time.Millisecond
		f.cfgs[i].Tuning.GC = gc.Config{Every: 100 * time.Millisecond, Warn: time.Millisecond, Grace: time.Millisecond}
		if n > 1 {
			f.cfgs[i].Expect = n
			f.cfgs[i].Join = f.addrs
		}
	}
	f.startAll()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return &backupCluster{testCluster: f, c: f.client(0), ctx: ctx}
}

func (f *backupCluster) create(name string) {
	f.t.Helper()
	spec := good(table.ParseFamilySpec("f:versions=5"))
	if _, err := f.c.Tables().CreateSplit(f.ctx, name, []string{"row020", "row040"}, spec); err != nil {
		f.t.Fatal(err)
	}
}

// fill writes a version of all rows of a table.
func (f *backupCluster) fill(name string, version int) {
	f.t.Helper()
	for i := range 60 {
		m := client.NewRowMutation(fmt.Sprintf("row%03d", i)).Set("f:q", fmt.Appendf(nil, "%d of %d", i, version))
		if err := f.c.Table(name).Apply(f.ctx, m); err != nil {
			f.t.Fatal(err)
		}
	}
}

// rows returns all versions of a table's cells.
func (f *backupCluster) rows(name string) map[string]string {
	f.t.Helper()
	all := map[string]string{}
	s := f.c.Table(name).Scan(f.ctx)
	defer s.Close()
	for s.Next() {
		var text strings.Builder
		for _, c := range s.Row().Cells {
			fmt.Fprintf(&text, "%s:%s@%d=%s ", c.Family, c.Qualifier, c.Timestamp, c.Value)
		}
		all[string(s.Row().Key)] = text.String()
	}
	if err := s.Err(); err != nil {
		f.t.Fatal(err)
	}
	return all
}

func (f *backupCluster) backup(tables ...string) *client.Backup {
	f.t.Helper()
	id, err := f.c.Backups().Create(f.ctx, 0, tables...)
	if err != nil {
		f.t.Fatal(err)
	}
	return good(f.c.Backups().Wait(f.ctx, id))
}

// rounds waits until garbage collection has made so many more rounds.
func (f *backupCluster) rounds(n int64) {
	f.t.Helper()
	round := func() int64 {
		s := good(f.c.BlockStore().Status(f.ctx))
		most := int64(0)
		for i := range s.Nodes {
			most = max(most, s.Nodes[i].SweepRound)
			if s.Nodes[i].Alarm != "" {
				f.t.Fatalf("garbage collection took what is in use: %s", s.Nodes[i].Alarm)
			}
		}
		return most
	}
	for from := round(); round() < from+n; time.Sleep(20 * time.Millisecond) {
		if f.ctx.Err() != nil {
			f.t.Fatal("garbage collection makes no rounds")
		}
	}
}

// TestBackup (BU1, BU2, BU3): a backup has what was acknowledged before it, in all versions, whatever becomes of the table: writes, major
// compactions, a family that is dropped, a drop, and garbage collection at once. So has a table that was restored from it, when the backup
// is deleted, and after a restart of all nodes.
func TestBackup(t *testing.T) {
	t.Parallel()
	f := newBackupCluster(t, 1)
	f.create("t")
	f.create("u")
	f.fill("t", 1)
	f.fill("t", 2)
	f.fill("u", 1)
	want := map[string]map[string]string{"t": f.rows("t"), "u": f.rows("u")}
	b := f.backup("t", "u")
	if b.State != api.BackupMade || b.Tablets != 6 || b.Bytes == 0 || b.EndedMS < b.CreatedMS || !slices.Equal(b.Tables, []string{"t", "u"}) {
		t.Errorf("the backup is %+v", b)
	}
	f.fill("t", 3)
	if err := f.c.Tables().Compact(f.ctx, "t", true); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.c.Tables().DropNow(f.ctx, "t"), f.c.Tables().DropNow(f.ctx, "u")); err != nil {
		t.Fatal(err)
	}
	f.rounds(4)
	f.fsck()
	for from, as := range map[string]string{"t": "t", "u": "again"} {
		s, err := f.c.Backups().Restore(f.ctx, b.ID, from, as)
		if err != nil || s.Name != as || s.Family("f") == nil {
			t.Fatalf("restore %s as %s: %+v, %v", from, as, s, err)
		}
		if got := f.rows(as); !maps.Equal(got, want[from]) {
			t.Errorf("table %s, restored from %s, has\n%v, want\n%v", as, from, got, want[from])
		}
	}
	if err := f.c.Backups().Delete(f.ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	f.rounds(4)
	f.fill("again", 9)
	if got := f.rows("t"); !maps.Equal(got, want["t"]) {
		t.Errorf("after the backup was deleted: %v, want %v", got, want["t"])
	}
	f.stop(0)
	f.startAll()
	f.c = f.client(0)
	if got := f.rows("t"); !maps.Equal(got, want["t"]) {
		t.Errorf("after a restart: %v, want %v", got, want["t"])
	}
	f.fsck()
}

// fsck checks that everything that is referenced exists. On a busy machine the commit log may lack a replica for a while.
func (f *backupCluster) fsck() {
	f.t.Helper()
	var found []api.BlobFinding
	for range 60 {
		found = nil
		for after, first := "", true; first || after != ""; first = false {
			step := good(f.c.BlockStore().Fsck(f.ctx, after, false))
			found, after = append(found, step.Findings...), step.Next
		}
		if len(found) == 0 {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	f.t.Errorf("the check of the block store finds %+v", found)
}

// TestBackupErrors: requests for backups that cannot be made or restored are refused, each with its error, and change nothing.
func TestBackupErrors(t *testing.T) {
	t.Parallel()
	f := newBackupCluster(t, 1)
	all := f.c.Backups()
	for what, err := range map[string]error{
		"of no table":                  second(all.Create(f.ctx, 0)),
		"of a table that is not there": second(all.Create(f.ctx, 0, "t")),
		"restore":                      second(all.Restore(f.ctx, "nothing", "t", "u")),
		"delete":                       all.Delete(f.ctx, "nothing"),
		"delete another path":          all.Delete(f.ctx, "../tables/t"),
		"find":                         second(all.Find(f.ctx, "nothing")),
		"of METADATA":                  second(all.Create(f.ctx, 0, "METADATA")),
	} {
		if !errors.Is(err, client.ErrNoTable) && !errors.Is(err, client.ErrNoBackup) && !errors.Is(err, client.ErrSystemTable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	f.create("t")
	f.fill("t", 1)
	if _, err := all.Create(f.ctx, 0, "t", "t"); err == nil {
		t.Error("a table is given twice")
	}
	b := f.backup("t")
	for what, x := range map[string]struct{ err, want error }{
		"under the name of a table": {second(all.Restore(f.ctx, b.ID, "t", "t")), client.ErrTableExists},
		"of another table":          {second(all.Restore(f.ctx, b.ID, "u", "v")), client.ErrNoTable},
		"under a bad name":          {second(all.Restore(f.ctx, b.ID, "t", "a/b")), table.ErrBadName},
	} {
		if !errors.Is(x.err, x.want) {
			t.Errorf("restore %s: %v, want %v", what, x.err, x.want)
		}
	}
	if list := good(all.List(f.ctx)); len(list) != 1 || list[0].ID != b.ID {
		t.Errorf("the list is %+v", list)
	}
	short, err := all.Create(f.ctx, time.Millisecond, "t")
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, err := all.Find(f.ctx, short)
		if errors.Is(err, client.ErrNoBackup) {
			break
		}
		if err != nil {
			t.Fatalf("a backup that expires: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// second returns an error beside a result.
func second[T any](_ T, err error) error { return err }

// TestBackupDuringChanges (BU2, BU3): tablets split, merge and move while a backup is made, and rows are written. The backup has each row as of
// some moment since it was requested: all that was acknowledged before, and nothing in part.
func TestBackupDuringChanges(t *testing.T) {
	t.Parallel()
	f := newBackupCluster(t, 3)
	f.create("t")
	f.fill("t", 0)
	ctx, cancel := context.WithCancel(f.ctx)
	changed, versions := make(chan struct{}), make(chan int, 1)
	go func() {
		defer close(changed)
		for i := 0; ctx.Err() == nil; i++ {
			at := fmt.Sprintf("row%03d", 1+i*7%58)
			_, _ = f.c.Tablets().Split(ctx, "t", at)
			_, _ = f.c.Tablets().Move(ctx, "t", client.TabletRef{Row: at}, fmt.Sprintf("n%d", 1+i%3))
			_, _ = f.c.Tablets().Merge(ctx, "t", client.TabletRef{Row: fmt.Sprintf("row%03d", 1+i*11%58)})
		}
	}()
	go func() {
		n := 1
		for ; ctx.Err() == nil; n++ {
			for i := 0; i < 60 && ctx.Err() == nil; i++ {
				m := client.NewRowMutation(fmt.Sprintf("row%03d", i)).Set("f:q", fmt.Appendf(nil, "%d", n)).Set("f:p", fmt.Appendf(nil, "%d", n))
				_ = f.c.Table("t").Apply(ctx, m)
			}
			select {
			case <-versions:
			default:
			}
			versions <- n
		}
	}()
	for i := range 4 {
		least := <-versions
		b := f.backup("t")
		as := fmt.Sprint("copy", i)
		if _, err := f.c.Backups().Restore(f.ctx, b.ID, "t", as); err != nil {
			t.Fatal(err)
		}
		s := f.c.Table(as).Scan(f.ctx, client.Filter(table.CellsPerColumnLimit(1)))
		rows := 0
		for s.Next() {
			rows++
			cells, newest := s.Row().Cells, map[string]int{}
			for _, c := range cells {
				n := 0
				_, _ = fmt.Sscan(string(c.Value), &n)
				newest[string(c.Qualifier)] = n
			}
			if newest["p"] != newest["q"] || newest["q"] < least {
				t.Errorf("backup %d, row %s: %v, want equal numbers of at least %d", i, s.Row().Key, newest, least)
			}
		}
		if err := s.Err(); err != nil || rows != 60 {
			t.Errorf("backup %d has %d rows, %v", i, rows, err)
		}
		s.Close()
	}
	cancel()
	<-changed
}

// TestBackupSurvivesMaster (BU4): a backup whose master loses its place before it has recorded the result is made by the next master, once. The
// former master changes nothing any more.
func TestBackupSurvivesMaster(t *testing.T) {
	t.Parallel()
	f := newBackupCluster(t, 3)
	f.await(0, "three voters", votersAlive(3))
	f.create("t")
	f.fill("t", 1)
	want := f.rows("t")
	master := slices.IndexFunc(f.nodes, (*node.Node).IsMaster)
	if master < 0 {
		t.Fatal("no node is the master")
	}
	other := f.client((master + 1) % 3)
	release := f.nodes[master].HoldChanges() // its maker takes the snapshots, and cannot record them
	id, err := other.Backups().Create(f.ctx, 0, "t")
	if err != nil {
		t.Fatal(err)
	}
	f.fill("t", 2)
	defer f.nodes[master].Abdicate(f.ctx)()
	b, err := other.Backups().Wait(f.ctx, id)
	if err != nil || b.Tablets != 3 {
		t.Fatalf("the backup is %+v, %v", b, err)
	}
	release()
	f.rounds(3)
	if again := good(other.Backups().Find(f.ctx, id)); again.EndedMS != b.EndedMS || again.State != api.BackupMade {
		t.Errorf("the backup was %+v, and is %+v", b, again)
	}
	if _, err := other.Backups().Restore(f.ctx, id, "t", "u"); err != nil {
		t.Fatal(err)
	}
	for row, cells := range f.rows("u") {
		if !strings.HasSuffix(cells, want[row]) { // with or without the second version
			t.Errorf("row %s has %q, want %q", row, cells, want[row])
		}
	}
	f.fsck()
}

// TestBackupOnFullDisks: a backup is given up at once while disks are full, since garbage collection, which waits for it, is what frees space.
func TestBackupOnFullDisks(t *testing.T) {
	t.Parallel()
	const plenty, reserve = 1 << 30, 8 << 20
	disk := vfs.NewMem(vfs.MemOptions{})
	disk.SetCapacity("/data", plenty)
	f := newBackupClusterOf(t, 1, func(c *node.Config) {
		c.DataDirs, c.FS, c.OpenRaftLog, c.ReserveBytes = []string{"/data"}, disk, journal.Opener(disk), reserve
	})
	f.create("t")
	f.fill("t", 1)
	// The commit log and the lock service go on: they may use some of the reserve.
	disk.SetCapacity("/data", plenty-good(disk.FreeBytes("/data"))+reserve*3/4)
	id, err := f.c.Backups().Create(f.ctx, 0, "t")
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.c.Backups().Wait(f.ctx, id)
	if !errors.Is(err, client.ErrBackupNotMade) || b.State != api.BackupFailed || !strings.Contains(b.Error, "disk full") {
		t.Errorf("the backup is %+v, %v", b, err)
	}
	f.rounds(2)
	disk.SetCapacity("/data", plenty)
	f.backup("t")
}

// TestNoGarbageWhileBackupIsMade (BU1): while a backup is made, it is not known yet which files it has, so garbage collection does not learn what
// it must keep. When the backup is made, its files are kept.
func TestNoGarbageWhileBackupIsMade(t *testing.T) {
	t.Parallel()
	f := newBackupCluster(t, 1)
	f.create("t")
	f.fill("t", 1)
	n := f.nodes[0]
	before, err := n.MarkRoots(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	release := n.HoldChanges() // the maker cannot record the result
	making := backup.Record{State: backup.Making, Created: time.Now(), Tables: []string{"t"}}
	if err := n.PutFile(f.ctx, backup.Path("b"), making.Encode()); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(f.ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := n.MarkRoots(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("what must be kept is known while a backup is made: %v", err)
	}
	release()
	if _, err := f.c.Backups().Wait(f.ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if after, err := n.MarkRoots(f.ctx); err != nil || after < before+2 { // its manifest, and files of the table
		t.Errorf("%d blobs are kept, %d before the backup, %v", after, before, err)
	}
}
