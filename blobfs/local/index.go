package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// blob is what the store knows of a sealed blob without reading it: its extents
// that are here. It is replaced, never changed.
type blob struct {
	length  int64 // sum of the parts
	count   int   // extents that the blob has
	created time.Time
	parts   []part // by index; two of one index if a failing folder left one behind
}

// part is one extent's file.
type part struct {
	index  int
	length int64
	folder *folder
}

func (p part) path(id ID, count int) string {
	return p.folder.blobPath(extentName(id, p.index, count))
}

// BlobInfo is what the store knows of a blob without reading it.
type BlobInfo struct {
	ID      ID
	Length  int64 // bytes in the extents that are here
	Extents int   // that are here
	// Whole tells that all extents are here. It is false for a blob whose
	// Seal was cut short by a crash, and for one of which a folder is missing.
	Whole   bool
	Created time.Time // when sealed, by the clock of then
}

// Blobs lists the blobs, by ID. A blob that was sealed without its handle
// having been kept, because of a crash just then, is among them: to tell garbage
// from blobs in use is the task of whoever keeps the handles.
func (s *Store) Blobs() []BlobInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	infos := make([]BlobInfo, 0, len(s.mu.blobs))
	for id, b := range s.mu.blobs {
		info := BlobInfo{ID: id, Created: b.created}
		for i, p := range b.parts {
			if i > 0 && b.parts[i-1].index == p.index {
				continue
			}
			info.Length += p.length
			info.Extents++
		}
		info.Whole = info.Extents == b.count
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b BlobInfo) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return infos
}

func (s *Store) addBlob(id ID, b *blob) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.blobs[id] = b
}

// Delete removes a blob's extents. Readers that have it open go on reading. A
// deletion is not synced: a blob may come back after a power loss, and be
// deleted again. ErrNoBlob if there is none; ErrFolderRetired if an extent lies in a
// folder that takes no writes: the blob is then still listed. ErrReadOnly, ErrClosed.
func (s *Store) Delete(ctx context.Context, id ID) error {
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("delete blob %s: %w", id, err)
	}
	defer s.end()
	s.mu.Lock()
	b := s.mu.blobs[id]
	delete(s.mu.blobs, id)
	s.mu.Unlock()
	if b == nil {
		return fmt.Errorf("delete blob %s: %w", id, ErrNoBlob)
	}
	left := &blob{count: b.count, created: b.created}
	var errs []error
	for _, p := range b.parts {
		if err := p.folder.remove(p.path(id, b.count)); err != nil {
			errs = append(errs, err)
			left.parts = append(left.parts, p)
			left.length += p.length
		}
	}
	if len(errs) == 0 {
		return nil
	}
	s.addBlob(id, left)
	return fmt.Errorf("delete blob %s: %w", id, errors.Join(errs...))
}

// loadBlobs lists a folder's extents into blobs. Names and sizes tell all that is needed.
func loadBlobs(f *folder, names []string, blobs map[ID]*blob) error {
	for _, name := range names {
		id, index, count, ok := parseExtentName(name)
		if !ok {
			continue
		}
		size, mod, err := f.fs.Stat(f.blobPath(name))
		if err != nil {
			return err
		}
		b := blobs[id]
		if b == nil {
			b = &blob{count: count}
			blobs[id] = b
		}
		// A file of an odd size is damaged; opening the blob or Verify will say so.
		length, _ := payloadBytes(size)
		b.parts = append(b.parts, part{index: index, length: length, folder: f})
		b.length += length
		if mod.After(b.created) {
			b.created = mod
		}
		b.count = max(b.count, count)
	}
	return nil
}
