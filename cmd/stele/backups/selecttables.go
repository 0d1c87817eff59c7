package backups

import (
	"fmt"
	"io"
	"slices"

	"github.com/steledb/stele/internal/backupdir"
	"github.com/steledb/stele/node/backup"
	"github.com/steledb/stele/tablet"
)

// selectTables selects the tables with these names.
func selectTables(names []string) backupdir.Selection {
	return func(manifest io.ReaderAt, size int64, w io.Writer) (files map[string]bool, err error) {
		m, err := backup.OpenManifest(manifest, size)
		if err != nil {
			return nil, err
		}
		files = map[string]bool{}
		some := backup.NewWriter(w)
		for i := range m.Tables {
			if !slices.Contains(names, m.Tables[i].Schema.Name) {
				continue
			}
			if err := copyTable(some, m, i, files); err != nil {
				return nil, err
			}
		}
		written, err := some.Finish()
		if err == nil && len(written) != len(names) {
			err = fmt.Errorf("its manifest has %d of the tables %q", len(written), names)
		}
		return files, err
	}
}

// copyTable writes a table of a manifest to another one, and adds the ids of its files.
func copyTable(to *backup.Writer, m *backup.Manifest, i int, files map[string]bool) error {
	err := m.Tablets(i, func(_ int64, t *tablet.Meta) error {
		for _, g := range t.Groups {
			for k := range g.Files {
				files[g.Files[k].Handle.ID.String()] = true
			}
		}
		return to.Add(t)
	})
	if err != nil {
		return err
	}
	return to.EndTable(m.Tables[i].Schema)
}
