package session

import "github.com/steledb/stele/internal/timing"

// Clock measures leases. Only its rate matters, which may be wrong by api.ClockDrift. It must not stop while the program can still act; the
// default counts the time for which the machine is suspended.
type Clock = timing.Clock
