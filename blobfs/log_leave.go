package blobfs

import (
	"slices"
	"time"
)

// reason is why the writer would leave the extent that it appends to.
type reason uint8

const (
	reasonSlow  reason = iota // replicas do not answer in time
	reasonWiden               // more replicas are to be had, or nodes drain
	reasonAge                 // it has held something for long enough
)

// decision is what the writer does about the extent that it appends to.
type decision uint8

const (
	stay           decision = iota
	leave                   // go on in the standby, or in another extent
	replaceStandby          // stay, and replace the standby by one with better replicas
)

// prospects is what decides whether the writer leaves an extent. It may always stay, except in one that has lost a replica:
// nothing more is acknowledged there, so logproto.Writer leaves it without asking, and choose finds a place for what was sent.
type prospects struct {
	current, standby []string // nodes that have replicas; no standby if nil
	late             []string // those of current that do not answer in time
	live             []string // nodes that answer in time, with space or without
	draining         []string
	placeable        []string // nodes that may get a replica of another extent now
	replicas         int      // that an extent is to have
	least            int      // with fewer it is not safe
}

// judge decides whether the writer leaves its extent for a reason. It leaves only for something better that is there, or can be
// made now. With full disks there may be neither, and there is no way back into an extent that was left.
func (p *prospects) judge(why reason) decision {
	switch why {
	case reasonSlow:
		return p.judgeSlow()
	case reasonAge:
		if p.standby != nil && len(p.placeable) >= min(p.least, len(p.current)) { // for the standby after it
			return leave
		}
		return stay
	default:
		return p.judgeWiden()
	}
}

// judgeWiden is judge of an extent that could have more replicas, or has one on a node that drains.
func (p *prospects) judgeWiden() decision {
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

// judgeSlow is judge of replicas that are late.
func (p *prospects) judgeSlow() decision {
	if p.standby != nil && common(p.standby, p.late) == 0 {
		return leave
	}
	elsewhere := len(p.placeable)
	if len(p.late) < len(p.current) { // if all are late, others of their disks may do
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

// prospects returns what judge needs. Called with mu held.
func (w *SpreadLogWriter) prospects(now time.Duration, late []string) *prospects {
	p := &prospects{late: late, replicas: w.s.cluster.Replicas, least: w.least(), placeable: w.placeable(now)}
	_, p.current = w.m.Current()
	_, p.standby = w.m.Standby()
	for _, n := range w.usable(now, true) {
		p.live = append(p.live, n.ID)
	}
	if f := w.s.cluster.Fleet; f != nil {
		for _, m := range f.Members() {
			if m.Leaving {
				p.draining = append(p.draining, m.ID)
			}
		}
	}
	return p
}

// look is one look. Called with mu held.
func (w *SpreadLogWriter) look() {
	now := w.s.cluster.Clock.Now()
	if now-w.retried >= w.s.cluster.Logs.Retry {
		w.retried = now
		w.m.Retry()
	}
	w.weigh(now)
	w.widen(now)
	w.renew(now)
	w.lookAtOpening(now)
	w.lookAtAppends(now)
}

// lookAtAppends leaves the extent if replicas of it are late. Called with mu held.
func (w *SpreadLogWriter) lookAtAppends(now time.Duration) {
	if len(w.frames) == 0 {
		return
	}
	first := w.frames[0]
	if first.sent == 0 || now-first.sent < w.pace.deadline() || first.salt != w.salts[w.seq] {
		return
	}
	var late []*logLink
	var nodes []string
	all := 0
	for k, l := range w.links {
		if k.seq == w.seq {
			all++
			if l.durable < first.end && !l.givenUp {
				late, nodes = append(late, l), append(nodes, k.node)
			}
		}
	}
	// If all are late it is more likely us; and with one there is no better.
	if all < 2 || len(late) == 0 || len(late) == all && now-first.sent < w.s.cluster.Logs.DeadlineMax {
		return
	}
	if w.prospects(now, nodes).judge(reasonSlow) == stay {
		for _, l := range late {
			if !l.waitedFor {
				l.waitedFor = true
				w.s.log.Warn("replica of a log extent is slow, and waited for: no other node has space", "log", w.id, "extent", l.key.seq, "node", l.key.node, "after", now-first.sent)
			}
		}
		return
	}
	for _, l := range late {
		w.s.log.Warn("replica of a log extent is slow", "log", w.id, "extent", l.key.seq, "node", l.key.node, "after", now-first.sent)
		l.givenUp = true
		w.pace.slow()
		w.slowed(l.key, now)
	}
}

// restMin is how long after it was turned to for more replicas an extent stays, even if there could be still more.
const restMin = time.Second

// wide notes that the writer turns to an extent for more replicas. Each prepares an extent on each node, so it rests twice as
// long each time, up to LogConfig.Avoid: nodes may come and go, or come one after the other.
func (w *SpreadLogWriter) wide(now time.Duration) {
	longest := w.s.cluster.Logs.Avoid
	if now-w.widened > 2*longest {
		w.rest = 0
	}
	w.rest = min(max(2*w.rest, restMin), longest)
	w.widened = now
}

// widen goes on in an extent with more replicas on nodes that stay, when there are nodes for it: first with
// a new standby, then by turning to that. Called with mu held.
func (w *SpreadLogWriter) widen(now time.Duration) {
	p := w.prospects(now, nil)
	patience := max(w.rest, min(restMin, w.s.cluster.Logs.Avoid))
	if common(p.current, p.live) < logReplicasMin {
		patience = w.s.cluster.Logs.Retry
	}
	if len(p.current) == 0 || now-w.widened < patience {
		return
	}
	switch p.judge(reasonWiden) {
	case leave:
		w.wide(now)
		w.m.Renew()
	case replaceStandby:
		seq, standby := w.m.Standby()
		w.m.Failed(seq, standby[0], 0)
	}
}

// renew goes on in the standby when the present extent has held something for long enough. Called with mu held.
func (w *SpreadLogWriter) renew(now time.Duration) {
	if seq, _ := w.m.Current(); seq != w.present || w.m.Held() == 0 {
		w.present, w.presentSince = seq, now
		return
	}
	if now-w.presentSince >= w.s.cluster.Logs.ExtentAge && w.prospects(now, nil).judge(reasonAge) == leave {
		w.m.Renew()
	}
}

// anyDrains reports whether one of the nodes is to leave, by the operator's wish.
func (s *Store) anyDrains(nodes []string) bool {
	if s.cluster.Fleet == nil {
		return false
	}
	return slices.ContainsFunc(s.cluster.Fleet.Members(), func(m Member) bool { return m.Leaving && slices.Contains(nodes, m.ID) })
}
