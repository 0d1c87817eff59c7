package world

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/test/simulation/machine"
	"github.com/steledb/stele/test/simulation/simdisk"
	"github.com/steledb/stele/test/simulation/simnet"
	"github.com/steledb/stele/test/simulation/workload"
)

// nemesis makes faults for a time.
func (w *World) nemesis(d time.Duration) {
	end := time.Now().Add(d)
	free := make(chan struct{}, w.plan.together)
	for range w.plan.together {
		free <- struct{}{}
	}
	w.ambush.arm(d)
	for time.Now().Before(end) {
		var x target
		select {
		case <-time.After(w.between(0, 2*w.plan.pause)):
			x = w.chooseFault()
		case m := <-w.ambush.moments:
			if m.aimed {
				go w.ambush.inflict(m, end)
				continue
			}
			time.Sleep(m.delay)
			x = target{f: m.fault, h: m.host, o: m.host.w.host(), limit: m.limit, file: m.file}
			w.count("faults at rare moments")
		}
		if x.f == "" || w.quiet {
			continue
		}
		select {
		case <-free:
		case <-time.After(time.Until(end)):
			continue
		}
		limit := time.Until(end)
		if x.limit > 0 {
			limit = min(limit, x.limit)
		}
		w.count("fault " + string(x.f))
		go func() {
			x.h.w.inflict(x, limit)
			free <- struct{}{}
		}()
	}
	w.ambush.disarm()
	if w.plan.blackout && !w.operating {
		w.count("blackouts")
		w.wholeCluster(true, 10*time.Second)
	}
	for range w.plan.together {
		select {
		case <-free:
		case <-time.After(time.Minute):
		}
	}
}

// tokenClocks bounds the steps of clocks in plans with idempotency tokens: servers whose clocks differ by more than a minute may forget a token
// too early (package tablet).
const tokenClocks = 25 * time.Second

// clockStepMax returns how far a step of a clock may go.
func (w inspector) clockStepMax() time.Duration {
	if w.load != nil {
		if p := w.load.Plan(); p.Has(workload.Tokens) {
			return tokenClocks
		}
	}
	return time.Hour
}

// driftMax bounds the drift of a clock, in parts in a million.
const driftMax = 50_000

// clocks returns how far clocks of hosts have been behind and ahead of the machine's.
func (w inspector) clocks() (low, high time.Duration) {
	drift := time.Duration(0)
	if w.drifted {
		drift = machine.Now() * driftMax / 1_000_000
	}
	return w.clockLow - drift, w.clockHigh + drift
}

// host returns a random host: often that of the lock service's leader, or of the master, whose faults matter most.
func (w *World) host() *host {
	h := w.hosts[w.r.IntN(len(w.hosts))]
	for _, important := range []*host{w.leader, w.master} {
		if w.r.IntN(6) == 0 && slices.Contains(w.hosts, important) {
			h = important
		}
	}
	return h
}

// A target is a fault and the hosts that it is about.
type target struct {
	f     fault
	h, o  *host
	limit time.Duration // of the fault; 0: none
	file  string        // that becomes corrupt; empty: any
}

// chooseFault returns a random fault of a random host, sometimes of the follower.
func (w *World) chooseFault() (x target) {
	if w.follower != nil && w.r.IntN(3) == 0 {
		return w.follower.chooseFault()
	}
	x = target{h: w.host(), o: w.host()}
	if len(w.plan.faults) > 0 {
		x.f = w.plan.faults[w.r.IntN(len(w.plan.faults))]
	}
	return x
}

// inflict makes one fault and ends it.
func (w *World) inflict(x target, limit time.Duration) {
	f, h, o := x.f, x.h, x.o
	w.trace.addf("nemesis", "%s %s %s", f, h.name, o.name)
	switch f {
	case crash, powerLoss:
		h.kill(f == powerLoss)
		w.hold(limit, 100*time.Millisecond, 30*time.Second)
		h.up()
	case wholeCrash, wholePower:
		w.wholeCluster(f == wholePower, limit)
	case freeze:
		h.freeze()
		w.hold(limit, time.Second, time.Minute)
		h.thaw()
	case late:
		w.makeLate(h, limit)
	case cutOne, cutPair, isolate, partition, cutClient:
		w.cut(f, h, o, limit)
	case resetHost:
		h.net.Reset()
	case isolateClients:
		w.operators().isolateClients(limit)
	case slowLink:
		w.slow(h, limit)
	case cutClusters, slowClusters:
		w.troubleBetween(f, limit)
	case diskStall:
		h.troubled()
		h.disk.Stall(min(limit, w.between(time.Second, time.Minute)), w.r.IntN(2) == 0)
	case diskFull:
		w.fill([]*host{h}, limit)
	case disksFull:
		w.fill(w.hosts, limit)
	case diskError:
		bad := w.bad
		w.badUsed = true
		bad.troubled()
		bad.disk.SetFaults(simdisk.Faults{Read: 0.01, Write: 0.01, Sync: 0.01})
		w.hold(limit, 100*time.Millisecond, 10*time.Second)
		bad.disk.SetFaults(simdisk.Faults{})
	case diskCorruption:
		bad := w.bad
		w.badUsed, bad.corrupted = true, true
		voters := w.voters()
		bad.disk.Corrupt(func(name string) bool { return strings.HasPrefix(name, x.file) && corruptible(name, voters) })
	case clockStep:
		most := w.inspector().clockStepMax()
		h.wall = w.between(-most, most)
		w.clockLow, w.clockHigh = min(w.clockLow, h.wall), max(w.clockHigh, h.wall)
		h.setClockIfUp()
	case clockDrift:
		h.drift, w.drifted = w.r.Int64N(2*driftMax+1)-driftMax, true
		h.setClockIfUp()
	case restart, reconfigure:
		h.stop()
		if f == reconfigure {
			w.reconfigure(h)
		}
		w.hold(limit, 0, 10*time.Second)
		h.up()
	default:
		w.operators().operate(f, h, limit)
	}
}

// makeLate makes goroutines of a host, or of all, late for a time. This widens all races between them.
func (w *World) makeLate(h *host, limit time.Duration) {
	hosts := []*host{h}
	if w.r.IntN(4) == 0 {
		hosts = w.hosts
	}
	oneIn, most := uint64(16)<<w.r.IntN(9), 50*time.Millisecond<<w.r.IntN(7)
	for _, h := range hosts {
		h.setLate(oneIn, most)
	}
	w.hold(limit, time.Second, time.Minute)
	for _, h := range hosts {
		h.setLate(0, 0)
	}
}

func (h *host) setLate(oneIn uint64, most time.Duration) {
	if h.state != down {
		if most >= stallLeast {
			h.starved = h.process
		}
		machine.SetLate(h.process, oneIn, most)
	}
}

// fill leaves little space on disks for a time.
func (w *World) fill(hosts []*host, limit time.Duration) {
	for _, h := range hosts {
		h.troubled()
		h.disk.SetCapacity(h.disk.Used() + w.r.Int64N(16<<10<<w.r.IntN(9)))
	}
	w.hold(limit, time.Second, time.Minute)
	for _, h := range hosts {
		h.disk.SetCapacity(w.plan.diskBytes)
	}
}

func (h *host) setClockIfUp() {
	if h.state != down {
		h.setClock()
	}
}

// wholeCluster kills all processes, or all hosts.
func (w *World) wholeCluster(power bool, limit time.Duration) {
	if power && w.r.IntN(2) == 0 { // disks go before processors
		pause := min(limit, w.between(0, 2*time.Second))
		for _, h := range w.hosts {
			h.troubled()
			h.disk.Stall(pause+time.Second, true)
		}
		time.Sleep(pause)
	}
	for _, h := range w.hosts {
		h.kill(power)
		if w.r.IntN(3) == 0 {
			w.sleep(0, 100*time.Millisecond)
		}
	}
	w.hold(limit, 100*time.Millisecond, 10*time.Second)
	for _, i := range w.r.Perm(len(w.hosts)) {
		w.hosts[i].up()
		if w.r.IntN(2) == 0 {
			w.sleep(0, 5*time.Second)
		}
	}
}

// cut stops links for a time.
func (w *World) cut(f fault, h, o *host, limit time.Duration) {
	var links [][2]*simnet.Host
	add := func(a, b *simnet.Host) { links = append(links, [2]*simnet.Host{a, b}) }
	switch f {
	case cutOne:
		add(h.net, o.net)
	case cutPair:
		add(h.net, o.net)
		add(o.net, h.net)
	case cutClient:
		c, directions := w.clients[w.r.IntN(len(w.clients))], 1+w.r.IntN(3)
		if directions&1 != 0 {
			add(h.net, c) // answers are lost
		}
		if directions&2 != 0 {
			add(c, h.net)
		}
	case isolate:
		for _, x := range w.hosts {
			if x != h {
				add(h.net, x.net)
				add(x.net, h.net)
			}
		}
	case partition:
		part := w.r.Uint64()
		for i, x := range w.hosts {
			for j, y := range w.hosts {
				if part>>i&1 != part>>j&1 {
					add(x.net, y.net)
				}
			}
		}
	}
	for _, c := range links {
		if c[0] != c[1] {
			w.net.Cut(c[0], c[1])
		}
	}
	w.hold(limit, 500*time.Millisecond, time.Minute)
	for _, c := range links {
		w.net.Heal(c[0], c[1])
	}
}

// isolateClients cuts a machine of clients from all hosts for a time. Sessions of its clients last until their leases end, also with another
// leader of the lock service, and what they cache is valid until then.
func (w operators) isolateClients(limit time.Duration) {
	c, leader := w.clients[w.r.IntN(len(w.clients))], w.leader
	hosts := w.hosts
	for _, h := range hosts {
		w.net.Cut(h.net, c)
		w.net.Cut(c, h.net)
	}
	kills := leader != nil && w.r.IntN(2) == 0
	if kills {
		leader.kill(w.r.IntN(2) == 0)
	}
	w.hold(limit, 500*time.Millisecond, 20*time.Second)
	for _, h := range hosts {
		w.net.Heal(h.net, c)
		w.net.Heal(c, h.net)
	}
	if kills {
		leader.up()
	}
}

// slow makes the links of a host bad for a time.
func (w *World) slow(h *host, limit time.Duration) {
	bad := w.badLink()
	for _, x := range w.hosts {
		if x != h {
			w.net.SetLink(h.net, x.net, bad)
			w.net.SetLink(x.net, h.net, bad)
		}
	}
	w.hold(limit, time.Second, time.Minute)
	for _, x := range w.hosts {
		if x != h {
			w.net.SetLink(h.net, x.net, simnet.LAN)
			w.net.SetLink(x.net, h.net, simnet.LAN)
		}
	}
}

// badLink returns a link that delays, loses and duplicates.
func (s *shared) badLink() simnet.Link {
	return simnet.Link{Delay: s.between(0, 50*time.Millisecond), Jitter: s.between(time.Millisecond, 100*time.Millisecond), Loss: s.r.Float64() * 0.2,
		Duplicate: s.r.Float64() * 0.1, Reorder: s.r.Float64() * 0.2}
}

// corruptible selects files that may change on disk. Keys and the join token may not: no other host has a copy, and a node without
// them does not start. An operator would give it others. Where another file is the only copy, the node names it, and the host is replaced.
// Files of the lock service may not change while it has fewer voters than it needs to do without one.
func corruptible(name string, voters int) bool {
	return !strings.HasPrefix(name, keysDir) && name != tokenFile && (voters >= votersSpare || !strings.HasPrefix(name, raftDir))
}

// votersSpare is the least number of voters of which one may be lost.
const votersSpare = 3

// voters returns the number of voters of the lock service, or 0 if it does not answer.
func (w *World) voters() (n int) {
	_ = w.askOnce(w.r.IntN(1<<16), func(ctx context.Context, c *client.Client) error {
		r, err := c.Nodes().RaftStatus(ctx)
		if err != nil {
			return err
		}
		for i := range r.Servers {
			if r.Servers[i].Voter {
				n++
			}
		}
		return nil
	})
	return n
}

// reconfigure changes settings of a host that an operator may change.
func (w *World) reconfigure(h *host) {
	switch w.r.IntN(3) {
	case 0:
		h.cfg.MemoryBytes = 256<<20 + w.r.Int64N(256<<20)
	case 1:
		h.cfg.Zone = "zone-" + string(rune('0'+w.r.IntN(4)))
	case 2:
		h.cfg.ReserveBytes = w.plan.reserveBytes/2 + w.r.Int64N(w.plan.reserveBytes)
	}
}

// heal ends all faults.
func (w *World) heal() {
	for _, h := range w.hosts {
		for _, o := range w.hosts {
			w.net.Heal(h.net, o.net)
			if h != o {
				w.net.SetLink(h.net, o.net, simnet.LAN)
			}
		}
		for _, c := range w.clients {
			w.net.Heal(h.net, c)
			w.net.Heal(c, h.net)
		}
		h.disk.SetCapacity(w.plan.diskBytes)
		h.disk.SetFaults(simdisk.Faults{})
		h.disk.Stall(0, false)
		h.disk.Stall(0, true)
		h.drift = 0
		h.setClockIfUp()
		h.setLate(0, 0)
		h.thaw()
		h.up()
		h.sound()
	}
	if w.follower != nil {
		w.healBetween()
		w.follower.heal()
	}
}
