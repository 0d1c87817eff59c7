package api

import (
	"reflect"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
)

// TestBackupOptions: keep_ms is a positive number of at most ten years; nil means unset. More tables than a backup has are refused.
func TestBackupOptions(t *testing.T) {
	decode := func(tables int, keep any) (r CreateBackupRequest, err error) {
		err = decodeInto(wiretest.Encode(func(e *wire.Encoder) {
			e.Array(2)
			e.Array(tables)
			for range tables {
				e.Str("t")
			}
			e.Map(1)
			e.Str("keep_ms")
			wiretest.Any(e, keep)
		}), &r)
		return r, err
	}
	for _, bad := range []any{0, -1, "1", 1.5, true} {
		if r, err := decode(1, bad); err == nil {
			t.Errorf("keep_ms of %v reads as %v", bad, r.Keep)
		}
	}
	for _, x := range []struct {
		keep any
		want time.Duration
	}{{nil, 0}, {1000, time.Second}, {1 << 60, BackupKeepMax}} {
		if r, err := decode(BackupTablesMax, x.keep); err != nil || r.Keep != x.want || len(r.Tables) != BackupTablesMax {
			t.Errorf("keep_ms of %v reads as %v, %v", x.keep, r.Keep, err)
		}
	}
	if _, err := decode(BackupTablesMax+1, nil); err == nil {
		t.Errorf("%d tables are accepted", BackupTablesMax+1)
	}
}

// TestBackupResults: lists of backups are read as they were written.
func TestBackupResults(t *testing.T) {
	want := Backups{Backups: []BackupInfo{
		{ID: "a", State: BackupMade, CreatedMS: 1, EndedMS: 2, ExpiresMS: 3, By: "ann", Tables: []string{"t"}, Tablets: 4, Bytes: 5},
		{ID: "b", State: BackupFailed, Error: "no", Tables: []string{}},
	}}
	var got Backups
	d := wire.NewDecoder(wiretest.Encode(want.Append))
	if err := got.Decode(&d); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestScheduleBounds: times of schedules have bounds, and so has the number of backups that one keeps. Lists are read as they were written.
func TestScheduleBounds(t *testing.T) {
	decode := func(every, keep int64) error {
		var r CreateScheduleRequest
		return decodeInto(wiretest.Encode(func(e *wire.Encoder) {
			e.Array(4)
			e.Str("d")
			e.Array(0)
			e.Int(every)
			e.Int(keep)
		}), &r)
	}
	const minute, year = 60_000, 366 * 24 * 3_600_000
	for _, x := range [][2]int64{{minute, 1}, {minute, ScheduleKeptMax * minute}, {year, year}} {
		if err := decode(x[0], x[1]); err != nil {
			t.Errorf("every %d for %d: %v", x[0], x[1], err)
		}
	}
	for _, x := range [][2]int64{{minute - 1, minute}, {0, 1}, {-1, 1}, {minute, 0}, {minute, -5}, {year + 1, year}, {minute, (ScheduleKeptMax + 1) * minute}, {year, 11 * year}, {1 << 62, 1 << 62}} {
		if decode(x[0], x[1]) == nil {
			t.Errorf("every %d for %d is accepted", x[0], x[1])
		}
	}
	want := Schedules{Schedules: []ScheduleInfo{{Name: "d", All: true, Tables: []string{}, EveryMS: 1, KeepMS: 2, CreatedMS: 3, NextMS: 4, LastMS: 5, GoodMS: 6, LastBackup: "b",
		State: BackupMade, Failures: 7, Error: "e", By: "ann"}}}
	var got Schedules
	d := wire.NewDecoder(wiretest.Encode(want.Append))
	if err := got.Decode(&d); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}
