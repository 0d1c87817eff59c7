package replog

import (
	"fmt"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
)

// space is the space that the extents of a log occupy, and that in its list.
type space struct{ writer *Writer }

// listFull reports whether the list has no space for another extent. Called with mu held.
func (x *space) listFull() bool {
	l, _ := x.writer.m.List()
	return l.Full(x.writer.m.Stranded())
}

// listFullError returns the error of appends that need another extent while the list has no space for one.
func listFullError() error {
	return fmt.Errorf("%w: %w: retry after tablets are written out", local.ErrDiskFull, logproto.ErrListFull)
}

// crowdedExtents is the number of extents of a log from which Unused reports that it is crowded.
const crowdedExtents = logproto.ExtentsMax / 2

// fullRatio is the part of an extent, as a divisor, that it may have left and count as full: 8 MiB of
// the usual 64 MiB, and a frame has at most 1 MiB.
const fullRatio = 8

// Unused returns the bytes of disk space, of one replica, that sealed extents have beside their data.
// Only extents that end after pos count. A writer that leaves an extent early, because a replica fails
// or is slow, leaves its file almost empty. What a full extent has left is less than a frame and does
// not count: a log of full extents has none. crowded means that so many extents end after pos that the list may become full.
func (x *space) Unused(pos int64) (bytes int64, crowded bool) {
	w := x.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	l, _ := w.m.List()
	capacity := w.logs.deps.Disks.ExtentBytes() - local.LogPageBytes
	end, n := l.Start, 0
	for _, e := range l.Extents {
		if e.Length == logproto.Open {
			break
		}
		if end += e.Length; end <= pos {
			continue
		}
		n++
		if left := capacity - e.Length; left > capacity/fullRatio {
			bytes += left
		}
	}
	return bytes, n >= crowdedExtents
}

// Extent returns the number of the extent that frames are sent to.
func (x *space) Extent() uint64 {
	w := x.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seq
}
