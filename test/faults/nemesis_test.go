package faults

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/steledb/stele/internal/netlab"
)

// fault is something done to the cluster for a while. Its random choices are made in advance, so
// that a seed determines the faults.
type fault struct {
	kind   string
	length time.Duration // total length, for repeating faults
	rest   time.Duration // pause before the next
	pick   []int         // permutation of the nodes, from which victims are taken
}

// lengthMax bounds the length of a fault. In a soak it is minutes, like leases and grace periods.
// Most faults are short, because a leader is then just about to change.
const (
	lengthMax     = 9 * time.Second
	lengthMaxSoak = 60 * time.Second
)

// kinds are the faults: functions that do and undo them.
var kinds = map[string]struct{ do, undo func(*faultRun, fault) }{
	"kill leader":   {(*faultRun).killLeader, (*faultRun).startAll},
	"kill one":      {func(r *faultRun, f fault) { r.kill(f, 1) }, (*faultRun).startAll},
	"kill minority": {func(r *faultRun, f fault) { r.kill(f, 2) }, (*faultRun).startAll},
	"kill majority": {func(r *faultRun, f fault) { r.kill(f, 3) }, (*faultRun).startAll},
	"kill all":      {func(r *faultRun, f fault) { r.kill(f, len(r.nodes)) }, (*faultRun).startAll},
	"stop leader":   {(*faultRun).stopLeader, (*faultRun).startAll},

	"pause leader":   {(*faultRun).pauseLeader, (*faultRun).resumeAll},
	"pause one":      {func(r *faultRun, f fault) { r.pause(f, 1) }, (*faultRun).resumeAll},
	"pause minority": {func(r *faultRun, f fault) { r.pause(f, 2) }, (*faultRun).resumeAll},
	"stutter leader": {(*faultRun).stutter, (*faultRun).resumeAll},
	"pause majority": {func(r *faultRun, f fault) { r.pause(f, 3) }, (*faultRun).resumeAll},

	"isolate leader":     {func(r *faultRun, f fault) { r.split(f, 1, true) }, (*faultRun).heal},
	"isolate one":        {func(r *faultRun, f fault) { r.split(f, 1, false) }, (*faultRun).heal},
	"leader in minority": {func(r *faultRun, f fault) { r.split(f, 2, true) }, (*faultRun).heal},
	"leader in majority": {func(r *faultRun, f fault) { r.split(f, 3, true) }, (*faultRun).heal},
	"bridge":             {(*faultRun).bridge, (*faultRun).heal},
	"shatter":            {(*faultRun).shatter, (*faultRun).heal},
	"deaf leader":        {(*faultRun).deafLeader, (*faultRun).heal},
	"mute leader":        {(*faultRun).muteLeader, (*faultRun).heal},
	"one way":            {(*faultRun).oneWay, (*faultRun).heal},
	"flap":               {(*faultRun).flap, (*faultRun).heal},

	"kill client":  {(*faultRun).killClient, (*faultRun).startClients},
	"pause client": {(*faultRun).pauseClient, (*faultRun).resumeClients},
}

// plan draws faults of the given kinds. Each kind comes once before any is repeated.
func plan(r *rand.Rand, kinds []string, faults, nodes int, longest time.Duration) (all []fault) {
	var deck []string
	for len(all) < faults {
		if len(deck) == 0 {
			deck = slices.Sorted(slices.Values(kinds))
			r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		f := fault{kind: deck[0], pick: r.Perm(nodes)}
		deck = deck[1:]
		// Half of the lengths are in the first quarter, one in eight in the last half.
		most := longest >> r.IntN(4)
		f.length = time.Duration(300+r.Int64N(most.Milliseconds())) * time.Millisecond
		f.rest = time.Duration(r.Int64N(1500)) * time.Millisecond
		all = append(all, f)
	}
	return all
}

// victims returns nodes in the order of the fault, with the leader, if any, first if leaderFirst is
// set.
func (c *cluster) victims(f fault, leaderFirst bool) []*node {
	var all []*node
	for _, i := range f.pick {
		all = append(all, c.nodes[i])
	}
	if leaderFirst {
		if l := c.leader(); l != nil {
			all = slices.DeleteFunc(all, func(n *node) bool { return n == l })
			all = append([]*node{l}, all...)
		}
	}
	return all
}

func hosts(nodes []*node) (all []*netlab.Host) {
	for _, n := range nodes {
		all = append(all, n.host)
	}
	return all
}

func (c *cluster) killLeader(f fault) { c.victims(f, true)[0].kill() }

func (c *cluster) kill(f fault, many int) {
	for _, n := range c.victims(f, false)[:many] {
		n.kill()
	}
}

func (c *cluster) stopLeader(f fault) { c.victims(f, true)[0].stop() }

// startAll starts killed nodes, sometimes late.
func (c *cluster) startAll(f fault) {
	for i, n := range c.victims(f, false) {
		if !n.shouldRun {
			if i > 0 {
				time.Sleep(min(f.rest/8, 200*time.Millisecond))
			}
			n.start()
		}
	}
}

func (c *cluster) pauseLeader(f fault) { c.victims(f, true)[0].pause() }

// stutter repeatedly pauses the leader for about the time of an election. When it resumes, it
// receives requests of clients that have not noticed.
func (r *faultRun) stutter(f fault) {
	for end := time.Now().Add(f.length); time.Now().Before(end); {
		r.pauseLeader(f)
		time.Sleep(700*time.Millisecond + f.rest/2)
		r.resumeAll(f)
		time.Sleep(300*time.Millisecond + f.rest/4)
	}
}

func (c *cluster) pause(f fault, many int) {
	for _, n := range c.victims(f, false)[:many] {
		n.pause()
	}
}

func (c *cluster) resumeAll(fault) {
	for _, n := range c.nodes {
		if n.paused {
			n.resume()
		}
	}
}

func (c *cluster) split(f fault, many int, leaderFirst bool) {
	v := hosts(c.victims(f, leaderFirst))
	c.lab.Partition(v[:many], v[many:])
}

// bridge leaves one node connected to both halves.
func (c *cluster) bridge(f fault) {
	v := hosts(c.victims(f, f.rest%2 == 0))
	half := len(v) / 2
	c.lab.Partition(v[:half+1], slices.Concat(v[:1], v[half+1:]))
}

// shatter leaves no majority: two, two and one.
func (c *cluster) shatter(f fault) {
	v := hosts(c.victims(f, false))
	c.lab.Partition(v[:2], v[2:4], v[4:])
}

func (c *cluster) deafLeader(f fault) {
	v := hosts(c.victims(f, true))
	c.lab.Cut(v[1:], v[:1])
}

func (c *cluster) muteLeader(f fault) {
	v := hosts(c.victims(f, true))
	c.lab.Cut(v[:1], v[1:])
}

// oneWay drops packets between some nodes, each in one direction.
func (c *cluster) oneWay(f fault) {
	v := hosts(c.victims(f, false))
	for i := range v {
		next := (i + 1) % len(v)
		c.lab.Cut(v[i:i+1], v[next:next+1])
	}
}

// flap repeatedly isolates the leader for about the time of an election.
func (r *faultRun) flap(f fault) {
	for end := time.Now().Add(f.length); time.Now().Before(end); {
		r.split(f, 1, true)
		time.Sleep(100*time.Millisecond + f.rest/2)
		r.lab.Heal()
		time.Sleep(50*time.Millisecond + f.rest/4)
	}
}

func (c *cluster) heal(fault) { c.lab.Heal() }

func (r *faultRun) killClient(f fault) { r.clients[f.pick[0]].proc.Kill() }

func (r *faultRun) startClients(fault) {
	for _, p := range r.clients {
		select {
		case <-p.proc.Done():
			r.startClient(p)
		default:
		}
	}
}

func (r *faultRun) pauseClient(f fault) {
	if err := r.clients[f.pick[0]].proc.Pause(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *faultRun) resumeClients(fault) {
	for _, p := range r.clients {
		if err := p.proc.Resume(); err != nil {
			r.t.Fatal(err)
		}
	}
}
