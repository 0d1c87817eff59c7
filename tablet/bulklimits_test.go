package tablet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/storage"
)

// bulkRow is a row with one cell of a part.
func bulkRow(row string) table.RowMutation {
	return rowMutation(row, table.Set("f", nil, 5, []byte("bulk")))
}

// T19: a part is committed once. A late request of it opens no other one, and one that was opened before the commit adds nothing after it.
func TestBulkLateDuplicate(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f")
	first, second := partOf(t, e.Server, PartID{1}, bulkRow("a")), partOf(t, e.Server, PartID{1}, bulkRow("a"))
	if err := first.Commit(ctx, e.For(nil)); err != nil {
		t.Fatal(err)
	}
	e.mustApply("a", table.DeleteRow())
	row := bulkRow("a")
	if _, err := e.For(nil).BeginBulk(ctx, testTable, &row, PartID{1}); !errors.Is(err, ErrPartCommitted) {
		t.Errorf("a part with the id of a committed one: %v", err)
	}
	if err := second.Commit(ctx, e.For(nil)); err != nil || !second.Ended() {
		t.Errorf("the commit of a part with the id of a committed one: %v, ended: %v", err, second.Ended())
	}
	if got := scanned(t, e.Server, false); len(got) != 0 {
		t.Errorf("rows %v: the part was added twice", got)
	}
	readOnly := *e.schema
	readOnly.ReadOnly = "moved"
	if err := e.SetSchema(&readOnly); err != nil {
		t.Fatal(err)
	}
	if !committed(t, e.Server, "a", 1) {
		t.Error("the part is unknown after the table became read-only")
	}
	if _, err := e.For(nil).BeginBulk(ctx, testTable, &row, PartID{2}); !errors.Is(err, table.ErrReadOnly) {
		t.Errorf("a part of a read-only table: %v", err)
	}
}

// Committed parts are forgotten by any change of METADATA, and a merge that would have to forget some before their time is rejected.
func TestBulkPartsForgotten(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f")
	kept := func() int {
		m, err := e.meta.Load(ctx, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		return len(m.Parts)
	}
	if err := e.bulk(1, bulkRow("a")); err != nil {
		t.Fatal(err)
	}
	flush := func() {
		t.Helper()
		e.mustApply("a", table.Set("f", nil, 6, nil))
		if err := e.Compact(ctx, testTable, false); err != nil {
			t.Fatal(err)
		}
	}
	if flush(); kept() != 1 {
		t.Fatal("the part is forgotten while its commit may be repeated")
	}
	e.clock.micros.Add(partsKept.Microseconds() + 1)
	if flush(); kept() != 0 {
		t.Errorf("%d parts are kept after their time", kept())
	}
	e.mustApply("z", table.Set("f", nil, 6, nil))
	lower, _, err := e.Split(ctx, lastTablet, []byte("m"))
	if err != nil {
		t.Fatal(err)
	}
	for i, tb := range e.served.all() {
		tb.meta.mu.Lock()
		m := cloneMeta(tb.meta.current)
		for n := range partsMax/2 + 1 {
			m.Parts = append(m.Parts, CommittedPart{ID: PartID{byte(n), byte(n >> 8), byte(i)}, Time: e.clock.now()})
		}
		tb.meta.set(m)
		tb.meta.mu.Unlock()
	}
	if err := e.Merge(ctx, lower, lastTablet); !errors.Is(err, api.ErrOverloaded) {
		t.Fatalf("a merge with too many parts: %v", err)
	}
	if !committed(t, e.Server, "a", 0) && !committed(t, e.Server, "z", 0) {
		t.Error("parts are forgotten")
	}
	e.clock.micros.Add(partsKept.Microseconds() + 1)
	if err := e.Merge(ctx, lower, lastTablet); err != nil || kept() != 0 {
		t.Errorf("a merge after the time of the parts: %v; %d are kept", err, kept())
	}
}

// caller is an access that permits everything to a user.
type caller struct {
	Access
	name string
}

func (c caller) Begin() {}
func (c caller) Write(_ *table.Schema, rm *table.RowMutation) (*table.RowMutation, error) {
	return rm, nil
}
func (c caller) Caller() string { return c.name }
func (c caller) Holds() bool    { return true }

// A user cannot make the server write out the memtable of a tablet again and again by small parts, and does not keep others from it.
func TestBulkRate(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f")
	id := 0
	part := func() *BulkPart { id++; return partOf(t, e.Server, PartID{byte(id)}, bulkRow("a")) }
	commit := func(user string) (n int, p *BulkPart, err error) {
		for ; err == nil; n++ {
			p = part()
			err = p.Commit(ctx, e.For(caller{name: user}))
		}
		return n - 1, p, err
	}
	n, p, err := commit("ann")
	var over *api.OverloadedError
	if !errors.As(err, &over) || !strings.Contains(over.Reason, "user ann") || over.RetryAfter <= 0 || n < 1 || n > 4 || p.Ended() {
		t.Fatalf("after %d parts of a user: %v, ended: %v", n, err, p.Ended())
	}
	if others, _, err := commit("bob"); others != n {
		t.Errorf("after %d parts of another user, want %d: %v", others, n, err)
	}
	minors := e.Stats().MinorCompactions
	for range 10 {
		if err := p.Commit(ctx, e.For(caller{name: "ann"})); !errors.Is(err, api.ErrOverloaded) {
			t.Fatal(err)
		}
	}
	if got := e.Stats().MinorCompactions; got != minors {
		t.Errorf("%d minor compactions by rejected commits", got-minors)
	}
	e.clock.micros.Add(over.RetryAfter.Microseconds() + 1)
	if err := p.Commit(ctx, e.For(caller{name: "ann"})); err != nil {
		t.Errorf("after %v: %v", over.RetryAfter, err)
	}
}

// I13: the index of long keys is charged while it is in memory, and bounded.
func TestBulkIndexMemory(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	prefix := strings.Repeat("k", 60<<10)
	value := make([]byte, 8<<10) // each row has a block of its own
	row := bulkRow(prefix)
	p, err := e.For(nil).BeginBulk(context.Background(), testTable, &row, PartID{1})
	n := 0
	for ; err == nil && n < 1000; n++ {
		if charged := p.charged - partMemory; charged < int64(n-3)*(60<<10) {
			t.Fatalf("%d bytes are charged for an index with %d keys of 60 KiB", charged, n)
		}
		err = p.Add(context.Background(), e.For(nil), rowMutation(fmt.Sprintf("%s%06d", prefix, n), table.Set("f", nil, 5, value)))
	}
	if !errors.Is(err, table.ErrLimit) || !p.Ended() || p.charged != 0 || n < 200 {
		t.Errorf("after %d rows: %v, ended: %v, %d bytes charged", n, err, p.Ended(), p.charged)
	}
}

// I2: an acknowledged part is visible although the commit log has ended meanwhile.
func TestBulkVisibleAfterLog(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	e.meta.setFaults(func() (before, after error) {
		e.commitLog.commits.Close()
		return nil, nil
	}, nil)
	if err := e.bulk(1, bulkRow("a")); err != nil {
		t.Fatal(err)
	}
	if got := e.read("a", nil); !slices.Equal(got, []string{"f:@5=bulk"}) {
		t.Errorf("read %q", got)
	}
}

// T19: a part whose METADATA change may have been made is reported as not committed only when that change cannot take effect any more.
func TestBulkOutcomeSettled(t *testing.T) {
	for n := range 8 {
		made, split, later := n&1 != 0, n&2 != 0, ErrMetaChanged
		if n&4 != 0 {
			later = errors.Join(ErrMetaChanged, ErrMetaUnsent) // the first attempt was sent all the same
		}
		e := newEnv(t, Config{}, "f")
		e.mustApply("x", table.Set("f", nil, 1, nil))
		if err := e.Compact(context.Background(), testTable, false); err != nil {
			t.Fatal(err)
		}
		saved := 0
		e.meta.setFaults(func() (before, after error) {
			switch saved++; {
			case saved == 1 && made:
				return nil, errDisconnected
			case saved == 1:
				return errDisconnected, nil
			}
			return later, nil
		}, errDisconnected)
		err := e.bulk(1, bulkRow("a"), bulkRow("z"))
		var unknown *UnknownOutcomeError
		if !errors.As(err, &unknown) {
			t.Fatalf("made %v: %v", made, err)
		}
		if is, err := e.For(nil).CommittedBulk(context.Background(), testTable, []byte("a"), PartID{1}); !errors.As(err, &unknown) {
			t.Errorf("made %v, while METADATA does not answer: %v, %v", made, is, err)
		}
		e.meta.setFaults(nil, nil)
		if split { // it leaves the row of the upper tablet as it is
			if _, _, err := e.Split(context.Background(), lastTablet, []byte("m")); err != nil {
				t.Fatal(err)
			}
		}
		if committed(t, e.Server, "a", 1) || committed(t, e.Server, "z", 1) {
			t.Errorf("made %v: committed, but the rows are not visible", made)
		}
		e.crash()
		e.open()
		if got := scanned(t, e.Server, false); !slices.Equal(got, []string{"x"}) || committed(t, e.Server, "a", 1) || committed(t, e.Server, "z", 1) {
			t.Errorf("made %v: rows %v after the part was reported as not committed", made, got)
		}
	}
}

// waitingBlobs are those of a store that accepts no file while wait is not nil.
type waitingBlobs struct {
	storage.Blobs
	wait bool
}

func (b *waitingBlobs) CreateHighPriority(ctx context.Context, bytes int64) (storage.BlobWriter, error) {
	if b.wait {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return b.Blobs.CreateHighPriority(ctx, bytes)
}

// Writers wait for a part no longer than OverloadWait, if what they have written meanwhile cannot be written out.
func TestBulkFenceBounded(t *testing.T) {
	const wait = 50 * time.Millisecond
	e := newEnv(t, Config{OverloadWait: wait}, "f")
	blobs := &waitingBlobs{Blobs: e.cfg.Blobs}
	blobs.Blobs = e.Server.cfg.Blobs
	e.Server.cfg.Blobs = blobs
	e.mustApply("a", table.Set("f", nil, 1, nil))
	e.meta.setFaults(func() (before, after error) {
		if !blobs.wait { // the minor compaction before the fence
			e.mustApply("b", table.Set("f", nil, 1, nil))
			blobs.wait = true
		}
		return nil, nil
	}, nil)
	p := partOf(t, e.Server, PartID{1}, bulkRow("c"))
	began := time.Now()
	err := p.Commit(context.Background(), e.For(nil))
	if took := time.Since(began); !errors.Is(err, api.ErrOverloaded) || p.Ended() || took > 5*time.Second {
		t.Fatalf("after %v: %v, ended: %v", took, err, p.Ended())
	}
	e.meta.setFaults(nil, nil)
	e.mustApply("d", table.Set("f", nil, 1, nil))
	blobs.wait = false
	if err := p.Commit(context.Background(), e.For(nil)); err != nil {
		t.Fatal(err)
	}
	if got := scanned(t, e.Server, false); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("rows %v", got)
	}
}

// A bulk file has a version that earlier programs reject, and is opened only with one sequence number.
func TestBulkFileVersion(t *testing.T) {
	ctx := context.Background()
	e := newEnv(t, Config{}, "f")
	if err := e.bulk(1, bulkRow("a")); err != nil {
		t.Fatal(err)
	}
	m, err := e.meta.Load(ctx, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Groups[0].Files[0]
	blob, err := e.Server.cfg.Blobs.OpenBlob(ctx, f.Handle)
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	head := make([]byte, 16)
	if err := blob.ReadChecked(head, 0, func([]byte) error { return nil }); err != nil || head[8] != 3 {
		t.Errorf("version %d, want 3: %v", head[8], err)
	}
	f.MaxSeq++
	if _, err := e.files.open(ctx, f, nil, nil, 0); !errors.Is(err, errBadMeta) {
		t.Errorf("a bulk file with two sequence numbers: %v", err)
	}
}

// shortKey is a source with one key that has no sequence number.
type shortKey struct{ source }

func (shortKey) First() bool { return true }
func (shortKey) Key() []byte { return []byte("short") }
func (shortKey) Err() error  { return nil }

// A foreign file whose keys are not ours is an error.
func TestNumberedShortKey(t *testing.T) {
	n := &numbered{source: shortKey{}, seq: 1}
	if n.First() || !errors.Is(n.Err(), ikey.ErrBadKey) {
		t.Errorf("a key without a number: %v", n.Err())
	}
}
