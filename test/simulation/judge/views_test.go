package judge

import "github.com/steledb/stele/test/simulation/workload"

func (h *history) aboutView(kind workload.Kind) *workload.Op {
	return h.add(workload.Op{Kind: kind, View: "v"})
}

// through adds a read through the view, which may not find it.
func (h *history) through(found bool) {
	op := h.read("r")
	op.View = "v"
	if !found {
		op.Outcome, op.Reason = workload.Failed, workload.NoView
	}
}

var viewTests = []judged{
	{"view: used before it is added", "views", func(h *history) {
		h.create()
		h.through(true)
		h.aboutView(workload.AddView)
	}},
	{"view: used", "", func(h *history) {
		h.create()
		h.through(false)
		h.aboutView(workload.AddView)
		h.through(true)
	}},
	{"view: not found", "views", func(h *history) {
		h.create()
		h.aboutView(workload.AddView)
		h.through(false)
	}},
	{"view: used after its drop", "views", func(h *history) {
		h.create()
		h.aboutView(workload.AddView)
		h.aboutView(workload.DropView)
		h.through(true)
	}},
	{"view: added again", "", func(h *history) {
		h.create()
		h.aboutView(workload.AddView)
		h.aboutView(workload.DropView)
		h.aboutView(workload.AddView)
		h.through(true)
	}},
	{"view: dropped by a call of unknown outcome", "", func(h *history) {
		h.create()
		h.aboutView(workload.AddView)
		op := h.aboutView(workload.DropView)
		op.Outcome, op.Return = workload.Unknown, workload.Infinity
		h.through(true)
		h.through(false)
	}},
}
