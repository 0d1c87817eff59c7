package backup

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

var testHandle = blobfs.Handle{ID: blobfs.ID{1, 2, 15: 3}, Length: 9, Extents: []blobfs.ExtentRef{{Length: 9, CRC: 7, Replicas: []string{"n1"}}}}

// TestGoldenRecord: records are read as they were written by every version.
func TestGoldenRecord(t *testing.T) {
	for _, x := range []struct {
		rec Record
		hex string
	}{
		{Record{State: Making, Created: time.UnixMilli(1000), By: "ann", Tables: []string{"t", "u"}},
			"9b0101cd03e80000a3616e6ea092a174a1750000c0"},
		{Record{State: Failed, Created: time.UnixMilli(1000), Ended: time.UnixMilli(2000), Error: "no", Tables: []string{"t"}},
			"9b0103cd03e8cd07d000a0a26e6f91a1740000c0"},
		{Record{State: Made, Created: time.UnixMilli(1000), Ended: time.UnixMilli(2000), Expires: time.UnixMilli(3000), Tables: []string{"t"}, Tablets: 4, Bytes: 5, Manifest: testHandle},
			"9b0102cd03e8cd07d0cd0bb8a0a091a174040594" + "01c41001020000000000000000000000000003" + "0991940009" + "0791a26e31"},
		{Record{State: Making, Created: time.UnixMilli(1000), Tables: []string{"t"}, Schedule: "daily"}, "9e0101cd03e80000a0a091a1740000c0c0c2a56461696c79"},
		{Record{State: Making, Created: time.UnixMilli(1000), Replay: &Replay{From: "id", Table: "t", To: 7}},
			"9d0101cd03e80000a0a0900000c0" + "93a26964a17407" + "c2"},
		{Record{State: Made, Created: time.UnixMilli(1000), Tables: []string{"t"}, Manifest: testHandle, Imported: true},
			"9d0102cd03e80000a0a091a1740000" + "9401c41001020000000000000000000000000003" + "0991940009" + "0791a26e31" + "c0c3"},
	} {
		b := x.rec.Encode()
		if got := hex.EncodeToString(b); got != x.hex {
			t.Errorf("%v is written as %s, want %s", x.rec.State, got, x.hex)
		}
		got, err := DecodeRecord(b)
		if err != nil || !reflect.DeepEqual(*got, x.rec) {
			t.Errorf("%v reads as %+v, %v", x.rec.State, got, err)
		}
		longer := append([]byte{b[0] + 1}, b[1:]...) // a later version appends
		if x.rec.Schedule == "" && x.rec.values() == replayValues {
			longer[0]++
			longer = append(longer, 0xa0)
		}
		if got, err := DecodeRecord(append(longer, 0x05)); err != nil || !reflect.DeepEqual(*got, x.rec) {
			t.Errorf("%v with more behind reads as %+v, %v", x.rec.State, got, err)
		}
		for n := range b {
			if _, err := DecodeRecord(b[:n]); err == nil {
				t.Errorf("%d of %d bytes of a record are read", n, len(b))
			}
		}
	}
	for what, b := range map[string]string{"of a later format": "9b0201cd03e80000a3616e6ea092a174a1750000c0", "in no state": "9b0109cd03e80000a3616e6ea092a174a1750000c0", "made without a manifest": "9b0102cd03e80000a3616e6ea092a174a1750000c0"} {
		raw, _ := hex.DecodeString(b)
		if r, err := DecodeRecord(raw); err == nil {
			t.Errorf("a record %s reads as %+v", what, r)
		}
	}
}

func meta(id uint64, start, end string, files ...tablet.FileMeta) *tablet.Meta {
	m := &tablet.Meta{ID: id, Table: 9, Start: []byte(start), End: []byte(end), Redo: id * 7, LastMajor: time.UnixMicro(5)}
	if len(files) > 0 {
		m.Groups = []tablet.GroupMeta{{Name: "default", Files: files}}
	}
	return m
}

// testManifest returns a manifest of two tables, and its tablets.
func testManifest(t *testing.T) (b []byte, tables [][]*tablet.Meta) {
	t.Helper()
	file := tablet.FileMeta{Handle: testHandle, MinSeq: 1, MaxSeq: 2, Shared: true}
	tables = [][]*tablet.Meta{
		{meta(1, "", "b", file), meta(2, "b", "x", file), meta(3, "x", "")},
		{meta(4, "", "")},
	}
	var out bytes.Buffer
	w := NewWriter(&out)
	for i, all := range tables {
		for _, m := range all {
			if err := w.Add(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.EndTable(table.NewSchema([]string{"t", "u"}[i], uint64(20+i))); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := w.Finish(); err != nil || len(done) != 2 || done[0].Tablets != 3 || done[0].Bytes != testHandle.Length {
		t.Fatalf("tables %+v, %v", done, err)
	}
	return out.Bytes(), tables
}

// readAll reads a manifest whole.
func readAll(b []byte) (tables [][]*tablet.Meta, err error) {
	m, err := OpenManifest(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	for i := range m.Tables {
		var all []*tablet.Meta
		if err := m.Tablets(i, func(_ int64, m *tablet.Meta) error {
			all = append(all, m)
			return nil
		}); err != nil {
			return nil, err
		}
		tables = append(tables, all)
	}
	return tables, nil
}

// TestManifest (BF1): a manifest has the tables and tablets that were added.
func TestManifest(t *testing.T) {
	b, want := testManifest(t)
	got, err := readAll(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		for k := range want[i] {
			if string(tablet.EncodeMeta(got[i][k])) != string(tablet.EncodeMeta(want[i][k])) {
				t.Errorf("tablet %d of table %d is %+v", k, i, got[i][k])
			}
		}
	}
	m, err := OpenManifest(bytes.NewReader(b), int64(len(b)))
	if err != nil || m.Tables[1].Schema.Name != "u" || m.Tables[1].Schema.ID != 21 {
		t.Errorf("tables %+v, %v", m.Tables, err)
	}
	stop := errors.New("stop")
	if err := m.Tablets(0, func(int64, *tablet.Meta) error { return stop }); err != stop {
		t.Errorf("the callback's error becomes %v", err)
	}
}

// TestGaps (BF1): tablets that leave out rows, or have some twice, do not become a manifest.
func TestGaps(t *testing.T) {
	for what, all := range map[string][]*tablet.Meta{
		"a gap":          {meta(1, "", "b"), meta(2, "c", "")},
		"an overlap":     {meta(1, "", "c"), meta(2, "b", "")},
		"no beginning":   {meta(1, "a", "")},
		"no end":         {meta(1, "", "b")},
		"no tablet":      {},
		"more":           {meta(1, "", ""), meta(2, "", "")},
		"an empty range": {meta(1, "", "b"), meta(2, "b", "b"), meta(3, "b", "")},
	} {
		w := NewWriter(&bytes.Buffer{})
		var err error
		for _, m := range all {
			if err == nil {
				err = w.Add(m)
			}
		}
		if err == nil {
			err = w.EndTable(table.NewSchema("t", 20))
		}
		if err == nil {
			t.Errorf("tablets with %s are accepted", what)
		}
	}
}

// TestDamagedManifest (BF2): a manifest that was cut or changed never panics, and never has fewer tablets than it states.
func TestDamagedManifest(t *testing.T) {
	b, want := testManifest(t)
	for n := range b {
		if got, err := readAll(b[:n]); err == nil {
			t.Errorf("%d of %d bytes are read as %d tables", n, len(b), len(got))
		}
	}
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	for range 20_000 {
		bad := bytes.Clone(b)
		for range 1 + r.IntN(3) {
			bad[r.IntN(len(bad))] ^= byte(1 + r.IntN(255))
		}
		got, err := readAll(bad)
		if err != nil {
			continue // the blob store finds what is read here as other values, by checksums
		}
		for i := range got {
			last := got[i][len(got[i])-1]
			if len(last.End) != 0 || len(got[i][0].Start) != 0 {
				t.Fatalf("a damaged manifest has a table of %d tablets that lacks rows; it had %d", len(got[i]), len(want[i]))
			}
		}
	}
}
