package master

import (
	"slices"

	"github.com/steledb/stele/internal/invariant"
)

// check asserts that no tablet is in two orders, counting those in progress, and that each is loaded by
// a live server of its level.
func (p *planner) check() {
	if !invariant.On {
		return
	}
	seen := map[string]bool{}
	for i, o := range append(slices.Clone(p.state.Busy), p.orders...) {
		planned := i >= len(p.state.Busy)
		for _, subject := range o.subjects() {
			invariant.Check(!planned || !seen[subject], "order %d of a plan concerns the tablet or server of an earlier one", int64(i))
			seen[subject] = true
		}
		if planned && o.Kind == Load {
			v := p.alive[o.Server]
			invariant.Check(v != nil && v.Metadata == o.Tablet.OfMetadata(), "order %d of a plan loads a tablet on a server that cannot have it", int64(i))
		}
	}
}
