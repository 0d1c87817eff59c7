package client

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client/metadata"
)

// freshTime is the maximum age of a location that Locate returns.
const freshTime = time.Second

// Locate returns the address of the server that holds a row, and the id of its node, as read from
// METADATA within the last second. ok is false if the location cannot be found before ctx ends or
// the tablet is unassigned. The node asker does not hold the row: a location that names it is
// stale. id is the table's id, unless it is 0: what is known of an earlier table with the name is forgotten.
func (c *Client) Locate(ctx context.Context, table string, id uint64, row []byte, asker string) (addr, node string, ok bool) {
	if id != 0 {
		c.locator.setID(c.locator.table(table), id)
	}
	for range 2 {
		p, err := c.locator.locate(ctx, table, row)
		if err != nil || p.loc == nil {
			return "", "", false
		}
		node, _, _ = strings.Cut(p.loc.server, ".")
		if node != asker && time.Since(p.loc.read) <= freshTime {
			return p.loc.addr, node, true
		}
		c.locator.invalidate(p, notServing, nil) // caches for some milliseconds that the tablet is unassigned
	}
	return "", "", false
}

// MetadataNodes returns the ids of the nodes that serve METADATA tablets according to the cache.
func (c *Client) MetadataNodes() []string {
	var nodes []string
	add := func(loc *location) {
		if loc == nil || loc.node == nil {
			return
		}
		if node, _, _ := strings.Cut(loc.server, "."); !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	add(c.locator.root.Load())
	if t := (*c.locator.tables.Load())[metadata.Name]; t != nil {
		for _, loc := range t.known.Load().all {
			add(loc)
		}
	}
	return nodes
}
