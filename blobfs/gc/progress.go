package gc

import (
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/internal/planted"
)

// progress is the state of garbage collection for extents, or for log replicas.
type progress[K comparable] struct {
	first   K
	compare func(a, b K) int
	judged  K    // the last one judged
	page    []K  // the last page listed
	all     bool // all are judged
	garbage map[K]bool
	warned  map[K]time.Duration // garbage of earlier rounds, and when it was first found
}

func (x *progress[K]) init(first K, compare func(a, b K) int) {
	x.first, x.compare = first, compare
	x.warned = map[K]time.Duration{}
}

func (x *progress[K]) begin() {
	x.judged, x.page, x.all = x.first, nil, false
	x.garbage = map[K]bool{}
}

// list records a listed page. An empty page means that all are judged.
func (x *progress[K]) list(page []K) { x.page, x.all = page, len(page) == 0 }

// judge records which extents of the last page are garbage. It rejects any that the page does not
// have.
func (x *progress[K]) judge(upTo K, garbage []K) error {
	i := slices.Index(x.page, upTo)
	if i < 0 || slices.ContainsFunc(garbage, func(k K) bool { return !slices.Contains(x.page[:i+1], k) }) {
		return fmt.Errorf("judged extents were not listed: %w", api.ErrStaleRound)
	}
	for _, k := range garbage {
		x.garbage[k] = true
	}
	x.judged, x.page = upTo, nil
	return nil
}

// warn merges the garbage of this round into warned, and drops from warned what is no longer
// garbage. It returns the garbage that was first found at least age ago, and the number of new
// entries. Garbage that is in quarantine already is skipped.
func (x *progress[K]) warn(now, age time.Duration, quarantined func(K) bool) (old []K, fresh int) {
	warned := make(map[K]time.Duration)
	for k := range x.garbage {
		if quarantined(k) {
			continue
		}
		at, known := x.warned[k]
		if !known || planted.On(planted.GarbageForgotten) {
			at = now
			fresh++
		} else if now-at >= age {
			old = append(old, k)
		}
		warned[k] = at
	}
	x.warned = warned
	slices.SortFunc(old, x.compare)
	return old, fresh
}
