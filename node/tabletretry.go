package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/tablet"
)

// eventErrorMax bounds the error text of a failed load in METADATA, in bytes.
const eventErrorMax = 200

// eventNotLoaded is the prefix of the event.
const eventNotLoaded = "not loaded by "

// failedKept is how long a server remembers a failed load: longer than the master needs to try all other servers. The tablet may have
// been dropped since, or be loaded elsewhere.
const failedKept = time.Hour

// releaseFailed releases a tablet that this server acquired but could not load. The master may try another server, and the tablet needs
// nothing of this server's commit log: nothing was written to it here. If the previous load failed as well, no event is recorded: it
// would displace the one that has the cause.
//
// A tablet whose rows the server serves in another tablet is kept.
func (s *tabletServer) releaseFailed(key []byte, cause error) {
	repeated := s.notLoaded(key)
	if s.serving() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.n.ctx, namespace.ChangeAttempt)
	defer cancel()
	row, err := s.rowOf(ctx, key)
	if errors.Is(err, metarows.ErrNoRow) {
		s.mu.Lock()
		delete(s.mu.failed, string(key))
		s.mu.Unlock()
	}
	if err != nil || row.Server != s.nameFor(row.Table) || s.serving() != nil {
		return // it is retried here, or another server has it
	}
	m, err := tablet.DecodeMeta(row.Meta)
	if err != nil || s.of(row.Table).Served().SplitPending(metarows.RefOf(row)) || s.of(row.Table).Served().Overlaps(row.Table, m.Start, row.End) {
		return
	}
	event := ""
	if !repeated {
		event = fmt.Sprintf(eventNotLoaded+"%s: %.*s", row.Server, eventErrorMax, cause)
	}
	row.Server, row.Addr = "", ""
	if err := s.rows.Replace(ctx, row, event); err != nil {
		s.log.Warn("failed tablet not released", "tablet", metadata.Describe(key, ""), "err", err)
	}
}

// notLoaded records a failed load, and reports whether the previous load failed, too.
func (s *tabletServer) notLoaded(key []byte) (before bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.failed == nil {
		s.mu.failed = map[string]time.Time{}
	}
	now := time.Now()
	maps.DeleteFunc(s.mu.failed, func(_ string, at time.Time) bool { return now.Sub(at) > failedKept })
	_, before = s.mu.failed[string(key)]
	s.mu.failed[string(key)] = now
	return before
}

// retried reports whether the last load of a tablet failed here, and no server has had it since.
func (s *tabletServer) retried(ctx context.Context, key []byte, row *metadata.Row) bool {
	s.mu.Lock()
	_, failed := s.mu.failed[string(key)]
	s.mu.Unlock()
	if !failed || row.Server == s.nameFor(row.Table) {
		return failed
	}
	if row.Server == "" {
		// Servers that also failed to load it recorded that as the last event, or nothing.
		event, err := s.rows.Last(ctx, key)
		if err != nil || strings.HasPrefix(event, eventNotLoaded) {
			return true
		}
	}
	s.mu.Lock()
	delete(s.mu.failed, string(key))
	s.mu.Unlock()
	return false
}

// loadedAfterAll records that a tablet is loaded after a failure: METADATA has only the event of the first failure.
func (s *tabletServer) loadedAfterAll(ctx context.Context, key []byte, r tablet.Ref) {
	s.mu.Lock()
	_, failed := s.mu.failed[string(key)]
	delete(s.mu.failed, string(key))
	s.mu.Unlock()
	st := s.state(r)
	if !failed || st == nil {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	row := *st.row
	if err := s.rows.Replace(ctx, &row, "loaded on "+row.Server+" after all"); err != nil {
		s.log.Warn("event of loaded tablet not recorded", "tablet", r, "err", err)
		return
	}
	st.row = &row
}
