package table

import "fmt"

// Granularity is the unit of a table's timestamps: they are multiples of it. It is set when the table is created.
type Granularity uint8

const (
	// GranularityMicros allows all timestamps. Server timestamps strictly increase per row.
	GranularityMicros Granularity = iota
	// GranularityMillis is that of Cloud Bigtable's tables. Server timestamps are rounded down, and never decrease per row. A
	// cell replaces one with the same timestamp.
	GranularityMillis

	numGranularities
)

var granularityNames = [numGranularities]string{"micros", "millis"}

// String returns the name of the granularity.
func (g Granularity) String() string {
	if g >= numGranularities {
		return fmt.Sprintf("granularity %d", uint8(g))
	}
	return granularityNames[g]
}

// MarshalText returns the name.
func (g Granularity) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// ParseGranularity returns the granularity with a name. The error is ErrBadSchema.
func ParseGranularity(name string) (Granularity, error) {
	for g, known := range granularityNames {
		if known == name {
			return Granularity(g), nil
		}
	}
	return 0, &SchemaError{Reason: fmt.Sprintf("unknown granularity %.40q, want micros or millis", name)}
}

// unit returns the granularity in microseconds.
func (g Granularity) unit() int64 {
	if g == GranularityMillis {
		return 1000
	}
	return 1
}

// Stamp returns a server timestamp for a write at now, after one with the timestamp last, both in microseconds and not
// negative. It fits the granularity; last may not.
func (g Granularity) Stamp(now, last int64) int64 {
	if g == GranularityMillis {
		const unit = 1000
		return max(now-now%unit, (last+unit-1)/unit*unit)
	}
	return max(now, last+1)
}

// check checks that a timestamp fits the granularity. what names it.
func (g Granularity) check(what string, timestamp int64) error {
	if g == GranularityMicros || timestamp%g.unit() == 0 {
		return nil
	}
	return &TimestampError{What: fmt.Sprintf("%s is not a multiple of the table's granularity, %d µs", what, g.unit()), Got: timestamp}
}
