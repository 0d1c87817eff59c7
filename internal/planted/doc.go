// Package planted is the mistakes that tests of faults plant into the program, to show that they would
// find them. A program built without the tag plantedbugs has none: On is the constant false
// there, and the compiler leaves out what depends on it.
//
// With the tag, STELE_BUG names the mistakes that a process makes, separated by commas.
package planted

// A Bug is a mistake, by the name that STELE_BUG has for it.
type Bug string

// The mistakes.
const (
	// AckBeforeSync: a replica of a commit log acknowledges frames before it has written them.
	AckBeforeSync Bug = "ack-before-sync"
	// AckOneReplica: an append is acknowledged when one replica has it, not all.
	AckOneReplica Bug = "ack-one-replica"
	// LeaseNotChecked: a tablet server serves whether its lease is good or not.
	LeaseNotChecked Bug = "lease-not-checked"
	// LeaseFromAnswer: a session's lease is counted from when the answer came, not from
	// before the question was sent.
	LeaseFromAnswer Bug = "lease-from-answer"
	// NotFenced: a replica answers appends of a writer that is fenced as if it had taken them. Who asks
	// whether its lease is good does not come so far: it takes LeaseNotChecked as well to show.
	NotFenced Bug = "not-fenced"
	// LoadWithoutRuns: a tablet is loaded without what is in the logs of servers that are gone.
	LoadWithoutRuns Bug = "load-without-runs"
	// RedoTooFar: a minor compaction moves the redo point over what came while it ran.
	RedoTooFar Bug = "redo-too-far"
	// ClockAlone: who loads a tablet gives timestamps by the clock, whatever was given before.
	ClockAlone Bug = "clock-alone"
	// SplitWithoutBounds: the parts of a split tablet have its files, and not only their rows of them.
	SplitWithoutBounds Bug = "split-without-bounds"
	// UnloadWhileWritten: an unload does not stop writes before the last minor compaction.
	UnloadWhileWritten Bug = "unload-while-written"
	// CheckWithoutLatch: a read-modify-write does not keep others from its row.
	CheckWithoutLatch Bug = "check-without-latch"
	// MetadataUnchecked: a row of METADATA is replaced at whatever generation it is.
	MetadataUnchecked Bug = "metadata-unchecked"
	// ScanRepeats: a scan that lost its cursor begins anew.
	ScanRepeats Bug = "scan-repeats"
	// IncrementAgain: a client sends an increment again whose outcome is unknown.
	IncrementAgain Bug = "increment-again"
	// CacheForEver: a client never forgets where a tablet was.
	CacheForEver Bug = "cache-for-ever"
	// SchemaNotChecked: a tablet server goes by the schema that it has, whatever became of the table.
	SchemaNotChecked Bug = "schema-not-checked"
)
