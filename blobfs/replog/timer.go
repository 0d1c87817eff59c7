package replog

import "time"

// appendTimer estimates append times and derives the deadline of an append, like TCP's
// retransmission timer (RFC 6298). The margin is twice as large, since leaving an extent costs more
// than resending a packet.
type appendTimer struct {
	cfg             Config
	mean, deviation time.Duration
	backoff         int // doublings after slow replicas
	good            int // appends since
}

func (p *appendTimer) init(cfg Config) { p.cfg = cfg }

func (p *appendTimer) observe(d time.Duration) {
	if p.mean == 0 {
		p.mean, p.deviation = d, d/2
		return
	}
	p.deviation += (max(d-p.mean, p.mean-d) - p.deviation) / 4
	p.mean += (d - p.mean) / 8
	if p.good++; p.good > 100 && p.backoff > 0 {
		p.good, p.backoff = 0, p.backoff-1
	}
}

func (p *appendTimer) backOff() { p.backoff, p.good = min(p.backoff+1, 5), 0 }

func (p *appendTimer) deadline() time.Duration {
	d := max(p.mean+8*p.deviation, p.cfg.DeadlineMin) << p.backoff
	return min(d, p.cfg.DeadlineMax)
}
