package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// deadly is a cluster in which one tablet kills each server that acquires it. A new server starts
// each time.
type deadly struct {
	*masterView
	key   string
	ended int
}

func (d *deadly) Load(ctx context.Context, v *TabletServer, t *Tablet, q api.Sequencer) error {
	if t.Key != d.key {
		return d.masterView.Load(ctx, v, t, q)
	}
	s, err := d.at(ctx, v.Name, "load "+t.Key, q)
	if err != nil {
		return err
	}
	if _, err := d.take(s, t, q); err != nil {
		return err
	}
	d.locked(func() {
		d.ended++
		if d.servers[s.name] == s {
			node := strings.TrimSuffix(s.name, testMetadata)
			for _, name := range []string{node, node + testMetadata} {
				close(d.servers[name].gone)
				delete(d.servers, name)
			}
		}
	})
	d.start()
	return errServerGone
}

// TestTabletThatKillsServers: the master stops loading a tablet that kills every server that loads
// it, well before its METADATA row is full, and reports it. Other tablets are served. An operator's
// move tries it again.
func TestTabletThatKillsServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSimCluster(rand.New(rand.NewPCG(1, 1)), 6)
		for range 3 {
			f.start()
		}
		d := &deadly{masterView: &masterView{simCluster: f}}
		for key, row := range f.rows {
			if row.Level() == 2 {
				d.key = key
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		lock := &worldLock{seq: api.Sequencer{LockGeneration: 1}, done: make(chan struct{})}
		a := newAssigner(Config{Tablets: d, Pause: 30 * time.Second, Logger: slog.New(slog.DiscardHandler)}, lock)
		d.a = a
		var work sync.WaitGroup
		work.Go(func() { a.run(ctx) })
		ended := func() (n int) {
			d.locked(func() { n = d.ended })
			return n
		}
		reported := func(text string) {
			t.Helper()
			all := a.unserved(time.Now())
			if len(all) != 1 || all[0].Key != d.key || !strings.Contains(all[0].Err.Error(), text) {
				t.Errorf("after %d servers: got %+v", ended(), all)
			}
		}
		time.Sleep(2 * time.Hour)
		if n := ended(); n < suspectDeaths || n > suspectDeaths+8 {
			t.Errorf("%d servers ended in 2 hours", n)
		}
		reported("next attempt in")
		time.Sleep(72 * time.Hour)
		n := ended()
		if n < suspectDeaths || n > suspectDeathsMax {
			t.Errorf("%d servers ended in 74 hours", n)
		}
		reported("stele tablet move")
		d.locked(func() {
			for key, row := range d.rows {
				if s := d.servers[row.Server]; key != d.key && (s == nil || s.has[key] == nil) {
					t.Errorf("%s is not served", row)
				}
			}
			if r := len(d.rows[d.key].Recoveries); r > suspectDeathsMax {
				t.Errorf("the row has %d recoveries", r)
			}
		})
		node := ""
		d.locked(func() {
			for _, s := range d.servers {
				node, _, _ = strings.Cut(s.name, ".")
			}
		})
		a.mu.Lock()
		a.mu.requests = append(a.mu.requests, &request{key: d.key, node: node, until: time.Now().Add(requestTimeout), ended: make(chan struct{})})
		a.mu.Unlock()
		time.Sleep(time.Minute)
		if ended() == n {
			t.Error("it is not tried again when an operator moves it")
		}
		lock.lose()
		cancel()
		work.Wait()
		d.flushes.Wait()
	})
}

// TestDamagedRow: a tablet whose row cannot be decoded is reported, and the others are served. No
// logs are removed, since it may need any.
func TestDamagedRow(t *testing.T) {
	damage := errors.New("recoveries: count over the limit")
	s := &TabletState{
		Servers: []TabletServer{{Name: "a.1", Node: "a"}, {Name: "a.1" + testMetadata, Node: "a", Metadata: true, Has: []Held{{Key: RootKey}}}},
		Tablets: []Tablet{{Key: RootKey, Server: "a.1" + testMetadata, Generation: 1}, {Key: "00000016\x00m", Damaged: damage}, {Key: "00000016\x01", Generation: 1}},
		Whole:   true, Logs: []string{"dead.1"}, Recovered: map[string]bool{"dead.1": true}, Unneeded: []string{"dead.1"},
	}
	orders := PlanTablets(s)
	if len(orders) != 1 || orders[0].Kind != Load || orders[0].Tablet.Key != s.Tablets[2].Key {
		t.Errorf("ordered: %+v", orders)
	}
	a := newAssigner(Config{}, nil)
	a.noteUnserved(s)
	if u := a.mu.unserved[s.Tablets[1].Key]; u == nil || u.Err != damage {
		t.Errorf("reported: %+v", u)
	}
}

// TestSuspectTrials: a suspected tablet is loaded again only after a pause, one such tablet at a
// time, and after too many deaths only if an operator moves it.
func TestSuspectTrials(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	dead := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("dead.%d", i))
		}
		return all
	}
	const pausing, waiting, given = "next attempt in", "it waits for the trial of another such tablet", "stele tablet move"
	alive := []TabletServer{{Name: "a.1"}}
	for name, c := range map[string]struct {
		tablets []Tablet
		busy    []Order
		pinned  bool          // the first one
		after   time.Duration // between two reconciliations
		want    []string      // of each tablet; empty if it is to be loaded
	}{
		"15 deaths":                       {[]Tablet{{Recoveries: dead(15)}}, nil, false, 0, []string{""}},
		"16 deaths":                       {[]Tablet{{Recoveries: dead(16)}}, nil, false, 0, []string{pausing}},
		"15 and its server":               {[]Tablet{{Recoveries: dead(15), Server: "gone.1"}}, nil, false, 0, []string{pausing}},
		"15 and the same server":          {[]Tablet{{Recoveries: dead(15), Server: "dead.3"}}, nil, false, 0, []string{""}},
		"15 and a server that lives":      {[]Tablet{{Recoveries: dead(15), Server: "a.1"}}, nil, false, 0, []string{""}},
		"just before the pause ends":      {[]Tablet{{Recoveries: dead(16)}}, nil, false, suspectPause - 1, []string{pausing}},
		"when the pause ends":             {[]Tablet{{Recoveries: dead(16)}}, nil, false, suspectPause, []string{""}},
		"before twice the pause ends":     {[]Tablet{{Recoveries: dead(17)}}, nil, false, 2*suspectPause - 1, []string{pausing}},
		"when twice the pause ends":       {[]Tablet{{Recoveries: dead(17)}}, nil, false, 2 * suspectPause, []string{""}},
		"before 32 times the pause end":   {[]Tablet{{Recoveries: dead(21)}}, nil, false, 32*suspectPause - 1, []string{pausing}},
		"when 32 times the pause end":     {[]Tablet{{Recoveries: dead(21)}}, nil, false, 32 * suspectPause, []string{""}},
		"before the longest pause ends":   {[]Tablet{{Recoveries: dead(47)}}, nil, false, suspectPauseMax - 1, []string{pausing}},
		"when the longest pause ends":     {[]Tablet{{Recoveries: dead(47)}}, nil, false, suspectPauseMax, []string{""}},
		"too many":                        {[]Tablet{{Recoveries: dead(48)}}, nil, false, 100 * suspectPauseMax, []string{given}},
		"too many, moved":                 {[]Tablet{{Recoveries: dead(48)}}, nil, true, suspectPause, []string{""}},
		"too many, moved just now":        {[]Tablet{{Recoveries: dead(48)}}, nil, true, suspectPause - 1, []string{given}},
		"moved, in its pause":             {[]Tablet{{Recoveries: dead(20)}}, nil, true, suspectPause, []string{""}},
		"the one with fewer deaths first": {[]Tablet{{Recoveries: dead(18)}, {Recoveries: dead(17)}}, nil, false, suspectPauseMax, []string{waiting, ""}},
		"of two alike the first":          {[]Tablet{{Recoveries: dead(17)}, {Recoveries: dead(17)}}, nil, false, suspectPauseMax, []string{"", waiting}},
		"while one is on a server":        {[]Tablet{{Recoveries: dead(18), Server: "a.1"}, {Recoveries: dead(17)}}, nil, false, suspectPauseMax, []string{"", waiting}},
		"while one is being loaded":       {[]Tablet{{Recoveries: dead(18)}, {Recoveries: dead(17)}}, []Order{{Kind: Load, Tablet: Tablet{Key: "0"}}}, false, suspectPauseMax, []string{"", waiting}},
		"while another tablet is loaded":  {[]Tablet{{Recoveries: dead(18)}, {Recoveries: dead(17)}}, []Order{{Kind: Load, Tablet: Tablet{Key: "9"}}}, false, suspectPauseMax, []string{waiting, ""}},
		"after one that is not suspected": {[]Tablet{{}, {Recoveries: dead(16)}}, nil, false, 0, []string{"", pausing}},
		"after one that pauses":           {[]Tablet{{Recoveries: dead(16)}, {Recoveries: dead(30)}}, nil, false, suspectPause, []string{"", pausing}},
	} {
		s := &TabletState{Servers: alive, Busy: c.busy, Pins: map[string]string{}}
		for i, tablet := range c.tablets {
			tablet.Key = fmt.Sprint(i)
			s.Tablets = append(s.Tablets, tablet)
		}
		if c.pinned {
			s.Pins["0"] = "a"
		}
		var x suspects
		x.note(s, now)
		got := x.note(s, now.Add(c.after))
		for i, want := range c.want {
			if err := got[fmt.Sprint(i)]; (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: tablet %d: %v, want %q", name, i, err, want)
			}
		}
	}
}

// TestSuspectPauseBeginsAnew: each further server that dies with a tablet starts a new pause.
func TestSuspectPauseBeginsAnew(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	s := &TabletState{Tablets: []Tablet{{Key: "k", Recoveries: make([]string, suspectDeaths)}}}
	var x suspects
	x.note(s, now)
	s.Tablets[0].Recoveries = make([]string, suspectDeaths+1)
	x.note(s, now.Add(suspectPause))
	if got := x.note(s, now.Add(3*suspectPause-1)); got["k"] == nil {
		t.Error("it is loaded within the pause that began with the last server")
	}
	if got := x.note(s, now.Add(3*suspectPause)); got["k"] != nil {
		t.Errorf("after the pause: %v", got["k"])
	}
}
