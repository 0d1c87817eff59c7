package namespace

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/table"
)

// TestBadCuts: split points that a table cannot have are rejected, each with its own error.
func TestBadCuts(t *testing.T) {
	limits := table.DefaultLimits()
	many := make([][]byte, api.SplitAtMax+1)
	for i := range many {
		many[i] = fmt.Appendf(nil, "%06d", i)
	}
	long := bytes.Repeat([]byte("x"), int(metadata.EndMax)+1)
	for _, x := range []struct {
		what string
		rows [][]byte
		want error
	}{
		{"twice", [][]byte{[]byte("b"), []byte("a"), []byte("b")}, api.ErrBadSplit},
		{"empty", [][]byte{[]byte("b"), {}}, table.ErrBadRowKey},
		{"too many", many, table.ErrLimit},
		{"too long", [][]byte{long}, table.ErrLimit},
		{"too long together", [][]byte{long[1:], append(long[2:], 'y'), append(long[3:], 'z', 'z'), append(long[4:], 'z', 'z')}, table.ErrLimit},
	} {
		if _, err := CheckSplitPoints(x.rows, &limits); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", x.what, err, x.want)
		}
	}
	if got, err := CheckSplitPoints(many[:api.SplitAtMax], &limits); err != nil || len(got) != api.SplitAtMax {
		t.Errorf("%d rows: %v", len(got), err)
	}
}
