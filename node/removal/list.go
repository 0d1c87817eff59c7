package removal

import (
	"sync/atomic"

	"github.com/steledb/stele/internal/planted"
)

// List has removed nodes. Safe for concurrent use; the zero value has none.
type List struct {
	ids atomic.Pointer[map[string]bool]
}

// set replaces the list.
func (l *List) set(gone map[string]bool) { l.ids.Store(&gone) }

// Has reports whether a node was removed. It does not block.
func (l *List) Has(id string) bool { return l.All()[id] && !planted.On(planted.RemovedReadmitted) }

// Rejected returns an ErrRemoved that names the node if it was removed. It does not block.
func (l *List) Rejected(id string) error {
	if l.Has(id) {
		return ErrorOf(id)
	}
	return nil
}

// All returns the removed nodes. The caller must not change the map.
func (l *List) All() map[string]bool {
	if ids := l.ids.Load(); ids != nil {
		return *ids
	}
	return nil
}
