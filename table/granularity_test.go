package table

import (
	"errors"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/wire"
)

func TestStamp(t *testing.T) {
	for _, c := range []struct {
		g               Granularity
		now, last, want int64
	}{
		{GranularityMicros, 1_234_567, 0, 1_234_567}, {GranularityMicros, 7, 7, 8}, {GranularityMicros, 5, 9, 10},
		{GranularityMillis, 1_234_567, 0, 1_234_000}, {GranularityMillis, 1_234_999, 1_234_000, 1_234_000},
		{GranularityMillis, 1_235_000, 1_234_000, 1_235_000}, {GranularityMillis, 5000, 9000, 9000}, // the clock went back
		{GranularityMillis, 5000, 8001, 9000}, {GranularityMillis, 0, 0, 0}, // the last was that of another table
	} {
		if got := c.g.Stamp(c.now, c.last); got != c.want {
			t.Errorf("%v: stamp at %d after %d is %d, want %d", c.g, c.now, c.last, got, c.want)
		}
	}
}

// TestGranularityOfMutations: timestamps that do not fit are rejected with an error that names the parameter.
func TestGranularityOfMutations(t *testing.T) {
	micros := mustSchema(t, "f")
	millis := micros.Clone()
	millis.Granularity = GranularityMillis
	column := []byte("q")
	for _, c := range []struct {
		m    Mutation
		what string // of the error in a table of milliseconds
	}{
		{Set("f", column, ServerTimestamp, nil), ""}, {Set("f", column, 0, nil), ""}, {Set("f", column, 5000, nil), ""},
		{Set("f", column, 5001, nil), "timestamp"}, {Set("f", column, 999, nil), "timestamp"},
		{DeleteColumn("f", column), ""}, {DeleteColumnRange("f", column, 1000, Before(2000)), ""},
		{DeleteColumnRange("f", column, 1, Before(2000)), "start of range"}, {DeleteColumnRange("f", column, 1000, Before(2001)), "end of range"},
		{DeleteFamily("f"), ""}, {DeleteRow(), ""},
	} {
		for _, s := range []*Schema{micros, nil} {
			if err := c.m.Validate(s, nil); err != nil {
				t.Errorf("%+v: %v", c.m, err)
			}
		}
		err := c.m.Validate(millis, nil)
		var bad *TimestampError
		if (err == nil) != (c.what == "") || err != nil && (!errors.As(err, &bad) || !strings.HasPrefix(bad.What, c.what+" is not a multiple")) {
			t.Errorf("%+v in a table of milliseconds: %v, want %q", c.m, err, c.what)
		}
	}
}

// TestSchemaOfLaterVersion: a schema is not used by a version that does not know all of it.
func TestSchemaOfLaterVersion(t *testing.T) {
	for text, write := range map[string]func(e *wire.Encoder){
		"format 10 is of a later version": func(e *wire.Encoder) { e.Str("format"); e.Int(10) },
		"unknown granularity":             func(e *wire.Encoder) { e.Str("granularity"); e.Str("nanos") },
	} {
		var e wire.Encoder
		e.Map(6)
		e.Str("name")
		e.Str("t")
		e.Str("id")
		e.Uint(7)
		e.Str("next_family_id")
		e.Uint(1)
		e.Str("families")
		e.Array(0)
		e.Str("groups")
		e.Array(1)
		g := LocalityGroup{Name: DefaultGroup}
		AppendGroup(&e, &g)
		write(&e)
		d := wire.NewDecoder(e.Bytes())
		if _, err := DecodeSchema(&d, nil); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %q", err, text)
		}
	}
	s := mustSchema(t, "f").Clone()
	if s.Granularity = 2; !errors.Is(s.Validate(nil), ErrBadSchema) {
		t.Errorf("unknown granularity: %v", s.Validate(nil))
	}
}
