package table

import "strconv"

// A TimestampEnd is the upper bound of a timestamp range. The zero TimestampEnd is unbounded. No
// number means unbounded, so that an end computed as 0 cannot select every timestamp by accident.
type TimestampEnd struct {
	at      int64
	bounded bool
}

// Before returns an exclusive upper bound, in microseconds.
func Before(timestamp int64) TimestampEnd { return TimestampEnd{at: timestamp, bounded: true} }

// Bound returns the first timestamp outside the range, and whether the range is bounded.
func (e TimestampEnd) Bound() (timestamp int64, bounded bool) { return e.at, e.bounded }

// Contains reports whether timestamp is below the bound.
func (e TimestampEnd) Contains(timestamp int64) bool { return !e.bounded || timestamp < e.at }

// String returns the bound in microseconds, or "no end".
func (e TimestampEnd) String() string {
	if !e.bounded {
		return "no end"
	}
	return strconv.FormatInt(e.at, 10)
}
