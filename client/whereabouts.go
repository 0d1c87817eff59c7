package client

import "strings"

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
