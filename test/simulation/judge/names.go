package judge

import (
	"fmt"
	"slices"

	"github.com/steledb/stele/test/simulation/workload"
)

// renames are the renames of a table that were made, or may have been.
type renames struct {
	away []workload.Op // to its other name
	back []workload.Op // to the name of the plan
}

// renamesOf returns the renames by the tables' names in the plan.
func renamesOf(ops []workload.Op) map[string]*renames {
	all := map[string]*renames{}
	for _, op := range ops {
		if op.Kind != workload.Rename || op.Outcome == workload.Failed {
			continue
		}
		if all[op.Table] == nil {
			all[op.Table] = &renames{}
		}
		if r := all[op.Table]; op.Under == op.Table {
			r.back = append(r.back, op)
		} else {
			r.away = append(r.away, op)
		}
	}
	return all
}

// settled reports whether a rename of the first kind was made before an operation, and certainly none of the second kind between that rename
// and the end of the operation.
func settled(made, undone []workload.Op, op *workload.Op) bool {
	return slices.ContainsFunc(made, func(m workload.Op) bool {
		return m.Outcome == workload.OK && m.Return < op.Call &&
			!slices.ContainsFunc(undone, func(u workload.Op) bool { return u.Return > m.Call && u.Call < op.Return })
	})
}

// original reports whether the table certainly had the name of the plan throughout an operation.
func (r *renames) original(op *workload.Op) bool {
	return r == nil || settled(r.back, r.away, op) || !slices.ContainsFunc(r.away, func(a workload.Op) bool { return a.Call < op.Return })
}

// other reports whether the table certainly had its other name throughout an operation.
func (r *renames) other(op *workload.Op) bool { return r != nil && settled(r.away, r.back, op) }

// named reports whether the table certainly had the name that an operation used throughout it.
func (r *renames) named(op *workload.Op) bool {
	if op.Under != "" {
		return r.other(op)
	}
	return r.original(op)
}

// misnamed reports whether the table certainly never had the name that an operation used, during it.
func (r *renames) misnamed(op *workload.Op) bool {
	if op.Under != "" {
		return r.original(op)
	}
	return r.other(op)
}

// tableNames returns operations that were acknowledged by a name that the table did not have.
func tableNames(ops []workload.Op) (all []Violation) {
	of := renamesOf(ops)
	for _, op := range ops {
		if r := of[op.Table]; op.Outcome == workload.OK && onTable(&op) && r.misnamed(&op) {
			text := fmt.Sprintf("%s of table %s is acknowledged by a name that the table does not have", op.Kind, op.Table)
			shown := []workload.Op{op}
			if r != nil {
				shown = slices.Concat(r.away, r.back, shown)
			}
			all = append(all, violation("table names", text, shown...))
		}
	}
	return all
}
