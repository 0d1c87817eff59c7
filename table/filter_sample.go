package table

import "math/rand/v2"

// Draw returns a program that gives out what p does, with decisions of its own for each
// RowSample in it. It is p if there is none. A program that is used for several calls
// is drawn anew for each.
func (p *Program) Draw() *Program {
	if !p.samples {
		return p
	}
	drawn := *p
	drawn.seed = rand.Uint64()
	return &drawn
}
