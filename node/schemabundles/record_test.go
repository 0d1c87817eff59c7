package schemabundles

import (
	"encoding/hex"
	"reflect"
	"testing"

	"github.com/steledb/stele/client/api"
)

// TestGoldenRecord: records are read as they were written by every version, and etags stay.
func TestGoldenRecord(t *testing.T) {
	all := []api.SchemaBundle{{ID: "a", Descriptors: []byte("x"), Etag: "2d711642b726b044"}, {ID: "b", Descriptors: []byte{}, Etag: "e3b0c44298fc1c14"}}
	const want = "92019292a161c4017892a162c400"
	b := encode(all)
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("written as %s, want %s", got, want)
	}
	all[1].Descriptors = nil
	if got, err := decode(b); err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("read as %+v, %v", got, err)
	}
	later, err := hex.DecodeString("93019193a161c4017805c0") // later versions append
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decode(later); err != nil || !reflect.DeepEqual(got, all[:1]) {
		t.Errorf("of a later version: %+v, %v", got, err)
	}
	for n := range b {
		if _, err := decode(b[:n]); err == nil {
			t.Errorf("%d of %d bytes of a record are read", n, len(b))
		}
	}
}
