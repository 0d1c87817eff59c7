//go:build !faketime

package timing

import (
	"time"

	"golang.org/x/sys/unix"
)

// asleepTries bounds how often the clocks are read until both show the same moment.
const asleepTries = 10

// asleep returns for how long the machine has been suspended since it was booted. It is at most a little too much.
func asleep() (least time.Duration) {
	for i := range asleepTries {
		running, err := clock(unix.CLOCK_MONOTONIC)
		if err != nil {
			return 0
		}
		all, err := clock(unix.CLOCK_BOOTTIME)
		if err != nil {
			return 0
		}
		if d := all - running; i == 0 || d < least { // the process may stop between the two
			least = d
		}
	}
	return least
}

func clock(id int32) (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(id, &t)
	return time.Duration(t.Nano()), err
}
