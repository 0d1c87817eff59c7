package replog

import (
	"strings"
	"testing"
)

// The writer leaves an extent only for something better that exists or can be created.
func TestLeaveExtent(t *testing.T) {
	nodes := strings.Fields
	for _, c := range []struct {
		what string
		why  reason
		p    leaveOptions
		want decision
	}{
		{"slow, standby elsewhere, disks full", reasonSlow, leaveOptions{current: nodes("a b c"), standby: nodes("a d e"), late: nodes("b")}, leave},
		{"slow, standby on it, disks full", reasonSlow, leaveOptions{current: nodes("a b c"), standby: nodes("a b c"), late: nodes("b")}, stay},
		{"slow, no standby, disks full", reasonSlow, leaveOptions{current: nodes("a b c"), late: nodes("b")}, stay},
		{"slow, space on it alone", reasonSlow, leaveOptions{current: nodes("a b c"), late: nodes("b"), placeable: nodes("b")}, stay},
		{"slow, standby on it, space elsewhere", reasonSlow, leaveOptions{current: nodes("a b c"), standby: nodes("a b c"), late: nodes("b"), placeable: nodes("a b c")}, leave},
		{"slow, two nodes", reasonSlow, leaveOptions{current: nodes("a b"), late: nodes("b"), placeable: nodes("a b")}, leave},
		{"all are slow, disks full", reasonSlow, leaveOptions{current: nodes("a b"), standby: nodes("a b"), late: nodes("a b")}, stay},
		{"all are slow, space", reasonSlow, leaveOptions{current: nodes("a b"), standby: nodes("a b"), late: nodes("a b"), placeable: nodes("a b")}, leave},

		{"old, space", reasonAge, leaveOptions{current: nodes("a b c"), standby: nodes("a b c"), placeable: nodes("a b")}, leave},
		{"old, alone", reasonAge, leaveOptions{current: nodes("a"), standby: nodes("a"), placeable: nodes("a")}, leave},
		{"old, no standby", reasonAge, leaveOptions{current: nodes("a b c"), placeable: nodes("a b c")}, stay},
		{"old, disks full", reasonAge, leaveOptions{current: nodes("a b c"), standby: nodes("a b c")}, stay},

		{"as many as can be", reasonWiden, leaveOptions{current: nodes("a b c"), standby: nodes("a b c"), live: nodes("a b c d"), placeable: nodes("a b c d")}, stay},
		{"standby has more", reasonWiden, leaveOptions{current: nodes("a b"), standby: nodes("a b c"), live: nodes("a b c"), placeable: nodes("a b c")}, leave},
		{"standby has no more, space", reasonWiden, leaveOptions{current: nodes("a b"), standby: nodes("a b"), live: nodes("a b c"), placeable: nodes("a b c")}, replaceStandby},
		{"standby has no more, the third is full", reasonWiden, leaveOptions{current: nodes("a b"), standby: nodes("a b"), live: nodes("a b c"), placeable: nodes("a b")}, stay},
		{"full nodes have replicas as well", reasonWiden, leaveOptions{current: nodes("a b c"), standby: nodes("a d"), live: nodes("a b c d"), placeable: nodes("a d")}, stay},
		{"a node drains, standby without", reasonWiden, leaveOptions{current: nodes("a b c"), standby: nodes("a d e"), live: nodes("a b d e"), draining: nodes("c"), placeable: nodes("a b d e")}, leave},
		{"a node drains, standby on it, space", reasonWiden, leaveOptions{current: nodes("a b"), standby: nodes("a b"), live: nodes("a"), draining: nodes("b"), placeable: nodes("a")}, replaceStandby},
		{"a node drains, standby on it, disks full", reasonWiden, leaveOptions{current: nodes("a b c"), standby: nodes("a b c"), live: nodes("a b"), draining: nodes("c")}, stay},

		{"standby is short, space", reasonWiden, leaveOptions{current: nodes("a b c"), standby: nodes("a b"), live: nodes("a b c"), placeable: nodes("a b c")}, replaceStandby},
		{"standby is short, the third is full", reasonWiden, leaveOptions{current: nodes("a b c"), standby: nodes("a b"), live: nodes("a b c"), placeable: nodes("a b")}, stay},
		{"a node of the standby is gone", reasonWiden, leaveOptions{current: nodes("a b c"), standby: nodes("a d e"), live: nodes("a b c e"), placeable: nodes("a b c e")}, replaceStandby},
		{"a node of the standby is slow", reasonWiden, leaveOptions{current: nodes("a b c"), standby: nodes("a d e"), live: nodes("a b c e"), up: nodes("a b c d e"), placeable: nodes("a b c e")}, stay},
		{"a node of the standby drains", reasonWiden, leaveOptions{current: nodes("a b"), standby: nodes("a b c"), live: nodes("a b"), draining: nodes("c"), placeable: nodes("a b")}, replaceStandby},
		{"a node of the standby drains, disks full", reasonWiden, leaveOptions{current: nodes("a b"), standby: nodes("a b c"), live: nodes("a b"), draining: nodes("c")}, stay},
	} {
		c.p.replicas, c.p.least = 3, 2
		if c.p.up == nil {
			c.p.up = c.p.live
		}
		if got := c.p.decide(c.why); got != c.want {
			t.Errorf("%s: decision %d, want %d", c.what, got, c.want)
		}
	}
}
