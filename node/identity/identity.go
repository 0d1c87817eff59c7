package identity

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/formation"
)

// file is the name of the identity file in each data folder. Without it a wrong list of folders
// would look like a new node, and the blobs of the old node like orphans.
const file = "identity"

// Identity is the content of the file. It is the same in all folders of a node but for Folder.
// After an interrupted write the highest revision is valid.
type Identity struct {
	Format   int    `json:"format"`
	Revision uint64 `json:"revision,omitempty"`
	// Cluster is the cluster's id; empty for a fresh node, which belongs to none yet.
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Folder  string `json:"folder"` // this folder's id
	// Starts counts the node's starts.
	Starts uint64 `json:"starts,omitempty"`

	// Raft is the id of the folder that holds raft/, the log of the lock service; empty if the node
	// is no voter.
	Raft string `json:"raft"`
	// RaftNew reports that the log is being created, so that it may be missing or empty: no other
	// voter counts on it.
	RaftNew bool `json:"raft_new,omitempty"`
	// RaftAside is the id of the folder whose raft/ is to be set aside.
	RaftAside string `json:"raft_aside,omitempty"`
	// RaftEpoch identifies the Raft group: a group that was re-created from the remains of another
	// has a higher one.
	RaftEpoch uint64 `json:"raft_epoch,omitempty"`

	// Founding is true until the cluster's id is in the namespace. Such a node has not served yet,
	// so there is nothing to lose.
	Founding bool `json:"founding,omitempty"`
	// Formation is a fresh node's promise to another node, and its own attempt.
	Formation formation.State `json:"formation,omitzero"`

	Folders []folderRef `json:"folders"`
}

// folderRef is one folder of a node.
type folderRef struct {
	ID   string `json:"id"`
	Path string `json:"path"` // at the node's last start, for messages
}

// Fresh reports whether the node belongs to no cluster yet.
func (i *Identity) Fresh() bool { return i.Cluster == "" }

// Voter reports whether the node has a Raft log that others count on, or is to create the cluster's
// first one.
func (i *Identity) Voter() bool { return i.Raft != "" && !i.RaftNew }

func (i *Identity) check() error {
	switch {
	case i.Format < 1 || i.Format > format:
		return fmt.Errorf("%s has format %d, this program supports 1 to %d", file, i.Format, format)
	case i.Node == "" || i.Folder == "" || i.Format == 1 && (i.Cluster == "" || i.Raft == ""):
		return fmt.Errorf("%s lacks a cluster, node or folder", file)
	case i.Cluster == "" && i.Raft != "":
		return fmt.Errorf("%s has a lock service log but no cluster", file)
	}
	return nil
}

// write makes i the identity of the folder, durably.
func (d *dataFolder) write(i Identity) error {
	i.Folder = d.ident.Folder
	b, err := i.encode()
	if err != nil {
		return err
	}
	if err := vfs.MakeDir(d.fs, d.path); err != nil {
		return err
	}
	if err := vfs.WriteFile(d.fs, filepath.Join(d.path, file), b); err != nil {
		return err
	}
	d.ident = &i
	return nil
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
