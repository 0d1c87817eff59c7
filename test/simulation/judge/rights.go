package judge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/steledb/stele/test/simulation/workload"
)

// need returns the right that an operation needs.
func need(op *workload.Op) string {
	switch op.Kind {
	case workload.Read, workload.ScanAll:
		return "read"
	case workload.Write:
		return "write"
	}
	return "read,write"
}

// covers reports whether a change of rights is about the right of an operation of a user.
func covers(change, op *workload.Op) bool {
	rights := strings.Split(change.Right.Rights, ",")
	for _, right := range strings.Split(need(op), ",") {
		if !slices.Contains(rights, right) {
			return false
		}
	}
	return change.Right.User == op.User && change.Table == op.Table
}

// rights returns operations of users that were acknowledged without a right, and operations that
// were rejected though the user had the right.
func rights(ops []workload.Op) (all []Violation) {
	var grants, revocations []workload.Op
	for _, op := range ops {
		switch {
		case op.Outcome == workload.Failed:
		case op.Kind == workload.Grant:
			grants = append(grants, op)
		case op.Kind == workload.Revoke:
			revocations = append(revocations, op)
		}
	}
	drops := dropsOf(ops)
	for _, op := range ops {
		if op.User == "" || !onTable(&op) {
			continue
		}
		of := func(change workload.Op) bool { return !covers(&change, &op) }
		given := slices.DeleteFunc(slices.Clone(grants), of)
		taken := slices.DeleteFunc(slices.Clone(revocations), of)
		switch {
		case op.Outcome == workload.OK && !allowed(&op, given, taken):
			text := fmt.Sprintf("%s of user %s on table %s is acknowledged without a right", op.Kind, op.User, op.Table)
			all = append(all, violation("rights", text, append(slices.Concat(given, taken), op)...))
		case op.Outcome == workload.Failed && (op.Reason == workload.Denied || op.Reason == workload.NoTable) && granted(&op, given, taken, drops):
			all = append(all, violation("granted rights", fmt.Sprintf("%s of user %s on table %s is rejected although the right was granted", op.Kind, op.User, op.Table), append(given, op)...))
		}
	}
	return all
}

// allowed reports whether a grant may have been in effect at a time of the operation.
func allowed(op *workload.Op, given, taken []workload.Op) bool {
	return slices.ContainsFunc(given, func(g workload.Op) bool {
		return g.Call < op.Return && !slices.ContainsFunc(taken, func(t workload.Op) bool {
			return t.Outcome == workload.OK && t.Call > g.Return && t.Return < op.Call
		})
	})
}

// granted reports whether a grant was in effect throughout the operation. A dropped table loses its
// grants.
func granted(op *workload.Op, given, taken []workload.Op, drops dropped) bool {
	return slices.ContainsFunc(given, func(g workload.Op) bool {
		return g.Outcome == workload.OK && g.Return < op.Call && !drops.during(op.Table, g.Call, op.Return) &&
			!slices.ContainsFunc(taken, func(t workload.Op) bool { return t.Call < op.Return && t.Return > g.Call })
	})
}
