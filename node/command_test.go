package node

import (
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/steledb/stele/internal/rpcdoc"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/quotas"
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
		formation.MethodHello: "map", formation.MethodPromise: "map", formation.MethodJoin: "map", methodIdentity: "",
		methodHail: ofMaster, methodStartVoting: ofMaster, methodNudge: "",
		methodHeld: "…, instance", methodLoad: "…, instance, key, generation", methodUnload: "…, instance, key",
		methodSort: "…, instance, dead, log, start, end", methodCompact: "table, all",
		methodTablets: "table, nil", methodSplit: "table, key, row", methodCompactOne: "table, key, all",
		methodMerge: "…, instance, key, upper", methodMove: "key, node", methodUnite: "lower, upper", methodUnserved: "", methodOnBehalf: "method, user, generation, token, whence, params",
		usage.Method: "id", quotas.MethodReport: "server, rates, tables, round?",
	}
	if !maps.Equal(reported, want) {
		t.Errorf("docs/rpc.md has %v, the code %v", slices.Sorted(maps.Keys(reported)), slices.Sorted(maps.Keys(want)))
	}
}
