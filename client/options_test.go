package client

import (
	"errors"
	"strings"
	"testing"

	"github.com/steledb/stele/table"
)

// TestOptionsThatWouldWiden: a computed value of 0 or less does not mean "all".
func TestOptionsThatWouldWiden(t *testing.T) {
	f := newFake(t)
	ctx := t.Context()
	tb := f.open(Config{}).Table("t")
	check(t, tb.Apply(ctx, NewRowMutation("r").SetAt("f:a", 1, []byte("1")).SetAt("f:a", 2, []byte("2"))))
	for name, option := range map[string]func(int) ScanOption{
		"limit": func(n int) ScanOption { return Limit(int64(n)) }, "batch_rows": BatchRows, "batch_bytes": BatchBytes,
		"versions": func(n int) ScanOption { return Versions(n) }, "row_bytes": func(n int) ScanOption { return RowBytesMax(int64(n)) },
	} {
		for _, n := range []int{0, -1} {
			s := tb.Scan(ctx, option(n))
			if s.Next() || s.Err() == nil || !strings.Contains(s.Err().Error(), name) {
				t.Errorf("%s of %d: row %v, %v, want an error with the name", name, n, s.Row(), s.Err())
			}
			s.Close()
		}
	}
	if err := tb.Apply(ctx, NewRowMutation("r").DeleteRange("f:a", 0, 0)); !errors.Is(err, table.ErrBadTimestamp) {
		t.Errorf("delete from 0 to 0: %v, want %v", err, table.ErrBadTimestamp)
	}
	if row, err := tb.Get(ctx, "r"); err != nil || row == nil || len(row.Cells) != 2 {
		t.Errorf("row after that: %v, %v, want both versions", row, err)
	}
	if _, err := tb.ReadModifyWrite(ctx, "r"); !errors.Is(err, table.ErrNoRules) {
		t.Errorf("no rules: %v, want %v", err, table.ErrNoRules)
	}
	if err := f.open(Config{}).Users().RevokeToken(ctx, "ann", ""); !errors.Is(err, ErrTokenRefused) {
		t.Errorf("token without an id: %v, want %v", err, ErrTokenRefused)
	}
}
