package raftmeta

import (
	"errors"
	"fmt"
	"path/filepath"

	"context"

	"github.com/hashicorp/raft"
)

// ErrNothingToRecover means that a folder has no group to recover: its server
// waits to be added to one, or is its group's only voter already. Nothing was
// changed.
var ErrNothingToRecover = errors.New("nothing to recover")

// ErrOnlyVoter means that there is nothing to recover, because the server is its
// group's only voter already. It is an ErrNothingToRecover.
var ErrOnlyVoter = fmt.Errorf("the server is the only voter already: %w", ErrNothingToRecover)

// Recovery tells what a Recover has done, and what may be lost by it.
type Recovery struct {
	// Server is the one that is now the only voter.
	Server string
	// LastIndex and LastTerm are of the newest entry that it had. Every change
	// up to that is kept, also those that were never acknowledged. Changes
	// that the others acknowledged after it are lost.
	LastIndex, LastTerm uint64
	// Voters and Nonvoters were the other servers, as far as this one knows.
	// None of them must be started again with its old folder: they would be a
	// second group.
	Voters, Nonvoters []string
	// Files, Directories and Bytes is what the namespace has.
	Files, Directories int
	Bytes              int64
}

func (r *Recovery) String() string {
	return fmt.Sprintf("%s is the only voter now, with everything up to entry %d of term %d (%d files); "+
		"changes after that, acknowledged by %v alone, are lost, and those servers must not be started with their old folders",
		r.Server, r.LastIndex, r.LastTerm, r.Files, append(r.Voters, r.Nonvoters...))
}

// Recover makes the server of the folder cfg.Dir, which must not run, the only
// voter of its group, for when a majority of the voters is lost for good. It
// keeps everything in the folder, and a crash leaves it either as it was or
// recovered: the new configuration comes with a snapshot of everything, whose
// name makes it so. Use the voter with the newest log. The error is one of
// Open's, or ErrNothingToRecover.
func Recover(ctx context.Context, cfg Config) (*Recovery, error) {
	return offline(cfg, func(g *Group) (*Recovery, error) { return g.recover(ctx) })
}

// Inspect tells what Recover would do, and changes nothing; what the namespace has
// is not known then. Of several servers that are left, the one with the highest
// term, and then the highest entry, loses least. Errors: those of Recover.
func Inspect(ctx context.Context, cfg Config) (*Recovery, error) {
	return offline(cfg, func(g *Group) (*Recovery, error) { return g.inspect(ctx) })
}

// offline does something with a server that does not run.
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

// inspect opens the folder and reads what it knows.
func (g *Group) inspect(ctx context.Context) (*Recovery, error) {
	lock, err := lockFolder(g.cfg.FS, g.cfg.Dir)
	if err != nil {
		return nil, err
	}
	g.lock = lock
	if g.snaps, err = openSnapshotStore(g.cfg.FS, filepath.Join(g.cfg.Dir, snapsName), g.fail); err != nil {
		return nil, err
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	if _, problem := g.snaps.check(ctx); problem != nil {
		return nil, problem
	}
	if err := g.openLog(logName); err != nil {
		return nil, err
	}
	r, err := g.recovery(ctx)
	if err != nil {
		return nil, err
	}
	if len(r.Voters)+len(r.Nonvoters) == 0 {
		return nil, ErrNothingToRecover
	}
	return r, nil
}

func (g *Group) recover(ctx context.Context) (*Recovery, error) {
	r, err := g.inspect(ctx)
	if err != nil {
		return nil, err
	}
	err = raft.RecoverCluster(g.raftConfig(nil), g.machine, g.store, g.store, aheadStore{g.snaps}, g.trans, raft.Configuration{
		Servers: []raft.Server{{Suffrage: raft.Voter, ID: raft.ServerID(g.cfg.ID), Address: g.trans.LocalAddr()}},
	})
	if err != nil {
		return nil, err
	}
	g.machine.view(func(ns *namespace, _ uint64) {
		r.Files, r.Directories, r.Bytes = ns.files, ns.nodes.Len()-ns.files, ns.bytes
	})
	return r, nil
}

// recoverAhead is how far a recovered group's indexes lie ahead of what its server had:
// more than the group that was lost can have made since, so that no generation,
// session or sequencer that it gave out is given out again (R4).
const recoverAhead = 1 << 32

// aheadStore makes snapshots of an index that lies ahead.
type aheadStore struct{ *snapshotStore }

// Create implements raft.SnapshotStore.
func (s aheadStore) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration,
	membersIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	return s.snapshotStore.Create(version, index+recoverAhead, term, members, membersIndex, trans)
}

// recovery reads what the folder knows of the group.
func (g *Group) recovery(ctx context.Context) (*Recovery, error) {
	r := &Recovery{Server: g.cfg.ID}
	metas, err := g.snaps.List()
	if err != nil {
		return nil, err
	}
	if len(metas) > 0 {
		r.LastIndex, r.LastTerm = metas[0].Index, metas[0].Term
	}
	last, err := g.store.LastIndex()
	if err != nil {
		return nil, err
	}
	// The store tells members of each configuration that is read.
	for i := r.LastIndex + 1; i <= last; i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var l raft.Log
		if err := g.store.GetLog(i, &l); err != nil {
			return nil, err
		}
		r.LastIndex, r.LastTerm = l.Index, l.Term
	}
	g.members.mu.Lock()
	defer g.members.mu.Unlock()
	servers := g.members.mu.latest.servers
	if len(servers) == 0 {
		return nil, ErrNothingToRecover
	}
	if serverOf(servers, g.cfg.ID) == nil && !g.knowsID {
		return nil, fmt.Errorf("%w: %s is not among %v", ErrWrongServer, g.cfg.ID, servers)
	}
	for _, s := range servers {
		switch {
		case string(s.ID) == g.cfg.ID && s.Suffrage == raft.Voter && voters(servers) == 1:
			return nil, ErrOnlyVoter
		case string(s.ID) == g.cfg.ID:
		case s.Suffrage == raft.Voter:
			r.Voters = append(r.Voters, string(s.ID))
		default:
			r.Nonvoters = append(r.Nonvoters, string(s.ID))
		}
	}
	return r, nil
}
