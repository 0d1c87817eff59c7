package backup

import (
	"encoding/hex"
	"reflect"
	"testing"
	"time"
)

// TestGoldenSchedule: schedules are read as they were written by every version.
func TestGoldenSchedule(t *testing.T) {
	for _, x := range []struct {
		rec Schedule
		hex string
	}{
		{Schedule{Created: time.UnixMilli(1000), By: "ann", Every: time.Minute, Keep: time.Hour, First: time.UnixMilli(2000)},
			"9a01cd03e8a3616e6ecdea60ce0036ee80cd07d000a0a0c0"},
		{Schedule{Created: time.UnixMilli(1000), Every: time.Minute, Keep: time.Hour, First: time.UnixMilli(2000), Last: time.UnixMilli(3000), LastID: "b", Error: "no",
			Tables: []ScheduledTable{{7, "t"}}}, "9a01cd03e8a0cdea60ce0036ee80cd07d0cd0bb8a162a26e6f919207a174"},
	} {
		b := x.rec.Encode()
		if got := hex.EncodeToString(b); got != x.hex {
			t.Errorf("%+v is written as %s, want %s", x.rec, got, x.hex)
		}
		if got, err := DecodeSchedule(b); err != nil || !reflect.DeepEqual(*got, x.rec) {
			t.Errorf("%+v reads as %+v, %v", x.rec, got, err)
		}
		longer := append([]byte{b[0] + 1}, b[1:]...) // a later version appends
		if got, err := DecodeSchedule(append(longer, 0x05)); err != nil || !reflect.DeepEqual(*got, x.rec) {
			t.Errorf("%+v with more behind reads as %+v, %v", x.rec, got, err)
		}
		for n := range b {
			if _, err := DecodeSchedule(b[:n]); err == nil {
				t.Errorf("%d of %d bytes of a schedule are read", n, len(b))
			}
		}
	}
}

// TestDue: of several due times that were missed, the newest counts; none counts twice, also if the clock goes back.
func TestDue(t *testing.T) {
	first := time.Date(2026, 11, 28, 2, 0, 0, 0, time.UTC)
	at := func(hours float64) time.Time { return first.Add(time.Duration(hours * float64(time.Hour))) }
	for _, x := range []struct {
		last      float64 // hours after the first; negative: none
		now       float64
		due, next float64 // due negative: none
	}{
		{-1, -3, -1, 0}, {-1, 0, 0, 24}, {-1, 23, 0, 24}, {0, 23, -1, 24}, {0, 24, 24, 48}, {0, 100, 96, 120}, {96, 100, -1, 120}, {96, 50, -1, 120}, {96, -9, -1, 120},
	} {
		s := Schedule{First: first, Every: 24 * time.Hour}
		if x.last >= 0 {
			s.Last = at(x.last)
		}
		var want time.Time
		if x.due >= 0 {
			want = at(x.due)
		}
		if due, next := s.Due(at(x.now)), s.Next(at(x.now)); !due.Equal(want) || !next.Equal(at(x.next)) {
			t.Errorf("%+v: due %v, next %v", x, due, next)
		}
	}
	if a, b := ScheduledID("a", first), ScheduledID("b", first); a == b || a != ScheduledID("a", first) || len(a) != len("20261128-020000-3f9a01") {
		t.Errorf("ids %s and %s", a, b)
	}
}
