package replog

import "time"

// switcher decides when a writer leaves its extent for another, and which replicas are too slow.
// Guarded by Writer.mu.
type switcher struct {
	w          *Writer
	lastWiden  time.Duration // when the writer last switched for more replicas
	widenPause time.Duration // how long it pauses before the next such switch

	lastReplace  time.Duration // when the standby was last replaced
	replacePause time.Duration // how long the writer pauses before it replaces it again

	currentSeq   uint64        // the current extent
	currentSince time.Duration // when it was first seen to hold data
}

// leaveOptions returns the input for decide.
func (x *switcher) leaveOptions(now time.Duration, late []string) *leaveOptions {
	p := &leaveOptions{late: late, replicas: x.w.logs.deps.Replicas, least: x.w.placement.replicasMin()}
	if !x.w.listFull() {
		p.placeable = x.w.placement.placeable(now)
	}
	_, p.current = x.w.m.Current()
	_, p.standby = x.w.m.Standby()
	for _, n := range x.w.placement.usable(now, true) {
		p.live = append(p.live, n.ID)
	}
	for _, n := range x.w.logs.live() {
		p.up = append(p.up, n.ID)
	}
	for _, m := range x.w.logs.deps.Peers.Members() {
		if m.Draining {
			p.draining = append(p.draining, m.ID)
		}
	}
	return p
}

// checkAppends leaves the extent if replicas of it miss the deadline.
func (x *switcher) checkAppends(now time.Duration) {
	if len(x.w.window.frames) == 0 {
		return
	}
	first := x.w.window.frames[0]
	if first.sent == 0 || now-first.sent < x.w.timer.deadline() || first.salt != x.w.salts[x.w.seq] {
		return
	}
	var late []*link
	var nodes []string
	all := 0
	for k, l := range x.w.links {
		if k.seq == x.w.seq {
			all++
			if l.durable < first.end && !l.dropped {
				late, nodes = append(late, l), append(nodes, k.node)
			}
		}
	}
	// If all are late the cause is more likely this node. With one replica there is no better one.
	if all < 2 || len(late) == 0 || len(late) == all && now-first.sent < x.w.logs.cfg.DeadlineMax {
		return
	}
	if x.leaveOptions(now, nodes).decide(reasonSlow) == stay {
		for _, l := range late {
			if !l.slowLogged {
				l.slowLogged = true
				x.w.logs.deps.Logger.Warn("slow log replica kept: no other node can take it", "log", x.w.id, "extent", l.key.seq, "node", l.key.node, "took", now-first.sent)
			}
		}
		return
	}
	for _, l := range late {
		x.w.logs.deps.Logger.Warn("stopped writing a slow log replica", "log", x.w.id, "extent", l.key.seq, "node", l.key.node, "took", now-first.sent)
		l.dropped = true
		x.w.blame(l, now-first.sent)
		x.w.timer.backOff()
		x.w.dropSlow(l.key, now)
	}
}

// widenPauseMin is the shortest time that the writer stays in an extent after a switch for more
// replicas.
const widenPauseMin = time.Second

// recordWiden records a switch for more replicas. Each switch prepares an extent on each node, so
// the pause before the next doubles up to Config.Avoid: nodes may flap, or join one after the
// other.
func (x *switcher) recordWiden(now time.Duration) {
	longest := x.w.logs.cfg.Avoid
	if now-x.lastWiden > 2*longest {
		x.widenPause = 0
	}
	x.widenPause = min(max(2*x.widenPause, widenPauseMin), longest)
	x.lastWiden = now
}

// best reports whether the current extent and the standby, if there is one, have all replicas, on sound nodes.
func (x *switcher) best(now time.Duration) bool {
	_, current := x.w.m.Current()
	_, standby := x.w.m.Standby()
	for _, nodes := range [][]string{current, standby} {
		if nodes != nil && (len(nodes) < x.w.logs.deps.Replicas || !x.w.placement.sound(nodes, now)) {
			return false
		}
	}
	return true
}

// widen moves to an extent with more replicas on nodes that are not draining, if there are nodes
// for it: first it replaces the standby, then it switches to it.
func (x *switcher) widen(now time.Duration) {
	if x.best(now) {
		x.replacePause = 0
		return // the usual case, at each tick: there is nothing better, however many nodes there are
	}
	p := x.leaveOptions(now, nil)
	minStay := max(x.widenPause, min(widenPauseMin, x.w.logs.cfg.Avoid))
	if common(p.current, p.live) < replicasMin {
		minStay = x.w.logs.cfg.Retry
	}
	if len(p.current) == 0 || now-x.lastWiden < minStay {
		return
	}
	switch p.decide(reasonWiden) {
	case leave:
		x.recordWiden(now)
		x.w.m.Renew()
	case replaceStandby:
		if now-x.lastReplace < x.replacePause {
			return
		}
		x.recordReplace(now)
		seq, standby := x.w.m.Standby()
		x.w.m.Failed(seq, standby[0], 0)
	case stay:
		if common(p.standby, p.up) >= min(p.replicas, len(p.up)) {
			x.replacePause = 0
		}
	}
}

// recordReplace records that the standby is replaced. The pause before the next replacement doubles up to
// slowRatioMax times Config.Avoid, and ends when a standby is good: the new standby may have too few
// replicas again, for example because a node with free space refuses them.
func (x *switcher) recordReplace(now time.Duration) {
	x.replacePause = min(max(2*x.replacePause, widenPauseMin), slowRatioMax*x.w.logs.cfg.Avoid)
	x.lastReplace = now
}

// renew switches to the standby if the current extent has held data for ExtentAge.
func (x *switcher) renew(now time.Duration) {
	if seq, _ := x.w.m.Current(); seq != x.currentSeq || x.w.m.Held() == 0 {
		x.currentSeq, x.currentSince = seq, now
		return
	}
	if now-x.currentSince >= x.w.logs.cfg.ExtentAge && x.leaveOptions(now, nil).decide(reasonAge) == leave {
		x.w.m.Renew()
	}
}

// trialDeadlines is how long a node that was slow recently may take to open a replica, as a
// multiple of the append deadline. It takes longer only if the node has no spare extent ready or is
// still slow.
const trialDeadlines = 4

// checkOpening drops replicas that are not opened in time, if another replica of the extent is
// open and enough nodes are left: a late standby would hold up appends when the current extent is
// full.
func (x *switcher) checkOpening(now time.Duration) {
	for k, o := range x.w.opening {
		if o.abandoned || !x.w.m.Opening(k.seq) || !x.w.links.other(k) || !x.w.placement.enoughWithout(k.node, now) {
			continue
		}
		deadline := x.w.logs.cfg.OpenTimeout
		switch {
		case x.w.placement.onTrial(k.node, now):
			deadline = trialDeadlines * x.w.timer.deadline()
		case x.w.m.Waiting():
			deadline = x.w.logs.cfg.DeadlineMax
		}
		if now-o.since < deadline {
			continue
		}
		x.w.logs.deps.Logger.Warn("log replica not opened in time", "log", x.w.id, "extent", k.seq, "node", k.node, "took", now-o.since)
		o.abandoned = true
		x.w.dropSlow(k, now)
	}
}
