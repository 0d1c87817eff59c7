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
