package simdisk

import "time"

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events. Those up to OpLock are operations.
const (
	OpCreate EventKind = iota + 1
	OpOpen
	OpRead
	OpWrite
	OpSync
	OpStartSync
	OpTruncate
	OpPreallocate
	OpRename
	OpRemove
	OpMkdir
	OpReadDir
	OpStat
	OpSyncDir
	OpLock
	ProcessKilled
	PowerLost
	Corrupted
)

var eventNames = [...]string{
	"", "create", "open", "read", "write", "sync", "start-sync", "truncate", "preallocate", "rename", "remove", "mkdir", "read-dir",
	"stat", "sync-dir", "lock", "process-killed", "power-lost", "corrupted",
}

// String returns the name of the kind.
func (k EventKind) String() string { return eventNames[k] }

// Event is an operation that ended, or a fault.
type Event struct {
	At       time.Duration // by Config.Now
	Name     string
	To       string // OpRename
	Off, Len int64  // OpWrite, OpRead; Len is the size for OpTruncate and OpPreallocate
	Sum      uint64 // xxHash of the bytes of OpWrite
	Kind     EventKind
	Failed   bool
}

func (d *Disk) emitLocked(e Event) {
	if d.cfg.Events != nil {
		e.At = d.cfg.Now()
		d.cfg.Events(e)
	}
}
