package world

import (
	"errors"
	"time"

	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/voter"
	"github.com/steledb/stele/raftmeta/storage"
)

// hostMarks is what judges know about a host.
type hostMarks struct {
	id    string // of the last node that served
	gone  bool   // removed from the cluster for good
	waits string // what the start of the node waits for
	// trouble is set from a fault of the disk until faults end; troubledBy is the process that ran
	// then.
	trouble    bool
	troubledBy int
	corrupted  bool // stored sectors have changed
	starved    int  // the last process whose goroutines were late by as much as a disk that has stalled
	broken     bool // no node can start on the disk, since a file of which it has the only copy is corrupt
	replaced   int  // disks
}

// troubled records a fault of the host's disk.
func (h *host) troubled() { h.trouble = true }

// sound records that the disk has no fault any more. The process that runs may still end due to one.
func (h *host) sound() {
	if h.trouble {
		h.trouble, h.troubledBy = false, h.process
	}
}

// stallLeast is the time after which a voter takes its disk for stalled.
const stallLeast = 3 * time.Second

// judgeExit judges the end of a process that was not stopped: it needs a fault of the disk, a removal,
// or a recovery of the lock service that old voters came before (SW5).
func (h *host) judgeExit(process int, err error) {
	if errors.Is(err, voter.ErrStillRuns) {
		h.w.count("recoveries undone")
		return
	}
	h.broken = h.corrupted && (errors.As(err, new(*storage.CorruptError)) || errors.As(err, new(*identity.CorruptError)))
	late := process == h.starved && errors.Is(err, storage.ErrStalled) // the goroutine of a write was
	if h.gone || h.trouble || h.corrupted || process == h.troubledBy || late {
		h.w.count("exits with a cause")
		return
	}
	h.w.fail("SW5 exits: %s, process %d, ended by itself: %v", h.name, process, err)
}
