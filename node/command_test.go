package node

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/steledb/stele/internal/rpcdoc"
	"github.com/steledb/stele/node/actfor"
	"github.com/steledb/stele/node/command"
	"github.com/steledb/stele/node/dialer"
	"github.com/steledb/stele/node/dispatch"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/keyheat"
	"github.com/steledb/stele/node/quotas"
	"github.com/steledb/stele/node/tabletadmin"
	"github.com/steledb/stele/node/usage"
)

// docs/rpc.md lists all methods between nodes with their parameters.
func TestDocHasMethodsBetweenNodes(t *testing.T) {
	reported := map[string]string{}
	for _, m := range regexp.MustCompile("`((?:cluster|tablet)\\.[a-z_]+)\\((.*?)\\)`").FindAllStringSubmatch(rpcdoc.Part(t, "## Between nodes", "## The lock service"), -1) {
		reported[m[1]] = m[2]
	}
	const ofMaster = "master, sequencer, raft epoch"
	want := map[string]string{
		formation.MethodHello: "map", formation.MethodPromise: "map", formation.MethodJoin: "map", dialer.Method: "",
		command.MethodHail: ofMaster, command.MethodStartVoting: ofMaster + ", term, index", command.MethodNudge: "",
		command.MethodHeld: "…, instance", command.MethodLoad: "…, instance, key, generation", command.MethodUnload: "…, instance, key",
		command.MethodSort: "…, instance, dead, log, start, end", tabletadmin.MethodCompact: "table, all",
		tabletadmin.MethodDescribe: "table, nil", tabletadmin.MethodSplit: "table, key, row", tabletadmin.MethodCompactOne: "table, key, all",
		command.MethodMerge: "…, instance, key, upper", tabletadmin.MethodMove: "key, node", tabletadmin.MethodMerge: "lower, upper", tabletadmin.MethodUnserved: "", dispatch.MethodOnBehalf: "method, user, generation, token, whence, params", actfor.Method: "user, generation, token, certificate, whence",
		keyheat.Method: "id, from, to, interval, form?", keyheat.MethodSums: "from, to, interval, ids, form?", usage.Method: "id", quotas.MethodReport: "server, rates, tables, round?",
	}
	if !maps.Equal(reported, want) {
		t.Errorf("docs/rpc.md has %v, the code %v", slices.Sorted(maps.Keys(reported)), slices.Sorted(maps.Keys(want)))
	}
}
