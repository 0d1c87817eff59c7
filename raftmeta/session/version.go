package session

import (
	"context"
	"sync/atomic"

	"github.com/steledb/stele/raftmeta/api"
)

// Version is a version of a file that a session has read and may act on without asking again, as long as it is
// current. A Set or Delete of the file, by any client, returns only when no session whose lease holds has a
// current Version of what was there before.
type Version struct {
	generation uint64
	over       atomic.Bool
}

// Generation returns the generation of the file.
func (v *Version) Generation() uint64 { return v.generation }

// Current reports whether the file has not changed since it was read, and cannot change before this session has
// learnt of it. A Version that has ended never becomes current again. Current is one atomic load, and says nothing
// while the lease has run out: the caller checks Session.Valid, or Held of a lock of the same session, first.
func (v *Version) Current() bool { return !v.over.Load() }

// GetVersion is Get with a Version of what it returns. The Version is nil if the leader does not let the
// file be cached now, because a write of it is under way or the leader is new: the caller tries again soon.
// Errors: those of Get.
func (s *Session) GetVersion(ctx context.Context, path string) (api.File, *Version, error) {
	if f, v := s.cache.getVersion(path); v != nil {
		return f, v, nil
	}
	return s.fetch(ctx, path, true)
}

// VersionsEnded returns a channel that gets one token when Versions have ended since the last token was taken.
func (s *Session) VersionsEnded() <-chan struct{} { return s.cache.ended }
