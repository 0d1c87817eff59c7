package local

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/btree"
)

// quarantine is the extents of blobs that nothing seems to need. They are no more listed, and are to be
// removed after some time; until then they can be had back.
type quarantine struct {
	// op makes all that renames and removes their files take turns. Held across I/O. Taken before mu.
	op sync.Mutex
	// all is sorted by ID. Guarded by Store.mu.
	all *btree.BTreeG[*quarantined]
	// relieved is when nothing was found to make room with. Guarded by op.
	relieved time.Time
}

// quarantined is an extent in quarantine. Guarded by Store.mu.
type quarantined struct {
	id    ExtentID
	round uint64
	since time.Time // with a monotonic reading
	// confirmed is the round that found again that nothing needs it, 0 if none did.
	confirmed uint64
	parts     []quarantinedPart
}

// quarantinedPart is a file and what is appended to its name.
type quarantinedPart struct {
	part
	suffix string
}

func (q *quarantinedPart) quarantinePath(id ID) string { return q.part.path(id) + q.suffix }

// QuarantinedExtent is what the store knows of an extent in quarantine.
type QuarantinedExtent struct {
	ExtentInfo
	Round     uint64    // of the sweep that put it there
	Since     time.Time // never in the future; by a monotonic clock since the store was opened
	FileBytes int64
}

func lessQuarantined(a, b *quarantined) bool { return compareExtents(a.id, b.id) < 0 }

func compareExtents(a, b ExtentID) int {
	return cmp.Or(bytes.Compare(a.Blob[:], b.Blob[:]), cmp.Compare(a.Index, b.Index))
}

// quarantineMark stands between the name of a sealed extent and what tells of its quarantine.
const quarantineMark = ".q"

func quarantineSuffix(round uint64, since time.Time) string {
	return fmt.Sprintf("%s%d-%d", quarantineMark, round, since.Unix())
}

// parseQuarantineName takes what quarantineSuffix returns off a name, and nothing else.
func parseQuarantineName(name string) (base string, round uint64, since time.Time, ok bool) {
	i := strings.LastIndex(name, quarantineMark)
	if i < 0 {
		return "", 0, time.Time{}, false
	}
	base = name[:i]
	number, seconds, _ := strings.Cut(name[i+len(quarantineMark):], "-")
	round, err := strconv.ParseUint(number, 10, 64)
	unix, errUnix := strconv.ParseInt(seconds, 10, 64)
	since = time.Unix(unix, 0)
	ok = err == nil && errUnix == nil && base+quarantineSuffix(round, since) == name
	return base, round, since, ok
}

// loadQuarantined takes note of a file that was found when the store is opened; false if it is none.
func (s *Store) loadQuarantined(f *folder, name string) (bool, error) {
	base, round, wall, ok := parseQuarantineName(name)
	id, of, okBase := parseExtentName(base)
	if !ok || !okBase {
		return false, nil
	}
	size, mod, err := f.fs.Stat(f.blobPath(name))
	if err != nil {
		return true, err
	}
	length, _ := payloadBytes(size)
	p := part{index: id.Index, of: of, length: length, folder: f, created: mod}
	// A clock that was set back makes it wait longer; from now on only what passes counts.
	now := time.Now()
	since := now.Add(-max(now.Sub(wall), 0))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addQuarantinedLocked(&quarantined{id: id, round: round, since: since, parts: []quarantinedPart{{p, name[len(base):]}}})
	return true, nil
}

// addQuarantinedLocked adds files of an extent; of two times of quarantine the later counts.
func (s *Store) addQuarantinedLocked(q *quarantined) {
	if old, ok := s.quarantine.all.Get(q); ok {
		q.parts = append(old.parts, q.parts...)
		q.round = max(q.round, old.round)
		if old.since.After(q.since) {
			q.since = old.since
		}
	}
	s.quarantine.all.ReplaceOrInsert(q)
}

// reviveSplit takes extents out of quarantine of which some files are not in it: a crash came
// between two renames.
func (s *Store) reviveSplit() {
	if s.cfg.ReadOnly {
		return
	}
	s.mu.Lock()
	var ids []ExtentID
	s.quarantine.all.Ascend(func(q *quarantined) bool {
		if len(s.partsLocked(q.id)) > 0 {
			ids = append(ids, q.id)
		}
		return true
	})
	s.mu.Unlock()
	for _, id := range ids {
		if err := s.revive(id); err != nil {
			s.cfg.Logger.Warn("extent cannot be taken out of quarantine", "extent", id.String(), "err", err)
		}
	}
}

func (s *Store) quarantinedLocked(id ExtentID) *quarantined {
	q, _ := s.quarantine.all.Get(&quarantined{id: id})
	return q
}

// InQuarantine tells whether an extent is in quarantine.
func (s *Store) InQuarantine(id ExtentID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quarantinedLocked(id) != nil
}

// QuarantineExtent puts an extent into quarantine: it is not listed and not statted any more, and OpenExtent takes it
// out again. round is the sweep's, for DropQuarantined. Who has it open reads on. A quarantine is
// not synced: a power loss may undo it. ErrNoExtent; ErrFolderRetired, ErrReadOnly, ErrClosed.
func (s *Store) QuarantineExtent(ctx context.Context, id ExtentID, round uint64) error {
	err := s.begin(ctx)
	if err == nil {
		defer s.end()
		err = s.quarantineExtent(id, round)
	}
	if err != nil {
		return fmt.Errorf("quarantine extent %s: %w", id, err)
	}
	return nil
}

func (s *Store) quarantineExtent(id ExtentID, round uint64) error {
	s.quarantine.op.Lock()
	defer s.quarantine.op.Unlock()
	now := time.Now()
	q := &quarantined{id: id, round: round, since: now}
	s.mu.Lock()
	parts := slices.Clone(s.partsLocked(id))
	s.setPartsLocked(id)
	for _, p := range parts {
		q.parts = append(q.parts, quarantinedPart{p, quarantineSuffix(round, now)})
	}
	if len(parts) > 0 {
		s.addQuarantinedLocked(q)
	}
	s.mu.Unlock()
	if len(parts) == 0 {
		return s.whyMissing(ErrNoExtent)
	}
	for i := len(q.parts) - len(parts); i < len(q.parts); i++ {
		p := &q.parts[i]
		if err := p.folder.rename(p.path(id.Blob), p.quarantinePath(id.Blob)); err != nil {
			// What was renamed is renamed back, as far as it can be.
			for ; i < len(q.parts); i++ {
				q.parts[i].suffix = ""
			}
			return errors.Join(err, s.revive(id))
		}
	}
	return nil
}

// ReviveExtent takes an extent out of quarantine, durably. ErrNoExtent if it is not there;
// ErrFolderRetired, ErrReadOnly, ErrClosed.
func (s *Store) ReviveExtent(ctx context.Context, id ExtentID) error {
	err := s.begin(ctx)
	if err == nil {
		defer s.end()
		s.quarantine.op.Lock()
		err = s.revive(id)
		s.quarantine.op.Unlock()
	}
	if err != nil {
		return fmt.Errorf("revive extent %s: %w", id, err)
	}
	return nil
}

// revive lists the extent again, also if its files cannot all be renamed. Called with op held, or
// when nobody else knows the store.
func (s *Store) revive(id ExtentID) error {
	s.mu.Lock()
	q := s.quarantinedLocked(id)
	s.mu.Unlock()
	if q == nil {
		return s.whyMissing(ErrNoExtent)
	}
	var back []part
	var left []quarantinedPart
	var errs []error
	for _, p := range q.parts {
		var err error
		if p.suffix != "" {
			err = p.folder.rename(p.quarantinePath(id.Blob), p.path(id.Blob))
		}
		if err != nil {
			errs = append(errs, err)
			left = append(left, p)
			continue
		}
		if err := p.folder.syncBlobNames(); err != nil {
			errs = append(errs, err)
		}
		p.born = s.round.Load()
		back = append(back, p.part)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setPartsLocked(id, append(back, s.partsLocked(id)...)...)
	if s.quarantine.all.Delete(q); len(left) > 0 {
		s.addQuarantinedLocked(&quarantined{id: id, round: q.round, since: q.since, parts: left})
	}
	return errors.Join(errs...)
}

// openQuarantined opens an extent that is in quarantine for somebody who knows it by its checksum, so that it is
// needed, takes it out and raises the alarm. ErrNoExtent if it is not there, or another one.
func (s *Store) openQuarantined(id ExtentID, right func(*extentMeta) bool) (*ExtentReader, error) {
	s.quarantine.op.Lock()
	defer s.quarantine.op.Unlock()
	s.mu.Lock()
	q := s.quarantinedLocked(id)
	s.mu.Unlock()
	if q == nil {
		return nil, ErrNoExtent
	}
	for _, p := range q.parts {
		x, err := openExtentFile(p.folder.fs, p.quarantinePath(id.Blob))
		if err != nil {
			continue
		}
		if x.meta.blob != id.Blob || x.meta.index != id.Index || !right(&x.meta) {
			x.Close()
			continue
		}
		if s.cfg.ReadOnly {
			return x, nil
		}
		x.name = p.path(id.Blob)
		s.RaiseAlarm(fmt.Sprintf("extent %s was read after %v in quarantine, where round %d of the sweep had put it",
			id, time.Since(q.since).Round(time.Second), q.round))
		if err := s.revive(id); err != nil {
			s.cfg.Logger.Error("extent cannot be taken out of quarantine", "extent", id.String(), "err", err)
		}
		return x, nil
	}
	return nil, ErrNoExtent
}

// Quarantined returns up to max of the extents in quarantine, by blob and index, from the first after the
// one given.
func (s *Store) Quarantined(after ExtentID, max int) []QuarantinedExtent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []QuarantinedExtent
	ascendAfter(s.quarantine.all, after, func(q *quarantined) bool {
		if len(all) == max {
			return false
		}
		x := QuarantinedExtent{ExtentInfo: q.parts[0].info(q.id.Blob), Round: q.round, Since: q.since}
		for _, p := range q.parts {
			x.FileBytes += extentFileBytes(p.length)
		}
		all = append(all, x)
		return true
	})
	return all
}

// ConfirmQuarantined notes that a later round of the sweep found as well that nothing needs an extent. Only such
// ones are removed to make room.
func (s *Store) ConfirmQuarantined(id ExtentID, round uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.quarantinedLocked(id); q != nil && round > q.round {
		q.confirmed = max(q.confirmed, round)
	}
}

// DropQuarantined removes an extent that is in quarantine. ErrNoExtent if it is not; ErrFolderRetired,
// ErrReadOnly, ErrClosed.
func (s *Store) DropQuarantined(ctx context.Context, id ExtentID) error {
	err := s.begin(ctx)
	if err == nil {
		defer s.end()
		s.quarantine.op.Lock()
		err = s.dropQuarantined(id)
		s.quarantine.op.Unlock()
	}
	if err != nil {
		return fmt.Errorf("drop extent %s from quarantine: %w", id, err)
	}
	return nil
}

// dropQuarantined removes an extent's files. Called with op held.
func (s *Store) dropQuarantined(id ExtentID) error {
	s.mu.Lock()
	q := s.quarantinedLocked(id)
	if q != nil {
		s.quarantine.all.Delete(q)
	}
	s.mu.Unlock()
	if q == nil {
		return s.whyMissing(ErrNoExtent)
	}
	var left []quarantinedPart
	var errs []error
	for i := range q.parts {
		p := &q.parts[i]
		if err := p.folder.remove(p.quarantinePath(id.Blob)); err != nil {
			errs = append(errs, err)
			left = append(left, *p)
			continue
		}
		p.folder.holders.forget(id, p.holders)
	}
	if len(left) > 0 {
		s.mu.Lock()
		s.addQuarantinedLocked(&quarantined{id: id, round: q.round, since: q.since, confirmed: q.confirmed, parts: left})
		s.mu.Unlock()
	}
	return errors.Join(errs...)
}

// relieveAfter is how long a search for something to make room with is not repeated that found nothing.
const relieveAfter = 10 * time.Second

// relieve removes extents in quarantine from a folder until it has enough room, the oldest first; none that
// was there for less than the minimum, or that only one round of the sweep has found.
func (s *Store) relieve(f *folder, enough func() bool) {
	s.mu.Lock()
	n := s.quarantine.all.Len()
	s.mu.Unlock()
	if n == 0 {
		return
	}
	s.quarantine.op.Lock()
	defer s.quarantine.op.Unlock()
	if time.Since(s.quarantine.relieved) < relieveAfter || enough() {
		return
	}
	var old []*quarantined
	s.mu.Lock()
	s.quarantine.all.Ascend(func(q *quarantined) bool {
		here := slices.ContainsFunc(q.parts, func(p quarantinedPart) bool { return p.folder == f })
		if here && q.confirmed > q.round && time.Since(q.since) >= s.cfg.QuarantineMin {
			old = append(old, q)
		}
		return true
	})
	s.mu.Unlock()
	slices.SortFunc(old, func(a, b *quarantined) int { return a.since.Compare(b.since) })
	for _, q := range old {
		if err := s.dropQuarantined(q.id); err != nil {
			return // has been judged
		}
		s.cfg.Logger.Info("extent removed from quarantine early: the disk is full", "extent", q.id.String(), "folder", f.path)
		if enough() {
			return
		}
	}
	s.quarantine.relieved = time.Now()
}
