package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/btree"
)

// blob is a sealed blob in the index: its extents in this store. Guarded by extents.mu.
type blob struct {
	id    ID
	parts []part // by index; two of one index if a failing folder left one behind
}

// part is one extent's file.
type part struct {
	index        int
	of           int // the blob's number of extents if the name has it, otherwise 0
	length       int64
	folder       *folder
	created      time.Time
	holders      holderList
	createdRound uint64 // round of the sweep when it was written; 0 if found by Open
}

func lessBlob(a, b *blob) bool { return bytes.Compare(a.id[:], b.id[:]) < 0 }

func (p *part) path(id ID) string {
	return p.folder.blobPath(extentName(ExtentID{Blob: id, Index: p.index}, p.of))
}

func (p *part) info(id ID) ExtentInfo {
	x := ExtentID{Blob: id, Index: p.index}
	return ExtentInfo{ID: x, Length: p.length, Last: x.isLast(p.of), Created: p.created, Holders: p.holders.list(), Retired: p.folder.isRetired()}
}

// BlobInfo is what the index has of a blob.
type BlobInfo struct {
	ID      ID
	Length  int64 // bytes in the extents in this store
	Extents int   // in this store
	// Whole means that the store has all extents. It is false after a crash before Seal, while the
	// blob is being written, if a folder is missing, and if other extents are on other nodes.
	Whole   bool
	Created time.Time // when sealed, by the wall clock at the time
}

func (b *blob) info() BlobInfo {
	info := BlobInfo{ID: b.id}
	count := -1
	for i, p := range b.parts {
		if p.created.After(info.Created) {
			info.Created = p.created
		}
		count = max(count, p.of)
		if i > 0 && b.parts[i-1].index == p.index {
			continue
		}
		info.Length += p.length
		info.Extents++
	}
	info.Whole = info.Extents == count
	return info
}

// extents are the sealed extents in the store, by blob, and those being written.
type extents struct {
	*disks
	quarantine *quarantine

	// mu guards the index in it, and that of quarantine. Never held across I/O.
	mu struct {
		sync.Mutex
		blobs *btree.BTreeG[*blob]
		parts int // number of parts in all blobs
		// writing has the extents that are started and not sealed.
		writing map[ExtentID]bool
	}
}

func newExtents(d *disks, a *alarms) *extents {
	s := &extents{disks: d}
	s.mu.blobs = btree.NewG(32, lessBlob)
	s.mu.writing = map[ExtentID]bool{}
	s.quarantine = &quarantine{extents: s, alarms: a, all: btree.NewG(32, lessQuarantined), evictionFutile: map[*folder]time.Time{}}
	d.evict = s.quarantine.evictQuarantined
	return s
}

// Blobs lists the blobs, by ID. It includes blobs whose handle was lost in a crash just after Seal.
// Only the owner of the handles can distinguish garbage from blobs in use.
func (s *extents) Blobs() []BlobInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	infos := make([]BlobInfo, 0, s.mu.blobs.Len())
	s.mu.blobs.Ascend(func(b *blob) bool {
		infos = append(infos, b.info())
		return true
	})
	return infos
}

// ListExtents returns up to max extents, by blob and index, starting after the given one. The zero
// ExtentID with index -1 is before all extents.
func (s *extents) ListExtents(after ExtentID, max int) []ExtentInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []ExtentInfo
	s.mu.blobs.AscendGreaterOrEqual(&blob{id: after.Blob}, func(b *blob) bool {
		for i := range b.parts {
			p := &b.parts[i]
			if b.id == after.Blob && p.index <= after.Index || i > 0 && b.parts[i-1].index == p.index {
				continue
			}
			if len(infos) == max {
				return false
			}
			infos = append(infos, p.info(b.id))
		}
		return true
	})
	return infos
}

// Extents returns the number of extent files in the index, without those in quarantine.
func (s *extents) Extents() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.parts
}

// ExtentInfo returns the index entry of an extent, or ErrNoExtent. It reads no file.
func (s *extents) ExtentInfo(id ExtentID) (ExtentInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if parts := s.partsLocked(id); len(parts) > 0 {
		return parts[0].info(id.Blob), nil
	}
	return ExtentInfo{}, s.withUnreadable(ErrNoExtent)
}

// partsLocked returns the files of an extent. The slice aliases the index.
func (s *extents) partsLocked(id ExtentID) []part {
	b, ok := s.mu.blobs.Get(&blob{id: id.Blob})
	if !ok {
		return nil
	}
	return b.of(id.Index)
}

func (b *blob) of(index int) []part {
	i, end := b.span(index)
	return b.parts[i:end]
}

// span returns the range of the parts with an index, or where it would be.
func (b *blob) span(index int) (start, end int) {
	start, _ = slices.BinarySearchFunc(b.parts, index, func(p part, index int) int { return p.index - index })
	for end = start; end < len(b.parts) && b.parts[end].index == index; end++ {
	}
	return start, end
}

// addPart makes p the extent's only file in the index.
func (s *extents) addPart(id ID, p part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.createdRound = s.round.Load()
	s.setPartsLocked(ExtentID{Blob: id, Index: p.index}, p)
	delete(s.mu.writing, ExtentID{Blob: id, Index: p.index})
}

// setPartsLocked replaces the files of an extent; no files remove it.
func (s *extents) setPartsLocked(id ExtentID, parts ...part) {
	b, ok := s.mu.blobs.Get(&blob{id: id.Blob})
	if !ok {
		b = &blob{id: id.Blob}
	}
	i, end := b.span(id.Index)
	b.parts = slices.Replace(b.parts, i, end, parts...)
	s.mu.parts += len(parts) - (end - i)
	switch {
	case len(b.parts) == 0:
		s.mu.blobs.Delete(b)
	case !ok:
		s.mu.blobs.ReplaceOrInsert(b)
	}
}

// Delete removes a blob's extents, also those in quarantine. Open readers continue to work. A
// deletion is not synced: after a power loss the blob may exist again. ErrNoBlob if there is none;
// ErrFolderRetired if an extent is in a retired folder, and then the blob is still listed;
// ErrReadOnly; ErrClosed.
func (s *extents) Delete(ctx context.Context, id ID) error {
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("delete blob %s: %w", id, err)
	}
	defer s.end()
	s.mu.Lock()
	var indexes []int
	if b, ok := s.mu.blobs.Get(&blob{id: id}); ok {
		for _, p := range b.parts {
			indexes = append(indexes, p.index)
		}
	}
	s.quarantine.all.AscendGreaterOrEqual(&quarantined{id: ExtentID{Blob: id}}, func(q *quarantined) bool {
		if q.id.Blob == id {
			indexes = append(indexes, q.id.Index)
		}
		return q.id.Blob == id
	})
	s.mu.Unlock()
	if len(indexes) == 0 {
		return fmt.Errorf("delete blob %s: %w", id, ErrNoBlob)
	}
	var errs []error
	slices.Sort(indexes)
	for _, i := range slices.Compact(indexes) {
		if err := s.dropEvenQuarantined(ExtentID{Blob: id, Index: i}); err != nil && !errors.Is(err, ErrNoExtent) {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("delete blob %s: %w", id, errors.Join(errs...))
	}
	return nil
}

// DropExtent removes one extent, in quarantine or not, as Delete does a blob. ErrNoExtent.
func (s *extents) DropExtent(ctx context.Context, id ExtentID) error {
	err := s.begin(ctx)
	if err == nil {
		defer s.end()
		err = s.dropEvenQuarantined(id)
	}
	if err != nil {
		return fmt.Errorf("drop extent %s: %w", id, err)
	}
	return nil
}

// dropEvenQuarantined removes an extent, in quarantine or not.
func (s *extents) dropEvenQuarantined(id ExtentID) error {
	err := s.dropIf(id, func(*part) error { return nil })
	if errors.Is(err, ErrNoExtent) {
		s.quarantine.op.Lock()
		defer s.quarantine.op.Unlock()
		return s.quarantine.dropQuarantined(id)
	}
	return err
}

// DropExtentIf removes an extent if its holder list is still h. The check and the removal from the
// index are atomic with respect to SetHolders. An extent in quarantine stays there. ErrStaleHolders
// if the list differs, ErrExtentExists while the extent is being replaced, ErrNoExtent. In a
// retired folder the file stays, and the extent is gone until the store is opened again.
func (s *extents) DropExtentIf(ctx context.Context, id ExtentID, h Holders) error {
	err := s.begin(ctx)
	if err == nil {
		defer s.end()
		list := newHolderList(h)
		err = s.dropIf(id, func(p *part) error {
			switch {
			case p.holders != list:
				return ErrStaleHolders
			case s.mu.writing[id]:
				return ErrExtentExists
			}
			return nil
		})
		if errors.Is(err, ErrFolderRetired) && !errors.Is(err, ErrNoExtent) {
			s.mu.Lock()
			s.setPartsLocked(id)
			s.mu.Unlock()
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("drop extent %s: %w", id, err)
	}
	return nil
}

// dropIf removes an extent if should returns nil for its index entry. The extent cannot be written
// again meanwhile.
func (s *extents) dropIf(id ExtentID, should func(*part) error) error {
	s.mu.Lock()
	parts := slices.Clone(s.partsLocked(id))
	if len(parts) == 0 {
		s.mu.Unlock()
		return s.withUnreadable(ErrNoExtent)
	}
	if err := should(&parts[0]); err != nil {
		s.mu.Unlock()
		return err
	}
	s.setPartsLocked(id)
	if !s.mu.writing[id] {
		s.mu.writing[id] = true
		defer s.unreserve(id)
	}
	s.mu.Unlock()
	var left []part
	var errs []error
	for i := range parts {
		p := &parts[i]
		if err := p.folder.remove(p.path(id.Blob)); err != nil {
			errs = append(errs, err)
			left = append(left, *p)
			continue
		}
		p.folder.holders.forget(id, p.holders)
	}
	if len(left) > 0 {
		s.mu.Lock()
		s.setPartsLocked(id, left...)
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

// SetHolders durably replaces the holder list of an extent if h has a higher epoch than the current
// list. Setting the same list again does nothing. ErrNoExtent; ErrStaleHolders if the epoch is
// lower, or equal with other nodes; ErrFolderRetired; ErrDiskFull.
func (s *extents) SetHolders(ctx context.Context, id ExtentID, h Holders) error {
	err := s.begin(ctx)
	if err == nil {
		defer s.end()
		err = s.setHolders(id, h)
	}
	if err != nil {
		return fmt.Errorf("set holders of extent %s: %w", id, err)
	}
	return nil
}

func (s *extents) setHolders(id ExtentID, h Holders) error {
	if err := h.Validate(); err != nil {
		return err
	}
	list := newHolderList(h)
	s.mu.Lock()
	parts := s.partsLocked(id)
	var f *folder
	var old holderList
	if len(parts) > 0 {
		f, old = parts[0].folder, parts[0].holders
	}
	s.mu.Unlock()
	switch {
	case f == nil:
		return s.withUnreadable(ErrNoExtent)
	case old == list:
		return nil
	case list.epoch <= old.epoch:
		return fmt.Errorf("epoch %d after %d: %w", list.epoch, old.epoch, ErrStaleHolders)
	}
	if err := f.holders.append(id, h); err != nil {
		if f.failed(err); f.isRetired() {
			return f.retiredError()
		}
		return fullError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	parts = s.partsLocked(id)
	if len(parts) == 0 || parts[0].folder != f || parts[0].holders.epoch >= list.epoch {
		f.holders.forget(id, list)
		return nil
	}
	f.holders.forget(id, parts[0].holders)
	parts[0].holders = list
	return nil
}

// loadBlobs adds a folder's extents to the index, from file names and sizes.
func (s *extents) loadBlobs(f *folder, names []string) error {
	for _, name := range names {
		id, of, ok := parseExtentName(name)
		if !ok {
			if _, err := s.quarantine.loadQuarantined(f, name); err != nil {
				return err
			}
			continue
		}
		size, mod, err := f.fs.Stat(f.blobPath(name))
		if err != nil {
			return err
		}
		// A file of an invalid size is damaged. OpenExtent and Verify report it.
		length, _ := payloadBytes(size)
		p := part{index: id.Index, of: of, length: length, folder: f, created: mod}
		s.mu.Lock()
		s.setPartsLocked(id, append(slices.Clone(s.partsLocked(id)), p)...)
		s.mu.Unlock()
	}
	return nil
}
