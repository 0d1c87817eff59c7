package bigcluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/test/simulation/machine"
)

// phases are the phases after the start.
var phases = []struct {
	name string
	run  func(*Cluster, *Phase)
}{
	{"first minute", (*Cluster).idle},
	{"idle minute", (*Cluster).idle},
	{"cold lookups", (*Cluster).coldLookups},
	{"hot table", (*Cluster).splitHotTable},
	{"loss of the master", (*Cluster).loseMaster},
	{"loss of two voters", (*Cluster).loseVoters},
	{"loss of a rack", (*Cluster).loseRack},
	{"growth by a tenth", (*Cluster).grow},
	{"rolling restart", (*Cluster).restartSome},
	{"gossip churn", (*Cluster).churn},
}

// run runs the phases.
func (c *Cluster) run() {
	steps := []struct {
		name string
		run  func(*Phase) bool
	}{{"five nodes", c.found}, {"all nodes", c.startAll}, {"table", c.createTable}, {"data", c.writeData}}
	for _, s := range steps {
		ok := false
		c.measure(s.name, func(p *Phase) { ok = s.run(p) })
		if !ok {
			return
		}
	}
	for _, s := range phases {
		if len(c.cfg.Only) == 0 || slices.Contains(c.cfg.Only, s.name) {
			c.measure(s.name, func(p *Phase) { s.run(c, p) })
		}
	}
}

// Limits of phases, in virtual time, and how often the state is looked at.
const (
	phaseMax = 10 * time.Minute
	lookEach = 50 * time.Millisecond
)

// await waits until a condition holds, and reports whether it does within phaseMax.
func (c *Cluster) await(what string, holds func() bool) bool {
	for end := machine.Now() + phaseMax; !holds(); time.Sleep(lookEach) {
		if machine.Now() > end {
			c.problem("%s: not within %v", what, phaseMax)
			return false
		}
	}
	return true
}

// serving reports whether all nodes that have a process serve.
func (c *Cluster) serving() bool {
	return !slices.ContainsFunc(c.hosts, func(h *host) bool { return h.up && h.node == nil })
}

// found starts the nodes that found the cluster, and waits until all of them are in the lock service's group: the loss of one of two voters would
// stop it.
func (c *Cluster) found(p *Phase) bool {
	for _, h := range c.hosts[:firstNodes] {
		h.start()
	}
	if !c.await("the first nodes serve", c.serving) || !c.await("METADATA is served", func() bool { return c.served(metadata.TableID) >= 2 }) {
		return false
	}
	p.note("virtual s until they serve", machine.Now().Seconds())
	return c.await("the first nodes vote", func() bool {
		return !slices.ContainsFunc(c.hosts[:firstNodes], func(h *host) bool { return !node.Votes(h.node) })
	})
}

// startAll starts all others at once.
func (c *Cluster) startAll(p *Phase) bool {
	for _, h := range c.hosts[firstNodes:] {
		h.start()
	}
	ok := c.await("all nodes serve", c.serving) && c.await("all nodes know each other", c.acquainted)
	machine.Collect()
	p.note("memory MB per node", float64(heapBytes())/float64(len(c.hosts))/1e6)
	return ok
}

// acquainted reports whether each node knows all others by gossip.
func (c *Cluster) acquainted() bool {
	alive := 0
	for _, h := range c.hosts {
		if h.up {
			alive++
		}
	}
	for _, h := range c.hosts {
		if h.node != nil && node.Alive(h.node) != alive {
			return false
		}
	}
	return true
}

// served returns how many tablets of a table are served, or of all user tables if id is 0.
func (c *Cluster) served(id uint64) (n int) {
	for _, h := range c.hosts {
		if h.node == nil {
			continue
		}
		for _, t := range node.Served(h.node) {
			if t.Table == id || id == 0 && t.Table != metadata.TableID {
				n++
			}
		}
	}
	return n
}

// The user table, whose tablets end with rows that rowOf returns.
const tableName = "pages"

func rowOf(i int) string { return fmt.Sprintf("row-%07d", i) }

// createTable creates the user table.
func (c *Cluster) createTable(p *Phase) bool {
	var splitAt []string
	for i := range c.cfg.Tablets - 1 {
		splitAt = append(splitAt, rowOf(i+1))
	}
	err := c.inClients(phaseMax, func(ctx context.Context) (err error) {
		if c.db, err = c.open(ctx, 0, c.hosts[0]); err != nil {
			return err
		}
		_, err = c.db.Tables().CreateSplit(ctx, tableName, splitAt, table.FamilySpec{Name: "f"})
		return err
	})
	if err != nil {
		c.problem("create the table: %v", err)
		return false
	}
	c.tablets = c.cfg.Tablets
	ok := c.await("the table is served", c.allServed)
	c.noteBalance(p)
	return ok
}

// allServed reports whether all tablets of user tables are served, and METADATA's first two.
func (c *Cluster) allServed() bool {
	return c.served(0) == c.tablets && c.served(metadata.TableID) >= 2
}

// noteBalance notes how many tablets the nodes have.
func (c *Cluster) noteBalance(p *Phase) {
	most, least := 0, c.tablets
	for _, h := range c.hosts {
		if h.node != nil {
			n := len(c.tabletsOf(h))
			most, least = max(most, n), min(least, n)
		}
	}
	p.note("tablets of the fullest node", float64(most))
	p.note("tablets of the emptiest node", float64(least))
}

// tabletsOf returns the ids of the user tablets that a node serves.
func (c *Cluster) tabletsOf(h *host) (ids []uint64) {
	if h.node == nil {
		return nil
	}
	for _, t := range node.Served(h.node) {
		if t.Table != metadata.TableID {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// writeData writes a row into each tablet, and writes all tablets out, so that each has a file with replicas on three nodes.
func (c *Cluster) writeData(*Phase) bool {
	err := c.inClients(phaseMax, func(ctx context.Context) error {
		var all []*client.RowMutation
		for i := range c.tablets {
			m := client.NewRowMutation(rowOf(i + 1))
			m.Set("f:c", make([]byte, valueBytes))
			all = append(all, m)
		}
		if err := c.db.Table(tableName).ApplyAll(ctx, all); err != nil {
			return err
		}
		return c.db.Tables().Compact(ctx, tableName, false)
	})
	if err != nil {
		c.problem("write data: %v", err)
	}
	return err == nil
}

// valueBytes is the size of a row's value.
const valueBytes = 1000

// idleTime is how long the idle cluster is watched.
const idleTime = time.Minute

// idle watches a cluster without clients. In the first minute its members still find each other by hellos.
func (c *Cluster) idle(*Phase) { time.Sleep(idleTime) }
