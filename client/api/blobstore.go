package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
)

// StoreStatus is the result of blob_status: the block store, as reported by each node for its part.
type StoreStatus struct {
	ReplicationFactor int64       `json:"wanted"` // the number of replicas of an extent to maintain
	Nodes             []NodeStore `json:"nodes"`
}

// NodeStore is a node's part of the block store. Counters of events start at 0 when the node
// starts. An under-replicated extent is counted by the one node that repairs it, so counts of
// several nodes can be added up.
type NodeStore struct {
	Node  string `json:"node"`
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // why the node did not answer; other fields are then empty
	// Known is false until the node has scanned its extents, after a start or a change of the
	// members. Under, OneLeft and UnderBytes are not valid then.
	Known   bool  `json:"known"`
	Extents int64 `json:"extents"` // held by the node
	Bytes   int64 `json:"bytes"`   // held by the node
	// Under is the number of under-replicated extents, and UnderBytes the bytes to copy for them.
	// OneLeft is the number of those with at most one replica. CopyRate is the current rate, in
	// bytes per second.
	Under       int64 `json:"under_replicated"`
	OneLeft     int64 `json:"one_left"`
	UnderBytes  int64 `json:"under_replicated_bytes"`
	CopyRate    int64 `json:"copy_bytes_per_s"`
	Copied      int64 `json:"copied"`
	CopiedBytes int64 `json:"copied_bytes"`
	Surplus     int64 `json:"surplus"`  // excess replicas here
	Trimmed     int64 `json:"trimmed"`  // excess replicas dropped
	Corrupt     int64 `json:"rotten"`   // corrupt replicas here
	Healed      int64 `json:"healed"`   // corrupt replicas replaced
	Unhealed    int64 `json:"unhealed"` // corrupt replicas that could not be replaced
	// Logs is the number of commit logs that the node appends to. LogReplicas is the smallest
	// number of replicas among them.
	Logs        int64 `json:"logs"`
	LogReplicas int64 `json:"log_replicas"`
	// LogUnder is the number of sealed extents of these logs that are under-replicated. They get no new
	// replicas: the tablets write their data to other files, and then they are removed.
	LogUnder int64 `json:"log_under_replicated"`
	// LogTimes are the times of the log replicas on all nodes in the last interval of activity, as this node's commit logs saw them.
	LogTimes []ReplicaTimes `json:"log_times"`
	// Pauses is how often the node's process did not run for half a second or longer in the last RefusalMinutes minutes, and PauseMaxMS the
	// longest of these times.
	Pauses     int64 `json:"pauses"`
	PauseMaxMS int64 `json:"pause_max_ms"`
	// FailedDisks are the data directories that have failed.
	FailedDisks []DiskStatus `json:"failed_disks"`
	// Quarantined and QuarantinedBytes are the garbage that waits for removal. Alarm is why the
	// search for garbage is stopped, or empty.
	Quarantined      int64  `json:"quarantined"`
	QuarantinedBytes int64  `json:"quarantined_bytes"`
	Alarm            string `json:"alarm,omitempty"`
	// Sweeps and SweepsFailed count the rounds of the garbage sweep that this node ran as master.
	// SweepRound is the number of the last one and SweptAt its end, in milliseconds on the wire.
	// SweptFound is the garbage that it found. SweptAside and SweptRemoved count what was
	// quarantined and what was removed from quarantine. SweepError is why the round failed.
	// SweepHalted is why the sweep is stopped until an operator resumes it; only the master reports
	// it.
	Sweeps            int64     `json:"sweeps"`
	SweepsFailed      int64     `json:"sweeps_failed"`
	SweepRound        int64     `json:"sweep_round"`
	SweptAt           time.Time `json:"swept"`
	SweptFound        int64     `json:"swept_found"`
	SweptAside        int64     `json:"swept_aside"`
	SweptRemoved      int64     `json:"swept_removed"`
	SweptRemovedBytes int64     `json:"swept_removed_bytes"`
	SweepError        string    `json:"sweep_error,omitempty"`
	SweepHalted       string    `json:"sweep_halted,omitempty"`
	// ScrubPosition is the fraction of its replicas that the current scrub pass has read, from 0 to
	// 1. ScrubbedAt is the end of the last pass, in milliseconds on the wire.
	ScrubPosition float64   `json:"scrub_position"`
	ScrubbedAt    time.Time `json:"scrubbed"`
	ScrubRate     int64     `json:"scrub_bytes_per_s"`
	ScrubBytes    int64     `json:"scrub_bytes"`
	ScrubFound    int64     `json:"scrub_found"`
	// Balancing means that the node is fuller than others and moves extents to them.
	Balancing   bool  `json:"balancing"`
	Moved       int64 `json:"moved"`
	MovedBytes  int64 `json:"moved_bytes"`
	BalanceRate int64 `json:"balance_bytes_per_s"`
	// Draining means that the node is draining. DrainExtents and DrainLogs count what it still holds
	// that is needed. Safe means that it holds none of these and can be removed for good.
	Draining     bool  `json:"leaving"`
	DrainExtents int64 `json:"drain_extents"`
	DrainLogs    int64 `json:"drain_logs"`
	Safe         bool  `json:"safe"`
}

func (n *NodeStore) fields() fields {
	return fields{
		{"node", &n.Node}, {"name", &n.Name}, {"error", &n.Error}, {"known", &n.Known}, {"extents", &n.Extents}, {"bytes", &n.Bytes},
		{"under_replicated", &n.Under}, {"one_left", &n.OneLeft}, {"under_replicated_bytes", &n.UnderBytes}, {"copy_bytes_per_s", &n.CopyRate},
		{"copied", &n.Copied}, {"copied_bytes", &n.CopiedBytes}, {"surplus", &n.Surplus}, {"trimmed", &n.Trimmed},
		{"rotten", &n.Corrupt}, {"healed", &n.Healed}, {"unhealed", &n.Unhealed}, {"logs", &n.Logs}, {"log_replicas", &n.LogReplicas},
		{"log_under_replicated", &n.LogUnder},
		{"log_times", &list[ReplicaTimes]{all: &n.LogTimes, fields: (*ReplicaTimes).fields, what: "times of log replicas", max: nodesMax}},
		{"quarantined", &n.Quarantined}, {"quarantined_bytes", &n.QuarantinedBytes}, {"alarm", &n.Alarm},
		{"sweeps", &n.Sweeps}, {"sweeps_failed", &n.SweepsFailed}, {"sweep_round", &n.SweepRound}, {"swept_ms", (*millis)(&n.SweptAt)},
		{"swept_found", &n.SweptFound}, {"swept_aside", &n.SweptAside}, {"swept_removed", &n.SweptRemoved},
		{"swept_removed_bytes", &n.SweptRemovedBytes}, {"sweep_error", &n.SweepError}, {"sweep_halted", &n.SweepHalted},
		{"scrub_position", &n.ScrubPosition}, {"scrubbed_ms", (*millis)(&n.ScrubbedAt)}, {"scrub_bytes_per_s", &n.ScrubRate},
		{"scrub_bytes", &n.ScrubBytes}, {"scrub_found", &n.ScrubFound}, {"balancing", &n.Balancing}, {"moved", &n.Moved},
		{"moved_bytes", &n.MovedBytes}, {"balance_bytes_per_s", &n.BalanceRate}, {"leaving", &n.Draining},
		{"drain_extents", &n.DrainExtents}, {"drain_logs", &n.DrainLogs}, {"safe", &n.Safe}, {"pauses", &n.Pauses}, {"pause_max_ms", &n.PauseMaxMS},
		{"failed_disks", &list[DiskStatus]{all: &n.FailedDisks, fields: (*DiskStatus).fields, what: "failed disks", max: disksMax}},
	}
}

func (s *StoreStatus) fields() fields {
	return fields{{"wanted", &s.ReplicationFactor}, {"nodes", &list[NodeStore]{all: &s.Nodes, fields: (*NodeStore).fields, what: "nodes", max: nodesMax}}}
}

// Append encodes the result.
func (s *StoreStatus) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode decodes the result.
func (s *StoreStatus) Decode(d *wire.Decoder) error {
	*s = StoreStatus{}
	return s.fields().decode(d)
}

// BlobFinding is an extent with missing or bad replicas.
type BlobFinding struct {
	Kind string `json:"kind"` // BlobOfUser, BlobOfTable, BlobOfBackup or BlobOfLog: the kind of its owner
	Name string `json:"name"` // of the blob, of the table, or of the node whose log it is
	ID   string `json:"id"`   // of the blob or log
	ExtentInfo
}

func (f *BlobFinding) fields() fields {
	return append(fields{{"kind", &f.Kind}, {"name", &f.Name}, {"id", &f.ID}}, f.ExtentInfo.fields()...)
}

// FsckStep is the result of blob_fsck: one step of a check of the whole block store.
type FsckStep struct {
	Next string // the argument of the next step; empty at the end
	// Done and Total are the progress of the check.
	Done, Total int64
	// Extents, Bytes and Replicas count what this step checked; Replicas counts the good ones.
	Extents, Bytes, Replicas int64
	Findings                 []BlobFinding
	// Unnamed lists blobs that nodes hold and nothing refers to. Blobs written in the last hour may
	// still get a reference.
	Unnamed []BlobInfo
	Silent  []string // names of nodes that did not list what they hold
}

// Bounds on what a client decodes of a step.
const (
	fsckFindingsMax = 100_000
	fsckUnnamedMax  = 100_000
)

func (s *FsckStep) fields() fields {
	return fields{
		{"next", &s.Next}, {"done", &s.Done}, {"total", &s.Total}, {"extents", &s.Extents}, {"bytes", &s.Bytes}, {"replicas", &s.Replicas},
		{"findings", &list[BlobFinding]{all: &s.Findings, fields: (*BlobFinding).fields, what: "findings", max: fsckFindingsMax}},
		{"unnamed", &list[BlobInfo]{all: &s.Unnamed, fields: (*BlobInfo).fields, what: "unnamed", max: fsckUnnamedMax}},
		{"silent", &texts{&s.Silent, "silent", nodesMax}},
	}
}

// Append encodes the result.
func (s *FsckStep) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode decodes the result.
func (s *FsckStep) Decode(d *wire.Decoder) error {
	*s = FsckStep{}
	return s.fields().decode(d)
}
