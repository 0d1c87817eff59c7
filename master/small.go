package master

import (
	"cmp"
	"slices"
	"time"

	"github.com/steledb/stele/client/metadata"
)

// Merges that the master orders by itself (paper §5.2) are for tables that have shrunk, not for those that rest
// for a night or were cut beforehand for a load that is to come.
const (
	// mergeBytesMax is what two neighbours may have together: a sixteenth of the size at which a tablet is
	// split, so that what is merged is not split again soon.
	mergeBytesMax = 64 << 20
	// mergeLoadMax is how many operations a second each may have.
	mergeLoadMax = 1
	// mergeCool is for how long both must have been so without a break, as one master has seen it.
	mergeCool = 6 * time.Hour
	// mergePause is the time from one such merge to the next.
	mergePause = time.Minute
)

// small says whether a tablet has little in it and little to do.
func (h *Held) small() bool { return h.Bytes <= mergeBytesMax && h.Load < mergeLoadMax }

// SmallNeighbours returns two tablets that the master should merge, or nil. It depends on nothing but
// its argument: of all pairs the one that has least.
func SmallNeighbours(s *TabletState) *Union {
	if !s.Whole || len(s.Unions) > 0 {
		return nil
	}
	held := map[string]*Held{}
	for i := range s.Servers {
		v := &s.Servers[i]
		if v.Silent || v.Leaving {
			return nil // there is other work
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
	var best *Union
	least := int64(mergeBytesMax)
	for i := 1; i < len(tablets); i++ {
		lower, upper := &tablets[i-1], &tablets[i]
		if !sameTable(lower.Key, upper.Key) || !fit(lower) || !fit(upper) {
			continue
		}
		if sum := held[lower.Key].Bytes + held[upper.Key].Bytes; sum < least || sum == least && best == nil {
			best, least = &Union{Lower: lower.Key, Upper: upper.Key, Why: "both are small and have little to do"}, sum
		}
	}
	return best
}

func sameTable(a, b string) bool {
	x, _, err := metadata.ParseKey([]byte(a))
	y, _, err2 := metadata.ParseKey([]byte(b))
	return err == nil && err2 == nil && x == y
}

// noteSmall keeps how long tablets have been small, tells s of it, and has a pair merged now and then.
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
		if v.Silent { // what it has cannot be told
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
		if _, err := a.take(&wish{lower: u.Lower, key: u.Upper, why: u.Why}); err == nil {
			s.Unions = append(s.Unions, *u)
		}
	}
}
