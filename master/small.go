package master

import (
	"cmp"
	"slices"
	"time"

	"github.com/steledb/stele/client/metadata"
)

// Merges that the master orders by itself (paper §5.2) are for tables that have shrunk, not for
// tables that are idle overnight or were pre-split for a coming load.
const (
	// mergeBytesMax bounds the bytes of two neighbours together: a sixteenth of the split size, so
	// that a merged tablet is not split again soon.
	mergeBytesMax = 64 << 20
	// mergeLoadMax bounds the load of each, in operations a second.
	mergeLoadMax = 1
	// mergeCool is how long one master must have seen both small and idle without interruption.
	mergeCool = 6 * time.Hour
	// mergePause is the time from one such merge to the next.
	mergePause = time.Minute
)

// small reports whether the tablet has few bytes and little load.
func (h *Held) small() bool { return h.Bytes <= mergeBytesMax && h.Load < mergeLoadMax }

// SmallNeighbours returns the merge that the master should order, or nil. It is a pure function of
// its argument. Of all eligible pairs it returns the smallest.
func SmallNeighbours(s *TabletState) *PendingMerge {
	if !s.Whole || len(s.PendingMerges) > 0 {
		return nil
	}
	held := map[string]*Held{}
	for i := range s.Servers {
		v := &s.Servers[i]
		if v.Silent || v.Draining {
			return nil // moves and recoveries come first
		}
		for j := range v.Has {
			held[v.Has[j].Key] = &v.Has[j]
		}
	}
	fit := func(t *Tablet) bool {
		_, pinned := s.Pins[t.Key]
		about := func(o Order) bool { return o.about(t.Key) }
		return t.Level() == 2 && t.Damaged == nil && held[t.Key] != nil && len(t.Recoveries) == 0 && !pinned && s.Cool[t.Key] >= mergeCool && !slices.ContainsFunc(s.Busy, about)
	}
	tablets := slices.Clone(s.Tablets)
	slices.SortFunc(tablets, func(a, b Tablet) int { return cmp.Compare(a.Key, b.Key) })
	var best *PendingMerge
	least := int64(mergeBytesMax)
	for i := 1; i < len(tablets); i++ {
		lower, upper := &tablets[i-1], &tablets[i]
		if !sameTable(lower.Key, upper.Key) || !fit(lower) || !fit(upper) {
			continue
		}
		if sum := held[lower.Key].Bytes + held[upper.Key].Bytes; sum < least || sum == least && best == nil {
			best, least = &PendingMerge{Lower: lower.Key, Upper: upper.Key, Why: "both are small and idle"}, sum
		}
	}
	return best
}

func sameTable(a, b string) bool {
	x, _, err := metadata.ParseKey([]byte(a))
	y, _, err2 := metadata.ParseKey([]byte(b))
	return err == nil && err2 == nil && x == y
}

// noteSmall records how long tablets have been small, in s as well, and orders at most one merge
// each mergePause.
func (a *assigner) noteSmall(s *TabletState) {
	now := time.Now()
	kept := map[string]time.Time{}
	s.Cool = map[string]time.Duration{}
	for i := range s.Servers {
		v := &s.Servers[i]
		for j := range v.Has {
			h := &v.Has[j]
			if !h.small() {
				continue
			}
			since, ok := a.small[h.Key]
			if !ok {
				since = now
			}
			kept[h.Key], s.Cool[h.Key] = since, now.Sub(since)
		}
		if v.Silent { // its tablets are unknown, so they stay as they were
			for _, t := range s.Tablets {
				if since, ok := a.small[t.Key]; ok && t.Server == v.Name {
					kept[t.Key] = since
				}
			}
		}
	}
	a.small = kept
	if now.Sub(a.merged) < mergePause {
		return
	}
	if u := SmallNeighbours(s); u != nil {
		a.merged = now
		if _, err := a.admit(&request{lower: u.Lower, key: u.Upper, why: u.Why}); err == nil {
			s.PendingMerges = append(s.PendingMerges, *u)
		}
	}
}
