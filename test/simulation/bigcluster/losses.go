package bigcluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/test/simulation/machine"
)

// master returns the host of the master, or nil.
func (c *Cluster) master() *host {
	for _, h := range c.hosts {
		if h.node != nil && node.IsMaster(h.node) {
			return h
		}
	}
	return nil
}

// recoveryMax is the longest time for which tablets of lost nodes may be unavailable: the lease of the session of each, twice if the
// leader of the lock service was lost, and some waits for hosts that do not answer.
const recoveryMax = 20 * time.Second

// lose kills hosts, and notes how long it takes until the lock service takes changes and all tablets are served.
func (c *Cluster) lose(p *Phase, hosts []*host) {
	began, before := machine.Now(), c.snap()
	lost := 0
	for _, h := range hosts {
		lost += len(c.tabletsOf(h))
	}
	for _, h := range hosts {
		h.kill()
	}
	p.note("nodes lost", float64(len(hosts)))
	p.note("tablets lost", float64(lost))
	changed := make(chan time.Duration, 1)
	go func() {
		c.change()
		changed <- machine.Now() - began
	}()
	if c.await("all tablets are served after a loss", c.allServed) {
		took := machine.Now() - began
		p.note("virtual s until all tablets are served", took.Seconds())
		if took > recoveryMax {
			c.problem("%s: tablets were not served for %v, want %v at most", p.Name, took, recoveryMax)
		}
	}
	p.note("virtual s until the catalog is changed", (<-changed).Seconds())
	after := c.snap()
	if m := c.master(); m != nil {
		perTick := (after.cpu - before.cpu).Seconds() / float64(after.ticks-before.ticks)
		p.note("CPU ms of the master until then", 1000*perTick*float64(after.hosts[m].ticks-before.hosts[m].ticks))
	}
}

// change changes the schema of the user table. It uses another client, whose first node is one that is up.
func (c *Cluster) change() {
	err := c.inClients(phaseMax, func(ctx context.Context) error {
		h := c.hosts[slices.IndexFunc(c.hosts, func(h *host) bool { return h.node != nil })]
		db, err := client.Open(ctx, h.address(), client.Config{Dial: c.clients[1].Dial, RetryTimeMax: phaseMax})
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }() // always nil
		c.changes++
		_, err = db.Tables().SetFamily(ctx, tableName, table.FamilySpec{Name: fmt.Sprintf("f%d", c.changes)})
		return err
	})
	if err != nil {
		c.problem("change the schema: %v", err)
	}
}

// comeBack starts hosts again, and waits until all is served by all.
func (c *Cluster) comeBack(hosts []*host) {
	for _, h := range hosts {
		h.net.Up()
		h.start()
	}
	c.await("lost nodes serve again", c.serving)
	c.await("lost nodes are known again", c.acquainted)
	c.await("all tablets are served again", c.allServed)
}

// loseMaster loses the node of the master.
func (c *Cluster) loseMaster(p *Phase) {
	lost := []*host{c.master()}
	c.lose(p, lost)
	c.comeBack(lost)
}

// loseVoters loses two voters at once, one of which is the leader, and the master.
func (c *Cluster) loseVoters(p *Phase) {
	lost := []*host{c.master()}
	for _, h := range c.hosts {
		if h.node != nil && h != lost[0] && node.Votes(h.node) {
			lost = append(lost, h)
			break
		}
	}
	c.lose(p, lost)
	c.comeBack(lost)
}

// loseRack loses a rack without the master, and waits until all that it stored has all replicas elsewhere.
func (c *Cluster) loseRack(p *Phase) {
	master := c.master()
	rack := (master.rack + min(c.cfg.Nodes, racksMax) - 1) % min(c.cfg.Nodes, racksMax)
	var lost []*host
	for _, h := range c.hosts {
		if h.rack == rack {
			lost = append(lost, h)
		}
	}
	c.lose(p, lost)
	began, before := machine.Now(), c.snap()
	copied, ok := c.awaitReplicas()
	if ok {
		p.note("virtual s until all replicas exist", (machine.Now() - began).Seconds())
	}
	after, busy := c.snap(), 0
	for _, h := range c.hosts {
		u, b := after.hosts[h], before.hosts[h].methods
		if copied[h.name] > 0 || u.methods["blob.copy"] > b["blob.copy"] || u.methods["blob.read"] > b["blob.read"] {
			busy++
		}
	}
	p.note("share of nodes in the repair, %", 100*float64(busy)/float64(len(after.hosts)))
	total := 0.0
	for _, n := range copied {
		total += float64(n)
	}
	p.note("replicas created", total)
	c.comeBack(lost)
}

// replicasEach is how often the block store's status is read while replicas are missing.
const replicasEach = 2 * time.Second

// awaitReplicas waits until no extent lacks a replica. It returns how many replicas each node has created, by its name.
func (c *Cluster) awaitReplicas() (copied map[string]int64, ok bool) {
	before := c.storeStatus()
	for end := machine.Now() + phaseMax; ; time.Sleep(replicasEach) {
		all := c.storeStatus()
		copied = map[string]int64{}
		complete := len(all) > 0
		for name, s := range all {
			copied[name] = s.Copied - before[name].Copied
			complete = complete && s.Known && s.Under == 0
		}
		switch {
		case complete && machine.Now() > end-phaseMax+missingMin:
			return copied, true
		case machine.Now() > end:
			c.problem("replicas are missing after %v", phaseMax)
			return copied, false
		}
	}
}

// missingMin is longer than repair waits for a node to come back.
const missingMin = 45 * time.Second

// storeStatus returns the state of the block store on the nodes that are up; nil if it cannot be read.
func (c *Cluster) storeStatus() map[string]client.NodeStore {
	all := map[string]client.NodeStore{}
	err := c.inClients(time.Minute, func(ctx context.Context) error {
		s, err := c.db.BlockStore().Status(ctx)
		if err != nil {
			return err
		}
		for _, n := range s.Nodes {
			if n.Error == "" {
				all[n.Name] = n
			}
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return all
}
