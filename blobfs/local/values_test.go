package local

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/wire"
)

func TestID(t *testing.T) {
	id := NewID()
	if id == NewID() || id.IsZero() || !(ID{}).IsZero() {
		t.Error("IDs are not unique")
	}
	if back, err := ParseID(id.String()); err != nil || back != id {
		t.Errorf("round trip: %v, %v", back, err)
	}
	for _, bad := range []string{"", "00", strings.Repeat("g", 32), id.String() + "0"} {
		if _, err := ParseID(bad); err == nil {
			t.Errorf("%q is accepted as an ID", bad)
		}
	}
	b, err := json.Marshal(exampleID)
	if err != nil || string(b) != `"00112233445566778899aabbccddeeff"` {
		t.Errorf("JSON %s, %v", b, err)
	}
	var back ID
	if err := json.Unmarshal(b, &back); err != nil || back != exampleID {
		t.Errorf("JSON round trip: %v, %v", back, err)
	}
	if json.Unmarshal([]byte(`"no id"`), &back) == nil {
		t.Error("bad JSON is accepted")
	}
}

func TestConfigValidate(t *testing.T) {
	for _, bad := range []Config{
		{},
		{Folders: []string{""}},
		{Folders: []string{"a", "b", "a"}},
		{Folders: []string{"a"}, ExtentBytes: 1000},
		{Folders: []string{"a"}, ExtentBytes: ChunkBytes + 1},
		{Folders: []string{"a"}, ExtentBytes: maxExtentBytes + ChunkBytes},
		{Folders: []string{"a"}, ExtentBytes: -ChunkBytes},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v is accepted", bad)
		}
		if _, err := Open(bad); err == nil {
			t.Errorf("%+v opens", bad)
		}
	}
	cfg := Config{Folders: []string{"a"}}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	d := cfg.withDefaults()
	if d.ExtentBytes != 64<<20 || d.ReserveBytes != 1<<30 || d.LogExtentsReady != 2 || d.FS == nil || d.Logger == nil {
		t.Errorf("defaults %+v", d)
	}
}

func TestFileSizes(t *testing.T) {
	for length := int64(0); length < 4*ChunkBytes; length += 1 + length/7 {
		if back, ok := payloadBytes(extentFileBytes(length)); !ok || back != length {
			t.Errorf("length %d: %d, %v", length, back, ok)
		}
	}
	for _, size := range []int64{0, 1, pageBytes, pageBytes + extentFooterBytes - 1, pageBytes + extentFooterBytes + 1, pageBytes + extentFooterBytes + 4} {
		if length, ok := payloadBytes(size); ok {
			t.Errorf("a file of %d bytes is accepted as an extent of %d", size, length)
		}
	}
}

func TestExtentNames(t *testing.T) {
	want := ExtentID{Blob: exampleID, Index: 2}
	for _, of := range []int{0, 3, 11} {
		name := extentName(want, of)
		if id, n, ok := parseExtentName(name); !ok || id != want || n != of || id.isLast(n) != (of == 3) {
			t.Errorf("%s: %v %d %v", name, id, n, ok)
		}
	}
	hex := exampleID.String()
	for _, bad := range []string{"", hex, hex + ".", hex + ".1of1", hex + ".-1of1", hex + ".0of", hex + ".00of1", hex + ".00", hex + ".-1", hex + ".1048576",
		hex + ".0of1.tmp", hex + ".0.tmp", strings.ToUpper(hex) + ".0of1", "x" + hex[1:] + ".0of1"} {
		if _, _, ok := parseExtentName(bad); ok {
			t.Errorf("%q is accepted as an extent", bad)
		}
	}
}

func TestDecodeHandleRefuses(t *testing.T) {
	good := Handle{ID: exampleID, Length: 5, Extents: []ExtentRef{{Index: 0, Length: 3}, {Index: 1, Length: 2}}}
	for name, spoil := range map[string]func(h *Handle){
		"sum":      func(h *Handle) { h.Length = 6 },
		"order":    func(h *Handle) { h.Extents[1].Index = 2 },
		"negative": func(h *Handle) { h.Extents[0].Length, h.Extents[1].Length = -1, 6 },
		"none":     func(h *Handle) { h.Extents, h.Length = nil, 0 },
	} {
		h := good
		h.Extents = append([]ExtentRef(nil), good.Extents...)
		spoil(&h)
		var e wire.Encoder
		AppendHandle(&e, h)
		d := wire.NewDecoder(e.Bytes())
		if DecodeHandle(&d); !errors.Is(d.Err(), errBadHandle) {
			t.Errorf("%s: %v", name, d.Err())
		}
	}
	var e wire.Encoder // of a later version
	e.Array(5)
	e.Uint(2)
	e.Bin(exampleID[:])
	e.Int(0)
	e.Array(1)
	e.Array(5)
	e.Int(0)
	e.Int(0)
	e.Uint(0)
	e.Array(0)
	e.Str("new")
	e.Map(0)
	e.Str("next value")
	d := wire.NewDecoder(e.Bytes())
	if h := DecodeHandle(&d); d.Err() != nil || h.ID != exampleID || d.Str() != "next value" {
		t.Errorf("a later version: %+v, %v", h, d.Err())
	}
}
