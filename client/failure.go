package client

import (
	"errors"
	"maps"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
)

// silence is that a server of METADATA cannot tell where tablets are, while it has no lease say. Lookups that need
// another one go on meanwhile.
type silence struct {
	err   error
	node  *node
	until time.Time // it is not asked again before
}

func (s *silence) Error() string { return s.err.Error() }
func (s *silence) Unwrap() error { return s.err }

// failure is a lookup that failed since something was unavailable: none that would need that is begun
// before until.
type failure struct {
	err   *lookupError
	until time.Time
}

// endedLocked notes how a lookup ended.
func (t *tablets) endedLocked(err *lookupError) {
	now := time.Now()
	maps.DeleteFunc(t.mu.failed, func(n *node, f failure) bool { return n == nil || !now.Before(f.until) })
	if err == nil || !errors.Is(err, api.ErrUnavailable) {
		return
	}
	var of *node
	until := now.Add(unassignedTime)
	if err.at != nil {
		of, until = err.at.node, err.at.until
	}
	if t.mu.failed == nil {
		t.mu.failed = map[*node]failure{}
	}
	t.mu.failed[of] = failure{err, until}
}

// failed returns why a server of METADATA is not asked at present, nil if it may be.
func (t *tablets) failed(of *node) *lookupError {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failedLocked(of)
}

func (t *tablets) failedLocked(of *node) *lookupError {
	now := time.Now()
	for _, n := range []*node{nil, of} {
		if f, ok := t.mu.failed[n]; ok && now.Before(f.until) {
			return f.err
		}
	}
	return nil
}

// metadataOf returns where the tablet of METADATA is that has the row of row's tablet, nil if that is not known.
func (l *locator) metadataOf(t *tablets, row []byte) *location {
	switch id := t.known.Load().id; id {
	case 0:
		return nil
	case metadata.TableID:
		return l.root.Load()
	default:
		return l.lookUp(metadata.Name, metadata.SeekKey(nil, id, row))
	}
}

// hasMetadata says whether a lookup of row, too, may read METADATA at l.
func (l *location) hasMetadata(t *tablets, row []byte) bool {
	return l == nil || l.has(metadata.SeekKey(nil, t.known.Load().id, row))
}

// asks returns the server that a lookup would ask first: METADATA's at meta or, while that is not known, the root
// tablet's; nil if that is not known either.
func (l *locator) asks(meta *location) *node {
	if meta == nil {
		meta = l.root.Load()
	}
	if meta == nil {
		return nil
	}
	return meta.node
}
