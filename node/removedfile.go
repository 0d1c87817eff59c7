package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/steledb/stele/internal/vfs"
)

// removedFile is the name of the file in the first data directory with the removed nodes: at its next start, the node rejects them before
// it reaches the lock service. It is JSON: the format, the cluster, the ids in order. A missing file is recreated.
const removedFile = "removed"

const removedFormat = 1

type removedText struct {
	Format  int      `json:"format"`
	Cluster string   `json:"cluster"`
	Nodes   []string `json:"nodes"`
}

// readRemoved returns the removed nodes in the file, or nil if there is no file.
func readRemoved(path, cluster string) (map[string]bool, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var t removedText
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if t.Format != removedFormat || t.Cluster != cluster {
		return nil, fmt.Errorf("%s has format %d and cluster %q, want format %d and cluster %q", path, t.Format, t.Cluster, removedFormat, cluster)
	}
	gone := make(map[string]bool, len(t.Nodes))
	for _, id := range t.Nodes {
		gone[id] = true
	}
	return gone, nil
}

// writeRemoved replaces the file. After an error the previous file remains.
func writeRemoved(path, cluster string, gone map[string]bool) error {
	b, err := json.MarshalIndent(removedText{Format: removedFormat, Cluster: cluster, Nodes: slices.Sorted(maps.Keys(gone))}, "", "  ")
	if err != nil {
		return err
	}
	if err := vfs.WriteFile(vfs.OS(), path, append(b, '\n')); err != nil {
		return fmt.Errorf("write the list of removed nodes: %w", err)
	}
	return nil
}
