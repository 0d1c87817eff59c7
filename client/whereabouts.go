package client

import (
	"slices"
	"strings"

	"github.com/steledb/stele/client/metadata"
)

// Whereabouts returns the address of the server that has a row, and the id of its node, as far
// as the Client knows without asking; ok is false if it does not.
func (c *Client) Whereabouts(table string, row []byte) (addr, node string, ok bool) {
	if c.locator.mode.Load() != modeMetadata {
		return "", "", false
	}
	loc := c.locator.lookUp(table, row)
	if loc == nil || loc.node == nil {
		return "", "", false
	}
	node, _, _ = strings.Cut(loc.server, ".") // an instance of a server is its node and a number
	return loc.addr, node, true
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
