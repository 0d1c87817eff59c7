package master_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/master"
)

func TestRecoveryFile(t *testing.T) {
	r := &master.Recovery{Server: "n1.7", Pieces: []master.Piece{
		{Log: blobfs.NewID(), Start: 0, End: 64 << 20, Run: []byte("run")},
		{Log: blobfs.NewID(), Start: 64 << 20, End: 65 << 20},
	}}
	b := master.EncodeRecovery(r)
	got, err := master.DecodeRecovery(b)
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Fatalf("read %+v, %v", got, err)
	}
	if got.Done() {
		t.Error("a recovery with a piece that is not sorted is done")
	}
	for i := range b {
		if _, err := master.DecodeRecovery(b[:i]); err == nil {
			t.Errorf("%d of %d bytes are read", i, len(b))
		}
	}
	if _, err := master.DecodeRecovery(append(b, 0)); err == nil || !strings.Contains(err.Error(), "1 bytes after the value") {
		t.Errorf("with a byte behind it: %v", err)
	}
}
