package raftmeta

import (
	"context"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/fsm"
)

// Service returns the lock service of this server. It serves while the server leads its group;
// GetStale always works.
func (g *Group) Service() api.Service { return g.service }

// serviceLoop starts and stops the service with this server's leadership.
func (g *Group) serviceLoop() {
	defer g.service.Follow()
	led := uint64(0)
	for {
		_, _, term, changed := g.lead.state()
		if term != led {
			if led = term; term == 0 {
				g.service.Follow()
			} else {
				g.service.Lead(term)
			}
		}
		select {
		case <-changed:
		case <-g.closing:
			return
		}
	}
}

// ServiceFor returns Service restricted to the quota of a user.
func (g *Group) ServiceFor(q Quota) api.Service { return g.service.ForUser(q) }

// serviceReplica is a group as its lock service uses it.
type serviceReplica struct{ group *Group }

func (r serviceReplica) Usable() error { return r.group.usable() }

func (r serviceReplica) Leading() uint64 {
	_, _, term, _ := r.group.lead.state()
	return term
}

func (r serviceReplica) NotLeading() error { return r.group.notLeading() }

func (r serviceReplica) Verify(ctx context.Context) (uint64, error) {
	return r.group.verifier.verify(ctx)
}

func (r serviceReplica) Propose(ctx context.Context, c fsm.Command) (fsm.Result, error) {
	return r.group.proposer.propose(ctx, c)
}

func (r serviceReplica) CheckDisk() error { return r.group.disk.check() }
