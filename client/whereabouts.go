package client

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client/metadata"
)

// freshTime is how old a location may be that Locate passes on.
const freshTime = time.Second

// Locate returns the address of the server that has a row, and the id of its node, as METADATA had it a second ago or
// later; ok is false if that cannot be found out before ctx ends, or if no server has it. The node called asker does
// not have it: what names that one is older.
func (c *Client) Locate(ctx context.Context, table string, row []byte, asker string) (addr, node string, ok bool) {
	for range 2 {
		p, err := c.locator.locate(ctx, table, row)
		if err != nil || p.loc == nil {
			return "", "", false
		}
		node, _, _ = strings.Cut(p.loc.server, ".")
		if node != asker && time.Since(p.loc.read) <= freshTime {
			return p.loc.addr, node, true
		}
		c.locator.wrong(p, notServing, nil) // which remembers for some milliseconds what METADATA has just said
	}
	return "", "", false
}

// MetadataNodes returns the ids of the nodes that have tablets of METADATA, as far as the Client knows
// without asking.
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
