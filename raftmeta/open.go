package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/vfs"
	"golang.org/x/sync/semaphore"
)

// Names in the folder. unbornSuffix marks a log that is still being made.
const (
	logName      = "raft.db"
	unbornSuffix = ".new"
	snapsName    = "snapshots"
	lockName     = "LOCK"
)

const (
	// trailingLogs is how many entries stay in the log when a snapshot has
	// covered them, for voters that are a little behind. Entries may have
	// 256 KiB, so this is also a bound of 256 MiB.
	trailingLogs = 1024
)

// Open opens the server whose folder is cfg.Dir, and starts it. If the folder
// has no log, it is made the first voter of a new group, or with cfg.Join a
// server that waits to be added to one. Open checks the whole log, and restores
// the newest snapshot; WaitReady tells when this server leads.
//
// The error is one of Config's, vfs.ErrLocked when another process has the
// folder, a *CorruptError, a *VersionError, ErrWrongServer, ErrNoStreams, or
// one of the file system.
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
		flights:     make(chan flight, flightsMax),
		landed:      make(chan struct{}),
		inFlight:    semaphore.NewWeighted(inFlightBytesMax),
		snapshotDue: make(chan struct{}, 1),
		suspected:   make(chan string, 1),
		failed:      make(chan struct{}),
		closing:     make(chan struct{}),
		raftStopped: make(chan struct{}),
	}
	g.reads.asked = make(chan struct{}, 1)
	g.machine = newMachine(g.fail)
	g.service = newService(g, g.machine, cfg.Clock)
	g.service.shareOf = cfg.ShareOf
	g.disk = diskSpace{
		free:    func() (int64, error) { return cfg.FS.FreeBytes(cfg.Dir) },
		reserve: cfg.ReserveBytes,
		start:   time.Now(),
	}
	g.trans = newTransport(cfg.ID, cfg.Streams, cfg.Logger, g.contacts)
	g.trans.removed = g.notMember
	g.trans.connLost = g.connLost
	g.trans.isMember = g.members.isMember
	g.trans.fail = g.fail
	return g
}

func (g *Group) open() error {
	cfg := g.cfg
	if err := g.takeFolder(); err != nil {
		return err
	}
	snaps, err := openSnapshotStore(cfg.FS, filepath.Join(cfg.Dir, snapsName), g.fail)
	if err != nil {
		return err
	}
	snaps.onDamage = g.snapshotDamaged
	g.snaps = snaps
	notify := make(chan bool)
	conf := g.raftConfig(notify)
	if err := g.bear(conf); err != nil {
		return err
	}
	if err := g.check(); err != nil {
		return err
	}
	if err := g.openLog(logName); err != nil {
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
	g.start(g.keeperLoop)
	return nil
}

// takeFolder makes the folder if need be, and keeps other processes out of it.
func (g *Group) takeFolder() error {
	fsys, dir := g.cfg.FS, g.cfg.Dir
	if err := fsys.MkdirAll(dir); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := fsys.SyncDir(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	lock, err := lockFolder(fsys, dir)
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
	// A queue before raft's main goroutine lets a batch gather while the one
	// before it is on its way to the disk. Our deadlines are our own, so it
	// does not matter that raft's timeout of Apply ends at the queue.
	c.BatchApplyCh = true
	c.ShutdownOnRemove = false
	c.TrailingLogs = trailingLogs
	// snapshotLoop says when.
	c.SnapshotThreshold = math.MaxUint64
	c.SnapshotInterval = time.Hour
	c.NoLegacyTelemetry = true
	return c
}

// openLog opens the log's store in the file of that name.
func (g *Group) openLog(name string) error {
	file := filepath.Join(g.cfg.Dir, name)
	bolt, err := openBolt(file)
	if err != nil {
		return err
	}
	if g.cfg.wrapLog != nil {
		bolt = g.cfg.wrapLog(bolt)
	}
	g.bolt = bolt
	g.store = &logStore{
		bolt: bolt, file: file, stall: g.stallTimeout, onFail: g.fail,
		stored: g.entryStored, members: &g.members,
	}
	return nil
}

// bear makes a folder without a log that of a new group's only voter, or of a
// server that waits to be added. The log gets its name when it is complete, so
// that a server is born once, whenever the process ends: a log that has a name
// says who the voters are, or that it waits.
func (g *Group) bear(conf *raft.Config) error {
	fsys, dir := g.cfg.FS, g.cfg.Dir
	file := filepath.Join(dir, logName)
	if _, _, err := fsys.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ids, err := g.snaps.ids()
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		return &CorruptError{file, 0, "the log is missing, but there are snapshots"}
	}
	if err := fsys.Remove(file + unbornSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove unfinished log: %w", err)
	}
	if err := g.openLog(logName + unbornSuffix); err != nil {
		return err
	}
	err = errors.Join(g.writeBirth(conf), g.bolt.Close())
	g.bolt = nil
	if err != nil {
		return fmt.Errorf("make new log: %w", err)
	}
	if err := fsys.Rename(file+unbornSuffix, file); err != nil {
		return fmt.Errorf("name log: %w", err)
	}
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

// writeBirth writes what a new log holds.
func (g *Group) writeBirth(conf *raft.Config) error {
	if err := g.store.Set([]byte(stableServerID), []byte(g.cfg.ID)); err != nil {
		return err
	}
	if g.cfg.Join {
		return g.store.SetUint64([]byte(stableJoining), 1)
	}
	return raft.BootstrapCluster(conf, g.store, g.store, g.snaps, g.trans, raft.Configuration{
		Servers: []raft.Server{{
			Suffrage: raft.Voter,
			ID:       conf.LocalID,
			Address:  g.trans.LocalAddr(),
		}},
	})
}

// check checks the log, and counts what of it the next snapshot will cover.
func (g *Group) check() error {
	sum, problems, err := checkFolder(context.Background(), g.cfg.FS, g.cfg.Dir, g.snaps, false)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return problems[0]
	}
	if sum.serverID != "" && sum.serverID != g.cfg.ID {
		return fmt.Errorf("%w: it is that of %s", ErrWrongServer, sum.serverID)
	}
	g.knowsID = sum.serverID != ""
	g.joined = sum.joining && (sum.last > 0 || sum.snapshot > 0)
	g.logBytes.Store(sum.bytesAfterSnapshot())
	return g.members.restored(g.snaps)
}

// finishJoin ends what a crash may have left half done when the leader brought
// this server up to date.
func (g *Group) finishJoin() error {
	if g.joined {
		// From now on a log without entries is damage.
		if err := g.store.SetUint64([]byte(stableJoining), 0); err != nil {
			return err
		}
	}
	superseded, err := g.superseded()
	if err != nil || !superseded {
		return err
	}
	// From here on the snapshot is all there is.
	if _, err := g.snaps.check(context.Background()); err != nil {
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

// superseded reports whether the newest snapshot takes the place of the whole
// log: the leader has sent it, and the log ends before the snapshot does, so that
// it would have a gap, or has another entry where the snapshot ends, which
// was then never committed.
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
	end := entryID{metas[0].Index, metas[0].Term}
	switch {
	case last == 0 || first > end.index:
		return false, nil
	case last < end.index:
		return true, nil
	}
	var l raft.Log
	err = g.store.GetLog(end.index, &l)
	return l.Term != end.term, err
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
	g.raft, err = raft.NewRaft(conf, &raftFSM{g.machine, &g.members, g.store}, g.store, g.store, g.snaps, g.trans)
	if err == nil {
		g.store.serving.Store(true)
		return nil
	}
	// Raft's error does not say what is wrong with a snapshot.
	if _, problem := g.snaps.check(context.Background()); problem != nil {
		return problem
	}
	return fmt.Errorf("start raft: %w", err)
}

// checkMembers makes sure that this server can be what its folder says, and
// lets a lone voter lead at once.
func (g *Group) checkMembers() error {
	servers := g.raft.GetConfiguration().Configuration().Servers
	self := serverOf(servers, g.cfg.ID)
	switch n := voters(servers); {
	case self == nil && len(servers) > 0 && !g.knowsID:
		return fmt.Errorf("%w: %s is not among %v", ErrWrongServer, g.cfg.ID, servers)
	case g.cfg.Streams == nil && (n != 1 || self == nil):
		return ErrNoStreams
	case n == 1 && self != nil && self.Suffrage == raft.Voter:
		return hurry(g.raft, g.cfg.LeaderLease)
	}
	return nil
}

// lockFolder keeps other processes out of dir until the result is closed. It
// is nil when the file system has no locks.
func lockFolder(fsys vfs.FS, dir string) (io.Closer, error) {
	l, ok := fsys.(vfs.Locker)
	if !ok {
		return nil, nil
	}
	lock, err := l.Lock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("lock folder %s: %w", dir, err)
	}
	return lock, nil
}
