package roots

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	blobapi "github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/client/api"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// The largest blob that may be stored, on the most nodes that there may be, has a file that the lock
// service takes.
func TestBlobFileFits(t *testing.T) {
	f := StoredFile{Name: strings.Repeat("n", api.BlobNameBytesMax), Created: time.UnixMilli(1 << 41), Handle: blobfs.Handle{ID: blobfs.NewID()}}
	var nodes []string
	for i := range blobapi.ChainMax {
		nodes = append(nodes, fmt.Sprintf("n%016x", ^uint64(i)))
	}
	for i := range api.BlobExtentsMax {
		f.Handle.Extents = append(f.Handle.Extents, blobfs.ExtentRef{Index: i, Length: 64 << 20, CRC: 1<<32 - 1, Replicas: nodes})
		f.Handle.Length += 64 << 20
	}
	b := f.Encode()
	if len(b) > metaapi.FileBytesMax || f.Handle.Length != api.BlobBytesMax {
		t.Errorf("the file has %d bytes of %d, the blob %d", len(b), metaapi.FileBytesMax, f.Handle.Length)
	}
	back, err := DecodeStored(b)
	if err != nil || !reflect.DeepEqual(back, f) {
		t.Errorf("it reads as %.200v, %v", back, err)
	}
	for n := range 64 {
		if _, err := DecodeStored(b[:len(b)-1-n*n*n]); err == nil && n*n*n < len(b) {
			t.Fatalf("cut by %d bytes it is taken", n*n*n+1)
		}
	}
}
