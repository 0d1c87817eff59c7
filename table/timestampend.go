package table

import "strconv"

// A TimestampEnd is the upper bound of a range of timestamps. The zero TimestampEnd
// is no bound. No number stands for it: an end that was computed as 0 must not
// select every timestamp.
type TimestampEnd struct {
	at      int64
	bounded bool
}

// Before returns the bound below which timestamps, in microseconds, are in a range.
func Before(timestamp int64) TimestampEnd { return TimestampEnd{at: timestamp, bounded: true} }

// Bound returns the first timestamp that is not in the range, and whether there is
// such a bound.
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
