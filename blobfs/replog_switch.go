package blobfs

import (
	"slices"
	"time"
)

// reason is why the writer considers leaving its current extent.
type reason uint8

const (
	reasonSlow  reason = iota // replicas miss the deadline
	reasonWiden               // more replicas are possible, or nodes are draining
	reasonAge                 // the extent has held data for LogConfig.ExtentAge
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
	draining         []string
	placeable        []string // nodes that may get a replica of another extent now
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
	if p.standby == nil || have >= want && !drains {
		return stay
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

// decideSlow decides about replicas that miss the deadline.
func (p *leaveOptions) decideSlow() decision {
	if p.standby != nil && common(p.standby, p.late) == 0 {
		return leave
	}
	elsewhere := len(p.placeable)
	if len(p.late) < len(p.current) { // if all are late, other extents on the same nodes may do
		elsewhere -= common(p.placeable, p.late)
	}
	if elsewhere == 0 {
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

// leaveOptions returns the input for judge. Called with mu held.
func (w *SpreadLogWriter) leaveOptions(now time.Duration, late []string) *leaveOptions {
	p := &leaveOptions{late: late, replicas: w.s.cluster.Replicas, least: w.replicasMin(), placeable: w.placeable(now)}
	_, p.current = w.m.Current()
	_, p.standby = w.m.Standby()
	for _, n := range w.usable(now, true) {
		p.live = append(p.live, n.ID)
	}
	if f := w.s.cluster.Membership; f != nil {
		for _, m := range f.Members() {
			if m.Draining {
				p.draining = append(p.draining, m.ID)
			}
		}
	}
	return p
}

// tick runs the periodic checks. Called with mu held.
func (w *SpreadLogWriter) tick() {
	now := w.s.cluster.Clock.Now()
	if now-w.retried >= w.s.cluster.Logs.Retry {
		w.retried = now
		w.m.Retry()
	}
	w.updateWeak(now)
	w.widen(now)
	w.renew(now)
	w.checkOpening(now)
	w.checkAppends(now)
}

// checkAppends leaves the extent if replicas of it miss the deadline. Called with mu held.
func (w *SpreadLogWriter) checkAppends(now time.Duration) {
	if len(w.frames) == 0 {
		return
	}
	first := w.frames[0]
	if first.sent == 0 || now-first.sent < w.timer.deadline() || first.salt != w.salts[w.seq] {
		return
	}
	var late []*logLink
	var nodes []string
	all := 0
	for k, l := range w.links {
		if k.seq == w.seq {
			all++
			if l.durable < first.end && !l.dropped {
				late, nodes = append(late, l), append(nodes, k.node)
			}
		}
	}
	// If all are late the cause is more likely this node. With one replica there is no better one.
	if all < 2 || len(late) == 0 || len(late) == all && now-first.sent < w.s.cluster.Logs.DeadlineMax {
		return
	}
	if w.leaveOptions(now, nodes).decide(reasonSlow) == stay {
		for _, l := range late {
			if !l.slowLogged {
				l.slowLogged = true
				w.s.log.Warn("slow log replica kept: no other node has space", "log", w.id, "extent", l.key.seq, "node", l.key.node, "took", now-first.sent)
			}
		}
		return
	}
	for _, l := range late {
		w.s.log.Warn("slow log replica dropped", "log", w.id, "extent", l.key.seq, "node", l.key.node, "took", now-first.sent)
		l.dropped = true
		w.timer.backOff()
		w.dropSlow(l.key, now)
	}
}

// widenPauseMin is the shortest time that the writer stays in an extent after a switch for more
// replicas.
const widenPauseMin = time.Second

// recordWiden records a switch for more replicas. Each switch prepares an extent on each node, so
// the pause before the next doubles up to LogConfig.Avoid: nodes may flap, or join one after the
// other.
func (w *SpreadLogWriter) recordWiden(now time.Duration) {
	longest := w.s.cluster.Logs.Avoid
	if now-w.lastWiden > 2*longest {
		w.widenPause = 0
	}
	w.widenPause = min(max(2*w.widenPause, widenPauseMin), longest)
	w.lastWiden = now
}

// widen moves to an extent with more replicas on nodes that are not draining, if there are nodes
// for it: first it replaces the standby, then it switches to it. Called with mu held.
func (w *SpreadLogWriter) widen(now time.Duration) {
	p := w.leaveOptions(now, nil)
	minStay := max(w.widenPause, min(widenPauseMin, w.s.cluster.Logs.Avoid))
	if common(p.current, p.live) < logReplicasMin {
		minStay = w.s.cluster.Logs.Retry
	}
	if len(p.current) == 0 || now-w.lastWiden < minStay {
		return
	}
	switch p.decide(reasonWiden) {
	case leave:
		w.recordWiden(now)
		w.m.Renew()
	case replaceStandby:
		seq, standby := w.m.Standby()
		w.m.Failed(seq, standby[0], 0)
	}
}

// renew switches to the standby if the current extent has held data for ExtentAge. Called with mu
// held.
func (w *SpreadLogWriter) renew(now time.Duration) {
	if seq, _ := w.m.Current(); seq != w.currentSeq || w.m.Held() == 0 {
		w.currentSeq, w.currentSince = seq, now
		return
	}
	if now-w.currentSince >= w.s.cluster.Logs.ExtentAge && w.leaveOptions(now, nil).decide(reasonAge) == leave {
		w.m.Renew()
	}
}
