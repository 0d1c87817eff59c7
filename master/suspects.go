package master

import (
	"fmt"
	"slices"
	"time"
)

const (
	// suspectDeaths is the number of servers that died with a tablet before it was written out,
	// from which on the tablet is suspected of killing them. Other tablets of these servers are
	// suspected, too, if the servers died within seconds.
	suspectDeaths = 16
	// suspectPause is the time before the first trial of a suspected tablet. It doubles with each
	// further server that dies, up to suspectPauseMax.
	suspectPause, suspectPauseMax = time.Minute, time.Hour
	// suspectDeathsMax is the number of deaths from which on a tablet is loaded only if an operator
	// moves it to a node.
	suspectDeathsMax = 48
)

// suspects tracks the tablets suspected of killing the servers that load them. They are loaded one
// at a time: a server that dies then identifies the tablet that caused it, and the other tablets
// are written out and suspected no more. The zero value is ready for use.
type suspects struct {
	seen map[string]suspicion // by key
}

// suspicion is a tablet's number of server deaths, and when it last rose.
type suspicion struct {
	deaths int
	since  time.Time
}

// note updates the suspects from s, and returns the tablets that must not be loaded now, by key,
// with the reason.
func (x *suspects) note(s *TabletState, now time.Time) (suspended map[string]error) {
	alive := map[string]bool{}
	for i := range s.Servers {
		alive[s.Servers[i].Name] = true
	}
	seen, trial := map[string]suspicion{}, false
	var waiting []*Tablet
	for i := range s.Tablets {
		t := &s.Tablets[i]
		n := deaths(t, alive)
		if n < suspectDeaths {
			continue
		}
		seen[t.Key] = suspicion{n, now}
		if was := x.seen[t.Key]; was.deaths == n {
			seen[t.Key] = was
		}
		busy := slices.ContainsFunc(s.Busy, func(o Order) bool { return o.about(t.Key) })
		if alive[t.Server] || busy {
			trial = true // until it is written out or its server dies
		} else if _, pinned := s.Pins[t.Key]; !pinned || now.Sub(seen[t.Key].since) < suspectPause {
			waiting = append(waiting, t)
		}
	}
	x.seen = seen
	return x.suspend(waiting, trial, now)
}

// suspend returns why tablets must wait, by key. One may be loaded at a time: its trial.
func (x *suspects) suspend(waiting []*Tablet, trial bool, now time.Time) (suspended map[string]error) {
	// Those with the fewest deaths are the least likely cause.
	slices.SortStableFunc(waiting, func(a, b *Tablet) int { return x.seen[a.Key].deaths - x.seen[b.Key].deaths })
	suspended = map[string]error{}
	for _, t := range waiting {
		v := x.seen[t.Key]
		wait := min(suspectPause<<min(v.deaths-suspectDeaths, 6), suspectPauseMax)
		switch left := v.since.Add(wait).Sub(now); {
		case v.deaths >= suspectDeathsMax:
			suspended[t.Key] = fmt.Errorf("%d servers died with the tablet before it was written out: it is not loaded again until moved to a node with 'stele tablet move'", v.deaths)
		case left > 0:
			suspended[t.Key] = fmt.Errorf("%d servers died with the tablet before it was written out: next attempt in %v", v.deaths, left.Round(time.Second))
		case trial:
			suspended[t.Key] = fmt.Errorf("%d servers died with the tablet before it was written out: it waits for the trial of another such tablet", v.deaths)
		default:
			trial = true
		}
	}
	return suspended
}

// deaths returns how many servers died with a tablet before it was written out.
func deaths(t *Tablet, alive map[string]bool) int {
	n := len(t.Recoveries)
	if t.Server != "" && !alive[t.Server] && !slices.Contains(t.Recoveries, t.Server) {
		n++
	}
	return n
}
