package node

import (
	"sync"
	"sync/atomic"

	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/identity"
)

// selfIdentity is the node's identity: what its data directories state, and the address at which it is reached.
type selfIdentity struct {
	// address is the RPC address that other nodes use, set before the port is served.
	address string
	// mu guards folders, and their files.
	mu      sync.Mutex
	folders *identity.Folders
	// clusterID is the last durable cluster id, for readers that must not wait for a disk.
	clusterID atomic.Pointer[string]
}

// open sets the data directories.
func (s *selfIdentity) open(folders *identity.Folders) {
	s.folders = folders
	s.published()
}

func (s *selfIdentity) published() {
	id := s.folders.Cluster
	s.clusterID.Store(&id)
}

// view calls f with the data directories' state.
func (s *selfIdentity) view(f func(*identity.Folders)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.folders)
}

// change changes the data directories' state. The change is durable when change returns nil.
func (s *selfIdentity) change(f func(*identity.Folders) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := f(s.folders)
	if err == nil {
		s.published()
	}
	return err
}

// id returns the node's id, which never changes.
func (n *Node) id() (id string) {
	n.self.view(func(f *identity.Folders) { id = f.Node })
	return id
}

// cluster returns the cluster's id, empty while the node belongs to none.
func (n *Node) cluster() (id string) {
	n.self.view(func(f *identity.Folders) { id = f.Cluster })
	return id
}

// raftEpoch returns the epoch of the Raft group that the node has recorded.
func (n *Node) raftEpoch() (epoch uint64) {
	n.self.view(func(f *identity.Folders) { epoch = f.RaftEpoch })
	return epoch
}

// identityStore implements formation.Store on the data directories, concurrently with readers.
type identityStore struct{ s *selfIdentity }

// State implements formation.Store.
func (i identityStore) State() (st formation.State) {
	i.s.view(func(f *identity.Folders) { st = f.State() })
	return st
}

// Save implements formation.Store.
func (i identityStore) Save(st formation.State) error {
	return i.s.change(func(f *identity.Folders) error { return f.Save(st) })
}

// Found implements formation.Store.
func (i identityStore) Found(cluster string) error {
	return i.s.change(func(f *identity.Folders) error { return f.Found(cluster) })
}

// Join implements formation.Store.
func (i identityStore) Join(cluster string) error {
	return i.s.change(func(f *identity.Folders) error { return f.Join(cluster) })
}
