package tablet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/budget"
)

// pinWorld is a table with an in-memory group, m, and another, in a server that counts its reads.
type pinWorld struct {
	t       *testing.T
	s       *clusterServer
	cluster *cluster
	blobs   *countedBlobs
	rows    int
}

func newPinWorld(t *testing.T, cacheBytes int64) *pinWorld {
	f := newCluster(t, Config{CacheBytes: cacheBytes}, 1, "m:group=small,in-memory", "f:")
	w := &pinWorld{t: t, cluster: f, s: f.servers[0]}
	w.blobs = &countedBlobs{Blobs: w.s.cfg.Blobs}
	w.s.useBlobs(w.blobs)
	return w
}

// fill writes n more rows, with the given number of random bytes in f.
func (w *pinWorld) fill(n, bytes int) {
	w.t.Helper()
	big := make([]byte, bytes)
	for range n {
		for i := range big {
			big[i] = byte(rand.Uint32())
		}
		row := fmt.Sprintf("row%05d", w.rows)
		if _, err := applySync(w.s.Server, row, table.Set("m", []byte("q"), 1, w.small(w.rows)), table.Set("f", []byte("q"), 1, big)); err != nil {
			w.t.Fatal(err)
		}
		w.rows++
	}
}

func (w *pinWorld) small(i int) []byte {
	return fmt.Appendf(nil, "%06d%s", i, strings.Repeat("x", 194))
}

func (w *pinWorld) compact(major bool) {
	w.t.Helper()
	if err := w.s.Compact(w.t.Context(), testTable, major); err != nil {
		w.t.Fatal(err)
	}
}

// read reads family m of all rows, by points and by a scan, and returns the number of blob reads.
func (w *pinWorld) read() int64 {
	w.t.Helper()
	before := w.blobs.reads.Load()
	only, err := table.Compile(table.FamilyRegex("m"))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range w.rows {
		got := ""
		err := w.s.ReadRow(w.t.Context(), testTable, fmt.Appendf(nil, "row%05d", i), only, func(_ []byte, cells []table.Cell) error {
			got = string(cells[0].Value)
			return nil
		})
		if err != nil || got != string(w.small(i)) {
			w.t.Fatalf("row %d: %.10q, %v", i, got, err)
		}
	}
	n := 0
	_, err = w.s.Scan(w.t.Context(), testTable, Range{}, only, func(_ []byte, cells []table.Cell) error {
		if string(cells[0].Value) != string(w.small(n)) {
			w.t.Errorf("row %d of the scan: %.10q", n, cells[0].Value)
		}
		n++
		return nil
	})
	if err != nil || n != w.rows {
		w.t.Fatalf("a scan of %d rows of %d: %v", n, w.rows, err)
	}
	return w.blobs.reads.Load() - before
}

// flood reads all of f, which exceeds the cache.
func (w *pinWorld) flood() {
	w.t.Helper()
	only, err := table.Compile(table.FamilyRegex("f"))
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.s.Scan(w.t.Context(), testTable, Range{}, only, func([]byte, []table.Cell) error { return nil }); err != nil {
		w.t.Fatal(err)
	}
}

// settled waits until no file waits to be loaded, and returns the use of memory.
func (w *pinWorld) settled() ReadMemory {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		waits := false
		for _, t := range w.s.served.all() {
			v, _, err := t.views.acquire()
			if err != nil {
				continue
			}
			for _, g := range v.groups {
				for _, f := range g.files {
					waits = waits || f.opened.pin.state.Load() == pinWaits
				}
			}
			v.release()
		}
		if !waits {
			m := w.s.Stats().Memory
			if sum := m.Open + m.Pinned + w.s.readMemory.Cache().Stats().Budget; sum > m.Total+m.Total/budget.CacheStep {
				w.t.Errorf("I13: %+v: %d bytes with the cache's", m, sum)
			}
			return m
		}
	}
	w.t.Fatal("a file still waits to be read into memory")
	return ReadMemory{}
}

// An in-memory group is read from disk once, and not again after compactions, splits, or other
// reads.
func TestInMemoryGroup(t *testing.T) {
	w := newPinWorld(t, 1<<20)
	w.fill(400, 4<<10)
	w.compact(false)
	w.read()
	if m := w.settled(); m.PinnedFiles != 1 || m.Pinned < 80<<10 || m.Lacking != 0 || m.Open < 1000 {
		t.Fatalf("after a read: %+v", m)
	}
	still := func(after string) {
		t.Helper()
		w.settled()
		w.flood()
		if n := w.read(); n != 0 {
			t.Errorf("after %s: %d reads of the disk", after, n)
		}
	}
	still("a read")
	w.fill(100, 4<<10)
	w.compact(false)
	still("a minor compaction")
	w.fill(100, 4<<10)
	w.compact(true)
	still("a major compaction")
	if m := w.settled(); m.PinnedFiles != 1 {
		t.Errorf("after a major compaction: %+v", m)
	}
	if _, _, err := w.s.Split(t.Context(), lastTablet, []byte("row00300")); err != nil {
		t.Fatal(err)
	}
	still("a split")
	w.compact(true)
	still("a major compaction of the halves")
	if m := w.settled(); m.PinnedFiles != 2 {
		t.Errorf("in the halves: %+v", m)
	}
}

// The memory of an in-memory group is released with the option, with the files, and with the
// server.
func TestInMemoryGroupIsReleased(t *testing.T) {
	w := newPinWorld(t, 1<<20)
	w.fill(200, 100)
	w.compact(false)
	w.read()
	if m := w.settled(); m.PinnedFiles != 1 {
		t.Fatalf("%+v", m)
	}
	off, err := w.cluster.schema.Apply(mustSpec(t, "m:in-memory=false"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.s.SetSchema(off); err != nil {
		t.Fatal(err)
	}
	if m := w.settled(); m.PinnedFiles != 0 || m.Pinned != 0 {
		t.Errorf("without the option: %+v", m)
	}
	if w.read(); w.settled().Pinned != 0 {
		t.Error("read without the option, and pinned")
	}
	on, err := off.Apply(mustSpec(t, "m:in-memory"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.s.SetSchema(on); err != nil {
		t.Fatal(err)
	}
	w.read()
	if m := w.settled(); m.PinnedFiles != 1 {
		t.Errorf("with the option again: %+v", m)
	}
	if err := w.s.Close(); err != nil {
		t.Fatal(err)
	}
	if m := w.s.Stats().Memory; m.Open != 0 || m.Pinned != 0 || m.PinnedFiles != 0 || w.s.readMemory.Cache().Stats().Budget != m.Total {
		t.Errorf("a closed server: %+v, cache %d", m, w.s.readMemory.Cache().Stats().Budget)
	}
}

func mustSpec(t *testing.T, text string) table.FamilySpec {
	t.Helper()
	spec, err := table.ParseFamilySpec(text)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// An in-memory group without reads uses no memory: not for its first file, nor for compactions of
// it, nor because of reads of another group, nor after a restart. A read of one row loads the file.
func TestInMemoryGroupWithoutReads(t *testing.T) {
	w := newPinWorld(t, 1<<20)
	none := func(after string) {
		t.Helper()
		w.flood()
		if m := w.settled(); m.PinnedFiles != 0 || m.Pinned != 0 || m.Lacking != 0 || m.Open < 1000 {
			t.Errorf("after %s: %+v", after, m)
		}
	}
	for _, major := range []bool{false, false, true, false} {
		w.fill(100, 100)
		w.compact(major)
		none(fmt.Sprintf("a compaction, major %v", major))
	}
	w.fill(100, 100) // which the next server replays from the log
	runs := w.cluster.kill(w.s)
	w.s = w.cluster.start()
	if err := w.cluster.load(w.s, nil, runs); err != nil {
		t.Fatal(err)
	}
	w.compact(false)
	none("a restart")
	w.compact(true)
	none("a major compaction of what was there before")
	rows := 0
	if err := w.s.ReadRow(t.Context(), testTable, []byte("row00450"), nil, func([]byte, []table.Cell) error { rows++; return nil }); err != nil || rows != 1 {
		t.Errorf("%d rows read, %v", rows, err)
	}
	if m := w.settled(); m.PinnedFiles != 1 || m.Pinned < 100<<10 {
		t.Errorf("after a read of one row: %+v", m)
	}
}

// A tablet's files are loaded by their first read on a server, not with the tablet.
func TestInMemoryGroupIsLazy(t *testing.T) {
	w := newPinWorld(t, 1<<20)
	w.fill(200, 100)
	w.compact(false)
	w.read()
	if m := w.settled(); m.PinnedFiles != 1 {
		t.Fatalf("%+v", m)
	}
	from := w.s
	w.s = w.cluster.start()
	if err := w.cluster.move(from, w.s, nil); err != nil {
		t.Fatal(err)
	}
	if m := w.settled(); m.PinnedFiles != 0 || m.Pinned != 0 {
		t.Errorf("loaded, and not read: %+v", m)
	}
	rows := 0
	if err := w.s.ReadRow(t.Context(), testTable, []byte("row00007"), nil, func([]byte, []table.Cell) error { rows++; return nil }); err != nil || rows != 1 {
		t.Errorf("%d rows read, %v", rows, err)
	}
	if m := w.settled(); m.PinnedFiles != 1 || m.Pinned < 40<<10 {
		t.Errorf("after a read of one row: %+v", m)
	}
}

// A file that does not fit is read all the same, and reported; when there is memory it is loaded.
func TestInMemoryGroupWithoutMemory(t *testing.T) {
	w := newPinWorld(t, 64<<10) // of which 48 KiB may be pinned
	w.fill(600, 10)             // 120 KB
	w.compact(false)
	w.read()
	m := w.settled()
	if m.Pinned != 0 || m.PinnedFiles != 0 || m.Lacking < 120<<10 {
		t.Errorf("%+v", m)
	}
	w.read()
	// Rows are deleted, and after the next compaction there is memory.
	for i := 100; i < 600; i++ {
		if _, err := applySync(w.s.Server, fmt.Sprintf("row%05d", i), table.DeleteRow()); err != nil {
			t.Fatal(err)
		}
	}
	w.rows = 100
	w.compact(true)
	if m := w.settled(); m.PinnedFiles != 1 || m.Lacking != 0 {
		t.Errorf("with free memory: %+v", m)
	}
	if n := w.read(); n != 0 {
		t.Errorf("with free memory: %d disk reads", n)
	}
}

// Concurrent reads, compactions, splits and changes of the option: no read is wrong, and all memory
// is accounted for.
func TestInMemoryGroupUnderTraffic(t *testing.T) {
	w := newPinWorld(t, 256<<10)
	w.fill(300, 100)
	w.compact(false)
	on := w.cluster.schema
	off, err := on.Apply(mustSpec(t, "m:in-memory=false"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				w.read()
			}
		})
	}
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := w.s.Compact(t.Context(), testTable, i%2 == 0); err != nil {
				t.Errorf("compact: %v", err)
			}
		}
	})
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			sc := on
			if i%2 == 0 {
				sc = off
			}
			if err := w.s.SetSchema(sc); err != nil {
				t.Errorf("change the schema: %v", err)
			}
			time.Sleep(3 * time.Millisecond)
		}
	})
	time.Sleep(300 * time.Millisecond)
	if _, _, err := w.s.Split(t.Context(), lastTablet, []byte("row00150")); err != nil {
		t.Errorf("split: %v", err)
	}
	wg.Wait()
	if err := w.s.SetSchema(on); err != nil {
		t.Fatal(err)
	}
	w.read()
	m, counted, files := w.settled(), int64(0), int64(0)
	for _, tab := range w.s.served.all() {
		v, _, err := tab.views.acquire()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range v.group("small").files {
			counted, files = counted+f.table.PinnedBytes(), files+1
		}
		v.release()
	}
	if counted != m.Pinned || files != m.PinnedFiles {
		t.Errorf("%d bytes of %d files are pinned, and %d of %d are counted", counted, files, m.Pinned, m.PinnedFiles)
	}
}
