package tablet

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/steledb/stele/table"
)

// TestFailedReadIsNoPartOfARow: a read of a row of several blocks, one of which cannot be read,
// fails and never returns a part of the row. So does a scan that ends with that row.
func TestFailedReadIsNoPartOfARow(t *testing.T) {
	const cells = 4
	e := newEnv(t, Config{CacheBytes: 1}, "f:compression=none,block=4KiB", "g:group=g,compression=none,block=4KiB")
	for i, family := range []string{"f", "g"} {
		for k := range cells {
			e.mustApply("r", table.Set(family, fmt.Appendf(nil, "q%d", k), 1, randomValue(8<<10+i+k)))
		}
	}
	if err := e.Compact(t.Context(), testTable, true); err != nil {
		t.Fatal(err)
	}
	got := 0
	take := func(_ []byte, row []table.Cell) error {
		got = len(row)
		return ErrLast
	}
	reads := map[string]func() error{
		"read": func() error {
			err := e.ReadRow(context.Background(), testTable, []byte("r"), nil, take)
			if err == ErrLast {
				return nil
			}
			return err
		},
		"scan": func() error {
			_, err := e.Scan(context.Background(), testTable, Range{}, nil, take)
			return err
		},
	}
	for what, read := range reads {
		failed := 0
		for n := 0; ; n++ {
			e.reads.failAfter(n)
			got = 0
			err := read()
			if errors.Is(err, errReadFails) {
				failed++
				continue
			}
			if err != nil || got != 2*cells {
				t.Fatalf("%s of which all but %d reads of the disk fail: %d cells of %d, %v", what, n, got, 2*cells, err)
			}
			break
		}
		e.reads.failAfter(-1)
		if failed < 2*cells {
			t.Errorf("%s: only %d reads of the disk", what, failed)
		}
	}
}
