package identity

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/formation"
)

const (
	raftFolder  = "raft"       // the log of a voter
	asideFolder = "raft.aside" // the log of a former voter, with the time when it was set aside and maybe a number as suffixes
)

// Folders stores a fresh node's promises.
var _ formation.Store = (*Folders)(nil)

// Begin counts a start and completes an interrupted EndVoter. It must be called at each start,
// before anything else is opened.
func (f *Folders) Begin() error {
	f.Starts++
	if err := f.Write(); err != nil {
		return err
	}
	return f.setAside()
}

// State returns the node's formation state: its promise and attempt.
func (f *Folders) State() formation.State { return f.Formation }

// Save stores the node's formation state.
func (f *Folders) Save(s formation.State) error {
	return f.change(func() { f.Formation = s })
}

// Found makes a fresh node the founder of a cluster, and so its first voter. The founding lasts
// until Founded.
func (f *Folders) Found(cluster string) error {
	if !f.Fresh() {
		return fmt.Errorf("found cluster %s: the node belongs to cluster %s", cluster, f.Cluster)
	}
	return f.change(func() {
		f.Cluster, f.Founding = cluster, true
		f.Formation.Active, f.Formation.Promise = false, nil
	})
}

// Founded ends the founding: the cluster's id is in the namespace.
func (f *Folders) Founded() error {
	if !f.Founding {
		return nil
	}
	return f.change(func() { f.Founding = false })
}

// Join makes a fresh node a member of an existing cluster, without a vote.
func (f *Folders) Join(cluster string) error {
	if f.Cluster == cluster {
		return nil
	}
	if !f.Fresh() {
		return fmt.Errorf("join cluster %s: the node belongs to cluster %s", cluster, f.Cluster)
	}
	return f.change(func() {
		f.Cluster = cluster
		f.Formation.Active, f.Formation.Promise = false, nil
	})
}

// RaftDir returns the folder of the Raft log; empty if the node is no voter.
func (f *Folders) RaftDir() string {
	d := f.byID(f.Raft)
	if d == nil {
		return ""
	}
	return filepath.Join(d.path, raftFolder)
}

// BeginVoter prepares the node for a Raft log, and returns the folder for it, which does not exist
// then. The caller must create the log there and call CompleteVoter before the group learns of a
// new voter. Until then no other voter counts on the log, and it may be lost.
func (f *Folders) BeginVoter(raftEpoch uint64) (dir string, err error) {
	if f.Fresh() || f.Voter() {
		return "", errors.New("become a voter: the node belongs to no cluster yet, or is already a voter")
	}
	if err := f.setAside(); err != nil {
		return "", err
	}
	d := f.byID(f.Raft)
	if d == nil {
		d = &f.dirs[0]
	}
	dir = filepath.Join(d.path, raftFolder)
	if err := f.change(func() { f.Raft, f.RaftNew, f.RaftEpoch = d.ident.Folder, true, raftEpoch }); err != nil {
		return "", err
	}
	if err := vfs.RemoveAll(d.fs, dir); err != nil { // left by an earlier attempt
		return "", fmt.Errorf("become a voter: %w", err)
	}
	return dir, nil
}

// CompleteVoter records that the Raft log exists. From now on the node does not start without it.
func (f *Folders) CompleteVoter() error {
	d := f.byID(f.Raft)
	if d == nil {
		return errors.New("become a voter: not begun")
	}
	made, err := hasLog(d.fs, d.path)
	if err != nil || !made {
		return errors.Join(fmt.Errorf("become a voter: no Raft log in %s", d.path), err)
	}
	if err := d.fs.SyncDir(filepath.Join(d.path, raftFolder)); err != nil {
		return err
	}
	if err := d.fs.SyncDir(d.path); err != nil {
		return err
	}
	return f.change(func() { f.RaftNew = false })
}

// EndVoter makes the node a member without a vote. The group must have removed it and the log must
// be closed. The log is set aside.
func (f *Folders) EndVoter() error {
	if f.Raft == "" {
		return nil
	}
	if f.Founding {
		return errors.New("end voting: the cluster is being founded")
	}
	if err := f.change(func() { f.Raft, f.RaftNew, f.RaftAside = "", false, f.Raft }); err != nil {
		return err
	}
	return f.setAside()
}

// SetRaftEpoch stores the epoch of the Raft group that the node knows.
func (f *Folders) SetRaftEpoch(epoch uint64) error {
	if f.RaftEpoch == epoch {
		return nil
	}
	return f.change(func() { f.RaftEpoch = epoch })
}

// setAside completes EndVoter. It renames the log, which RemoveAside removes later: it may be the last copy of
// something.
func (f *Folders) setAside() error {
	d := f.byID(f.RaftAside)
	if d == nil {
		return nil
	}
	from := filepath.Join(d.path, raftFolder)
	if _, _, err := d.fs.Stat(from); err == nil {
		to, err := d.asideName(time.Now())
		if err == nil {
			err = d.fs.Rename(from, to)
		}
		if err != nil {
			return fmt.Errorf("set the lock service's log aside: %w", err)
		}
		if err := d.fs.SyncDir(d.path); err != nil {
			return err
		}
	}
	return f.change(func() { f.RaftAside = "" })
}

// change applies edit and makes it durable. After an error the identity in memory is unchanged, but
// files may have the change; the highest revision is valid at the next start.
func (f *Folders) change(edit func()) error {
	before := f.Identity
	edit()
	if err := f.Write(); err != nil {
		revision := f.Revision
		f.Identity = before
		f.Revision = revision
		return err
	}
	return nil
}
