package formation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/steledb/stele/internal/vfs"
)

const (
	peersFormat = 1
	peersMax    = 256 // any one of them leads to the others
)

// peersFile stores the known members, so that a restart needs no flag. It is optional: a missing or
// old file does no harm.
type peersFile struct {
	fs   vfs.FS
	path string // empty: there is no file

	// mu serializes the writes.
	mu   sync.Mutex
	last []byte
}

type peersText struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Peers   []Peer `json:"peers"`
}

// read returns the stored members of the cluster.
func (f *peersFile) read(cluster string) ([]Peer, error) {
	if f.path == "" || cluster == "" {
		return nil, nil
	}
	b, err := vfs.ReadFile(f.fs, f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var t peersText
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.path, err)
	}
	if t.Format != peersFormat || t.Cluster != cluster {
		return nil, fmt.Errorf("%s has format %d and cluster %q", f.path, t.Format, t.Cluster)
	}
	return t.Peers[:min(len(t.Peers), peersMax)], nil
}

// write stores the peers, unless they are unchanged.
func (f *peersFile) write(cluster string, peers []Peer) error {
	if f.path == "" {
		return nil
	}
	peers = slices.Clone(peers[:min(len(peers), peersMax)])
	b, err := json.MarshalIndent(peersText{Format: peersFormat, Cluster: cluster, Peers: peers}, "", "  ")
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Equal(b, f.last) {
		return nil
	}
	f.last = nil // after an error the file has the old or the new peers
	if err := vfs.WriteFile(f.fs, f.path, append(b, '\n')); err != nil {
		return fmt.Errorf("write peers: %w", err)
	}
	f.last = b
	return nil
}
