package tablet

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/table"
)

// A full disk ends a part with an error that names it, and the part leaves nothing behind: the tablet is served, its memtable is written out by the reserve,
// and the space is free again.
func TestBulkFullDisk(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f")
	e.mustApply("a", table.Set("f", nil, 1, nil))
	blobs := len(e.store.Blobs())
	for _, d := range []string{"/d0", "/d1"} {
		e.fs.SetCapacity(d, 8<<20)
	}
	value := make([]byte, 200<<10)
	first := bulkRow("b")
	p, err := e.For(nil).BeginBulk(ctx, testTable, &first, PartID{1})
	for n := 0; err == nil && n < 1000; n++ {
		_, _ = rand.Read(value)
		err = p.Add(ctx, e.For(nil), rowMutation("b"+strings.Repeat("x", n), table.Set("f", nil, 1, value)))
	}
	if err == nil {
		err = p.Commit(ctx, e.For(nil))
	}
	if !errors.Is(err, blobfs.ErrDiskFull) || !p.Ended() || p.charged != 0 {
		t.Fatalf("a part on a full disk: %v, ended: %v, %d bytes charged", err, p.Ended(), p.charged)
	}
	e.deletions.Run(ctx)
	if n := len(e.store.Blobs()); n != blobs {
		t.Errorf("%d blobs, want %d", n, blobs)
	}
	e.mustApply("c", table.Set("f", nil, 1, nil))
	if err := e.Compact(ctx, testTable, false); err != nil {
		t.Errorf("after the part: %v", err)
	}
	if err := e.bulk(2, bulkRow("d")); err != nil {
		t.Errorf("a small part after it: %v", err)
	}
	if got := scanned(t, e.Server, false); !slices.Equal(got, []string{"a", "c", "d"}) {
		t.Errorf("rows %v", got)
	}
}

// A snapshot has the rows of parts that were committed before, whatever is open meanwhile, and a tablet that is loaded from it has no part.
func TestBulkSnapshot(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f")
	e.mustApply("a", table.Set("f", nil, 5, []byte("old")), table.Set("f", nil, 1, nil))
	if err := e.bulk(1, bulkRow("a"), bulkRow("b")); err != nil {
		t.Fatal(err)
	}
	open := partOf(t, e.Server, PartID{2}, bulkRow("c"))
	m, err := e.Snapshot(ctx, lastTablet)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Parts) != 0 {
		t.Errorf("the snapshot has %d parts", len(m.Parts))
	}
	if err := open.Commit(ctx, e.For(nil)); err != nil {
		t.Fatal(err)
	}
	if err := e.Compact(ctx, testTable, true); err != nil { // the files of the snapshot stay
		t.Fatal(err)
	}
	e.close()
	e.meta = newMemMetadata()
	if m, err = DecodeMeta(EncodeMeta(m)); err != nil {
		t.Fatal(err)
	}
	e.meta.create(m)
	e.open()
	if got := scanned(t, e.Server, false); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("rows %v", got)
	}
	if got := e.read("a", nil); !slices.Equal(got, []string{"f:@5=bulk", "f:@1="}) {
		t.Errorf("read %q", got)
	}
	if committed(t, e.Server, "a", 1) {
		t.Error("the copy has the part of its source")
	}
	checkOffline(t, e)
}
