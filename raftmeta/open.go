package raftmeta

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/raftmeta/storage"

	"github.com/steledb/stele/raftmeta/lease"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
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
	c := &core{
		cfg:         cfg,
		log:         cfg.Logger,
		lead:        newLeadership(),
		contacts:    newContacts(),
		failed:      make(chan struct{}),
		closing:     make(chan struct{}),
		raftStopped: make(chan struct{}),
	}
	c.machine = fsm.NewMachine(c.fail)
	g := &Group{
		core:      c,
		dataDir:   &dataDir{core: c},
		bridge:    &logBridge{to: cfg.Logger},
		leader:    newLeaderWatch(),
		detector:  newFailureDetector(c),
		verifier:  newVerifier(c),
		proposer:  newProposer(c),
		snapshots: newSnapshotter(c),
	}
	g.changer = &memberChanger{core: c, verifier: g.verifier}
	g.admission = &admission{core: c, dir: g.dataDir}
	g.dataDir.onStored = g.snapshots.entryStored
	g.service = lease.NewService(serviceReplica{g}, g.machine, cfg.Clock, cfg.QuotaOf)
	g.disk = diskSpace{
		free:    func() (int64, error) { return cfg.FS.FreeBytes(cfg.Dir) },
		reserve: cfg.ReserveBytes,
		start:   time.Now(),
	}
	c.trans = newTransport(cfg.ID, cfg.Streams, cfg.Logger, g.contacts)
	c.trans.onRemoved = g.notMember
	c.trans.connLost = g.detector.connLost
	c.trans.isMember = g.members.isMember
	c.trans.invited = &g.invited
	c.trans.fail = g.fail
	return g
}

func (g *Group) open() error {
	cfg := g.cfg
	if err := g.dataDir.prepare(); err != nil {
		return err
	}
	snaps, err := storage.OpenSnapshots(cfg.FS, filepath.Join(cfg.Dir, storage.SnapshotsName), g.fail, g.snapshots.damaged)
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
	g.snapshots.logBytes.Store(g.dataDir.logBytes)
	if err := g.openLog(storage.LogName); err != nil {
		return err
	}
	if err := g.finishJoin(); err != nil {
		return err
	}
	if g.loadInvitation() {
		conf.HeartbeatTimeout, conf.ElectionTimeout = never, never
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
	g.start(g.detector.loop)
	g.start(g.catchUpLoop)
	g.start(g.verifier.loop)
	g.start(g.proposer.proposeLoop)
	g.start(g.proposer.answerLoop)
	g.start(g.snapshots.loop)
	g.start(g.serviceLoop)
	if g.invited.pending.Load() != nil {
		g.start(g.admission.loop)
	}
	return nil
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
	c.TrailingLogs = g.cfg.TrailingLogs
	// snapshotter.loop decides when to take a snapshot.
	c.SnapshotThreshold = math.MaxUint64
	c.SnapshotInterval = time.Hour
	c.NoLegacyTelemetry = true
	return c
}

// startRaft restores the newest snapshot and starts raft's goroutines.
func (g *Group) startRaft(conf *raft.Config) (err error) {
	defer func() {
		// Raft panics when it cannot read an entry that it needs.
		if r := recover(); r != nil {
			if broken, ok := r.(*invariant.Broken); ok {
				panic(broken)
			}
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
	case n == 1 && self != nil && self.Suffrage == raft.Voter && g.invited.pending.Load() == nil:
		return electNow(g.raft, g.cfg.LeaderLease)
	}
	return nil
}
