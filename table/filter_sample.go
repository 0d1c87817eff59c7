package table

import "math/rand/v2"

// Draw returns a program equivalent to p with a new seed for its RowSamples. It returns p if there
// are none. A program used for several calls needs a new draw for each.
func (p *Program) Draw() *Program {
	if !p.samples {
		return p
	}
	drawn := *p
	drawn.seed = rand.Uint64()
	return &drawn
}
