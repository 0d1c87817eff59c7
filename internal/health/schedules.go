package health

import (
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/rpc"
)

// addSchedules adds the schedules of backups that fail. Without the right to see schedules, and from a node of a version without them, there are none.
func (x *Cluster) addSchedules(a *answers) {
	if !errors.Is(a.schedulesErr, client.ErrPermission) && !errors.Is(a.schedulesErr, rpc.CodeUnknownMethod) {
		x.unknown("schedules of backups", a.schedulesErr)
	}
	for i := range a.schedules {
		if s := &a.schedules[i]; s.Failing() {
			x.Schedules = append(x.Schedules, FailedSchedule{s.Name, s.Failures, s.Error, s.GoodMS})
		}
	}
}

// problem describes the failure.
func (s *FailedSchedule) problem() string {
	good := "there is no good one"
	if s.GoodMS != 0 {
		good = "the last good one is of " + time.UnixMilli(s.GoodMS).UTC().Format(time.RFC3339)
	}
	if s.Failures == 0 {
		return fmt.Sprintf("the schedule of backups %s is in trouble: %s; %s", s.Name, s.Error, good)
	}
	return fmt.Sprintf("the schedule of backups %s: %s failed, the last: %s; %s", s.Name, text.Plural(s.Failures, "backup"), s.Error, good)
}
