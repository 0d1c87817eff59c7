package bulk

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/storage"
)

// noMetadata is a Metadata that accepts all changes.
type noMetadata struct{}

func (noMetadata) Save(context.Context, *tablet.Meta) error { return nil }
func (noMetadata) Load(context.Context, uint64, []byte) (*tablet.Meta, error) {
	return nil, tablet.ErrNoMeta
}
func (noMetadata) Split(context.Context, *tablet.Meta, *tablet.Meta) error { return nil }
func (noMetadata) Remove(context.Context, *tablet.Meta) error              { return nil }

// diskBytes is the capacity of the disk.
const diskBytes = 1 << 30

// server returns a tablet server with one tablet, and its disk.
func server(t *testing.T) (*tablet.Server, *vfs.Mem) {
	disk := vfs.NewMem(vfs.MemOptions{})
	disk.SetCapacity("/d", diskBytes)
	store, err := blobfs.Open(blobfs.Config{Folders: []string{"/d"}, FS: disk, ReserveBytes: -1, ExtentBytes: 256 << 10, LogExtentsReady: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	s, err := tablet.Start(t.Context(), tablet.Config{Blobs: storage.OnStore(store), Metadata: noMetadata{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	schema, err := table.NewSchema("t", 1).Apply(table.FamilySpec{Name: "f"})
	if err == nil {
		err = s.Load(t.Context(), tablet.Load{Meta: &tablet.Meta{ID: 1, Table: 1, LastMajor: time.Now()}, Schema: schema})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, disk
}

// TestIdleParts (BI3): a part that is not used is aborted, and its space is free again. One in use is not.
func TestIdleParts(t *testing.T) {
	s, disk := server(t)
	ps := &parts{most: 4}
	ps.start()
	value := make([]byte, 1<<20)
	_, _ = rand.Read(value)
	open := func(id byte) key {
		t.Helper()
		k := key{id: tablet.PartID{id}, table: "t"}
		first := table.RowMutation{Row: []byte("a"), Mutations: []table.Mutation{table.Set("f", nil, 1, value)}}
		p, err := ps.open(t.Context(), k, func() (*tablet.BulkPart, error) { return s.For(nil).BeginBulk(t.Context(), "t", &first, k.id) })
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b"} { // the last one is in memory
			row := table.RowMutation{Row: []byte(key), Mutations: []table.Mutation{table.Set("f", nil, 1, value)}}
			if err := p.part.Add(t.Context(), s.For(nil), row); err != nil {
				t.Fatal(err)
			}
		}
		ps.release(p)
		return k
	}
	// await waits until between least and most bytes are used: files are truncated step by step before they are removed.
	await := func(what string, least, most int64) {
		t.Helper()
		for until := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			free, err := disk.FreeBytes("/d")
			if n := diskBytes - free; err != nil || n >= least && n <= most {
				return
			} else if time.Now().After(until) {
				t.Fatalf("%s: %d bytes are used, want %d to %d", what, n, least, most)
			}
		}
	}
	idle, used := open(1), open(2)
	await("with two parts", 2<<20, 3<<20)
	p, err := ps.use(t.Context(), used)
	if err != nil {
		t.Fatal(err)
	}
	ps.abort(func(p *part) bool { return p.expired(time.Now()) })
	if n, _ := ps.stats(); n != 2 {
		t.Fatalf("%d parts are open, want 2: none is idle", n)
	}
	ps.abort(func(p *part) bool { return p.expired(time.Now().Add(api.BulkIdle + time.Second)) })
	if _, err := ps.use(t.Context(), idle); !errors.Is(err, api.ErrBulkExpired) {
		t.Errorf("the idle part: %v", err)
	}
	await("after a part was idle", 1<<20, 2<<20-1)
	if err := p.part.Commit(t.Context(), s.For(nil)); err != nil {
		t.Errorf("the part in use: %v", err)
	}
	ps.release(p)
	open(3)
	closed := make(chan struct{})
	busy, err := ps.use(t.Context(), open(4))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		ps.close(t.Context())
		close(closed)
	}()
	select {
	case <-closed:
		t.Error("close does not wait for a part in use")
	case <-time.After(50 * time.Millisecond):
	}
	ps.release(busy)
	<-closed
	if n, _ := ps.stats(); n != 0 {
		t.Errorf("%d parts are open after close", n)
	}
	await("after close", 2<<20, 3<<20-1)
	if _, err := ps.add(&part{}); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("a part after close: %v", err)
	}
}

// TestProgress (BI3): calls that add nothing do not keep a part open, those that add little do not for long, and none does for ever.
func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration
		bytes int64
		lasts time.Duration
	}{
		"nothing": {time.Second, 0, api.BulkIdle},
		"little":  {time.Second, 1000, api.BulkIdle},
		"enough":  {time.Second, 2000, api.BulkOpenMax},
		"slow":    {api.BulkIdle / 2, 2 * api.BulkProgress, api.BulkOpenMax},
	} {
		synctest.Test(t, func(t *testing.T) {
			ps, began := &parts{most: 1}, time.Now()
			p := &part{busy: make(chan struct{}, 1)}
			if _, err := ps.add(p); err != nil {
				t.Fatal(err)
			}
			for {
				time.Sleep(c.every)
				ps.abort(func(p *part) bool { return p.expired(time.Now()) })
				if _, err := ps.use(t.Context(), p.key); err != nil {
					break
				}
				ps.progress(p, c.bytes, false)
				<-p.busy
			}
			if lasted := time.Since(began); lasted <= c.lasts || lasted > c.lasts+2*c.every {
				t.Errorf("%s: the part was open for %v, want %v", name, lasted, c.lasts)
			}
		})
	}
}

// TestPartsOfOneUser (BI3): a user leaves as many parts to others as the user has.
func TestPartsOfOneUser(t *testing.T) {
	ps := &parts{most: 8}
	fill := func(owner string) (n int, err error) {
		for {
			if _, err = ps.add(&part{key: key{id: tablet.PartID{byte(n)}, owner: owner}}); err != nil {
				return n, err
			}
			n++
		}
	}
	for _, c := range []struct {
		owner string
		parts int
		text  string
	}{{"ann", 4, "user ann has 4"}, {"bob", 2, "user bob has 2"}, {"cid", 1, "user cid has 1"}, {"", 1, "8 of 8 parts"}} {
		n, err := fill(c.owner)
		if over := (*api.OverloadedError)(nil); !errors.As(err, &over) || over.RetryAfter == 0 || n != c.parts || !strings.Contains(over.Reason, c.text) {
			t.Errorf("%s has %d parts, want %d: %v", c.owner, n, c.parts, err)
		}
	}
	if _, refused := ps.stats(); refused != 4 {
		t.Errorf("%d parts were refused, want 4", refused)
	}
}
