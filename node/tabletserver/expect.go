package tabletserver

import (
	"context"
	"maps"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/node/namespace"
)

const (
	// metadataNodesPeriod is how often a node looks where its client believes METADATA's tablets to be, and
	// metadataNodesKept how long it remembers: the client forgets a server as soon as a call breaks.
	metadataNodesPeriod = time.Second
	metadataNodesKept   = 15 * time.Second
)

// expectMetadata begins the commit log of METADATA's tablets when a node that has some is not heard of any more
// and this one is to get them, which the master does as soon as that is sure: a log would be waited for then.
func (s *Server) expectMetadata() {
	tick := time.NewTicker(metadataNodesPeriod)
	defer tick.Stop()
	seen := map[string]time.Time{} // nodes that had METADATA's tablets, by when that was last known
	for {
		changed := s.Members.Changed()
		for _, id := range s.MetadataNodes() {
			seen[id] = time.Now()
		}
		maps.DeleteFunc(seen, func(_ string, at time.Time) bool { return time.Since(at) > metadataNodesKept })
		if getsMetadata(s.ID(), s.Members.Members(), seen) {
			ctx, cancel := context.WithTimeout(s.Ctx, namespace.ChangeAttempt)
			err := s.Metadata.BeginLog(ctx)
			cancel()
			if err == nil {
				return
			}
			s.Log.Debug("begin METADATA's commit log; will be tried again when it is needed", "err", err)
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-s.lock.Done():
			return
		case <-s.Ctx.Done():
			return
		}
	}
}

// getsMetadata reports whether METADATA's tablets are on a node that seems dead, and this one is the first of those
// that may get them.
func getsMetadata(self string, members []blobfs.Member, had map[string]time.Time) bool {
	lost := false
	for _, m := range members {
		switch {
		case m.ID == self:
			if m.Draining {
				return false
			}
		case m.Alive && !m.Draining && m.ID < self:
			return false
		case !m.Alive && !had[m.ID].IsZero():
			lost = true
		}
	}
	return lost
}
