package judge

import (
	"testing"

	"github.com/steledb/stele/test/simulation/workload"
)

// renamed returns a rename of table t.
func renamed(call, ret int64, to string, outcome workload.Outcome) workload.Op {
	return workload.Op{Kind: workload.Rename, Table: "t", Under: to, Call: call, Return: ret, Outcome: outcome}
}

// readBy returns a read of table t by a name; "" means that of the plan.
func readBy(call, ret int64, under string, found bool) workload.Op {
	op := workload.Op{Kind: workload.Read, Table: "t", Row: "r", Under: under, Call: call, Return: ret, Outcome: workload.OK}
	if !found {
		op.Outcome, op.Reason = workload.Failed, workload.NoTable
	}
	return op
}

func TestTableNames(t *testing.T) {
	away, back := renamed(10, 20, "u", workload.OK), renamed(30, 40, "t", workload.OK)
	for _, c := range []struct {
		what, broken string
		ops          []workload.Op
	}{
		{"the old name after a rename", "table names", []workload.Op{away, readBy(21, 22, "", true)}},
		{"the old name during a rename", "", []workload.Op{away, readBy(19, 22, "", true)}},
		{"the old name after a rename of unknown outcome", "", []workload.Op{renamed(10, workload.Infinity, "u", workload.Unknown), readBy(21, 22, "", true)}},
		{"the old name after a rename back", "", []workload.Op{away, back, readBy(41, 42, "", true)}},
		{"the new name after a rename back", "table names", []workload.Op{away, back, readBy(41, 42, "u", true)}},
		{"the new name during a rename back", "", []workload.Op{away, back, readBy(39, 42, "u", true)}},
		{"the new name before any rename", "table names", []workload.Op{away, readBy(1, 2, "u", true)}},
		{"a table that is not found by its new name", "created tables", []workload.Op{away, readBy(21, 22, "u", false)}},
		{"a table that is not found by its new name during the rename", "", []workload.Op{away, readBy(19, 22, "u", false)}},
		{"a table that is not found by its old name", "", []workload.Op{away, readBy(21, 22, "", false)}},
		{"a table that is not found after a rename back", "created tables", []workload.Op{away, back, readBy(41, 42, "", false)}},
		{"a table that is not found before a rename", "created tables", []workload.Op{away, readBy(8, 9, "", false)}},
		{"a table that is not found while two clients rename it", "", []workload.Op{away, back, renamed(35, 50, "u", workload.OK), readBy(41, 42, "", false)}},
	} {
		ops := append([]workload.Op{{Kind: workload.Create, Table: "t", Families: []string{"f"}, Call: 0, Return: 1, Outcome: workload.OK}}, c.ops...)
		for i := range ops {
			ops[i].Number = i
		}
		broken := ""
		for _, v := range Judge(ops, Options{}).Violations {
			broken = v.Invariant
		}
		if broken != c.broken {
			t.Errorf("%s: violates %q, want %q", c.what, broken, c.broken)
		}
	}
}
