package local

import (
	"context"
	"fmt"
	"slices"
)

// ReplaceExtent starts a replacement for an existing extent that is corrupt or in a retired folder.
// Seal puts the new file in the place of the old one; until then the old one is listed and read. If
// the extent is dropped in between, Seal returns ErrNoExtent and the new file is removed. A newer
// holder list set in between is kept. The errors are those of CreateExtent, and ErrNoExtent.
func (s *extents) ReplaceExtent(ctx context.Context, id ExtentID, offset int64) (*ExtentWriter, error) {
	if err := s.begin(ctx); err != nil {
		return nil, fmt.Errorf("replace extent %s: %w", id, err)
	}
	defer s.end()
	w, err := s.newExtentWriter(id, offset, 0, true)
	if err != nil {
		return nil, fmt.Errorf("replace extent %s: %w", id, err)
	}
	return w, nil
}

// replacePart makes p the extent's file, in place of its existing files. The epoch of the holder
// list never decreases.
func (s *extents) replacePart(id ID, p part) error {
	x := ExtentID{Blob: id, Index: p.index}
	var old []part
	for {
		s.mu.Lock()
		old = slices.Clone(s.partsLocked(x))
		if len(old) == 0 || old[0].holders.epoch <= p.holders.epoch {
			break
		}
		list := old[0].holders
		s.mu.Unlock()
		if err := p.folder.holders.append(x, list.list()); err != nil {
			p.folder.failed(err)
			return err
		}
		p.holders = list
	}
	if len(old) == 0 {
		s.mu.Unlock()
		return ErrNoExtent
	}
	p.createdRound, p.created = old[0].createdRound, old[0].created
	s.setPartsLocked(x, p)
	delete(s.mu.writing, x)
	s.mu.Unlock()
	for i := range old {
		o := &old[i]
		o.folder.holders.forget(x, o.holders)
		if o.path(id) != p.path(id) {
			// In a retired folder the file stays. If an extent has two files, the valid one is
			// read.
			_ = o.folder.remove(o.path(id))
		}
	}
	return nil
}

// listsFile reports whether path is the file of a listed extent.
func (s *extents) listsFile(x ExtentID, path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.partsLocked(x), func(p part) bool { return p.path(x.Blob) == path })
}
