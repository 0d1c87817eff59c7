package world

import (
	"context"
	"slices"
	"time"

	"github.com/steledb/stele/client"
)

// judgeRemoved checks that no node lists a node that was removed (SW10).
func (w inspector) judgeRemoved() {
	for i, h := range w.hosts {
		if h.state != serving || len(w.removed) == 0 {
			continue
		}
		var known []string
		_ = w.operators().await(time.Now().Add(healMax), func(context.Context, *client.Client) error { // SW1 judges whether nodes answer
			return w.askOnce(i, func(ctx context.Context, c *client.Client) error {
				nodes, err := c.Nodes().List(ctx)
				known = nil
				for j := range nodes {
					known = append(known, nodes[j].ID)
				}
				return err
			})
		})
		for _, id := range w.removed {
			if slices.Contains(known, id) {
				w.fail("SW10 removed: %s lists node %s, which was removed", h.name, id)
			}
		}
	}
}
