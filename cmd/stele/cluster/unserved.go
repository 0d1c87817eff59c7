package cluster

import "github.com/steledb/stele/cmd/stele/cli"

// unservedHint is the hint for tablets that are not served.
const unservedHint = `start nodes that are down ("stele node list"); find lost or corrupt files by "stele blob fsck"; for a damaged row of METADATA see docs/operating.md; ` +
	`the master's log names the node that failed to load a tablet, and that node's log the cause`

// unservedJSON is the --json form of a tablet that is not served. Unlike in client.UnservedTablet, the
// time is in seconds, and bounds are text and base64.
type unservedJSON struct {
	Table string `json:"table"`
	cli.BoundsJSON
	NodeID string  `json:"node_id"` // the node in METADATA; empty for none
	Server string  `json:"server"`
	SinceS float64 `json:"since_s"`
	Tries  int64   `json:"tries"`
	Error  string  `json:"error"`
}
