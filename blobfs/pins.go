package blobfs

import (
	"bytes"
	"slices"
	"sync"

	"github.com/google/btree"
)

// pins are the blobs that are in use on this node, which no sweep touches, on any node: those written here
// until they are released, those that are open, and those that somebody has pinned.
type pins struct {
	// mu guards what follows. Never held across I/O.
	mu     sync.Mutex
	byBlob *btree.BTreeG[*pin]
}

type pin struct {
	blob    ID
	written bool // here, and not released
	uses    int
}

func (p *pins) init() {
	p.byBlob = btree.NewG(32, func(a, b *pin) bool { return bytes.Compare(a.blob[:], b.blob[:]) < 0 })
}

// change changes a blob's pin, makes it if there is none, and removes it if it has no reason left.
func (p *pins) change(blob ID, f func(*pin)) {
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

func (p *pins) has(blob ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byBlob.Has(&pin{blob: blob})
}

// list returns up to max blobs, sorted, from the first after the one given.
func (p *pins) list(after ID, max int) []ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []ID
	p.byBlob.AscendGreaterOrEqual(&pin{blob: after}, func(x *pin) bool {
		if x.blob != after && len(ids) < max {
			ids = append(ids, x.blob)
		}
		return len(ids) < max
	})
	return slices.Clip(ids)
}

// Pin keeps a blob from being swept as garbage until Unpin, as long as this process lives. Pins are counted. An
// open Reader pins its blob by itself.
func (s *Store) Pin(id ID) { s.pins.change(id, func(p *pin) { p.uses++ }) }

// Unpin takes back one Pin.
func (s *Store) Unpin(id ID) { s.pins.change(id, func(p *pin) { p.uses-- }) }

// Release tells that a blob written here is now named by the roots of the sweep, or is not wanted. Until then, or until
// this process ends, it is in use, whether they name it or not: whoever writes blobs has to release each that
// was sealed. An aborted one needs no release.
func (s *Store) Release(id ID) { s.pins.change(id, func(p *pin) { p.written = false }) }
