package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/raftmeta/storage"
)

// newSuffix marks a log that is still being created.
const newSuffix = ".new"

// dataDir is the data directory of a server: its lock, its log and its snapshots.
type dataDir struct {
	*core
	lock    io.Closer
	backend storage.Backend
	store   *storage.Log
	snaps   *storage.Snapshots
	// onStored is called with the size of entries that were stored.
	onStored func(bytes int64)
	// logBytes is the size of the log after the newest snapshot, in bytes, when it was checked.
	logBytes int64
	// hasServerID is set if the log contains the id of its server; old logs do not. joined is set if
	// the log still records that the server is joining, but already has entries or a snapshot.
	hasServerID, joined bool
	// snapshotIndex is the index of the newest snapshot when the directory was checked.
	snapshotIndex uint64
}

// prepare creates the data directory if necessary, and locks out other processes.
func (d *dataDir) prepare() error {
	fsys, dir := d.cfg.FS, d.cfg.Dir
	if err := vfs.MakeDir(fsys, dir); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	lock, err := storage.LockDir(fsys, dir)
	d.lock = lock
	return err
}

// openLog opens the store of the log in the file with that name.
func (d *dataDir) openLog(name string) error {
	file := filepath.Join(d.cfg.Dir, name)
	open := d.cfg.OpenLog
	if open == nil {
		open = storage.OpenBolt
	}
	backend, err := open(file)
	if err != nil {
		return err
	}
	d.backend = backend
	d.store = storage.NewLog(backend, storage.LogOptions{
		File: file, StallTimeout: d.stallTimeout, OnFail: d.fail,
		OnStored: d.onStored, Members: &d.members,
	})
	return nil
}

// initLog initializes a directory without a log as that of a new group's only voter, or of a server
// that waits to be added. The log gets its final name once it is complete, so that a crash at any
// point leaves the directory either initialized or not. A log with its final name defines the
// voters, or that the server is joining.
func (d *dataDir) initLog(conf *raft.Config) error {
	fsys, dir := d.cfg.FS, d.cfg.Dir
	file := filepath.Join(dir, storage.LogName)
	if _, _, err := fsys.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ids, err := d.snaps.IDs()
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		return &CorruptError{File: file, Reason: "log is missing, but there are snapshots"}
	}
	if err := fsys.Remove(file + newSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove unfinished log: %w", err)
	}
	if err := d.openLog(storage.LogName + newSuffix); err != nil {
		return err
	}
	err = errors.Join(d.writeInitialState(conf), d.backend.Close())
	d.backend = nil
	if err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	if err := fsys.Rename(file+newSuffix, file); err != nil {
		return fmt.Errorf("rename log: %w", err)
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("sync data directory: %w", err)
	}
	return nil
}

// writeInitialState writes the initial content of a new log.
func (d *dataDir) writeInitialState(conf *raft.Config) error {
	if err := d.store.Set([]byte(storage.StableServerID), []byte(d.cfg.ID)); err != nil {
		return err
	}
	if d.cfg.Join {
		if i := d.cfg.Invitation; i != (Invitation{}) {
			if err := d.storeInvitation(i); err != nil {
				return err
			}
		}
		return d.store.SetUint64([]byte(storage.StableJoining), 1)
	}
	return raft.BootstrapCluster(conf, d.store, d.store, d.snaps, d.trans, raft.Configuration{
		Servers: []raft.Server{{
			Suffrage: raft.Voter,
			ID:       conf.LocalID,
			Address:  d.trans.LocalAddr(),
		}},
	})
}

// check verifies the log, and computes how much of it the next snapshot will cover.
func (d *dataDir) check() error {
	sum, problems, err := storage.CheckDir(context.Background(), d.cfg.FS, d.cfg.Dir, d.cfg.OpenLog, d.snaps, false)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return problems[0]
	}
	if sum.ServerID != "" && sum.ServerID != d.cfg.ID {
		return fmt.Errorf("%w: %s", ErrWrongServer, sum.ServerID)
	}
	d.hasServerID = sum.ServerID != ""
	d.joined = sum.Joining && (sum.Last > 0 || sum.Snapshot > 0)
	d.logBytes = sum.BytesAfterSnapshot()
	d.snapshotIndex = sum.Snapshot
	d.invited.mu.stored = Invitation(sum.Invitation)
	return d.members.restored(d.snaps)
}

// finishJoin completes what a crash may have interrupted while the leader brought this server up to
// date.
func (d *dataDir) finishJoin() error {
	if d.joined {
		// From now on a log without entries is corrupt.
		if err := d.store.SetUint64([]byte(storage.StableJoining), 0); err != nil {
			return err
		}
	}
	superseded, err := d.superseded()
	if err != nil || !superseded {
		return err
	}
	// The snapshot is about to become the only copy.
	if _, err := d.snaps.Check(context.Background()); err != nil && !planted.On(planted.SnapshotUnverified) {
		return err
	}
	first, err := d.store.FirstIndex()
	if err != nil {
		return err
	}
	last, err := d.store.LastIndex()
	if err != nil {
		return err
	}
	return d.store.DeleteRange(first, last)
}

// superseded reports whether the newest snapshot replaces the whole log. That is so for a snapshot
// from the leader if the log ends before the snapshot does, which would leave a gap. It is also so
// if the log has a different entry where the snapshot ends; that entry was never committed.
func (d *dataDir) superseded() (bool, error) {
	metas, err := d.snaps.List()
	if err != nil || len(metas) == 0 {
		return false, err
	}
	first, err := d.store.FirstIndex()
	if err != nil {
		return false, err
	}
	last, err := d.store.LastIndex()
	if err != nil {
		return false, err
	}
	end := storage.EntryID{Index: metas[0].Index, Term: metas[0].Term}
	switch {
	case last == 0 || first > end.Index:
		return false, nil
	case last < end.Index:
		return true, nil
	}
	var l raft.Log
	err = d.store.GetLog(end.Index, &l)
	return l.Term != end.Term, err
}

// close closes the log and releases the lock.
func (d *dataDir) close() error {
	var errs []error
	if d.backend != nil {
		errs = append(errs, d.backend.Close())
	}
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
	}
	return errors.Join(errs...)
}
