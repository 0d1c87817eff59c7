package replog

import (
	"slices"

	"github.com/steledb/stele/internal/planted"
)

// reason is why the writer considers leaving its current extent.
type reason uint8

const (
	reasonSlow  reason = iota // replicas miss the deadline
	reasonWiden               // more replicas are possible, or nodes are draining
	reasonAge                 // the extent has held data for Config.ExtentAge
)

// decision is what the writer does about its current extent.
type decision uint8

const (
	stay           decision = iota
	leave                   // switch to the standby, or to another extent
	replaceStandby          // stay, and replace the standby with better replicas
)

// leaveOptions is the input for deciding whether the writer leaves an extent. It may always stay,
// except in an extent that has lost a replica: nothing more is acknowledged there, so
// logproto.Writer leaves it without asking, and choose finds nodes for the frames already sent.
type leaveOptions struct {
	current, standby []string // nodes that have replicas; standby is nil if there is none
	late             []string // nodes of current that miss the deadline
	live             []string // responsive nodes, full or not
	up               []string // nodes that are alive, slow or not
	draining         []string
	placeable        []string // nodes that may get a replica of another extent now; nil if the list is full
	replicas         int      // the replication factor
	least            int      // with fewer replicas an extent is not safe
}

// decide decides whether the writer leaves its extent for a reason. It leaves only for something
// better that exists or can be created now. With full disks there may be neither, and the writer
// cannot return to an extent that it left.
func (p *leaveOptions) decide(cause reason) decision {
	switch cause {
	case reasonSlow:
		return p.decideSlow()
	case reasonAge:
		if p.standby != nil && len(p.placeable) >= min(p.least, len(p.current)) { // for the next standby
			return leave
		}
		return stay
	default:
		return p.decideWiden()
	}
}

// decideWiden decides about an extent that could have more replicas, or has one on a draining node.
func (p *leaveOptions) decideWiden() decision {
	have, want := common(p.current, p.live), min(p.replicas, len(p.placeable))
	drains := common(p.current, p.draining) > 0
	switch {
	case p.standby == nil:
		return stay
	case have >= want && !drains:
		return p.decideStandby(want)
	}
	better, stays := common(p.standby, p.live), common(p.standby, p.draining) == 0
	switch {
	case better > have, drains && stays && better >= have:
		return leave
	case better < want, !stays && want > 0:
		return replaceStandby
	}
	return stay
}

// decideStandby decides about the standby of an extent that has as many replicas as there can be. The
// standby may have fewer: it was prepared when a node was away, or a node left since. Without a new one
// it would stay so until the current extent is full, which never happens if nothing is appended.
func (p *leaveOptions) decideStandby(want int) decision {
	drains := common(p.standby, p.draining) > 0
	if common(p.standby, p.up) < want || drains && want >= p.least {
		return replaceStandby
	}
	return stay
}

// decideSlow decides about replicas that miss the deadline.
func (p *leaveOptions) decideSlow() decision {
	if p.standby != nil && common(p.standby, p.late) == 0 {
		return leave
	}
	elsewhere := len(p.placeable)
	if len(p.late) < len(p.current) { // if all are late, other extents on the same nodes may do
		elsewhere -= common(p.placeable, p.late)
	}
	if elsewhere == 0 && !planted.On(planted.SlowReplicaLeft) {
		return stay
	}
	return leave
}

// common returns how many nodes two lists share.
func common(a, b []string) int {
	n := 0
	for _, x := range a {
		if slices.Contains(b, x) {
			n++
		}
	}
	return n
}
