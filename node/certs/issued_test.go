package certs

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// TestIssued: the encoding is stable, decodes to the same value, and must be complete.
func TestIssued(t *testing.T) {
	want := Issued{Leaf: []byte{1}, Trust: []byte("pem"), GossipKeys: [][]byte{{2}, {3}}, Members: []string{"a:1", "b:2"}, Now: time.UnixMilli(1234)}
	var e wire.Encoder
	want.Append(&e)
	if b := e.Bytes(); !bytes.Equal(b, slices.Concat([]byte{0x95, 0xc4, 1, 1, 0xc4, 3}, []byte("pem"), []byte{0x92, 0xc4, 1, 2, 0xc4, 1, 3, 0x92, 0xa3}, []byte("a:1"),
		[]byte{0xa3}, []byte("b:2"), []byte{0xcd, 0x04, 0xd2})) {
		t.Errorf("encoded as %x", b)
	}
	var got Issued
	d := wire.NewDecoder(e.Bytes())
	if err := got.Decode(&d); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	d = wire.NewDecoder([]byte{0x91, 0xc4, 1, 1})
	if err := got.Decode(&d); err == nil {
		t.Error("one value is accepted")
	}
}
