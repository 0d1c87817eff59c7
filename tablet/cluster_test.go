package tablet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/tablet/sortedrun"

	"github.com/steledb/stele/tablet/logbody"

	"github.com/steledb/stele/tablet/storage"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/commitlog"
	"github.com/steledb/stele/tablet/ikey"
)

// cluster is several tablet servers on one block store and one METADATA, with the assignments that
// a master would have.
type cluster struct {
	t      testing.TB
	fs     *vfs.Mem
	store  *blobfs.Store
	meta   *memMetadata
	schema *table.Schema
	clock  clock
	cfg    Config

	servers []*clusterServer
	nextID  atomic.Uint64
	names   atomic.Int64
}

// clusterServer is one instance of a server.
type clusterServer struct {
	*Server
	name  string
	blobs *ownLogs
	lease atomic.Bool
	clock clock // its own; zero: the cluster's
}

// ownLogs records the logs that a server has created.
type ownLogs struct {
	storage.Blobs
	mu   sync.Mutex
	logs []blobfs.ID
	// stalled, while set, blocks appends to the logs.
	stalled atomic.Pointer[chan struct{}]
	// full is the result of the logs' Full.
	full atomic.Pointer[error]
	// weak, if set, is the result of the logs' Weak. released is the largest position that was released.
	weak, released atomic.Int64
}

// stallableLog is a log that may make no progress.
type stallableLog struct {
	storage.LogWriter
	of *ownLogs
}

func (l stallableLog) Append(ctx context.Context, p []byte) (int64, error) {
	if c := l.of.stalled.Load(); c != nil {
		select {
		case <-*c:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return l.LogWriter.Append(ctx, p)
}

func (l stallableLog) Full() error {
	if err := l.of.full.Load(); err != nil {
		return *err
	}
	return l.LogWriter.Full()
}

func (l stallableLog) Weak() int64 {
	if pos := l.of.weak.Load(); pos != 0 {
		return pos
	}
	return l.LogWriter.Weak()
}

func (l stallableLog) Release(pos int64) {
	l.of.released.Store(max(pos, l.of.released.Load()))
	l.LogWriter.Release(pos)
}

func (b *ownLogs) CreateLog(ctx context.Context, id blobfs.ID) (storage.LogWriter, error) {
	b.mu.Lock()
	b.logs = append(b.logs, id)
	b.mu.Unlock()
	w, err := b.Blobs.CreateLog(ctx, id)
	if err != nil {
		return nil, err
	}
	return stallableLog{w, b}, nil
}

// newCluster starts n servers. The table has one tablet, which the first serves.
func newCluster(t testing.TB, cfg Config, n int, specs ...string) *cluster {
	f := &cluster{t: t, fs: vfs.NewMem(vfs.MemOptions{}), meta: newMemMetadata(), schema: testSchema(t, specs...), cfg: cfg}
	f.clock.micros.Store(1_000_000_000_000)
	var err error
	if f.store, err = openStore(f.fs, 256<<10); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range f.servers {
			s.Close()
		}
		f.store.Close()
	})
	f.nextID.Store(16)
	for range n {
		f.servers = append(f.servers, f.start())
	}
	m := &Meta{ID: 1, Table: 1, LastMajor: f.clock.now()}
	f.meta.rows[metaKey(1, nil)] = metaRow{EncodeMeta(m), 1, f.servers[0].name}
	if err := f.load(f.servers[0], nil, nil); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *cluster) start() *clusterServer {
	f.t.Helper()
	s := &clusterServer{name: fmt.Sprintf("server%d", f.names.Add(1)), blobs: &ownLogs{Blobs: storage.OnStore(f.store)}}
	s.lease.Store(true)
	cfg := f.cfg
	cfg.Blobs, cfg.Metadata = s.blobs, ownMetadata{f.meta, s.name}
	cfg.NewTabletID = func(context.Context) (uint64, error) { return f.nextID.Add(1), nil }
	cfg.Now = func() time.Time {
		if s.clock.micros.Load() != 0 {
			return s.clock.now()
		}
		return f.clock.now()
	}
	cfg.Serving = func() error {
		if !s.lease.Load() {
			return api.ErrUnavailable
		}
		return nil
	}
	var err error
	if s.Server, err = Start(context.Background(), cfg); err != nil {
		f.t.Fatal(err)
	}
	return s
}

// assign makes s the owner of an unserved tablet, and loads it there.
func (f *cluster) load(s *clusterServer, end []byte, runs []sortedrun.Run) error {
	key := metaKey(1, end)
	f.meta.assign(key, s.name)
	all, err := f.meta.loads()
	if err != nil {
		return err
	}
	for _, l := range all {
		if string(l.Meta.End) == string(end) {
			l.Schema, l.Runs = f.schema, runs
			return s.Load(context.Background(), l)
		}
	}
	return ErrNoMeta
}

// kill ends a server without writing its memtables out, and returns the contents of its logs as
// sorted runs, one for each half of the records.
func (f *cluster) kill(s *clusterServer) []sortedrun.Run {
	f.t.Helper()
	s.lease.Store(false)
	s.Close()
	f.servers = slices.DeleteFunc(f.servers, func(x *clusterServer) bool { return x == s })
	return f.readLogs(s)
}

// readLogs returns the contents of a dead server's logs.
func (f *cluster) readLogs(s *clusterServer) []sortedrun.Run {
	f.t.Helper()
	var records []commitlog.Record
	for _, id := range s.blobs.logs {
		r, err := s.blobs.OpenLog(context.Background(), id)
		if errors.Is(err, blobfs.ErrNoBlob) {
			continue
		}
		if err != nil {
			f.t.Fatal(err)
		}
		for {
			batch, _, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				f.t.Fatal(err)
			}
			for len(batch) > 0 {
				var rec commitlog.Record
				if rec, batch, err = commitlog.ReadRecord(batch); err != nil {
					f.t.Fatal(err)
				}
				rec.Body = bytes.Clone(rec.Body)
				records = append(records, rec)
			}
		}
		r.Close()
	}
	half := len(records) / 2
	// Some records are in both runs, as they may be after a log was switched.
	return []sortedrun.Run{sortRun(f.t, records[:min(half+3, len(records))]), sortRun(f.t, records[half:])}
}

// memRun is a sorted run in memory.
type memRun struct {
	table   uint64
	entries []heldEntry
	maxSeq  uint64
	maxTime int64
	opened  atomic.Int32
}

func sortRun(t testing.TB, records []commitlog.Record) *memRun {
	r := &memRun{table: 1}
	for _, rec := range records {
		if rec.Table != 1 {
			t.Fatalf("record of table %d", rec.Table)
		}
		r.maxSeq, r.maxTime = max(r.maxSeq, rec.First+uint64(rec.Ops)-1), max(r.maxTime, rec.Time)
		if logbody.Streamed(rec.Body) {
			part, err := logbody.RowPart(rec.Body)
			if err != nil {
				t.Fatal(err)
			}
			r.entries = append(r.entries, heldEntry{logbody.AppendRecordKey(bytes.Clone(part), rec.Time, rec.First), rec.Body})
		}
		_, err := logbody.EachEntry(rec.Body, rec.First, rec.Time, nil, func(key, value []byte) error {
			r.entries = append(r.entries, heldEntry{bytes.Clone(key), value})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(r.entries, func(a, b heldEntry) int { return bytes.Compare(a.key, b.key) })
	return r
}

func (r *memRun) MaxSeq() uint64 { return r.maxSeq }
func (r *memRun) MaxTime() int64 { return r.maxTime }

func (r *memRun) Entries(_ context.Context, table uint64, start, end []byte) (sortedrun.Entries, error) {
	if table != r.table {
		return nil, fmt.Errorf("no table %d in the run", table)
	}
	it := &memRunEntries{run: r}
	for _, e := range r.entries {
		row := ikey.RowKey(e.key[:ikey.RowLen(e.key)])
		if (len(start) == 0 || string(row) > string(start)) && (len(end) == 0 || string(row) <= string(end)) {
			it.in = append(it.in, e)
		}
	}
	r.opened.Add(1)
	return it, nil
}

type memRunEntries struct {
	run *memRun
	in  []heldEntry
	at  int
}

func (it *memRunEntries) First() bool { it.at = 0; return it.at < len(it.in) }
func (it *memRunEntries) Next() bool  { it.at++; return it.at < len(it.in) }
func (it *memRunEntries) SeekGE(key []byte) bool {
	it.at, _ = slices.BinarySearchFunc(it.in, key, func(e heldEntry, k []byte) int { return bytes.Compare(e.key, k) })
	return it.at < len(it.in)
}
func (it *memRunEntries) Key() []byte   { return it.in[it.at].key }
func (it *memRunEntries) Value() []byte { return it.in[it.at].value }
func (it *memRunEntries) Err() error    { return nil }
func (it *memRunEntries) Close() error  { it.run.opened.Add(-1); return nil }

// ranges returns the ends of the table's tablets in METADATA, in order, and their owners.
func (f *cluster) ranges() (ends [][]byte, owners []string) {
	f.meta.mu.Lock()
	defer f.meta.mu.Unlock()
	type tablet struct {
		end   []byte
		owner string
	}
	var all []tablet
	for _, row := range f.meta.rows {
		m, err := DecodeMeta(row.meta)
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, tablet{m.End, row.owner})
	}
	slices.SortFunc(all, func(a, b tablet) int { return cmp.Compare(metaKey(1, a.end), metaKey(1, b.end)) })
	for _, x := range all {
		ends, owners = append(ends, x.end), append(owners, x.owner)
	}
	return ends, owners
}

func (f *cluster) server(name string) *clusterServer {
	for _, s := range f.servers {
		if s.name == name {
			return s
		}
	}
	return nil
}

// serverOf returns the server to which METADATA assigns a row's tablet.
func (f *cluster) serverOf(row string) *clusterServer {
	ends, owners := f.ranges()
	for i, end := range ends {
		if len(end) == 0 || row <= string(end) {
			if s := f.server(owners[i]); s != nil {
				return s
			}
			break
		}
	}
	f.t.Fatalf("row %q: not served", row)
	return nil
}

func (f *cluster) read(row string) []string {
	f.t.Helper()
	var out []string
	err := f.serverOf(row).ReadRow(context.Background(), testTable, []byte(row), nil, func(_ []byte, cells []table.Cell) error {
		out = cellStrings(cells)
		return nil
	})
	if err != nil {
		f.t.Fatalf("read row %q: %v", row, err)
	}
	return out
}

// scan reads the whole table, tablet by tablet, from their servers.
func (f *cluster) scan() map[string][]string {
	f.t.Helper()
	got, last := map[string][]string{}, ""
	for start := []byte(nil); ; {
		next, err := f.serverOf(string(start)).Scan(context.Background(), testTable, Range{Start: start}, nil, func(key []byte, cells []table.Cell) error {
			if string(key) <= last {
				f.t.Fatalf("scan: row %q after %q", key, last)
			}
			last = string(key)
			got[last] = cellStrings(cells)
			return nil
		})
		if errors.Is(err, api.ErrNotServing) && string(next) > string(start) {
			err = nil // other servers have the rest
		}
		if err != nil {
			f.t.Fatalf("scan from %q: %v", start, err)
		}
		if start = next; next == nil {
			return got
		}
	}
}

// refTo returns the name of the table's tablet with that end.
func refTo(end []byte) Ref { return Ref{1, string(end)} }

// move moves a tablet as a master would.
func (f *cluster) move(from, to *clusterServer, end []byte) error {
	if err := from.Unload(context.Background(), refTo(end)); err != nil {
		return err
	}
	return f.load(to, end, nil)
}
