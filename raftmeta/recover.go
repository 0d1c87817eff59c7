package raftmeta

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/steledb/stele/raftmeta/fsm"

	"context"

	"github.com/hashicorp/raft"
)

// ErrNothingToRecover means that a data directory has no group to recover: its server waits to be
// added to one, or is its group's only voter already. Nothing was changed.
var ErrNothingToRecover = errors.New("nothing to recover")

// ErrOnlyVoter means that there is nothing to recover, because the server is its group's only voter
// already. It is an ErrNothingToRecover.
var ErrOnlyVoter = fmt.Errorf("the server is the only voter already: %w", ErrNothingToRecover)

// Recovery describes the result of a Recover, and which changes may be lost.
type Recovery struct {
	// Server is the id of the only remaining voter.
	Server string
	// LastIndex and LastTerm are those of the newest entry that the server has. Every change up to
	// that entry is kept, even if it was never acknowledged. Changes that the other servers
	// acknowledged after it are lost.
	LastIndex, LastTerm uint64
	// Voters and Nonvoters are the other servers, as far as this one knows. None of them may be
	// started again with its old data directory, because they would form a second group.
	Voters, Nonvoters []string
	// Files, Directories and Bytes are the size of the namespace.
	Files, Directories int
	Bytes              int64
}

func (r *Recovery) String() string {
	return fmt.Sprintf("%s is now the only voter, with everything up to entry %d of term %d (%d files); "+
		"later changes, which only %v acknowledged, are lost; these servers must not be started with their old data directories",
		r.Server, r.LastIndex, r.LastTerm, r.Files, append(r.Voters, r.Nonvoters...))
}

// Recover makes a stopped server, with the data directory cfg.Dir, the only voter of its group. It
// is meant for a permanent loss of a majority of the voters. It keeps everything in the directory.
// A crash leaves the directory either unchanged or recovered, because the rename of a snapshot of
// everything puts the new configuration into effect. The operator should use the voter with the
// newest log. The error is one of Open's, or ErrNothingToRecover.
func Recover(ctx context.Context, cfg Config) (*Recovery, error) {
	return offline(cfg, func(g *Group) (*Recovery, error) { return g.recover(ctx) })
}

// Inspect reports what Recover would do, and changes nothing. The size of the namespace is not set.
// Of several remaining servers, the one with the highest term, and then the highest entry, loses
// least. The errors are those of Recover.
func Inspect(ctx context.Context, cfg Config) (*Recovery, error) {
	return offline(cfg, func(g *Group) (*Recovery, error) { return g.inspect(ctx) })
}

// offline calls do with a server that does not run.
func offline(cfg Config, do func(*Group) (*Recovery, error)) (*Recovery, error) {
	cfg.Streams, cfg.Join = nil, false
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	g := newGroup(cfg)
	r, err := do(g)
	if p := g.failure.Load(); p != nil {
		err = *p
	}
	if err = errors.Join(err, g.release()); err != nil {
		return nil, fmt.Errorf("recover raftmeta: %w", err)
	}
	return r, nil
}

// inspect opens the data directory and reads its state of the group.
func (g *Group) inspect(ctx context.Context) (*Recovery, error) {
	lock, err := storage.LockDir(g.cfg.FS, g.cfg.Dir)
	if err != nil {
		return nil, err
	}
	g.lock = lock
	if g.snaps, err = storage.OpenSnapshots(g.cfg.FS, filepath.Join(g.cfg.Dir, storage.SnapshotsName), g.fail, nil); err != nil {
		return nil, err
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	if _, problem := g.snaps.Check(ctx); problem != nil {
		return nil, problem
	}
	if err := g.openLog(storage.LogName); err != nil {
		return nil, err
	}
	g.loadInvitation()
	return g.recovery(ctx)
}

func (g *Group) recover(ctx context.Context) (*Recovery, error) {
	r, err := g.inspect(ctx)
	if err != nil {
		return nil, err
	}
	err = raft.RecoverCluster(g.raftConfig(nil), machineFSM{g.machine}, g.store, g.store, aheadStore{g.snaps}, g.trans, raft.Configuration{
		Servers: []raft.Server{{Suffrage: raft.Voter, ID: raft.ServerID(g.cfg.ID), Address: g.trans.LocalAddr()}},
	})
	if err != nil {
		return nil, err
	}
	g.machine.View(func(ns *fsm.Namespace, _ uint64) {
		counts := ns.Counts()
		r.Files, r.Directories, r.Bytes = counts.Files, counts.Directories, counts.Bytes
	})
	return r, nil
}

// recoverAhead is added to the indexes of a recovered group. It exceeds the number of entries that
// the lost group can have made since, so that no generation, session id or sequencer is reused
// (RM4).
const recoverAhead = 1 << 32

// aheadStore creates snapshots with an index increased by recoverAhead.
type aheadStore struct{ *storage.Snapshots }

// Create implements raft.SnapshotStore.
func (s aheadStore) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration,
	membersIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	return s.Snapshots.Create(version, index+recoverAhead, term, members, membersIndex, trans)
}

// recovery returns the state of the group in the data directory.
func (d *dataDir) recovery(ctx context.Context) (*Recovery, error) {
	r := &Recovery{Server: d.cfg.ID}
	metas, err := d.snaps.List()
	if err != nil {
		return nil, err
	}
	if len(metas) > 0 {
		r.LastIndex, r.LastTerm = metas[0].Index, metas[0].Term
	}
	last, err := d.store.LastIndex()
	if err != nil {
		return nil, err
	}
	// The store passes each configuration that it reads to members.
	for i := r.LastIndex + 1; i <= last; i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var l raft.Log
		if err := d.store.GetLog(i, &l); err != nil {
			return nil, err
		}
		r.LastIndex, r.LastTerm = l.Index, l.Term
	}
	d.members.mu.Lock()
	defer d.members.mu.Unlock()
	servers := d.members.mu.latest.servers
	if len(servers) == 0 {
		return nil, ErrNothingToRecover
	}
	if serverOf(servers, d.cfg.ID) == nil && !d.hasServerID {
		return nil, fmt.Errorf("%w: %s is not among %v", ErrWrongServer, d.cfg.ID, servers)
	}
	for _, s := range servers {
		switch {
		case string(s.ID) == d.cfg.ID && s.Suffrage == raft.Voter && voters(servers) == 1 && d.invited.pending.Load() == nil:
			return nil, ErrOnlyVoter
		case string(s.ID) == d.cfg.ID:
		case s.Suffrage == raft.Voter:
			r.Voters = append(r.Voters, string(s.ID))
		default:
			r.Nonvoters = append(r.Nonvoters, string(s.ID))
		}
	}
	return r, nil
}
