package quota

import "time"

const (
	// ReportsMax is the maximum number of quotas in one message to or from the master.
	ReportsMax = 500
	// fullReportPeriod is how often a server reports all its quotas, including idle ones. It
	// repairs differences between the server and the master.
	fullReportPeriod = time.Minute
)

// Reporter selects what a server reports to the master: the quotas that were used since the last
// round, and those whose shares the master may not know. It must be used by one goroutine.
type Reporter struct {
	server string // name of the server that has reported
	epoch  uint64 // epoch of the master that was reported to; 0: none
	round  uint64
	full   time.Time // when all quotas were last due
	due    []due
	acked  map[string]bool // acknowledged in this round
}

// due is a report still to be sent in a round.
type due struct {
	meter  *Meter
	resend *Report // a report to repeat with new shares; nil: the use since the last one
}

// Begin starts a round and returns its number. Each round sends at least one message, by which the
// master knows that the server is alive.
func (p *Reporter) Begin(now time.Time, server string, meters map[string]*Meter) uint64 {
	if server != p.server || now.Sub(p.full) >= fullReportPeriod {
		p.server, p.full = server, now
		for _, m := range meters {
			m.synced = false
		}
	}
	p.round++
	p.due, p.acked = nil, map[string]bool{}
	for _, m := range meters {
		if m.due() {
			p.due = append(p.due, due{meter: m})
		}
	}
	return p.round
}

// Next returns the reports of the round's next message. Since is the time since the last round.
func (p *Reporter) Next(since time.Duration) []Report {
	now := p.due[:min(len(p.due), ReportsMax)]
	p.due = p.due[len(now):]
	all := make([]Report, len(now))
	for i, d := range now {
		if d.resend != nil {
			all[i] = *d.resend
		} else {
			all[i] = d.meter.Report(since)
		}
	}
	return all
}

// Answered applies the shares in a master's answer, including those of quotas that the message did
// not report. It returns whether more is to be sent in this round. A reduced share is acknowledged
// at once, since only then the master assigns it to other servers.
func (p *Reporter) Answered(now int64, epoch uint64, meters map[string]*Meter, sent []Report, shares map[string][Kinds]float64) (more bool) {
	reported := make(map[string]bool, len(sent))
	for i := range sent {
		reported[sent[i].Key] = true
	}
	if epoch != p.epoch { // a new master knows nothing of earlier reports
		p.epoch, p.due = epoch, nil
		for _, m := range meters {
			if m.synced = false; m.due() && !reported[m.key] {
				p.due = append(p.due, due{meter: m})
			}
		}
	}
	for i := range sent {
		r := &sent[i]
		m, s := meters[r.Key], r.Shares
		answer, known := shares[r.Key]
		if m == nil {
			continue
		}
		if known {
			s = answer
		}
		less := m.applyShares(now, s)
		m.synced = known && epoch != 0 && !less
		if less {
			r.Shares = s
			p.acknowledge(m, r)
		}
	}
	for key, s := range shares {
		if m := meters[key]; m != nil && !reported[key] && m.applyShares(now, s) {
			m.synced = false
			p.acknowledge(m, nil)
		}
	}
	return len(p.due) > 0
}

// acknowledge adds a report of a reduced share to this round, unless there was one: then the next
// round has it.
func (p *Reporter) acknowledge(m *Meter, resend *Report) {
	if !p.acked[m.key] {
		p.acked[m.key] = true
		p.due = append(p.due, due{m, resend})
	}
}
