package tablet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/sortedrun"
	"github.com/steledb/stele/tablet/storage"
)

// fullReserve is the reserve of these tests' disks, and fullExtent the length of their extents.
const fullReserve, fullExtent = 8 << 20, 256 << 10

// fullCluster is a set of tablet servers, each on its own node, of a table with two tablets: rows
// up to "m", and the others.
type fullCluster struct {
	*runNodes
	t            *testing.T
	meta         *memMetadata
	schema       *table.Schema
	highPriority bool // of the loaded tablets
}

func newFullCluster(t *testing.T) *fullCluster {
	f := &fullCluster{runNodes: newReservedNodes(t, 3, fullExtent, fullReserve), t: t, meta: newMemMetadata(), schema: testSchema(t, "f")}
	for i, m := range []*Meta{{ID: 1, Table: 1, End: []byte("m")}, {ID: 2, Table: 1, Start: []byte("m")}} {
		m.LastMajor = time.Now()
		f.meta.rows[metaKey(1, m.End)] = metaRow{EncodeMeta(m), 1, fmt.Sprint("s", i)}
	}
	return f
}

func (f *fullCluster) blobs(i int) storage.Blobs {
	return storage.OnReplicatedStore(f.stores[i], fmt.Sprint("s", i))
}

// start starts server i.
func (f *fullCluster) start(i int, cfg Config) *Server {
	f.t.Helper()
	if cfg.Blobs == nil {
		cfg.Blobs = f.blobs(i)
	}
	cfg.Metadata = ownMetadata{f.meta, fmt.Sprint("s", i)}
	s, err := Start(f.t.Context(), cfg)
	noError(f.t, err)
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.CloseWithin(ctx)
	})
	return s
}

// load loads a tablet on server i.
func (f *fullCluster) load(s *Server, i int, end string, runs []sortedrun.Run, recovered func()) {
	f.t.Helper()
	f.meta.assign(metaKey(1, []byte(end)), fmt.Sprint("s", i))
	all, err := f.meta.loads()
	noError(f.t, err)
	for _, l := range all {
		if string(l.Meta.End) == end {
			l.Schema, l.HighPriority, l.Runs, l.OnRecovered = f.schema, f.highPriority, runs, recovered
			noError(f.t, s.Load(f.t.Context(), l))
		}
	}
}

// fill leaves each disk less than an extent above its reserve.
func (f *fullCluster) fill() {
	for i, s := range f.stores {
		used := int64(0)
		for _, x := range s.Stats().Folders {
			used += x.BlobBytes + x.LogBytes
		}
		f.disks[i].SetCapacity("/a", used+fullReserve+fullExtent/2)
	}
	f.full.Store(true)
}

// free returns the smallest free space of any disk.
func (f *fullCluster) free() int64 {
	least := int64(1 << 40)
	for _, d := range f.disks {
		n, err := d.FreeBytes("/a")
		noError(f.t, err)
		least = min(least, n)
	}
	return least
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const fullValue = 10_000

// writeRows writes up to n rows, until one is rejected.
func writeRows(s *Server, prefix string, n int) (done int, err error) {
	rng := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, fullValue)
	for ; done < n; done++ {
		for i := range value {
			value[i] = byte(rng.Uint32())
		}
		_, err = applySync(s, fmt.Sprintf("%s%04d", prefix, done), table.Set("f", nil, 1, value))
		var busy *api.OverloadedError
		if errors.As(err, &busy) { // minor compactions are behind
			time.Sleep(10 * time.Millisecond)
			done--
			continue
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (f *fullCluster) checkRows(s *Server, prefix string, n int) {
	f.t.Helper()
	for i := range n {
		got := 0
		err := s.ReadRow(f.t.Context(), testTable, fmt.Appendf(nil, "%s%04d", prefix, i), nil, func(_ []byte, cells []table.Cell) error {
			got += len(cells)
			return nil
		})
		if err != nil || got != 1 {
			f.t.Fatalf("row %s%04d has %d cells: %v", prefix, i, got, err)
		}
	}
}

// TestRecoveryOnFullDisks: if all disks are full and a server dies, the contents of its log are
// sorted, loaded and written out, and the log is released; so is that of the surviving server. Then
// there is space for deletions, and after these for users.
func TestRecoveryOnFullDisks(t *testing.T) {
	f := newFullCluster(t)
	cfg := Config{MemtablesBytesMax: 16 << 20, MemtableBytes: 8 << 20}
	dead, lives := f.start(0, cfg), f.start(1, cfg)
	f.load(dead, 0, "m", nil, nil)
	f.load(lives, 1, "", nil, nil)
	const rows = 60
	for s, prefix := range map[*Server]string{dead: "a", lives: "x"} {
		_, err := writeRows(s, prefix, rows)
		noError(t, err)
	}
	f.fill()
	more, err := writeRows(lives, "y", 10_000)
	if !errors.Is(err, blobfs.ErrDiskFull) {
		t.Fatalf("after %d rows on full disks: %v", more, err)
	}
	if _, err := f.stores[2].Create(t.Context()); !errors.Is(err, blobfs.ErrDiskFull) {
		t.Fatalf("create a blob: %v", err)
	}
	dead.Close()

	ids, err := f.stores[1].ReplicatedLogs().List(t.Context(), "s0")
	noError(t, err)
	var runs []sortedrun.Run
	var runBlobs []blobfs.ID
	open := sortedrun.NewOpenRuns(f.blobs(1))
	for _, id := range ids {
		pieces, err := f.stores[1].ReplicatedLogs().End(t.Context(), "s0", id, fullExtent)
		noError(t, err)
		for _, p := range pieces {
			r, err := f.stores[2].ReplicatedLogs().OpenPiece(t.Context(), "s0", id, p)
			noError(t, err)
			m, err := sortWhole(t.Context(), f.blobs(2), r, p.End-p.Start)
			if err != nil {
				t.Fatalf("sort the dead server's log: %v", err)
			}
			noError(t, r.Close())
			runs, runBlobs = append(runs, open.Run(m)), append(runBlobs, m.Handle.ID)
		}
	}
	recovered := make(chan struct{})
	f.load(lives, 1, "m", runs, func() { close(recovered) })
	noError(t, lives.Compact(t.Context(), testTable, false))
	<-recovered
	open.Close()
	for _, id := range ids {
		noError(t, f.stores[1].ReplicatedLogs().Remove(t.Context(), "s0", id))
	}
	for _, id := range runBlobs {
		noError(t, f.stores[1].Delete(t.Context(), id))
	}
	f.checkRows(lives, "a", rows)
	f.checkRows(lives, "x", rows)
	f.checkRows(lives, "y", more)
	if free := f.free(); free < fullReserve/2 {
		t.Errorf("%d bytes are left, less than half of the reserve", free)
	}

	noError(t, lives.DropTable(testTable))
	for _, row := range f.meta.rows {
		m, err := DecodeMeta(row.meta)
		noError(t, err)
		for _, g := range m.Groups {
			for _, x := range g.Files { // as a sweep does
				noError(t, f.blobs(2).Delete(context.Background(), x.Handle.ID))
			}
		}
	}
	f.full.Store(false)
	for _, s := range f.stores {
		w, err := s.Create(t.Context())
		if err != nil {
			t.Fatalf("with free space again: %v", err)
		}
		w.Abort()
	}
}

// TestWritersLeaveTheReserve: writers do not consume the reserve through minor compactions, which
// let the log's extents be reused again and again.
func TestWritersLeaveTheReserve(t *testing.T) {
	f := newFullCluster(t)
	s := f.start(0, Config{MemtablesBytesMax: 1 << 20, MemtableBytes: 64 << 10, LogBytesMax: 1 << 20, OverloadWait: 20 * time.Millisecond})
	f.load(s, 0, "m", nil, nil)
	_, err := writeRows(s, "a", 300) // the log has released extents
	noError(t, err)
	f.fill()
	n := 0
	for try := range 6 { // writers keep retrying
		more, err := writeRows(s, fmt.Sprint("b", try), 10_000)
		if !errors.Is(err, blobfs.ErrDiskFull) {
			t.Fatalf("after %d rows on full disks: %v", n, err)
		}
		f.checkRows(s, fmt.Sprint("b", try), more)
		n += more
		for _, x := range s.served.all() {
			noError(t, x.flush(t.Context()))
		}
	}
	if free := f.free(); free < fullReserve*5/8 {
		t.Errorf("%d bytes of %d are left after %d rows", free, fullReserve, n)
	}
	// Compactions that only rewrite data do not use it either.
	if err := s.Compact(t.Context(), testTable, true); !errors.Is(err, blobfs.ErrDiskFull) {
		t.Errorf("a major compaction: %v", err)
	}
}

// TestHighPriorityTabletOnFullDisks: METADATA is written, and compacted, when users' tables are
// not.
func TestHighPriorityTabletOnFullDisks(t *testing.T) {
	f := newFullCluster(t)
	f.fill()
	cfg := Config{MemtablesBytesMax: 1 << 20, MemtableBytes: 64 << 10, LogBytesMax: 1 << 20, LogLater: true}
	cfg.Blobs = storage.OnHighPriorityStore(f.stores[0], "s0")
	s := f.start(0, cfg)
	f.highPriority = true
	f.load(s, 0, "m", nil, nil)
	const rows = 60
	for _, prefix := range []string{"a", "b"} {
		_, err := writeRows(s, prefix, rows)
		noError(t, err)
		noError(t, s.Compact(t.Context(), testTable, true))
	}
	f.checkRows(s, "a", rows)
	f.checkRows(s, "b", rows)
	if n := s.Stats().MajorCompactions; n != 2 {
		t.Errorf("%d major compactions", n)
	}
}

// TestMergedTabletKeepsPriority: two tablets of high priority that are merged are one of high
// priority, which writes to full disks.
func TestMergedTabletKeepsPriority(t *testing.T) {
	f := newFullCluster(t)
	f.fill()
	cfg := Config{MemtablesBytesMax: 1 << 20, MemtableBytes: 64 << 10, LogBytesMax: 1 << 20, LogLater: true}
	cfg.Blobs = storage.OnHighPriorityStore(f.stores[0], "s0")
	s := f.start(0, cfg)
	f.highPriority = true
	f.load(s, 0, "m", nil, nil)
	f.load(s, 0, "", nil, nil)
	noError(t, s.Merge(t.Context(), Ref{Table: 1, End: "m"}, Ref{Table: 1}))
	_, err := writeRows(s, "a", 60)
	noError(t, err)
	noError(t, s.Compact(t.Context(), testTable, true))
	f.checkRows(s, "a", 60)
}

// ends fails the test if f has not returned after a minute.
func ends(t *testing.T, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s has not returned after a minute", what)
		return nil
	}
}

// TestFullDisksAndLostReplica: all disks are below their reserve when a node is lost during writes.
// The writes end, with a typed error if necessary. Minor compactions and DropTable succeed, and
// with the space that they free, the server continues.
func TestFullDisksAndLostReplica(t *testing.T) {
	f := newFullCluster(t)
	s := f.start(0, Config{MemtablesBytesMax: 16 << 20, MemtableBytes: 8 << 20, OverloadWait: 50 * time.Millisecond})
	f.load(s, 0, "m", nil, nil)
	const rows = 200
	_, err := writeRows(s, "a", rows)
	noError(t, err)
	noError(t, s.Compact(t.Context(), testTable, false))
	other := testSchema(t, "f")
	other.Name = "other"
	f.meta.rows[metaKey(2, nil)] = metaRow{EncodeMeta(&Meta{ID: 3, Table: 2, LastMajor: time.Now()}), 1, "s0"}
	noError(t, s.Load(t.Context(), Load{Meta: &Meta{ID: 3, Table: 2, LastMajor: time.Now()}, Schema: other}))

	for i, x := range f.stores {
		used := int64(0)
		for _, folder := range x.Stats().Folders {
			used += folder.BlobBytes + folder.LogBytes
		}
		f.disks[i].SetCapacity("/a", used+fullReserve-64<<10)
	}
	f.measured.Store(true)
	f.down[2].Store(true)
	noError(t, f.stores[2].Close())

	more := 0
	err = ends(t, "a write", func() (err error) { more, err = writeRows(s, "b", 10_000); return err })
	if !errors.Is(err, blobfs.ErrDiskFull) {
		t.Fatalf("after %d rows: %v", more, err)
	}
	f.checkRows(s, "a", rows)
	f.checkRows(s, "b", more)
	noError(t, ends(t, "a flush", func() error { return s.served.all()[0].flush(t.Context()) }))
	noError(t, ends(t, "DropTable", func() error { return s.DropTable(testTable) }))
	noError(t, ends(t, "a write with free space again", func() error {
		for {
			done := make(chan error, 1)
			rm := &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.Set("f", nil, 1, []byte("v"))}}
			s.Apply("other", rm, func(_ int64, err error) { done <- err })
			if err := <-done; !errors.Is(err, blobfs.ErrDiskFull) {
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
	}))
	for i := range 2 {
		if free, err := f.disks[i].FreeBytes("/a"); err != nil || free < fullReserve/2 {
			t.Errorf("%d bytes are left on node %d, less than half of the reserve: %v", free, i, err)
		}
	}
}
