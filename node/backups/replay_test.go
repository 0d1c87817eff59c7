package backups

import (
	"errors"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/tablet/changes"
)

// TestBeginningIsKept: a restore to a time is refused if changes or clears of rows in common that came after the backup are not kept. In earlier versions a
// clear has the sequence number of the write before it: one with that of the redo point may have come after the backup.
func TestBeginningIsKept(t *testing.T) {
	b := beginning{start: []byte("d"), end: []byte("m"), redo: 7}
	with := func(floor, forgotten uint64) *changes.Set {
		s := changes.New(floor, 100)
		if forgotten == 0 {
			return s
		}
		return s.Forget(forgotten, 200)
	}
	for _, x := range []struct {
		name       string
		set        *changes.Set
		start, end string
		limit      int64 // 0: kept
	}{
		{"all is kept", with(7, 0), "", "", 0},
		{"an earlier clear is forgotten", with(7, 6), "", "", 0},
		{"a clear without a write before it is forgotten", with(7, 7), "", "", 201},
		{"a later clear is forgotten", with(7, 9), "", "", 201},
		{"a change is not kept", with(8, 0), "", "", 101},
		{"other rows, before", with(8, 9), "a", "d", 0},
		{"other rows, after", with(8, 9), "m", "", 0},
		{"one row in common", with(8, 0), "l", "", 101},
	} {
		err := b.check(x.set, []byte(x.start), []byte(x.end))
		var refused *api.RestoreTimeError
		if x.limit == 0 && err != nil || x.limit != 0 && (!errors.As(err, &refused) || refused.Reason != api.RestoreNotKept || refused.Limit != x.limit) {
			t.Errorf("%s: %v, want the limit %d", x.name, err, x.limit)
		}
	}
}
