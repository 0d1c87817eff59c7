package blobs

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/roots"
	"github.com/steledb/stele/raftmeta/session/sessiontest"
)

// deletion is a service with a blob to delete.
type deletion struct {
	*Service
	file roots.StoredFile
}

// storeFile stores bytes and their file, as a sealed upload does.
func storeFile(t *testing.T, staged bool) *deletion {
	t.Helper()
	meta := &namespace.Access{Client: sessiontest.NewClient(t)}
	if err := meta.Open(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	store, err := blobfs.Open(blobfs.Config{Folders: []string{t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	w, err := store.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("a file of a backup")); err != nil {
		t.Fatal(err)
	}
	h, err := w.Seal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	store.Release(h.ID)
	catalog := &namespace.Catalog{Meta: meta}
	d := &deletion{New(Config{
		Ctx: t.Context(), Log: slog.New(slog.DiscardHandler), Catalog: catalog, Meta: meta, Store: func() *blobfs.Store { return store },
		Roots: &roots.Reader{Catalog: catalog, Meta: meta},
	}), roots.StoredFile{Name: "b", Created: time.Now(), Handle: h, Staged: staged}}
	d.write(t, d.file.Encode(), 0)
	return d
}

func (d *deletion) write(t *testing.T, data []byte, gen uint64) {
	t.Helper()
	if _, err := d.Catalog.Set(t.Context(), roots.StoredPath(d.file.Handle.ID), data, gen); err != nil {
		t.Fatal(err)
	}
}

// delete deletes the blob's name and reports whether its bytes are left.
func (d *deletion) delete(t *testing.T) (left bool) {
	t.Helper()
	id := d.file.Handle.ID
	if err := d.deleteBlob(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := d.deleteBlob(t.Context(), id); !errors.Is(err, api.ErrNoBlob) {
		t.Errorf("a second deletion: %v", err)
	}
	r, err := d.Store().OpenBlob(t.Context(), d.file.Handle)
	if err == nil {
		r.Close()
	}
	return err == nil
}

// TestDeleteBytes: the bytes of a blob are deleted with its name, but not those of a staged blob (BL2): a backup may name them.
func TestDeleteBytes(t *testing.T) {
	if storeFile(t, false).delete(t) {
		t.Error("the bytes of a deleted blob are left")
	}
	if !storeFile(t, true).delete(t) {
		t.Error("the bytes of a staged blob were deleted")
	}
}

// TestDeleteStagedWithoutSession: the node's session has ended, after a pause or a partition, and the next one is not open yet.
func TestDeleteStagedWithoutSession(t *testing.T) {
	d := storeFile(t, true)
	if err := d.Meta.Current().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !d.delete(t) {
		t.Error("the bytes of a staged blob were deleted")
	}
}

// TestDeleteUnreadableFile: a file that cannot be decoded, because it is damaged or of a later version, may be that of a staged blob.
func TestDeleteUnreadableFile(t *testing.T) {
	d := storeFile(t, true)
	f, err := d.Meta.Get(t.Context(), roots.StoredPath(d.file.Handle.ID))
	if err != nil {
		t.Fatal(err)
	}
	f.Data[1] = 2 // the version
	d.write(t, f.Data, f.Generation)
	if !d.delete(t) {
		t.Error("the bytes of a blob with an unreadable file were deleted")
	}
}
