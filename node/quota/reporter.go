package quota

import "time"

const (
	// ReportsMax is how many quotas a message to the master tells of, or answers.
	ReportsMax = 500
	// wholeEvery is how often a server tells of all its quotas, also of those that nobody uses: if it and the master should
	// differ about one, that ends.
	wholeEvery = time.Minute
)

// Reporter chooses what a server tells the master: of quotas that were used since it has told last, and of those of which the
// master may not know what the server goes by. It is for one goroutine, and so are the meters' Due and Report.
type Reporter struct {
	server string // as which it has told
	epoch  uint64 // of the master that it has told; 0: none
	round  uint64
	whole  time.Time // when all were to be told
	due    []due
	acked  map[string]bool // in this round
}

// due is what is still to be told in a round.
type due struct {
	meter *Meter
	again *Report // what was told, but for the shares; nil: what there is since
}

// Begin begins a round, and returns its number. In each there is one message at least, by which the master knows that the
// server lives.
func (p *Reporter) Begin(now time.Time, server string, meters map[string]*Meter) uint64 {
	if server != p.server || now.Sub(p.whole) >= wholeEvery {
		p.server, p.whole = server, now
		for _, m := range meters {
			m.told = false
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

// Next returns what the round's next message tells. The last round was so long ago.
func (p *Reporter) Next(since time.Duration) []Report {
	now := p.due[:min(len(p.due), ReportsMax)]
	p.due = p.due[len(now):]
	all := make([]Report, len(now))
	for i, d := range now {
		if d.again != nil {
			all[i] = *d.again
		} else {
			all[i] = d.meter.Report(since)
		}
	}
	return all
}

// Answered has the meters go by what the master of an epoch has answered to a message: also to quotas of which that told
// nothing. It returns whether more is to be told in this round. A share that was taken is given to others when the server has
// told that it knows, which it does at once.
func (p *Reporter) Answered(now int64, epoch uint64, meters map[string]*Meter, sent []Report, shares map[string][Kinds]float64) (more bool) {
	reported := make(map[string]bool, len(sent))
	for i := range sent {
		reported[sent[i].Key] = true
	}
	if epoch != p.epoch { // it knows nothing of what its predecessor was told
		p.epoch, p.due = epoch, nil
		for _, m := range meters {
			if m.told = false; m.due() && !reported[m.key] {
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
		less := m.goBy(now, s)
		m.told = known && epoch != 0 && !less
		if less {
			r.Shares = s
			p.acknowledge(m, r)
		}
	}
	for key, s := range shares {
		if m := meters[key]; m != nil && !reported[key] && m.goBy(now, s) {
			m.told = false
			p.acknowledge(m, nil)
		}
	}
	return len(p.due) > 0
}

// acknowledge has the master told in this round that a share is less, unless that was done: then in the next one.
func (p *Reporter) acknowledge(m *Meter, again *Report) {
	if !p.acked[m.key] {
		p.acked[m.key] = true
		p.due = append(p.due, due{m, again})
	}
}
