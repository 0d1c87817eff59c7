package bigcluster

import (
	"time"

	"github.com/steledb/stele/test/simulation/machine"
)

// settled is how long no tablet has moved when the cluster counts as balanced.
const settled = 10 * time.Second

// places returns which host serves each tablet.
func (c *Cluster) places() map[uint64]*host {
	at := map[uint64]*host{}
	for _, h := range c.hosts {
		for _, id := range c.tabletsOf(h) {
			at[id] = h
		}
	}
	return at
}

// grow adds a tenth of the nodes, and waits until tablets have moved to them.
func (c *Cluster) grow(p *Phase) {
	c.awaitBalance(c.places()) // of what the phases before have left
	before, calls := c.places(), c.snap()
	more := max(1, c.cfg.Nodes/10)
	for range more {
		c.newHost(len(c.hosts) % min(c.cfg.Nodes, racksMax)).start()
	}
	began := machine.Now()
	c.await("new nodes serve", c.serving)
	p.note("virtual s until new nodes serve", (machine.Now() - began).Seconds())
	p.note("virtual s until balanced", (c.awaitBalance(before) - began).Seconds())
	c.noteBalance(p)
	unloads := uint64(0)
	after := c.snap()
	for _, h := range c.hosts {
		unloads += after.hosts[h].methods["tablet.unload"] - calls.hosts[h].methods["tablet.unload"]
	}
	least := float64(c.tablets) * float64(more) / float64(len(c.hosts))
	p.note("moves of tablets", float64(unloads))
	p.note("least moves for an even share", least)
	p.note("moves as a multiple of the least", float64(unloads)/least)
}

// awaitBalance waits until no tablet has moved for some time, and returns when the last one did.
func (c *Cluster) awaitBalance(before map[uint64]*host) time.Duration {
	last, changed := len(before), machine.Now()
	c.await("tablets have moved", func() bool {
		if n := moved(before, c.places()); n != last {
			last, changed = n, machine.Now()
		}
		return machine.Now()-changed > settled && c.allServed()
	})
	return changed
}

// moved returns how many tablets are served elsewhere than before.
func moved(before, after map[uint64]*host) (n int) {
	for id, h := range after {
		if before[id] != h {
			n++
		}
	}
	return n
}

// restartsMax is the number of nodes that a rolling restart restarts.
const restartsMax = 10

// restartSome restarts some nodes one after the other, each when all is served.
func (c *Cluster) restartSome(p *Phase) {
	began, n := machine.Now(), min(restartsMax, len(c.hosts))
	for i := range n {
		c.hosts[i*len(c.hosts)/n].restart()
		c.await("a restarted node serves", c.serving)
		c.await("all tablets are served after a restart", c.allServed)
	}
	p.note("virtual s per node", (machine.Now()-began).Seconds()/float64(n))
}

// Churn: in each round, a part of the nodes lose power, and have it again after a pause.
const (
	churnRounds = 5
	churnPart   = 50
	churnPause  = 5 * time.Second
)

// churn makes nodes come and go.
func (c *Cluster) churn(*Phase) {
	n := max(1, len(c.hosts)/churnPart)
	for round := range churnRounds {
		var lost []*host
		for i := range n {
			lost = append(lost, c.hosts[firstNodes+(round*n+i)%(len(c.hosts)-firstNodes)])
		}
		for _, h := range lost {
			h.kill()
		}
		time.Sleep(churnPause)
		c.comeBack(lost)
	}
}
