package members

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/background"
	"github.com/steledb/stele/internal/timing"
)

// pair is a membership of two nodes, of which the other one is a peer that may be silent.
type pair struct {
	api.Peer
	silent bool
	probes int
}

func (*pair) Self() string             { return "n1" }
func (*pair) Changed() <-chan struct{} { return nil }
func (*pair) Members() []Member        { return []Member{{ID: "n1", Alive: true}, {ID: "n2", Alive: true}} }

func (x *pair) Check(context.Context, []local.ExtentID) ([]api.Held, error) {
	x.probes++
	if x.silent {
		return nil, api.ErrUnreachable
	}
	return nil, nil
}

// membership is pair as a Membership: both interfaces have other methods.
type membership struct{ *pair }

func (m membership) Peer(context.Context, string) (api.Peer, error) { return m.pair, nil }

// ME2: a suspected node is probed, less often with time, until it answers. Then the store is informed
// once.
func TestSuspectedNodeIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, work, recovered := &pair{silent: true}, background.New(), 0
		p := NewPeers(Config{
			Membership: membership{x}, Self: "n1", Clock: timing.SystemClock(), Work: work, ReplyTimeout: time.Second,
			Recovered: func() { recovered++ },
		})
		defer work.Wait()
		defer work.Stop()
		if p.Suspected("n2") {
			t.Error("suspected at first")
		}
		p.Suspect("n2")
		time.Sleep(suspectTime - time.Second)
		synctest.Wait()
		if !p.Suspected("n2") || x.probes < 5 || !p.Nodes()[1].Draining {
			t.Errorf("suspected %v after %d probes", p.Suspected("n2"), x.probes)
		}
		x.silent = false
		time.Sleep(time.Minute)
		synctest.Wait()
		if p.Suspected("n2") || recovered != 1 || p.Nodes()[1].Draining {
			t.Errorf("suspected %v although it answers; %d recoveries", p.Suspected("n2"), recovered)
		}
		before := x.probes
		time.Sleep(time.Hour)
		if x.probes != before {
			t.Errorf("%d probes of a node that answers", x.probes-before)
		}
	})
}

// Without a membership this node is the only one.
func TestOnlyMember(t *testing.T) {
	p := NewPeers(Config{Self: "n1", Clock: timing.SystemClock(), Work: background.New()})
	if !p.OnlyMember() || len(p.Others()) != 0 || len(p.All()) != 1 || len(p.Nodes()) != 1 {
		t.Errorf("others %v, all %v, nodes %v", p.Others(), p.All(), p.Nodes())
	}
	if _, err := p.Any(t.Context(), "n2"); err == nil {
		t.Error("a node that is not a member is a peer")
	}
}
