package backups

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/backup"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// manifestOf returns a manifest of tables, whose tablets have the files with these numbers.
func manifestOf(t *testing.T, tables ...[][]byte) (*backup.Manifest, []byte) {
	t.Helper()
	var b bytes.Buffer
	w := backup.NewWriter(&b)
	for i, tablets := range tables {
		var start []byte
		for k, numbers := range tablets {
			m := &tablet.Meta{ID: uint64(k + 1), Table: uint64(100 + i), Start: start}
			if k < len(tablets)-1 {
				m.End = []byte{byte('a' + k)}
			}
			start = m.End
			for j, n := range numbers { // of two groups
				if name := fmt.Sprint("g", j%2); j < 2 {
					m.Groups = append(m.Groups, tablet.GroupMeta{Name: name})
				}
				f := tablet.FileMeta{Handle: blobfs.Handle{ID: blobfs.ID{n}, Length: int64(n), Extents: []blobfs.ExtentRef{{Length: int64(n), Replicas: []string{"n1"}}}}}
				m.Groups[j%2].Files = append(m.Groups[j%2].Files, f)
			}
			if err := w.Add(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.EndTable(table.NewSchema(fmt.Sprint("t", i), uint64(100+i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	m, err := backup.OpenManifest(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return m, b.Bytes()
}

// TestPagesOfFiles: pages of any size have all files, none of them has one twice, and each continues where the one before it ended. A position that is
// none is an error, or files of the backup.
func TestPagesOfFiles(t *testing.T) {
	m, raw := manifestOf(t, [][]byte{{1, 2, 3}, {3, 4}, {}, {5}}, [][]byte{{6, 1, 7}, {7, 8, 9, 10}})
	for most := 1; most < 12; most++ {
		seen, from := map[int64]bool{}, int64(0)
		for pages := 0; ; pages++ {
			var page api.BackupFiles
			if err := addFiles(t.Context(), &page, m, from, most); err != nil || len(page.Files) > most || pages > 20 {
				t.Fatalf("page %d of %d: %d files, %v", pages, most, len(page.Files), err)
			}
			var here []int64
			for _, f := range page.Files {
				if slices.Contains(here, f.Bytes) {
					t.Errorf("a page of %d has file %d twice", most, f.Bytes)
				}
				here = append(here, f.Bytes)
				seen[f.Bytes] = true
			}
			if page.Next == 0 {
				break
			}
			if page.Next <= from {
				t.Fatalf("the page after %d is %d", from, page.Next)
			}
			from = page.Next
		}
		if len(seen) != 10 {
			t.Errorf("pages of %d have %v", most, seen)
		}
	}
	for from := range int64(len(raw)+10) * filesOfTablet / 512 {
		var page api.BackupFiles
		_ = addFiles(t.Context(), &page, m, from*512, 3)
	}
}
