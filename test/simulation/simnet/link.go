package simnet

import "time"

// Link describes the path from one host to another.
type Link struct {
	// Delay is the shortest time that a packet takes, and Jitter the most that chance adds.
	Delay, Jitter time.Duration
	// Bandwidth is in bytes per second. Zero means unlimited.
	Bandwidth int64
	// Loss is the probability that a packet or a segment is lost. A lost segment is retransmitted
	// after Config.RetransmitTimeout.
	Loss float64
	// Duplicate is the probability that a packet arrives twice.
	Duplicate float64
	// Reorder is the probability that a packet takes up to ReorderDelay longer, so that later ones
	// overtake it. Zero for ReorderDelay means 20 ms.
	Reorder      float64
	ReorderDelay time.Duration
}

// headerBytes is what a segment or a packet takes beside its data: Ethernet, IP and TCP.
const headerBytes = 66

// path is a link and its state.
type path struct {
	net  *Network
	link Link
	cut  bool
	free time.Duration // the sender may send from this time on
}

// delayLocked returns how long a segment or packet takes that is sent now.
func (p *path) delayLocked(size int, now time.Duration) time.Duration {
	d := p.link.Delay
	if p.link.Jitter > 0 {
		d += time.Duration(p.net.cfg.Rand.Int64N(int64(p.link.Jitter)))
	}
	p.busyLocked(size+headerBytes, now)
	return d + max(0, p.free-now)
}

// busyLocked makes the sender busy for as long as it takes to send that many bytes, which it returns.
func (p *path) busyLocked(size int, now time.Duration) time.Duration {
	if p.link.Bandwidth == 0 {
		return 0
	}
	busy := time.Duration(float64(size) * float64(time.Second) / float64(p.link.Bandwidth))
	p.free = max(p.free, now) + busy
	return busy
}

func (p *path) chanceLocked(probability float64) bool {
	return probability > 0 && p.net.cfg.Rand.Float64() < probability
}

// pathLocked returns the path from h to another host.
func (h *Host) pathLocked(to *Host) *path {
	for len(h.paths) <= int(to.number) {
		h.paths = append(h.paths, nil)
	}
	p := h.paths[to.number]
	if p == nil {
		p = &path{net: h.net, link: h.net.cfg.Link}
		if to == h {
			p.link = h.net.cfg.Loopback
		}
		h.paths[to.number] = p
	}
	return p
}

// SetLink replaces the link from one host to another. What is in flight keeps its delay.
func (n *Network) SetLink(from, to *Host, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	from.pathLocked(to).link = l
}

// Link returns the link from one host to another.
func (n *Network) Link(from, to *Host) Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	return from.pathLocked(to).link
}

// Cut disconnects one direction: what is in flight from one host to the other, and what is sent
// until Heal, does not arrive.
func (n *Network) Cut(from, to *Host) { n.setCut(from, to, true, LinkCut) }

// Heal ends a cut. Connections resume with their next retransmission.
func (n *Network) Heal(from, to *Host) { n.setCut(from, to, false, LinkHealed) }

func (n *Network) setCut(from, to *Host, cut bool, kind EventKind) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := from.pathLocked(to); p.cut != cut {
		p.cut = cut
		n.emitLocked(kind, from, to, 0, 0, 0)
	}
}
