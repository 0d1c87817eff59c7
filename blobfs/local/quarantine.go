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

// quarantine has the blob extents that appear to be garbage. They are not listed, and are removed
// after some time; until then they can be restored.
type quarantine struct {
	*extents
	alarms *alarms

	// op serializes renames and removals of their files. Held across I/O. Order: op, then extents.mu.
	op sync.Mutex
	// all is sorted by ID. Guarded by extents.mu.
	all *btree.BTreeG[*quarantined]
	// evictionFutile is when a search of a full folder last found too little to remove. Guarded by op.
	evictionFutile map[*folder]time.Time
	// evictUntil is when the last permission to evict ends, see PermitEviction. Guarded by
	// extents.mu.
	evictUntil time.Time
}

// quarantined is an extent in quarantine. Guarded by extents.mu.
type quarantined struct {
	id    ExtentID
	round uint64
	since time.Time // with a monotonic reading
	// confirmed is the latest later round that found the extent unused again, 0 if none did.
	confirmed uint64
	parts     []quarantinedPart
}

// quarantinedPart is a file and the suffix of its name.
type quarantinedPart struct {
	part
	suffix string
}

func (q *quarantinedPart) quarantinePath(id ID) string { return q.part.path(id) + q.suffix }

// QuarantinedExtent describes an extent in quarantine.
type QuarantinedExtent struct {
	ExtentInfo
	Round     uint64    // of the sweep that quarantined it
	Since     time.Time // never in the future; monotonic since the store was opened
	FileBytes int64
}

func lessQuarantined(a, b *quarantined) bool { return compareExtents(a.id, b.id) < 0 }

func compareExtents(a, b ExtentID) int {
	return cmp.Or(bytes.Compare(a.Blob[:], b.Blob[:]), cmp.Compare(a.Index, b.Index))
}

// quarantineMark separates the name of a sealed extent from its round and time of quarantine.
const quarantineMark = ".q"

func quarantineSuffix(round uint64, since time.Time) string {
	return fmt.Sprintf("%s%d-%d", quarantineMark, round, since.Unix())
}

// parseQuarantineName splits a name into base name, round and time. It accepts only what
// quarantineSuffix returns.
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

// loadQuarantined adds a quarantined file found by Open. It returns false if the name is not one of
// those.
func (s *quarantine) loadQuarantined(f *folder, name string) (bool, error) {
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
	// If the clock was set back, the extent stays longer. From now on the monotonic clock counts.
	now := time.Now()
	since := now.Add(-max(now.Sub(wall), 0))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addQuarantinedLocked(&quarantined{id: id, round: round, since: since, parts: []quarantinedPart{{p, name[len(base):]}}})
	return true, nil
}

// addQuarantinedLocked adds files of an extent. The later time of quarantine applies to all of
// them.
func (s *quarantine) addQuarantinedLocked(q *quarantined) {
	if old, ok := s.all.Get(q); ok {
		q.parts = append(old.parts, q.parts...)
		q.round = max(q.round, old.round)
		if old.since.After(q.since) {
			q.since = old.since
		}
	}
	s.all.ReplaceOrInsert(q)
}

// reviveSplit takes extents out of quarantine that have only some of their files in it, because a
// crash came between two renames.
func (s *quarantine) reviveSplit() {
	if s.cfg.ReadOnly {
		return
	}
	s.mu.Lock()
	var ids []ExtentID
	s.all.Ascend(func(q *quarantined) bool {
		if len(s.partsLocked(q.id)) > 0 {
			ids = append(ids, q.id)
		}
		return true
	})
	s.mu.Unlock()
	for _, id := range ids {
		if err := s.revive(id); err != nil {
			s.cfg.Logger.Warn("extent not taken out of quarantine", "extent", id.String(), "err", err)
		}
	}
}

func (s *quarantine) quarantinedLocked(id ExtentID) *quarantined {
	q, _ := s.all.Get(&quarantined{id: id})
	return q
}

// InQuarantine reports whether an extent is in quarantine.
func (s *quarantine) InQuarantine(id ExtentID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quarantinedLocked(id) != nil
}

// QuarantineExtent puts an extent into quarantine: List and Stat calls no longer return it, and
// OpenExtent takes it out again. round is the sweep's current round. Open readers continue to work.
// The rename is not synced: a power loss may undo it. ErrNoExtent, ErrFolderRetired, ErrReadOnly,
// ErrClosed.
func (s *quarantine) QuarantineExtent(ctx context.Context, id ExtentID, round uint64) error {
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

func (s *quarantine) quarantineExtent(id ExtentID, round uint64) error {
	s.op.Lock()
	defer s.op.Unlock()
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
		return s.withUnreadable(ErrNoExtent)
	}
	for i := len(q.parts) - len(parts); i < len(q.parts); i++ {
		p := &q.parts[i]
		if err := p.folder.rename(p.path(id.Blob), p.quarantinePath(id.Blob)); err != nil {
			// Undo the renames, as far as possible.
			for ; i < len(q.parts); i++ {
				q.parts[i].suffix = ""
			}
			return errors.Join(err, s.revive(id))
		}
	}
	return nil
}

// ReviveExtent durably takes an extent out of quarantine. ErrNoExtent if it is not in quarantine;
// ErrFolderRetired, ErrReadOnly, ErrClosed.
func (s *quarantine) ReviveExtent(ctx context.Context, id ExtentID) error {
	err := s.begin(ctx)
	if err == nil {
		defer s.end()
		s.op.Lock()
		err = s.revive(id)
		s.op.Unlock()
	}
	if err != nil {
		return fmt.Errorf("revive extent %s: %w", id, err)
	}
	return nil
}

// revive lists the extent again, even if some files cannot be renamed. Called with op held, or by
// Open.
func (s *quarantine) revive(id ExtentID) error {
	s.mu.Lock()
	q := s.quarantinedLocked(id)
	s.mu.Unlock()
	if q == nil {
		return s.withUnreadable(ErrNoExtent)
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
		p.createdRound = s.round.Load()
		back = append(back, p.part)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setPartsLocked(id, append(back, s.partsLocked(id)...)...)
	if s.all.Delete(q); len(left) > 0 {
		s.addQuarantinedLocked(&quarantined{id: id, round: q.round, since: q.since, parts: left})
	}
	return errors.Join(errs...)
}

// openQuarantined opens an extent in quarantine for a caller that knows its checksum, which proves
// that it is in use. It takes the extent out of quarantine and raises the alarm. ErrNoExtent if the
// extent is not in quarantine, or has other content.
func (s *quarantine) openQuarantined(id ExtentID, matches func(*extentMeta) bool) (*ExtentReader, error) {
	s.op.Lock()
	defer s.op.Unlock()
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
		if x.meta.blob != id.Blob || x.meta.index != id.Index || !matches(&x.meta) {
			x.Close()
			continue
		}
		if s.cfg.ReadOnly {
			return x, nil
		}
		x.name = p.path(id.Blob)
		s.alarms.RaiseAlarm(fmt.Sprintf("extent %s was in use after %v in quarantine, since sweep round %d",
			id, time.Since(q.since).Round(time.Second), q.round))
		if err := s.revive(id); err != nil {
			s.cfg.Logger.Error("extent not taken out of quarantine", "extent", id.String(), "err", err)
		}
		return x, nil
	}
	return nil, ErrNoExtent
}

// Quarantined returns up to max extents in quarantine, by blob and index, starting after the given
// one.
func (s *quarantine) Quarantined(after ExtentID, max int) []QuarantinedExtent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []QuarantinedExtent
	ascendAfter(s.all, after, func(q *quarantined) bool {
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

// ConfirmQuarantined records that a later round of the sweep found the extent unused again. Only
// confirmed extents are removed when the disk is full, see also PermitEviction.
func (s *quarantine) ConfirmQuarantined(id ExtentID, round uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.quarantinedLocked(id); q != nil && round > q.round {
		q.confirmed = max(q.confirmed, round)
	}
}

// DropQuarantined removes an extent in quarantine. ErrNoExtent if it is not in quarantine;
// ErrFolderRetired, ErrReadOnly, ErrClosed.
func (s *quarantine) DropQuarantined(ctx context.Context, id ExtentID) error {
	err := s.begin(ctx)
	if err == nil {
		defer s.end()
		s.op.Lock()
		err = s.dropQuarantined(id)
		s.op.Unlock()
	}
	if err != nil {
		return fmt.Errorf("drop extent %s from quarantine: %w", id, err)
	}
	return nil
}

// dropQuarantined removes an extent's files. op must be held.
func (s *quarantine) dropQuarantined(id ExtentID) error {
	s.mu.Lock()
	q := s.quarantinedLocked(id)
	if q != nil {
		s.all.Delete(q)
	}
	s.mu.Unlock()
	if q == nil {
		return s.withUnreadable(ErrNoExtent)
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

// PermitEviction permits full disks to remove extents from quarantine until a time, which has a
// monotonic reading. Without a permission they remove none. The caller knows that garbage collection
// is not halted on any node, and soon permits no more once it is.
func (s *quarantine) PermitEviction(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evictUntil = until
}

// mayEvict reports whether extents may be removed from quarantine early: it is permitted, and no
// alarm is raised here. While garbage collection may be wrong, the quarantine has what it took by
// mistake.
func (s *quarantine) mayEvict() bool {
	s.mu.Lock()
	permitted := time.Now().Before(s.evictUntil)
	s.mu.Unlock()
	return permitted && s.alarms.Alarm() == ""
}

// evictionRetryAfter is the interval after a search without result in which evictQuarantined does
// not search the folder again.
const evictionRetryAfter = 10 * time.Second

// evictQuarantined removes extents in quarantine from a folder, oldest first, until enough returns
// true. It skips extents that are younger than the minimum time, or that only one round of the
// sweep has found, and removes nothing unless mayEvict.
func (s *quarantine) evictQuarantined(f *folder, enough func() bool) {
	s.mu.Lock()
	n := s.all.Len()
	s.mu.Unlock()
	if n == 0 || !s.mayEvict() {
		return
	}
	s.op.Lock()
	defer s.op.Unlock()
	if time.Since(s.evictionFutile[f]) < evictionRetryAfter || enough() {
		return
	}
	var old []*quarantined
	s.mu.Lock()
	s.all.Ascend(func(q *quarantined) bool {
		here := slices.ContainsFunc(q.parts, func(p quarantinedPart) bool { return p.folder == f })
		if here && q.confirmed > q.round && time.Since(q.since) >= s.cfg.QuarantineMin {
			old = append(old, q)
		}
		return true
	})
	s.mu.Unlock()
	slices.SortFunc(old, func(a, b *quarantined) int { return a.since.Compare(b.since) })
	for _, q := range old {
		if !s.mayEvict() {
			return
		}
		if err := s.dropQuarantined(q.id); err != nil {
			return // the error was passed to failed
		}
		s.cfg.Logger.Info("extent removed from quarantine early, disk full", "extent", q.id.String(), "folder", f.path)
		if enough() {
			return
		}
	}
	s.evictionFutile[f] = time.Now()
}
