package session

import "github.com/steledb/stele/internal/timing"

// Clock measures leases. Only its rate matters, which may be wrong by api.ClockDrift. It must not stop while the program can still act: the
// system's monotonic clock, which is the default, stops while the machine is suspended. If machines are suspended, the application must
// provide a Clock that does not stop.
type Clock = timing.Clock
