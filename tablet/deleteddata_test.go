package tablet

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/storage"
)

// filesWith returns the files below dir, except logs, that contain the bytes.
func filesWith(t *testing.T, fsys vfs.FS, dir string, secret []byte) (found []string) {
	t.Helper()
	names, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name == "logs" {
			continue
		}
		name = dir + "/" + name
		f, err := fsys.OpenRead(name)
		if err != nil {
			found = append(found, filesWith(t, fsys, name, secret)...)
			continue
		}
		size, err := f.Size()
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, size)
		if _, err := f.ReadAt(p, 0); size > 0 && err != nil {
			t.Fatal(err)
		}
		f.Close()
		if bytes.Contains(p, secret) {
			found = append(found, name)
		}
	}
	return found
}

// TestDeletedDataIsRemoved (I10): deleted and expired data is in no SSTable once the period of
// major compactions is over, also of an idle tablet. Logs are covered by the block store's
// TestReleasedLogGoes.
func TestDeletedDataIsRemoved(t *testing.T) {
	const period = 24 * time.Hour
	e := newEnv(t, Config{MajorPeriod: period}, "f:compression=none,versions=1", "old:compression=none,age=1h,group=g2")
	secrets := map[string][]byte{}
	for _, how := range []string{"row", "family", "column", "overwritten", "expired"} {
		secrets[how] = fmt.Appendf(nil, "secret-that-goes-by-%s", how)
	}
	now := e.clock.now().UnixMicro()
	for how, secret := range secrets {
		family := "f"
		if how == "expired" {
			family = "old"
		}
		e.mustApply("row of "+how, table.Set(family, []byte("q"), now, secret))
	}
	if err := e.Compact(t.Context(), testTable, false); err != nil {
		t.Fatal(err)
	}
	for how, secret := range secrets {
		if len(filesWith(t, e.fs, "/d0", secret))+len(filesWith(t, e.fs, "/d1", secret)) == 0 {
			t.Fatalf("data to be removed by %s not found: the test looks in the wrong files", how)
		}
	}
	e.mustApply("row of row", table.DeleteRow())
	e.mustApply("row of family", table.DeleteFamily("f"))
	e.mustApply("row of column", table.DeleteColumn("f", []byte("q")))
	e.mustApply("row of overwritten", table.Set("f", []byte("q"), now+1, []byte("new")))
	for _, secret := range secrets {
		e.merges.queueDue()
		if len(filesWith(t, e.fs, "/d0", secret))+len(filesWith(t, e.fs, "/d1", secret)) == 0 {
			t.Errorf("%q is gone before its time", secret)
		}
	}
	e.clock.micros.Add((period * 9 / 10).Microseconds())
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		e.merges.queueDue()
		var left []string
		for how, secret := range secrets {
			for _, dir := range []string{"/d0", "/d1"} {
				for _, name := range filesWith(t, e.fs, dir, secret) {
					left = append(left, fmt.Sprintf("what went by %s is in %s", how, name))
				}
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after the period: %q", left)
		}
	}
}

// abandonedBlobs records abandoned blobs.
type abandonedBlobs struct {
	storage.Blobs
	mu    sync.Mutex
	times map[blobfs.ID]int
}

func (b *abandonedBlobs) Abandon(h blobfs.Handle) {
	b.mu.Lock()
	b.times[h.ID]++
	b.mu.Unlock()
	b.Blobs.Abandon(h)
}

func (b *abandonedBlobs) of(id blobfs.ID) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.times[id]
}

// A file shared by the halves of a tablet is abandoned by each, once it has its own files and no
// longer reads the shared one (I10). It is not deleted, because the other half may need it.
func TestSharedFilesAreAbandoned(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	blobs := &abandonedBlobs{Blobs: e.Server.cfg.Blobs, times: map[blobfs.ID]int{}}
	e.Server.useBlobs(blobs)
	for i := range 10 {
		e.mustApply(fmt.Sprintf("row%d", i), table.Set("f", []byte("q"), 1, []byte("v")))
	}
	e.mustCompact(t, true)
	shared := e.tabletOfTest().meta.current.Groups[0].Files[0].Handle
	if _, _, err := e.Split(t.Context(), lastTablet, []byte("row4")); err != nil {
		t.Fatal(err)
	}
	// A scan of the upper half is running.
	reading, goOn, read := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		begin := sync.OnceFunc(func() { close(reading); <-goOn })
		_, err := e.Scan(context.Background(), testTable, Range{Start: []byte("row5")}, nil, func([]byte, []table.Cell) error { begin(); return nil })
		read <- err
	}()
	<-reading
	e.mustCompact(t, true)
	if n := blobs.of(shared.ID); n != 1 {
		t.Errorf("abandoned %d times while the upper half is read, want once", n)
	}
	close(goOn)
	if err := <-read; err != nil {
		t.Error(err)
	}
	if n := blobs.of(shared.ID); n != 2 {
		t.Errorf("abandoned %d times, want twice", n)
	}
	if r, err := blobs.OpenBlob(t.Context(), shared); err != nil {
		t.Errorf("what was abandoned: %v", err)
	} else {
		_ = r.Close()
	}
}

func (e *env) mustCompact(t *testing.T, major bool) {
	t.Helper()
	if err := e.Compact(t.Context(), testTable, major); err != nil {
		t.Fatal(err)
	}
}
