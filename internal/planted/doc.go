// Package planted contains deliberate bugs, which fault tests enable to show that they would detect
// them. Without the build tag plantedbugs, On is the constant false and the compiler removes the
// code that depends on it.
//
// With the tag, STELE_BUG lists the enabled bugs, separated by commas.
package planted

// A Bug is a deliberate bug, by its name in STELE_BUG.
type Bug string

// The bugs.
const (
	// AckBeforeSync: a replica of a commit log acknowledges frames before it has written them.
	AckBeforeSync Bug = "ack-before-sync"
	// AckOneReplica: an append is acknowledged when one replica has it instead of all.
	AckOneReplica Bug = "ack-one-replica"
	// LeaseNotChecked: a tablet server serves without a valid lease.
	LeaseNotChecked Bug = "lease-not-checked"
	// LeaseFromAnswer: a session's lease starts when the answer arrived instead of when the request
	// was sent.
	LeaseFromAnswer Bug = "lease-from-answer"
	// NotFenced: a replica answers appends of a fenced writer as if it had accepted them. A server
	// that checks its lease does not get that far, so detection also requires LeaseNotChecked.
	NotFenced Bug = "not-fenced"
	// LoadWithoutRuns: a tablet is loaded without the log entries of failed servers.
	LoadWithoutRuns Bug = "load-without-runs"
	// RedoTooFar: a minor compaction moves the redo point past entries that arrived while it ran.
	RedoTooFar Bug = "redo-too-far"
	// ClockOnly: a newly loaded tablet assigns timestamps by the clock, regardless of those
	// assigned before.
	ClockOnly Bug = "clock-alone"
	// SplitWithoutBounds: the parts of a split tablet include all rows of its files instead of only
	// their own.
	SplitWithoutBounds Bug = "split-without-bounds"
	// UnloadWhileWritten: an unload does not stop writes before the last minor compaction.
	UnloadWhileWritten Bug = "unload-while-written"
	// CheckWithoutLatch: a read-modify-write does not lock its row.
	CheckWithoutLatch Bug = "check-without-latch"
	// MetadataUnchecked: a row of METADATA is replaced without a check of its generation.
	MetadataUnchecked Bug = "metadata-unchecked"
	// ScanRepeats: a scan that lost its cursor starts over.
	ScanRepeats Bug = "scan-repeats"
	// IncrementAgain: a client retries an increment with an unknown outcome.
	IncrementAgain Bug = "increment-again"
	// CacheForEver: a client never drops a cached tablet location.
	CacheForEver Bug = "cache-for-ever"
	// SchemaNotChecked: a tablet server uses the schema it has, even if the table has changed.
	SchemaNotChecked Bug = "schema-not-checked"
)
