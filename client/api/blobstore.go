package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
)

// StoreStatus is the result of blob_status: the block store as each node tells of its part.
type StoreStatus struct {
	Wanted int64 // how many replicas an extent should have
	Nodes  []NodeStore
}

// NodeStore is a node's part of the block store. Counts of what was done are since it started. An extent that has
// too few replicas is counted by the one node that sees to it, so the counts of all nodes may be added up.
type NodeStore struct {
	Node, Name string
	Error      string // why the node did not tell; then there is nothing else
	// Known is false before the node has looked through all that it has, since it started and since the fleet last changed:
	// Under, OneLeft and UnderBytes are not true then.
	Known          bool
	Extents, Bytes int64 // it holds
	// Under and UnderBytes are extents that have too few replicas, and what has to be copied for them;
	// CopyRate is how fast it is, in bytes a second. OneLeft counts those of them that have one replica or none.
	Under, OneLeft, UnderBytes, CopyRate int64
	Copied, CopiedBytes                  int64
	Surplus, Trimmed                     int64 // replicas here that are too many; that were dropped
	Rotten, Healed, Unhealed             int64 // replicas here that are rotten; that were made anew; that could not be
	// Logs is how many commit logs the node appends to, LogReplicas on how many nodes that is which is on the fewest.
	Logs, LogReplicas int64
	// Quarantined is garbage that waits to be removed, Alarm why none is looked for any more, if so.
	Quarantined, QuarantinedBytes int64
	Alarm                         string
	// Sweeps and SweepsFailed count the rounds of the sweep for garbage that this node made as master. SweptAt is when the
	// last one ended, in milliseconds on the wire; SweepRound its number, SweptFound what it found to be garbage, SweptAside and
	// SweptRemoved what was put into quarantine and removed from there, and SweepError why it failed. SweepHalted is why there
	// are no more rounds until a person says so; only the master tells.
	Sweeps, SweepsFailed, SweepRound                        int64
	SweptAt                                                 time.Time
	SweptFound, SweptAside, SweptRemoved, SweptRemovedBytes int64
	SweepError, SweepHalted                                 string
	// ScrubPosition is how much of its replicas the present pass of the scrub has read, from 0 to 1; ScrubbedAt when
	// the last pass ended, in milliseconds on the wire.
	ScrubPosition                     float64
	ScrubbedAt                        time.Time
	ScrubRate, ScrubBytes, ScrubFound int64
	// Balancing: the node is fuller than others, and gives them extents.
	Balancing         bool
	Moved, MovedBytes int64
	BalanceRate       int64
	// Leaving: it drains. DrainExtents and DrainLogs are what it still has that is needed, and Safe says that it is
	// nothing: it can be unplugged for good.
	Leaving                 bool
	DrainExtents, DrainLogs int64
	Safe                    bool
}

func (n *NodeStore) fields() fields {
	return fields{
		{"node", &n.Node}, {"name", &n.Name}, {"error", &n.Error}, {"known", &n.Known}, {"extents", &n.Extents}, {"bytes", &n.Bytes},
		{"under_replicated", &n.Under}, {"one_left", &n.OneLeft}, {"under_replicated_bytes", &n.UnderBytes}, {"copy_bytes_per_s", &n.CopyRate},
		{"copied", &n.Copied}, {"copied_bytes", &n.CopiedBytes}, {"surplus", &n.Surplus}, {"trimmed", &n.Trimmed},
		{"rotten", &n.Rotten}, {"healed", &n.Healed}, {"unhealed", &n.Unhealed}, {"logs", &n.Logs}, {"log_replicas", &n.LogReplicas},
		{"quarantined", &n.Quarantined}, {"quarantined_bytes", &n.QuarantinedBytes}, {"alarm", &n.Alarm},
		{"sweeps", &n.Sweeps}, {"sweeps_failed", &n.SweepsFailed}, {"sweep_round", &n.SweepRound}, {"swept_ms", (*millis)(&n.SweptAt)},
		{"swept_found", &n.SweptFound}, {"swept_aside", &n.SweptAside}, {"swept_removed", &n.SweptRemoved},
		{"swept_removed_bytes", &n.SweptRemovedBytes}, {"sweep_error", &n.SweepError}, {"sweep_halted", &n.SweepHalted},
		{"scrub_position", &n.ScrubPosition}, {"scrubbed_ms", (*millis)(&n.ScrubbedAt)}, {"scrub_bytes_per_s", &n.ScrubRate},
		{"scrub_bytes", &n.ScrubBytes}, {"scrub_found", &n.ScrubFound}, {"balancing", &n.Balancing}, {"moved", &n.Moved},
		{"moved_bytes", &n.MovedBytes}, {"balance_bytes_per_s", &n.BalanceRate}, {"leaving", &n.Leaving},
		{"drain_extents", &n.DrainExtents}, {"drain_logs", &n.DrainLogs}, {"safe", &n.Safe},
	}
}

func (s *StoreStatus) fields() fields {
	return fields{{"wanted", &s.Wanted}, {"nodes", &list[NodeStore]{all: &s.Nodes, fields: (*NodeStore).fields, what: "nodes", max: nodesMax}}}
}

// Append writes the result.
func (s *StoreStatus) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode reads the result.
func (s *StoreStatus) Decode(d *wire.Decoder) error {
	*s = StoreStatus{}
	return s.fields().decode(d)
}
