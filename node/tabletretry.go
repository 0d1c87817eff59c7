package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/tablet"
)

// eventErrorMax bounds what is written into METADATA of why a tablet could not be loaded, in bytes.
const eventErrorMax = 200

// eventNotLoaded is what the event begins with.
const eventNotLoaded = "not loaded by "

// failedKept is for how long a server remembers that a tablet could not be loaded: longer than the master needs to try
// all others in between. It may have been dropped since, or be another's for good.
const failedKept = time.Hour

// giveBack releases a tablet that this server took and could not load, so that the master may try another
// server, and so that the tablet will need nothing of this server's commit log: nothing has been written to it here. If the previous
// load failed as well, no event is recorded: it would push out the one that has the cause.
//
// A tablet of which the server has rows by another tablet stays.
func (s *tabletServer) giveBack(key []byte, cause error) {
	told := s.notLoaded(key)
	if s.serving() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.n.ctx, changeAttempt)
	defer cancel()
	row, err := s.rowOf(ctx, key)
	if errors.Is(err, errNoRow) {
		s.mu.Lock()
		delete(s.mu.failed, string(key))
		s.mu.Unlock()
	}
	if err != nil || row.Server != s.nameFor(row.Table) || s.serving() != nil {
		return // it is tried again here, or another has it
	}
	m, err := tablet.DecodeMeta(row.Meta)
	if err != nil || s.of(row.Table).Settling(refOf(row)) || s.of(row.Table).Overlaps(row.Table, m.Start, row.End) {
		return
	}
	event := ""
	if !told {
		event = fmt.Sprintf(eventNotLoaded+"%s: %.*s", row.Server, eventErrorMax, cause)
	}
	row.Server, row.Addr = "", ""
	if err := s.rows.replace(ctx, row, event); err != nil {
		s.log.Warn("give a tablet back that could not be loaded", "tablet", metadata.Describe(key, ""), "error", err)
	}
}

// notLoaded notes that a tablet could not be loaded, and says whether that was so the last time.
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

// retried says whether a tablet could not be loaded the last time, and no server has had it since.
func (s *tabletServer) retried(ctx context.Context, key []byte, row *metadata.Row) bool {
	s.mu.Lock()
	_, failed := s.mu.failed[string(key)]
	s.mu.Unlock()
	if !failed || row.Server == s.nameFor(row.Table) {
		return failed
	}
	if row.Server == "" {
		// Others that could not load it either told so last, or told nothing.
		event, err := s.rows.last(ctx, key)
		if err != nil || strings.HasPrefix(event, eventNotLoaded) {
			return true
		}
	}
	s.mu.Lock()
	delete(s.mu.failed, string(key))
	s.mu.Unlock()
	return false
}

// loadedAfterAll notes that a tablet is loaded which could not be before: METADATA was told only of the first try.
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
	if err := s.rows.replace(ctx, &row, "loaded on "+row.Server+" after all"); err != nil {
		s.log.Warn("note that a tablet is loaded after all", "tablet", r, "error", err)
		return
	}
	st.row = &row
}
