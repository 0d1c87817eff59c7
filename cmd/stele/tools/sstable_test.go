package tools

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/cmd/stele/cli/clitest"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

// manyExtents writes an SSTable into a blob of several extents.
func manyExtents(t *testing.T, dir string) (id blobfs.ID, entries int) {
	t.Helper()
	store, err := blobfs.Open(blobfs.Config{Folders: []string{filepath.Join(dir, "blobs")}, ExtentBytes: 64 << 10, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	blob, err := store.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := sstable.NewWriter(blob, sstable.Options{Compression: table.CompressionNone, BlockBytes: 4 << 10})
	rng := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, 1000)
	for entries = range 300 {
		key := ikey.AppendColumn(ikey.AppendFamily(ikey.AppendRow(nil, fmt.Appendf(nil, "row%04d", entries)), "f", 1), []byte("q"))
		for i := range value {
			value[i] = byte(rng.Uint32())
		}
		if err := w.Add(ikey.AppendCell(key, 5, uint64(entries+1)), value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(nil); err != nil {
		t.Fatal(err)
	}
	h, err := blob.Seal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Extents) < 3 {
		t.Fatalf("%d extents, want several", len(h.Extents))
	}
	return h.ID, entries + 1
}

// A blob of several extents can be opened by its id or by any of its files.
func TestSSTableOfSeveralExtents(t *testing.T) {
	dir := t.TempDir()
	id, entries := manyExtents(t, dir)
	files, err := filepath.Glob(filepath.Join(dir, "blobs", "blobs", id.String()+".*"))
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, args := range [][]string{
		{id.String(), "--data-dir", dir}, {id.String(), "--data-dir", t.TempDir(), "--data-dir", dir + "/blobs"}, {files[1]},
	} {
		a, out, errs := clitest.New()
		if code := a.Run(context.Background(), []cli.Group{{ID: "tools", Title: "Tools:", Commands: []*cobra.Command{sstableCommand(a)}}}, append([]string{"sstable", "verify"}, args...)); code != cli.ExitOK {
			t.Errorf("verify %v: exit code %d: %s", args, code, errs)
		}
		if want := fmt.Sprintf("sound: %s: %d entries in ", id, entries); !strings.HasPrefix(out.String(), want) {
			t.Errorf("verify %v printed %q, want %q", args, out, want)
		}
		a, out, errs = clitest.New()
		if code := a.Run(context.Background(), []cli.Group{{ID: "tools", Title: "Tools:", Commands: []*cobra.Command{sstableCommand(a)}}}, append([]string{"sstable", "dump", "--json", "--keys"}, args...)); code != cli.ExitOK {
			t.Errorf("dump %v: exit code %d: %s", args, code, errs)
		}
		if n := bytes.Count(out.Bytes(), []byte("\n")); n != entries {
			t.Errorf("dump %v printed %d lines, want %d", args, n, entries)
		}
	}
}

func TestEntryForms(t *testing.T) {
	row := func() []byte { return ikey.AppendRow(nil, []byte("r\x00")) }
	family := func() []byte { return ikey.AppendFamily(row(), "f", 7) }
	column := func() []byte { return ikey.AppendColumn(family(), []byte("q\xff")) }
	for _, c := range []struct {
		key, value []byte
		text, json string
	}{
		{ikey.AppendCell(column(), 5, 3), []byte("v"), `3|set|r\x00|f:q\xff|5|v`,
			`{"seq":3,"kind":"set","row_base64":"cgA=","column_base64":"Zjpx/w==","family_id":7,"timestamp":5,"value":"v","value_base64":"dg=="}`},
		{ikey.AppendDeleteColumn(column(), 4), ikey.AppendRange(nil, 1, 0), `4|del_column|r\x00|f:q\xff|1 to any`,
			`{"seq":4,"kind":"del_column","row_base64":"cgA=","column_base64":"Zjpx/w==","family_id":7,"start":1,"end":0}`},
		{ikey.AppendDeleteFamily(family(), 5), nil, `5|del_family|r\x00|f`, `{"seq":5,"kind":"del_family","row_base64":"cgA=","family":"f","family_base64":"Zg==","family_id":7}`},
		{ikey.AppendDeleteRow(row(), 6), nil, `6|del_row|r\x00`, `{"seq":6,"kind":"del_row","row_base64":"cgA="}`},
		{[]byte("other"), []byte("v"), `other|v`, `{"key":"other","key_base64":"b3RoZXI=","value":"v","value_base64":"dg=="}`},
	} {
		if got := strings.ReplaceAll(string(textEntry(nil, c.key, c.value, false)), "\t", "|"); got != c.text {
			t.Errorf("text %s, want %s", got, c.text)
		}
		want := c.json
		if got := string(jsonEntry(nil, c.key, c.value, false)); got != want {
			t.Errorf("json %s, want %s", got, want)
		}
	}
}
