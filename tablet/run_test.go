package tablet

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/commitlog"
	"github.com/steledb/stele/tablet/logbody"
	"github.com/steledb/stele/tablet/sortedrun"
	"github.com/steledb/stele/tablet/sstable"
	"github.com/steledb/stele/tablet/storage"
)

// runLog is a commit log on several nodes, and all that was written to it.
type runLog struct {
	id      blobfs.ID
	byTable map[uint64][]heldEntry
	maxSeq  uint64
	maxTime int64
}

const deadServer = "dead.1"

// writeRunLog writes mutations of tablets of several tables, which are split meanwhile.
func writeRunLog(t testing.TB, c *runNodes, rng *rand.Rand) *runLog {
	l := &runLog{id: blobfs.NewID(), byTable: map[uint64][]heldEntry{}}
	w, err := c.stores[0].ReplicatedLogs().Create(t.Context(), deadServer, l.id)
	if err != nil {
		t.Fatal(err)
	}
	log := commitlog.New(w, 1+rng.Uint64N(1000), commitlog.Config{BatchBytesMax: 1 << (10 + rng.IntN(8))})
	s := newSchema(testSchema(t, "f:", "g:"), nil)
	clock := int64(1_000_000)
	stamp := stampFunc(func() int64 { clock += 1 + rng.Int64N(3); return clock })
	tables := []uint64{1, 16, 17, 1 << 40}
	splits := 1
	for range 200 + rng.IntN(600) {
		if rng.IntN(100) == 0 {
			splits++
		}
		rm := runMutation(rng)
		body, ops, _, err := appendBody(nil, s, rm)
		if err != nil {
			t.Fatal(err)
		}
		// A row's tablet depends on the splits so far: it changes with a split.
		id := uint64(slices.Max(rm.Row))%uint64(splits) + 1
		c := &commitlog.Commit{Table: tables[rng.IntN(len(tables))], Tablet: id, Ops: ops, Body: body, Stamp: stamp, Done: func(c *commitlog.Commit, err error) {
			if err != nil {
				t.Errorf("commit: %v", err)
			}
			l.maxSeq, l.maxTime = max(l.maxSeq, c.First+uint64(c.Ops)-1), max(l.maxTime, c.Time)
			_, err = logbody.EachEntry(c.Body, c.First, c.Time, nil, func(key, value []byte) error {
				l.byTable[c.Table] = append(l.byTable[c.Table], heldEntry{bytes.Clone(key), bytes.Clone(value)})
				return nil
			})
			if err != nil {
				t.Errorf("body: %v", err)
			}
		}}
		if err := log.Commit(c); err != nil {
			t.Fatal(err)
		}
	}
	log.Close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, entries := range l.byTable {
		slices.SortFunc(entries, func(a, b heldEntry) int { return bytes.Compare(a.key, b.key) })
	}
	return l
}

type stampFunc func() int64

func (f stampFunc) Stamp() int64 { return f() }

// runMutation returns a mutation of one of a few rows with zero bytes in their keys, sometimes with
// a value longer than an extent.
func runMutation(rng *rand.Rand) *table.RowMutation {
	row := make([]byte, 1+rng.IntN(3))
	for i := range row {
		row[i] = "\x00\x01ab\xff"[rng.IntN(5)]
	}
	rm := &table.RowMutation{Row: row}
	for range 1 + rng.IntN(5) {
		size := rng.IntN(300)
		if rng.IntN(300) == 0 {
			size = 150_000
		}
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(rng.Uint32())
		}
		m := table.Set([]string{"f", "g"}[rng.IntN(2)], []byte{"\x00q\xff"[rng.IntN(3)]}, table.ServerTimestamp, value)
		switch rng.IntN(8) {
		case 0:
			m = table.DeleteRow()
		case 1:
			m = table.DeleteFamily("f")
		case 2, 3, 4:
			m.Timestamp = rng.Int64N(100)
		}
		rm.Mutations = append(rm.Mutations, m)
	}
	return rm
}

// sortPieces ends the log at one node and sorts its pieces on all nodes at once. One sorter is
// interrupted halfway, and another does its work.
func sortPieces(t testing.TB, c *runNodes, id blobfs.ID, bytes, memory int64) (all []sortedrun.Meta) {
	t.Helper()
	pieces, err := c.stores[1].ReplicatedLogs().End(t.Context(), deadServer, id, bytes)
	if err != nil {
		t.Fatal(err)
	}
	runs := make([][]sortedrun.Meta, len(pieces))
	var group sync.WaitGroup
	for i, p := range pieces {
		group.Go(func() {
			store := c.stores[i%len(c.stores)]
			if i == 0 {
				if _, err := sortPiece(t.Context(), store, id, p, memory, func() {}); !errors.Is(err, errSorterDied) {
					t.Errorf("a sorter that dies half way: %v", err)
				}
				store = c.stores[(i+1)%len(c.stores)]
			}
			var err error
			if runs[i], err = sortPiece(t.Context(), store, id, p, memory, nil); err != nil {
				t.Errorf("sort %+v: %v", p, err)
			}
		})
	}
	group.Wait()
	for _, r := range runs {
		decoded, err := sortedrun.DecodeAll(sortedrun.EncodeAll(r))
		if err != nil || !reflect.DeepEqual(decoded, r) {
			t.Errorf("runs %+v are coded as %+v: %v", r, decoded, err)
		}
		all = append(all, decoded...)
	}
	return all
}

// sortPiece sorts a piece in the given memory; if die is not nil, the sorter dies before it seals a
// run.
func sortPiece(ctx context.Context, store *blobfs.Store, id blobfs.ID, p replog.Piece, memory int64, die func()) ([]sortedrun.Meta, error) {
	r, err := store.ReplicatedLogs().OpenPiece(ctx, deadServer, id, p)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return sortedrun.SortLog(ctx, dyingBlobs{storage.OnStore(store), die}, r, p.End-p.Start, memory)
}

var errSorterDied = errors.New("this sorter is dead")

// dyingBlobs fail a blob's seal, after calling die if it is not nil.
type dyingBlobs struct {
	storage.Blobs
	die func()
}

func (b dyingBlobs) CreateHighPriority(ctx context.Context, bytes int64) (storage.BlobWriter, error) {
	w, err := b.Blobs.CreateHighPriority(ctx, bytes)
	if err != nil || b.die == nil {
		return w, err
	}
	return dyingWriter{w, b.die}, nil
}

type dyingWriter struct {
	storage.BlobWriter
	die func()
}

func (w dyingWriter) Seal(context.Context) (blobfs.Handle, error) {
	w.die()
	return blobfs.Handle{}, errSorterDied
}

// sortWhole is SortLog into one run.
func sortWhole(ctx context.Context, blobs storage.Blobs, p sortedrun.Payloads, bytes int64) (sortedrun.Meta, error) {
	runs, err := sortedrun.SortLog(ctx, blobs, p, bytes, 0)
	if err != nil {
		return sortedrun.Meta{}, err
	}
	return runs[0], nil
}

// Every entry of the log is in exactly one run, with its own sequence number and time, in order. A
// tablet gets its entries by table and row, whatever its id was then.
func TestSortLog(t *testing.T) {
	seed := testseed.New(t)
	for i := range uint64(soakRuns(6)) {
		rng := rand.New(rand.NewPCG(seed, i))
		c := newRunNodes(t, 3, 64<<10)
		log := writeRunLog(t, c, rng)
		metas := sortPieces(t, c, log.id, 1+rng.Int64N(300_000), []int64{0, 10_000, 1 + rng.Int64N(300_000)}[rng.IntN(3)])
		var runs []sortedrun.Run
		var maxSeq uint64
		var maxTime, entries int64
		for k := range metas {
			m, err := sortedrun.Decode(sortedrun.Encode(&metas[k]))
			if err != nil {
				t.Fatal(err)
			}
			maxSeq, maxTime, entries = max(maxSeq, m.MaxSeq), max(maxTime, m.MaxTime), entries+m.Entries
			runs = append(runs, sortedrun.NewOpenRuns(storage.OnStore(c.stores[rng.IntN(3)])).Run(m))
		}
		all := int64(0)
		for id, want := range log.byTable {
			all += int64(len(want))
			checkRuns(t, runs, id, want, rng)
		}
		if maxSeq != log.maxSeq || maxTime != log.maxTime || entries != all {
			t.Errorf("run %d: %d entries up to number %d and time %d, want %d, %d and %d", i, entries, maxSeq, maxTime, all, log.maxSeq, log.maxTime)
		}
		checkRuns(t, runs, 2, nil, rng)
		// What the dead sorter left is no blob.
		blobs := map[blobfs.ID]bool{}
		for k := range metas {
			blobs[metas[k].Handle.ID] = true
		}
		for n, s := range c.stores {
			for _, b := range s.Blobs() {
				if !blobs[b.ID] {
					t.Errorf("run %d: node %d has blob %s, which is no run", i, n, b.ID)
				}
			}
		}
		t.Logf("run %d: %d entries in %d runs", i, entries, len(runs))
	}
}

// checkRuns divides a table into tablets and compares what each gets of the runs with want.
func checkRuns(t testing.TB, runs []sortedrun.Run, id uint64, want []heldEntry, rng *rand.Rand) {
	t.Helper()
	ends := [][]byte{nil}
	for range rng.IntN(5) {
		ends = append(ends, runMutation(rng).Row)
	}
	slices.SortFunc(ends, bytes.Compare)
	ends = append(slices.CompactFunc(ends, bytes.Equal), nil)
	var got []heldEntry
	for k := 1; k < len(ends); k++ {
		got = append(got, runRange(t, runs, id, ends[k-1], ends[k])...)
	}
	if len(got) != len(want) {
		t.Fatalf("table %d in tablets that end at %q: %d entries, want %d", id, ends, len(got), len(want))
	}
	for k := range got {
		if !bytes.Equal(got[k].key, want[k].key) || !bytes.Equal(got[k].value, want[k].value) {
			t.Fatalf("table %d: entry %d is %q, want %q", id, k, got[k].key, want[k].key)
		}
	}
}

// runRange merges a tablet's entries of the runs.
func runRange(t testing.TB, runs []sortedrun.Run, id uint64, start, end []byte) (got []heldEntry) {
	t.Helper()
	var sources []source
	for _, r := range runs {
		e, err := r.Entries(t.Context(), id, start, end)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		sources = append(sources, e)
	}
	var m merge
	m.reset(sources)
	for m.first(); m.valid(); m.next() {
		got = append(got, heldEntry{bytes.Clone(m.key()), m.value()})
	}
	if m.err != nil {
		t.Fatal(m.err)
	}
	if len(got) > 0 {
		for _, s := range sources {
			if s.SeekGE(got[len(got)/2].key) && bytes.Compare(s.Key(), got[len(got)/2].key) < 0 {
				t.Errorf("a seek to %q comes to %q", got[len(got)/2].key, s.Key())
			}
		}
	}
	return got
}

// A batch that was appended twice is sorted once; an empty piece is a run without a blob.
func TestSortLogTwice(t *testing.T) {
	c := newRunNodes(t, 1, 256<<10)
	log := writeRunLog(t, c, rand.New(rand.NewPCG(1, 1)))
	r, err := c.stores[0].ReplicatedLogs().Open(t.Context(), deadServer, log.id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var batches payloads
	for {
		p, _, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, bytes.Clone(p))
	}
	all := append(slices.Clone(batches), batches[len(batches)/2])
	m, err := sortWhole(t.Context(), storage.OnStore(c.stores[0]), &all, 0)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for id, want := range log.byTable {
		checkRuns(t, []sortedrun.Run{sortedrun.NewOpenRuns(storage.OnStore(c.stores[0])).Run(m)}, id, want, rng)
	}
	none, err := sortWhole(t.Context(), nil, &payloads{}, 1<<20)
	if err != nil || !reflect.DeepEqual(none, sortedrun.Meta{}) {
		t.Errorf("an empty piece is %+v, %v", none, err)
	}
	checkRuns(t, []sortedrun.Run{sortedrun.NewOpenRuns(nil).Run(none)}, 1, nil, rng)
	bad := payloads{batches[0], batches[1][:len(batches[1])-1]}
	if _, err := sortWhole(t.Context(), nil, &bad, 0); !errors.Is(err, commitlog.ErrBadRecord) || !strings.Contains(err.Error(), "position 2") {
		t.Errorf("half a record: %v", err)
	}
}

// payloads are batches with ascending positions.
type payloads [][]byte

func (p *payloads) Next() ([]byte, int64, error) {
	if len(*p) == 0 {
		return nil, 0, io.EOF
	}
	next := (*p)[0]
	*p = (*p)[1:]
	return next, int64(2 - len(*p)), nil
}

// A piece that exceeds the memory is sorted into several runs (I13). If one cannot be written, none
// is left.
func TestSortLogInParts(t *testing.T) {
	store, err := openStore(vfs.NewMem(vfs.MemOptions{}), 256<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	const rows, memory, huge = 1000, 32 << 10, 100 << 10
	var p payloads
	log := commitlog.New(&p, 1, commitlog.Config{BatchBytesMax: 1 << 10})
	for i := range rows {
		value := bytes.Repeat([]byte{byte(i)}, 100)
		if i == rows/2 {
			value = make([]byte, huge)
		}
		body := appendRunBody(t, fmt.Sprintf("row%04d", i*7%rows), value)
		if err := log.Commit(&commitlog.Commit{Table: 16, Ops: 1, Body: body, Done: func(*commitlog.Commit, error) {}}); err != nil {
			t.Fatal(err)
		}
	}
	log.Close()
	again, seals := slices.Clone(p), 0
	runs, err := sortedrun.SortLog(t.Context(), storage.OnStore(store), &p, 1<<20, memory)
	if err != nil {
		t.Fatal(err)
	}
	entries := int64(0)
	for i := range runs {
		entries += runs[i].Entries
		if runs[i].RawBytes > memory && runs[i].RawBytes < huge || runs[i].RawBytes > huge+memory {
			t.Errorf("a run of %d bytes, in %d of memory", runs[i].RawBytes, memory)
		}
		if err := store.Delete(t.Context(), runs[i].Handle.ID); err != nil {
			t.Error(err)
		}
	}
	if len(runs) < 5 || entries != rows {
		t.Errorf("%d entries in %d runs", entries, len(runs))
	}
	if _, err := sortedrun.SortLog(t.Context(), thirdFails{storage.OnStore(store), &seals}, &again, 1<<20, memory); !errors.Is(err, errSorterDied) || seals != 3 {
		t.Errorf("after %d runs: %v", seals, err)
	}
	if left := store.Blobs(); len(left) > 0 {
		t.Errorf("%d runs are left of a piece that was not sorted", len(left))
	}
}

// thirdFails fails the seal of the third blob.
type thirdFails struct {
	storage.Blobs
	seals *int
}

func (b thirdFails) CreateHighPriority(ctx context.Context, bytes int64) (storage.BlobWriter, error) {
	w, err := b.Blobs.CreateHighPriority(ctx, bytes)
	if *b.seals++; err != nil || *b.seals < 3 {
		return w, err
	}
	return dyingWriter{w, func() {}}, nil
}

// A run with a damaged block reports the file and the offset, and returns no entry of the block.
func TestRunCorrupt(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	store, err := openStore(fs, 256<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var p payloads
	log := commitlog.New(&p, 1, commitlog.Config{})
	for i := range 3000 {
		body := appendRunBody(t, fmt.Sprintf("row%04d", i), bytes.Repeat([]byte{byte(i)}, 100))
		if err := log.Commit(&commitlog.Commit{Table: 16, Ops: 1, Body: body, Done: func(*commitlog.Commit, error) {}}); err != nil {
			t.Fatal(err)
		}
	}
	log.Close()
	m, err := sortWhole(t.Context(), storage.OnStore(store), &p, 0)
	if err != nil {
		t.Fatal(err)
	}
	e, err := sortedrun.NewOpenRuns(damagedBlobs{storage.OnStore(store), 100}).Run(m).Entries(t.Context(), 16, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.First() {
		t.Fatalf("entry %q of a damaged block", e.Key())
	}
	var corrupt *sstable.CorruptError
	if err := e.Err(); !errors.As(err, &corrupt) || corrupt.File != m.Handle.ID.String() || corrupt.Offset != 16 {
		t.Errorf("error %v, want file %s and offset 16", err, m.Handle.ID)
	}
}

func (p *payloads) Append(_ context.Context, b []byte) (int64, error) {
	*p = append(*p, bytes.Clone(b))
	return int64(len(*p)), nil
}

func appendRunBody(t testing.TB, row string, value []byte) []byte {
	body, _, _, err := appendBody(nil, newSchema(testSchema(t, "f:"), nil), &table.RowMutation{Row: []byte(row), Mutations: []table.Mutation{table.Set("f", []byte("q"), 7, value)}})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// damagedBlobs flip a bit at an offset.
type damagedBlobs struct {
	storage.Blobs
	off int64
}

func (b damagedBlobs) OpenBlob(ctx context.Context, h blobfs.Handle) (storage.BlobReader, error) {
	r, err := b.Blobs.OpenBlob(ctx, h)
	return damagedReader{r, b.off}, err
}

type damagedReader struct {
	storage.BlobReader
	off int64
}

func (r damagedReader) ReadChecked(p []byte, off int64, ok func(p []byte) error) error {
	return r.BlobReader.ReadChecked(p, off, func(p []byte) error {
		if at := r.off - off; at >= 0 && at < int64(len(p)) {
			p[at] ^= 1
		}
		return ok(p)
	})
}

// A sorter that loses power before it seals the run leaves nothing that is mistaken for one.
func TestSortCrash(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	store, err := openStore(fs, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var p payloads
	log := commitlog.New(&p, 1, commitlog.Config{})
	for i := range 2000 {
		body := appendRunBody(t, fmt.Sprint(i), bytes.Repeat([]byte{byte(i)}, 200))
		if err := log.Commit(&commitlog.Commit{Table: 16, Ops: 1, Body: body, Done: func(*commitlog.Commit, error) {}}); err != nil {
			t.Fatal(err)
		}
	}
	log.Close()
	var after *vfs.Mem
	die := func() { after = fs.Crash(rand.New(rand.NewPCG(1, 1))) }
	if _, err := sortWhole(t.Context(), dyingBlobs{storage.OnStore(store), die}, &p, 0); !errors.Is(err, errSorterDied) {
		t.Fatal(err)
	}
	again, err := openStore(after, 64<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if left := again.Blobs(); len(left) > 0 {
		t.Errorf("blobs %v are left", left)
	}
}

// A tablet is loaded from the sorted logs of its dead server.
func TestLoadSorted(t *testing.T) {
	f := newCluster(t, Config{}, 2, "f:versions=100")
	a, b := f.servers[0], f.servers[1]
	want := map[string]int{}
	last := int64(0)
	for i := range 300 {
		row := fmt.Sprint("row", i%7)
		ts, err := applySync(a.Server, row, setCell(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		want[row]++
		last = max(last, ts)
	}
	logs := slices.Clone(a.blobs.logs)
	f.kill(a)
	var runs []sortedrun.Run
	for _, id := range logs {
		r, err := f.store.OpenLog(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		m, err := sortWhole(t.Context(), b.blobs, r, 1<<20)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, sortedrun.NewOpenRuns(b.blobs).Run(m))
	}
	if err := f.load(b, nil, runs); err != nil {
		t.Fatal(err)
	}
	for row, n := range want {
		if got := f.read(row); len(got) != n {
			t.Errorf("%s has %d cells, want %d", row, len(got), n)
		}
	}
	f.clock.micros.Store(1)
	if ts, err := applySync(b.Server, "row", setCell("x")); err != nil || ts <= last {
		t.Errorf("timestamp %d after %d, %v", ts, last, err)
	}
}

func TestRunGolden(t *testing.T) {
	m := sortedrun.Meta{Entries: 3, RawBytes: 300, MaxSeq: 70_000, MaxTime: -1, Handle: blobfs.Handle{
		ID: blobfs.ID{1, 2}, Length: 9, Extents: []blobfs.ExtentRef{{Length: 9, CRC: 5, Replicas: []string{"a"}}},
	}}
	b := sortedrun.Encode(&m)
	const want = "96 01 03 cd012c ce00011170 ff 9401c4100102000000000000000000000000000009919400090591a161"
	if got := hex.EncodeToString(b); got != strings.ReplaceAll(want, " ", "") {
		t.Errorf("a run is now %s", got)
	}
	if got, err := sortedrun.Decode(b); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("read %+v, %v", got, err)
	}
	if got, err := sortedrun.Decode(sortedrun.Encode(&sortedrun.Meta{})); err != nil || !reflect.DeepEqual(got, sortedrun.Meta{}) {
		t.Errorf("an empty run is read as %+v, %v", got, err)
	}
	for i := range b {
		if _, err := sortedrun.Decode(b[:i]); err == nil {
			t.Errorf("%d of %d bytes are read", i, len(b))
		}
	}
	// An additional value of a later version is skipped.
	more := append([]byte{0x97}, append(b[1:], 0xc0)...)
	if got, err := sortedrun.Decode(more); err != nil || got.MaxSeq != m.MaxSeq {
		t.Errorf("with a value more: %+v, %v", got, err)
	}
}
