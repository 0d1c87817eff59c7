package bigcluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/steledb/stele/client"
)

// Bounds of the phases with clients.
const (
	clientsAtOnce = 200
	hotSplits     = 100
)

// coldLookups opens clients with empty caches, each of which reads one row.
func (c *Cluster) coldLookups(p *Phase) {
	var trips, lookups, failed int64
	err := c.inClients(phaseMax, func(ctx context.Context) error {
		var wg sync.WaitGroup
		next := make(chan int)
		for range min(clientsAtOnce, c.cfg.Lookups) {
			wg.Go(func() {
				for i := range next {
					stats, err := c.coldRead(ctx, i)
					trips, lookups = trips+stats.RoundTrips, lookups+stats.Lookups
					if err != nil {
						failed++
					}
				}
			})
		}
		for i := range c.cfg.Lookups {
			next <- i
		}
		close(next)
		wg.Wait()
		return nil
	})
	if err != nil || failed > 0 {
		c.problem("cold lookups: %v, %d of %d failed", err, failed, c.cfg.Lookups)
	}
	p.note("clients", float64(c.cfg.Lookups))
	p.note("round trips of a lookup", float64(trips)/float64(max(1, lookups)))
	p.note("round trips of a client's lookups", float64(trips)/float64(max(1, c.cfg.Lookups)))
	p.note("lookups of a client", float64(lookups)/float64(max(1, c.cfg.Lookups)))
}

// coldRead opens a client, reads one row and closes the client. It returns what the client's lookups took.
func (c *Cluster) coldRead(ctx context.Context, i int) (client.Stats, error) {
	db, err := c.open(ctx, i, c.hosts[i%len(c.hosts)])
	if err != nil {
		return client.Stats{}, err
	}
	defer func() { _ = db.Close() }()                                          // always nil
	_, err = db.Table(tableName).Get(ctx, rowOf(1+i*7919%max(1, c.tablets-1))) // 7919 is prime: the rows are of different tablets
	return db.Stats(), err
}

// splitHotTable splits one tablet again and again, as a hot table does.
func (c *Cluster) splitHotTable(p *Phase) {
	last := rowOf(c.cfg.Tablets)
	began := time.Now()
	err := c.inClients(phaseMax, func(ctx context.Context) error {
		for i := range hotSplits {
			if _, err := c.db.Tablets().Split(ctx, tableName, fmt.Sprintf("%s-%03d", last, i)); err != nil {
				return fmt.Errorf("split %d: %w", i, err)
			}
			c.tablets++
		}
		return nil
	})
	if err != nil {
		c.problem("hot table: %v", err)
	}
	p.note("virtual ms per split", time.Since(began).Seconds()*1000/hotSplits)
	c.await("all parts of the hot table are served", c.allServed)
	c.noteBalance(p)
}
