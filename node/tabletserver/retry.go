package tabletserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/planted"
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

// ReleaseFailed releases a tablet that this server acquired but could not load. The master may try another server, and the tablet needs
// nothing of this server's commit log: nothing was written to it here. If the previous load failed as well, no event is recorded: it
// would displace the one that has the cause.
//
// A tablet whose rows the server serves in another tablet is kept.
func (s *Server) ReleaseFailed(key []byte, cause error) {
	repeated := s.failures.add(key)
	if s.Serving() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.Ctx, namespace.ChangeAttempt)
	defer cancel()
	row, err := s.Row(ctx, key)
	if errors.Is(err, metarows.ErrNoRow) {
		s.failures.forget(key)
	}
	if err != nil || row.Server != s.nameFor(row.Table) || s.Serving() != nil {
		return // it is retried here, or another server has it
	}
	if planted.On(planted.LogIDKept) && row.Table == metadata.TableID {
		return
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
	if err := s.table.Replace(ctx, row, event); err != nil {
		s.log.Warn("failed tablet not released", "tablet", metadata.Describe(key, ""), "err", err)
	}
}

// Retried reports whether the last load of a tablet failed here, and no server has had it since.
func (s *Server) Retried(ctx context.Context, key []byte, row *metadata.Row) bool {
	failed := s.failures.has(key)
	if !failed || row.Server == s.nameFor(row.Table) {
		return failed
	}
	if row.Server == "" {
		// Servers that also failed to load it recorded that as the last event, or nothing.
		event, err := s.table.Last(ctx, key)
		if err != nil || strings.HasPrefix(event, eventNotLoaded) {
			return true
		}
	}
	s.failures.forget(key)
	return false
}

// loadedAfterAll records that a tablet is loaded after a failure: METADATA has only the event of the first failure.
func (s *Server) loadedAfterAll(ctx context.Context, key []byte, ref tablet.Ref) {
	if !s.failures.forget(key) {
		return
	}
	event := "loaded on " + s.nameFor(ref.Table) + " after all"
	if _, err := s.Rows.Change(ctx, ref, event, func(*metadata.Row) {}); err != nil {
		s.log.Warn("event of loaded tablet not recorded", "tablet", ref, "err", err)
	}
}

// Failures returns the number of tablets whose last load failed here.
func (s *Server) Failures() int { return s.failures.len() }

// failures has the tablets whose last load failed, by the master's key. The zero value is empty.
type failures struct {
	// mu guards the field in it.
	mu struct {
		sync.Mutex
		at map[string]time.Time
	}
}

// add records a failed load, and reports whether the previous load failed, too.
func (f *failures) add(key []byte) (before bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.at == nil {
		f.mu.at = map[string]time.Time{}
	}
	now := time.Now()
	maps.DeleteFunc(f.mu.at, func(_ string, at time.Time) bool { return now.Sub(at) > failedKept })
	_, before = f.mu.at[string(key)]
	f.mu.at[string(key)] = now
	return before
}

// has reports whether the last load of a tablet failed.
func (f *failures) has(key []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, failed := f.mu.at[string(key)]
	return failed
}

// forget removes a tablet, and reports whether it was there.
func (f *failures) forget(key []byte) (failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, failed = f.mu.at[string(key)]
	delete(f.mu.at, string(key))
	return failed
}

func (f *failures) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mu.at)
}
