package node

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	blobapi "github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/table"
)

// The largest blob that may be stored, on the most nodes that there may be, has a file that the lock
// service takes.
func TestBlobFileFits(t *testing.T) {
	f := blobFile{name: strings.Repeat("n", api.BlobNameBytesMax), created: time.UnixMilli(1 << 41), handle: blobfs.Handle{ID: blobfs.NewID()}}
	var nodes []string
	for i := range blobapi.ChainMax {
		nodes = append(nodes, fmt.Sprintf("n%016x", ^uint64(i)))
	}
	for i := range api.BlobExtentsMax {
		f.handle.Extents = append(f.handle.Extents, blobfs.ExtentRef{Index: i, Length: 64 << 20, CRC: 1<<32 - 1, Replicas: nodes})
		f.handle.Length += 64 << 20
	}
	b := f.encode()
	if len(b) > metaapi.FileBytesMax || f.handle.Length != api.BlobBytesMax {
		t.Errorf("the file has %d bytes of %d, the blob %d", len(b), metaapi.FileBytesMax, f.handle.Length)
	}
	back, err := decodeBlobFile(b)
	if err != nil || !reflect.DeepEqual(back, f) {
		t.Errorf("it reads as %.200v, %v", back, err)
	}
	for n := range 64 {
		if _, err := decodeBlobFile(b[:len(b)-1-n*n*n]); err == nil && n*n*n < len(b) {
			t.Fatalf("cut by %d bytes it is taken", n*n*n+1)
		}
	}
}

// Abandoned uploads end, and only those.
func TestIdleUploads(t *testing.T) {
	store, err := blobfs.Open(blobfs.Config{Folders: []string{t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var us uploads
	us.start()
	defer us.close()
	a, err := us.open(t.Context(), store, "a", "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := us.open(t.Context(), store, "b", "")
	if err != nil {
		t.Fatal(err)
	}
	_, release, err := us.use(t.Context(), b.Upload, "")
	if err != nil {
		t.Fatal(err)
	}
	us.endThose(func(*upload) bool { return true })
	release()
	if _, _, err := us.use(t.Context(), a.Upload, ""); err != api.ErrUploadExpired {
		t.Errorf("an idle upload: %v", err)
	}
	if _, release, err = us.use(t.Context(), b.Upload, ""); err != nil {
		t.Fatalf("one that is worked on: %v", err)
	}
	release()
}

// A namespace that is full refuses the name of a blob as a limit, with its name: nothing is stored then.
func TestFullNamespaceIsALimit(t *testing.T) {
	t.Parallel()
	err := api.FromRPC(reply.ToAPI(fmt.Errorf("set /blobs/x: %w", &metaapi.TooLargeError{What: metaapi.LimitBytes, Limit: 5, Got: 6})))
	var limit *table.LimitError
	if !errors.As(err, &limit) || limit.What != "lock service: namespace" || limit.Limit != 5 || limit.Got != 6 {
		t.Errorf("a full namespace: %v", err)
	}
}
