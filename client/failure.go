package client

import (
	"errors"
	"maps"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
)

// metadataDown means that a server of METADATA is unavailable, for example because it has no lease.
// Lookups that need another server continue.
type metadataDown struct {
	err   error
	node  *node
	until time.Time // no request to it before this time
}

func (s *metadataDown) Error() string { return s.err.Error() }
func (s *metadataDown) Unwrap() error { return s.err }

// failure is a lookup that failed because something was unavailable. No lookup that needs the same
// is started before until.
type failure struct {
	err   *lookupError
	until time.Time
}

// endedLocked records the outcome of a lookup.
func (t *tableCache) endedLocked(err *lookupError) {
	now := time.Now()
	maps.DeleteFunc(t.mu.failed, func(addr string, f failure) bool { return addr == "" || !now.Before(f.until) })
	if err == nil || !errors.Is(err, api.ErrUnavailable) {
		return
	}
	var of string
	until := now.Add(unassignedTime)
	if err.at != nil {
		of, until = err.at.node.address(), err.at.until
	}
	if t.mu.failed == nil {
		t.mu.failed = map[string]failure{}
	}
	t.mu.failed[of] = failure{err, until}
}

// failed returns why no lookup may be sent to a server of METADATA now; nil if one may.
func (t *tableCache) failed(of *node) *lookupError {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failedLocked(of)
}

func (t *tableCache) failedLocked(of *node) *lookupError {
	now := time.Now()
	for _, n := range []*node{nil, of} {
		if f, ok := t.mu.failed[n.address()]; ok && now.Before(f.until) {
			return f.err
		}
	}
	return nil
}

// metadataOf returns the location of the METADATA tablet with the row of row's tablet, or nil if it
// is not known.
func (l *locator) metadataOf(t *tableCache, row []byte) *location {
	switch id := t.known.Load().id; id {
	case 0:
		return nil
	case metadata.TableID:
		return l.root.Load()
	default:
		return l.lookUp(metadata.Name, metadata.SeekKey(nil, id, row))
	}
}

// hasMetadata reports whether a lookup of row may also read METADATA at l.
func (l *location) hasMetadata(t *tableCache, row []byte) bool {
	return l == nil || l.has(metadata.SeekKey(nil, t.known.Load().id, row))
}

// lookupServer returns the server to which a lookup would send its first request: METADATA's at
// meta or, if that is not known, the root tablet's. It returns nil if neither is known.
func (l *locator) lookupServer(meta *location) *node {
	if meta == nil {
		meta = l.root.Load()
	}
	if meta == nil {
		return nil
	}
	return meta.node
}
