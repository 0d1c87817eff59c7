package tabletserver

import (
	"time"

	"github.com/steledb/stele/internal/loglimit"
)

// schemasRetry is the pause after a failed read of schemas.
const schemasRetry = time.Second

// renewSchemas rereads the schemas of served tables when they may have changed, and unloads tablets of dropped tables even if no
// request comes for them. It returns when the server's lock is lost or the node closes.
func (s *Server) renewSchemas() {
	var failed loglimit.OnChange
	var again <-chan time.Time
	for {
		select {
		case <-s.schemas.Session.VersionsEnded():
		case <-again:
		case <-s.lock.Done():
			return
		case <-s.Ctx.Done():
			return
		}
		err := s.Users.RenewSchemas(s.Ctx)
		s.Rows.forgetDropped()
		failed.WarnError(s.Log, "schemas not read; retrying", err)
		if again = nil; err != nil {
			again = time.After(schemasRetry)
		}
	}
}
