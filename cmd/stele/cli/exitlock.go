package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

// FaultOfLock maps errors of the lock service.
func FaultOfLock(err error) *Fault {
	var unreachable *session.UnreachableError
	var held *api.LockedError
	switch {
	case errors.Is(err, api.ErrOutcomeUnknown):
		f := &Fault{Code: ExitError, Hint: `check by "stele lock get" whether it took effect`}
		if errors.Is(err, context.DeadlineExceeded) {
			f.Code = ExitTimeout
		}
		return f
	case errors.As(err, &held):
		return &Fault{Code: ExitTimeout, Err: held, Hint: "wait for it with --wait, or wait longer"}
	case errors.As(err, &unreachable) && errors.Is(unreachable.Err, session.ErrRefused): // report it as other commands do
		return FaultOfIdentity(&client.UnreachableError{Addr: unreachable.Addr, Err: unreachable.Err})
	case errors.As(err, &unreachable):
		return &Fault{
			Code: exitUnreachable,
			Hint: `is "stele serve" running there? try "systemctl status stele" or --addr`,
			Err:  fmt.Errorf("cannot reach %s: %s", unreachable.Addr, networkReason(unreachable.Err)),
		}
	case errors.Is(err, api.ErrGeneration):
		return &Fault{Code: ExitConflict, Hint: `"stele lock stat" shows the generation`}
	case errors.Is(err, api.ErrNotFound):
		return &Fault{Code: ExitNotFound, Hint: `"stele lock ls" and "stele lock stat" show the existing files`}
	case errors.Is(err, api.ErrStale):
		return &Fault{Code: ExitConflict, Hint: "the holder has lost the lock: reject its requests"}
	case errors.Is(err, api.ErrSystemFile):
		return &Fault{Code: ExitUsage, Hint: `use "stele table", "stele node" or "stele raft" to change the cluster's own files`}
	case errors.Is(err, api.ErrBadPath), errors.Is(err, api.ErrTooLarge):
		return &Fault{Code: ExitUsage}
	case errors.Is(err, api.ErrIsDirectory):
		return &Fault{Code: ExitError, Hint: `"stele lock ls" lists a directory`}
	case errors.Is(err, api.ErrNotEmpty):
		return &Fault{Code: ExitError, Hint: "remove its entries first"}
	case errors.Is(err, api.ErrDiskFull):
		return &Fault{Code: ExitDiskFull, Hint: "free or add disk space on the voters"}
	case errors.Is(err, session.ErrExpired):
		return &Fault{Code: ExitUnhealthy, Hint: `the lock service had no leader for too long, or this process was paused: see "stele status"`}
	case errors.Is(err, api.ErrNotReady):
		return &Fault{Code: ExitUnhealthy, Hint: `a majority of the voters must be up: see "stele status"`}
	}
	return nil
}
