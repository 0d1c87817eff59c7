package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/steledb/stele/raftmeta/lease"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/semaphore"
)

// newSuffix marks a log that is still being created.
const newSuffix = ".new"

const (
	// trailingLogs is the number of entries that stay in the log after a snapshot covers them, for
	// voters that lag a little. An entry has at most 256 KiB, so this is also a bound of 256 MiB.
	trailingLogs = 1024
)

// Open opens the data directory cfg.Dir and starts its server. If the directory has no log, Open
// initializes it as the first voter of a new group, or with cfg.Join as a server that waits to be
// added to one. Open verifies the whole log and restores the newest snapshot. WaitReady waits until
// this server leads.
//
// The error is one of Config's, vfs.ErrLocked if another process has the directory open, a
// *CorruptError, a *VersionError, ErrWrongServer, ErrNoStreams, or one of the file system.
func Open(cfg Config) (*Group, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	g := newGroup(cfg)
	if err := g.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open raftmeta: %w", err), g.release())
	}
	return g, nil
}

func newGroup(cfg Config) *Group {
	g := &Group{
		cfg:         cfg,
		log:         cfg.Logger,
		bridge:      &logBridge{to: cfg.Logger},
		lead:        newLeadership(),
		leader:      newLeaderWatch(),
		contacts:    newContacts(),
		proposals:   make(chan *proposal),
		submissions: make(chan submission, submissionsMax),
		batchDone:   make(chan struct{}),
		inFlight:    semaphore.NewWeighted(inFlightBytesMax),
		snapshotDue: make(chan struct{}, 1),
		suspected:   make(chan string, 1),
		failed:      make(chan struct{}),
		closing:     make(chan struct{}),
		raftStopped: make(chan struct{}),
	}
	g.reads.wake = make(chan struct{}, 1)
	g.machine = fsm.NewMachine(g.fail)
	g.service = lease.NewService(serviceReplica{g}, g.machine, cfg.Clock, cfg.QuotaOf)
	g.disk = diskSpace{
		free:    func() (int64, error) { return cfg.FS.FreeBytes(cfg.Dir) },
		reserve: cfg.ReserveBytes,
		start:   time.Now(),
	}
	g.trans = newTransport(cfg.ID, cfg.Streams, cfg.Logger, g.contacts)
	g.trans.onRemoved = g.notMember
	g.trans.connLost = g.connLost
	g.trans.isMember = g.members.isMember
	g.trans.fail = g.fail
	return g
}

func (g *Group) open() error {
	cfg := g.cfg
	if err := g.prepareDataDir(); err != nil {
		return err
	}
	snaps, err := storage.OpenSnapshots(cfg.FS, filepath.Join(cfg.Dir, storage.SnapshotsName), g.fail, g.snapshotDamaged)
	if err != nil {
		return err
	}
	g.snaps = snaps
	notify := make(chan bool)
	conf := g.raftConfig(notify)
	if err := g.initLog(conf); err != nil {
		return err
	}
	if err := g.check(); err != nil {
		return err
	}
	if err := g.openLog(storage.LogName); err != nil {
		return err
	}
	if err := g.finishJoin(); err != nil {
		return err
	}
	if err := g.startRaft(conf); err != nil {
		return err
	}
	g.bridge.raft.Store(g.raft)
	g.watcher.Go(func() { g.watchLeadership(notify) })
	g.watchLeader()
	err = g.checkMembers()
	g.opened.Store(true)
	if p := g.failure.Load(); p != nil {
		err = *p
	}
	if err != nil {
		stop := g.raft.Shutdown().Error()
		close(g.raftStopped)
		g.watcher.Wait()
		return errors.Join(err, stop)
	}
	g.trans.serve(g.raft, g.store)
	g.start(g.memberLoop)
	g.start(g.suspectLoop)
	g.start(g.catchUpLoop)
	g.start(g.readLoop)
	g.start(g.proposeLoop)
	g.start(g.answerLoop)
	g.start(g.snapshotLoop)
	g.start(g.serviceLoop)
	return nil
}

// prepareDataDir creates the data directory if necessary, and locks out other processes.
func (g *Group) prepareDataDir() error {
	fsys, dir := g.cfg.FS, g.cfg.Dir
	if err := fsys.MkdirAll(dir); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	if err := fsys.SyncDir(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("sync parent of data directory: %w", err)
	}
	lock, err := storage.LockDir(fsys, dir)
	g.lock = lock
	return err
}

func (g *Group) raftConfig(notify chan<- bool) *raft.Config {
	c := raft.DefaultConfig()
	c.ProtocolVersion = 3
	c.LocalID = raft.ServerID(g.cfg.ID)
	c.Logger = g.bridge.newLogger()
	c.NotifyCh = notify
	c.HeartbeatTimeout = g.cfg.HeartbeatTimeout
	c.ElectionTimeout = g.cfg.ElectionTimeout
	c.LeaderLeaseTimeout = g.cfg.LeaderLease
	c.CommitTimeout = g.cfg.CommitTimeout
	c.MaxAppendEntries = entriesPerWrite
	// A queue in front of raft's main goroutine lets a batch form while the previous one is written
	// to disk. Deadlines are handled in propose, so it does not matter that raft's timeout of Apply
	// ends at the queue.
	c.BatchApplyCh = true
	c.ShutdownOnRemove = false
	c.TrailingLogs = trailingLogs
	// snapshotLoop decides when to take a snapshot.
	c.SnapshotThreshold = math.MaxUint64
	c.SnapshotInterval = time.Hour
	c.NoLegacyTelemetry = true
	return c
}

// openLog opens the store of the log in the file with that name.
func (g *Group) openLog(name string) error {
	file := filepath.Join(g.cfg.Dir, name)
	bolt, err := storage.OpenBolt(file)
	if err != nil {
		return err
	}
	if g.cfg.wrapLog != nil {
		bolt = g.cfg.wrapLog(bolt)
	}
	g.bolt = bolt
	g.store = storage.NewLog(bolt, storage.LogOptions{
		File: file, StallTimeout: g.stallTimeout, OnFail: g.fail,
		OnStored: g.entryStored, Members: &g.members,
	})
	return nil
}

// initLog initializes a directory without a log as that of a new group's only voter, or of a server
// that waits to be added. The log gets its final name once it is complete, so that a crash at any
// point leaves the directory either initialized or not. A log with its final name defines the
// voters, or that the server is joining.
func (g *Group) initLog(conf *raft.Config) error {
	fsys, dir := g.cfg.FS, g.cfg.Dir
	file := filepath.Join(dir, storage.LogName)
	if _, _, err := fsys.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ids, err := g.snaps.IDs()
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		return &CorruptError{File: file, Reason: "log is missing, but there are snapshots"}
	}
	if err := fsys.Remove(file + newSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove unfinished log: %w", err)
	}
	if err := g.openLog(storage.LogName + newSuffix); err != nil {
		return err
	}
	err = errors.Join(g.writeInitialState(conf), g.bolt.Close())
	g.bolt = nil
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
func (g *Group) writeInitialState(conf *raft.Config) error {
	if err := g.store.Set([]byte(storage.StableServerID), []byte(g.cfg.ID)); err != nil {
		return err
	}
	if g.cfg.Join {
		return g.store.SetUint64([]byte(storage.StableJoining), 1)
	}
	return raft.BootstrapCluster(conf, g.store, g.store, g.snaps, g.trans, raft.Configuration{
		Servers: []raft.Server{{
			Suffrage: raft.Voter,
			ID:       conf.LocalID,
			Address:  g.trans.LocalAddr(),
		}},
	})
}

// check verifies the log, and computes how much of it the next snapshot will cover.
func (g *Group) check() error {
	sum, problems, err := storage.CheckDir(context.Background(), g.cfg.FS, g.cfg.Dir, g.snaps, false)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return problems[0]
	}
	if sum.ServerID != "" && sum.ServerID != g.cfg.ID {
		return fmt.Errorf("%w: %s", ErrWrongServer, sum.ServerID)
	}
	g.hasServerID = sum.ServerID != ""
	g.joined = sum.Joining && (sum.Last > 0 || sum.Snapshot > 0)
	g.logBytes.Store(sum.BytesAfterSnapshot())
	return g.members.restored(g.snaps)
}

// finishJoin completes what a crash may have interrupted while the leader brought this server up to
// date.
func (g *Group) finishJoin() error {
	if g.joined {
		// From now on a log without entries is corrupt.
		if err := g.store.SetUint64([]byte(storage.StableJoining), 0); err != nil {
			return err
		}
	}
	superseded, err := g.superseded()
	if err != nil || !superseded {
		return err
	}
	// The snapshot is about to become the only copy.
	if _, err := g.snaps.Check(context.Background()); err != nil {
		return err
	}
	first, err := g.store.FirstIndex()
	if err != nil {
		return err
	}
	last, err := g.store.LastIndex()
	if err != nil {
		return err
	}
	return g.store.DeleteRange(first, last)
}

// superseded reports whether the newest snapshot replaces the whole log. That is so for a snapshot
// from the leader if the log ends before the snapshot does, which would leave a gap. It is also so
// if the log has a different entry where the snapshot ends; that entry was never committed.
func (g *Group) superseded() (bool, error) {
	metas, err := g.snaps.List()
	if err != nil || len(metas) == 0 {
		return false, err
	}
	first, err := g.store.FirstIndex()
	if err != nil {
		return false, err
	}
	last, err := g.store.LastIndex()
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
	err = g.store.GetLog(end.Index, &l)
	return l.Term != end.Term, err
}

// startRaft restores the newest snapshot and starts raft's goroutines.
func (g *Group) startRaft(conf *raft.Config) (err error) {
	defer func() {
		// Raft panics when it cannot read an entry that it needs.
		if r := recover(); r != nil {
			err = fmt.Errorf("start raft: %v", r)
		}
		if p := g.failure.Load(); p != nil && err != nil {
			err = *p
		}
	}()
	g.raft, err = raft.NewRaft(conf, &serverFSM{machineFSM{g.machine}, &g.members, g.store}, g.store, g.store, g.snaps, g.trans)
	if err == nil {
		g.store.SetServing()
		return nil
	}
	// Raft's error does not describe what is wrong with a snapshot.
	if _, problem := g.snaps.Check(context.Background()); problem != nil {
		return problem
	}
	return fmt.Errorf("start raft: %w", err)
}

// checkMembers verifies that the configuration permits this server to run, and makes a single voter
// call its election at once.
func (g *Group) checkMembers() error {
	servers := g.raft.GetConfiguration().Configuration().Servers
	self := serverOf(servers, g.cfg.ID)
	switch n := voters(servers); {
	case self == nil && len(servers) > 0 && !g.hasServerID:
		return fmt.Errorf("%w: %s is not among %v", ErrWrongServer, g.cfg.ID, servers)
	case g.cfg.Streams == nil && (n != 1 || self == nil):
		return ErrNoStreams
	case n == 1 && self != nil && self.Suffrage == raft.Voter:
		return electNow(g.raft, g.cfg.LeaderLease)
	}
	return nil
}
