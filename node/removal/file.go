package removal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/steledb/stele/internal/vfs"
)

// FileName is the name of the file with the removed nodes in the first data directory: see package doc.
const FileName = "removed"

const fileFormat = 1

type fileText struct {
	Format  int      `json:"format"`
	Cluster string   `json:"cluster"`
	Nodes   []string `json:"nodes"`
}

// readFile returns the removed nodes in the file, or nil if there is no file.
func readFile(fsys vfs.FS, path, cluster string) (map[string]bool, error) {
	b, err := vfs.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var t fileText
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if t.Format != fileFormat || t.Cluster != cluster {
		return nil, fmt.Errorf("%s has format %d and cluster %q, want format %d and cluster %q", path, t.Format, t.Cluster, fileFormat, cluster)
	}
	gone := make(map[string]bool, len(t.Nodes))
	for _, id := range t.Nodes {
		gone[id] = true
	}
	return gone, nil
}

// writeFile replaces the file. After an error the previous file remains.
func writeFile(fsys vfs.FS, path, cluster string, gone map[string]bool) error {
	b, err := json.MarshalIndent(fileText{Format: fileFormat, Cluster: cluster, Nodes: slices.Sorted(maps.Keys(gone))}, "", "  ")
	if err != nil {
		return err
	}
	if err := vfs.WriteFile(fsys, path, append(b, '\n')); err != nil {
		return fmt.Errorf("write the list of removed nodes: %w", err)
	}
	return nil
}
