package judge

import (
	"fmt"
	"slices"

	"github.com/steledb/stele/test/simulation/workload"
)

// views returns operations that were acknowledged through a view that the table did not have, or that did not find one that it had.
func views(ops []workload.Op) (all []Violation) {
	added, dropped := map[string][]workload.Op{}, map[string][]workload.Op{}
	for _, op := range ops {
		switch {
		case op.Outcome == workload.Failed:
		case op.Kind == workload.AddView:
			added[op.Table] = append(added[op.Table], op)
		case op.Kind == workload.DropView:
			dropped[op.Table] = append(dropped[op.Table], op)
		}
	}
	for _, op := range ops {
		if op.View == "" || op.Kind == workload.AddView || op.Kind == workload.DropView {
			continue
		}
		adds, drops := added[op.Table], dropped[op.Table]
		absent := settled(drops, adds, &op) || !slices.ContainsFunc(adds, func(a workload.Op) bool { return a.Call < op.Return })
		switch {
		case op.Outcome == workload.OK && absent:
			text := fmt.Sprintf("%s of table %s is acknowledged through a view that the table does not have", op.Kind, op.Table)
			all = append(all, violation("views", text, append(slices.Concat(adds, drops), op)...))
		case op.Reason == workload.NoView && settled(adds, drops, &op):
			text := fmt.Sprintf("%s of table %s does not find a view that was added and not dropped", op.Kind, op.Table)
			all = append(all, violation("views", text, append(slices.Concat(adds, drops), op)...))
		}
	}
	return all
}
