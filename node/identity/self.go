package identity

import (
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/node/formation"
)

// Self is the node's identity: what its data directories state, and the address at which it is reached. It is safe for
// concurrent use, and implements formation.Store.
type Self struct {
	// Address is the RPC address that other nodes use, set before the port is served.
	Address string
	// mu guards folders, and their files.
	mu      sync.Mutex
	folders *Folders
	// clusterID is the last durable cluster id, for readers that must not wait for a disk.
	clusterID atomic.Pointer[string]
}

// Open sets the data directories.
func (s *Self) Open(folders *Folders) {
	s.folders = folders
	s.published()
}

func (s *Self) published() {
	id := s.folders.Cluster
	s.clusterID.Store(&id)
}

// View calls f with the data directories' state.
func (s *Self) View(f func(*Folders)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.folders)
}

// Change changes the data directories' state. The change is durable when change returns nil.
func (s *Self) Change(f func(*Folders) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := f(s.folders)
	if err == nil {
		s.published()
	}
	return err
}

// ID returns the node's id, which never changes.
func (s *Self) ID() (id string) {
	s.View(func(f *Folders) { id = f.Node })
	return id
}

// Cluster returns the cluster's id, empty while the node belongs to none.
func (s *Self) Cluster() (id string) {
	s.View(func(f *Folders) { id = f.Cluster })
	return id
}

// DurableCluster returns the last durable cluster id. It does not wait for a disk.
func (s *Self) DurableCluster() string { return *s.clusterID.Load() }

// RaftEpoch returns the epoch of the Raft group that the node has recorded.
func (s *Self) RaftEpoch() (epoch uint64) {
	s.View(func(f *Folders) { epoch = f.RaftEpoch })
	return epoch
}

// State implements formation.Store.
func (s *Self) State() (st formation.State) {
	s.View(func(f *Folders) { st = f.State() })
	return st
}

// Save implements formation.Store.
func (s *Self) Save(st formation.State) error {
	return s.Change(func(f *Folders) error { return f.Save(st) })
}

// Found implements formation.Store.
func (s *Self) Found(cluster string) error {
	return s.Change(func(f *Folders) error { return f.Found(cluster) })
}

// Join implements formation.Store.
func (s *Self) Join(cluster string) error {
	return s.Change(func(f *Folders) error { return f.Join(cluster) })
}

var _ formation.Store = (*Self)(nil)
