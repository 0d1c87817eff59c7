package session

import (
	"context"
	"sync/atomic"

	"github.com/steledb/stele/raftmeta/api"
)

// Version is a version of a file that a session has read, and may act on without another call as
// long as it is current. A Set or Delete of the file, by any client, returns only when no session
// with a valid lease has a current Version of the former content.
type Version struct {
	generation uint64
	over       atomic.Bool
}

// Generation returns the generation of the file.
func (v *Version) Generation() uint64 { return v.generation }

// Current reports whether the file has not changed since it was read, and cannot change before this
// session is notified. A Version that has ended never becomes current again. Current is one atomic
// load. It is meaningless while the lease has run out: the caller must first check Session.Valid,
// or Held of a lock of the same session.
func (v *Version) Current() bool { return !v.over.Load() }

// GetVersion is Get with a Version of the result. The Version is nil if the leader does not permit
// caching now, because the file is being written or the leader is new: the caller should retry
// soon. Errors are those of Get.
func (s *Session) GetVersion(ctx context.Context, path string) (api.File, *Version, error) {
	if f, v := s.cache.getVersion(path); v != nil {
		return f, v, nil
	}
	return s.fetch(ctx, path, true)
}

// VersionsEnded returns a channel that receives when Versions have ended since the last receive.
func (s *Session) VersionsEnded() <-chan struct{} { return s.cache.ended }
