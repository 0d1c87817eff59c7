package replog

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/members"
)

// someMembers is a membership of nodes with free space. The first is this node.
type someMembers []string

func (m someMembers) Members() (all []members.Member) {
	for _, id := range m {
		all = append(all, members.Member{ID: id, CapacityBytes: 1, FreeBytes: 1, Alive: true})
	}
	return all
}

func (m someMembers) Changed() <-chan struct{} { return nil }

func (m someMembers) Self() string { return m[0] }

func (m someMembers) Peer(context.Context, string) (api.Peer, error) { return nil, api.ErrUnreachable }

// handClock is a clock that tests set.
type handClock struct{ now time.Duration }

func (c *handClock) Now() time.Duration { return c.now }

func (c *handClock) Timer(time.Duration) (<-chan time.Time, func()) { return nil, func() {} }

// A node that refused an extent for a full disk counts as full for Config.Avoid. So do all nodes for
// another extent, since the reports of free space may be old. Nothing is opened meanwhile that would end
// it, as after a late refusal.
func TestRefusalExpires(t *testing.T) {
	clock := &handClock{now: time.Hour}
	nodes := someMembers{"n1", "n2", "n3"}
	cfg := Config{}.WithDefaults()
	logs := &Logs{cfg: cfg, self: "n1", deps: Deps{Replicas: 3, Clock: clock, Peers: members.NewPeers(members.Config{Membership: nodes, Self: "n1", Clock: clock})}}
	p := newPlacement(logs, local.ID{}, false, openings{})
	expect := func(what string, placeable, chosen int, full bool) {
		t.Helper()
		if got := p.placeable(clock.now); len(got) != placeable {
			t.Errorf("%s: %v are placeable, want %d nodes", what, got, placeable)
		}
		if got := p.choose(2, nil, false); len(got) != chosen {
			t.Errorf("%s: %v are chosen, want %d nodes", what, got, chosen)
		}
		if got := errors.Is(p.cause(), local.ErrDiskFull); got != full {
			t.Errorf("%s: full: %v", what, got)
		}
	}
	expect("before", 3, 3, false)
	p.notOpened(2, "n3", local.ErrDiskFull)
	p.failed(2, "n3", local.ErrDiskFull)
	expect("refused", 0, 2, true)
	clock.now += cfg.Avoid - 1
	if err := p.noNodes(); !errors.Is(err, local.ErrDiskFull) {
		t.Errorf("no nodes: %v", err)
	}
	expect("soon after", 0, 2, true)
	clock.now++
	expect("later", 3, 3, false)
	if err := p.noNodes(); err != nil {
		t.Errorf("no nodes, for another cause: %v", err)
	}
	p.notOpened(3, "n3", local.ErrDiskFull)
	p.fail(nil) // an extent was opened
	expect("opened on other nodes", 3, 3, false)
}
