package gc

import (
	"bytes"
	"slices"
	"sync"

	"github.com/google/btree"
	"github.com/steledb/stele/blobfs/local"
)

// Pins are the blobs in use on this node, which garbage collection keeps on every node: blobs
// written here and not released, open blobs, and pinned blobs.
type Pins struct {
	// mu guards what follows. Never held across I/O.
	mu     sync.Mutex
	byBlob *btree.BTreeG[*pin]
}

type pin struct {
	blob    local.ID
	written bool // written here and not released
	uses    int
}

// NewPins returns pins of no blobs.
func NewPins() *Pins {
	return &Pins{byBlob: btree.NewG(32, func(a, b *pin) bool { return bytes.Compare(a.blob[:], b.blob[:]) < 0 })}
}

// change applies f to a blob's pin, creates it if there is none, and removes it if it is unused.
func (p *Pins) change(blob local.ID, f func(*pin)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x, ok := p.byBlob.Get(&pin{blob: blob})
	if !ok {
		x = &pin{blob: blob}
	}
	f(x)
	switch {
	case !x.written && x.uses <= 0:
		p.byBlob.Delete(x)
	case !ok:
		p.byBlob.ReplaceOrInsert(x)
	}
}

func (p *Pins) has(blob local.ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byBlob.Has(&pin{blob: blob})
}

// list returns up to max pinned blobs, sorted, from the first after the given one.
func (p *Pins) list(after local.ID, max int) []local.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []local.ID
	p.byBlob.AscendGreaterOrEqual(&pin{blob: after}, func(x *pin) bool {
		if x.blob != after && len(ids) < max {
			ids = append(ids, x.blob)
		}
		return len(ids) < max
	})
	return slices.Clip(ids)
}

// Pin keeps a blob from garbage collection until Unpin, or until this process ends. Pins are
// counted. An open Reader pins its blob.
func (p *Pins) Pin(id local.ID) { p.change(id, func(x *pin) { x.uses++ }) }

// Unpin undoes one Pin.
func (p *Pins) Unpin(id local.ID) { p.change(id, func(x *pin) { x.uses-- }) }

// PinWritten keeps a blob that is written here until Release.
func (p *Pins) PinWritten(id local.ID) { p.change(id, func(x *pin) { x.written = true }) }

// Release ends the pin of a blob written here, because the roots name it now or because it is not
// needed. A blob that another node will name within less than Config.Warn may be released before: the
// sorted runs of a log are. Without Release the blob counts as in use until this process ends. A writer
// has to release each blob that it sealed; an aborted one needs no release.
func (p *Pins) Release(id local.ID) { p.change(id, func(x *pin) { x.written = false }) }
