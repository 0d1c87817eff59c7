package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
)

// StoreStatus is the result of blob_status: the block store, as reported by each node for its part.
type StoreStatus struct {
	Wanted int64 // the intended number of replicas of an extent
	Nodes  []NodeStore
}

// NodeStore is a node's part of the block store. Counters of events start at 0 when the node
// starts. An under-replicated extent is counted by the one node that repairs it, so counts of
// several nodes can be added up.
type NodeStore struct {
	Node, Name string
	Error      string // why the node did not answer; other fields are then empty
	// Known is false until the node has scanned its extents, after a start or a change of the
	// members. Under, OneLeft and UnderBytes are not valid then.
	Known          bool
	Extents, Bytes int64 // held by the node
	// Under is the number of under-replicated extents, and UnderBytes the bytes to copy for them.
	// OneLeft is the number of those with at most one replica. CopyRate is the current rate, in
	// bytes per second.
	Under, OneLeft, UnderBytes, CopyRate int64
	Copied, CopiedBytes                  int64
	Surplus, Trimmed                     int64 // excess replicas here; excess replicas dropped
	Corrupt, Healed, Unhealed            int64 // corrupt replicas here; corrupt replicas replaced; those that could not be
	// Logs is the number of commit logs that the node appends to. LogReplicas is the smallest
	// number of replicas among them.
	Logs, LogReplicas int64
	// Quarantined and QuarantinedBytes are the garbage that waits for removal. Alarm is why the
	// search for garbage is stopped, or empty.
	Quarantined, QuarantinedBytes int64
	Alarm                         string
	// Sweeps and SweepsFailed count the rounds of the garbage sweep that this node ran as master.
	// SweepRound is the number of the last one and SweptAt its end, in milliseconds on the wire.
	// SweptFound is the garbage that it found. SweptAside and SweptRemoved count what was
	// quarantined and what was removed from quarantine. SweepError is why the round failed.
	// SweepHalted is why the sweep is stopped until an operator resumes it; only the master reports
	// it.
	Sweeps, SweepsFailed, SweepRound                        int64
	SweptAt                                                 time.Time
	SweptFound, SweptAside, SweptRemoved, SweptRemovedBytes int64
	SweepError, SweepHalted                                 string
	// ScrubPosition is the fraction of its replicas that the current scrub pass has read, from 0 to
	// 1. ScrubbedAt is the end of the last pass, in milliseconds on the wire.
	ScrubPosition                     float64
	ScrubbedAt                        time.Time
	ScrubRate, ScrubBytes, ScrubFound int64
	// Balancing means that the node is fuller than others and moves extents to them.
	Balancing         bool
	Moved, MovedBytes int64
	BalanceRate       int64
	// Draining means that the node is draining. DrainExtents and DrainLogs count what it still holds
	// that is needed. Safe means that it holds none of these and can be removed for good.
	Draining                bool
	DrainExtents, DrainLogs int64
	Safe                    bool
}

func (n *NodeStore) fields() fields {
	return fields{
		{"node", &n.Node}, {"name", &n.Name}, {"error", &n.Error}, {"known", &n.Known}, {"extents", &n.Extents}, {"bytes", &n.Bytes},
		{"under_replicated", &n.Under}, {"one_left", &n.OneLeft}, {"under_replicated_bytes", &n.UnderBytes}, {"copy_bytes_per_s", &n.CopyRate},
		{"copied", &n.Copied}, {"copied_bytes", &n.CopiedBytes}, {"surplus", &n.Surplus}, {"trimmed", &n.Trimmed},
		{"rotten", &n.Corrupt}, {"healed", &n.Healed}, {"unhealed", &n.Unhealed}, {"logs", &n.Logs}, {"log_replicas", &n.LogReplicas},
		{"quarantined", &n.Quarantined}, {"quarantined_bytes", &n.QuarantinedBytes}, {"alarm", &n.Alarm},
		{"sweeps", &n.Sweeps}, {"sweeps_failed", &n.SweepsFailed}, {"sweep_round", &n.SweepRound}, {"swept_ms", (*millis)(&n.SweptAt)},
		{"swept_found", &n.SweptFound}, {"swept_aside", &n.SweptAside}, {"swept_removed", &n.SweptRemoved},
		{"swept_removed_bytes", &n.SweptRemovedBytes}, {"sweep_error", &n.SweepError}, {"sweep_halted", &n.SweepHalted},
		{"scrub_position", &n.ScrubPosition}, {"scrubbed_ms", (*millis)(&n.ScrubbedAt)}, {"scrub_bytes_per_s", &n.ScrubRate},
		{"scrub_bytes", &n.ScrubBytes}, {"scrub_found", &n.ScrubFound}, {"balancing", &n.Balancing}, {"moved", &n.Moved},
		{"moved_bytes", &n.MovedBytes}, {"balance_bytes_per_s", &n.BalanceRate}, {"leaving", &n.Draining},
		{"drain_extents", &n.DrainExtents}, {"drain_logs", &n.DrainLogs}, {"safe", &n.Safe},
	}
}

func (s *StoreStatus) fields() fields {
	return fields{{"wanted", &s.Wanted}, {"nodes", &list[NodeStore]{all: &s.Nodes, fields: (*NodeStore).fields, what: "nodes", max: nodesMax}}}
}

// Append encodes the result.
func (s *StoreStatus) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode decodes the result.
func (s *StoreStatus) Decode(d *wire.Decoder) error {
	*s = StoreStatus{}
	return s.fields().decode(d)
}
