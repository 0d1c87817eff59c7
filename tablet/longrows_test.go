package tablet

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/table"
)

// TestSplitLongRows: tablets whose row keys are longer than METADATA can store split at a short key
// between two rows.
func TestSplitLongRows(t *testing.T) {
	long := func(prefix string) string {
		return prefix + strings.Repeat("\xff", int(table.DefaultLimits().RowKeyBytes)-len(prefix))
	}
	var firsts, lasts, alike, short []string
	for i := range 20 {
		short = append(short, fmt.Sprintf("row%02d", i))
		firsts = append(firsts, long(fmt.Sprintf("%c", 'a'+i)))
		lasts = append(lasts, strings.Repeat("k", int(metadata.EndMax)-2)+fmt.Sprintf("%02d", i)+"tail")
		alike = append(alike, strings.Repeat("k", int(metadata.EndMax))+fmt.Sprintf("%02d", i))
	}
	for name, c := range map[string]struct {
		rows  []string
		large string // has most bytes
		ends  int    // largest split point in bytes, 0 if there is none
	}{
		"first byte differs":           {firsts, "", 1},
		"last bytes differ":            {lasts, "", int(metadata.EndMax)},
		"differ only where no end can": {alike, "", 0},
		"one is a prefix of others":    {append([]string{strings.Repeat("k", 60_000)}, lasts...), "", int(metadata.EndMax)},
		"last row is large":            {firsts, firsts[19], 2},
		"first row is large":           {firsts, firsts[0], 1},
		"short rows stay whole":        {short, "", 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newCluster(t, Config{SplitRowBytes: metadata.EndMax}, 1, "f:").servers[0]
			for _, row := range c.rows {
				cells := 1
				if row == c.large {
					cells = 60
				}
				for i := range cells {
					if _, err := applySync(s.Server, row, table.Set("f", fmt.Append(nil, i), 1, noise(20_000))); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, flushed := range []bool{false, true} {
				if flushed {
					if err := s.Compact(t.Context(), testTable, true); err != nil {
						t.Fatal(err)
					}
				}
				x, err := s.served.tablet(lastTablet)
				if err != nil {
					t.Fatal(err)
				}
				at, err := x.splitRow(t.Context())
				if c.ends == 0 {
					if !errors.Is(err, ErrNoSplitRow) {
						t.Errorf("flushed %v: split at %d bytes: %v", flushed, len(at), err)
					}
					continue
				}
				if err != nil || len(at) > c.ends {
					t.Errorf("flushed %v: split at %d bytes, want %d at most: %v", flushed, len(at), c.ends, err)
					continue
				}
				below := 0
				for _, row := range c.rows {
					if bytes.Compare([]byte(row), at) <= 0 {
						below++
					}
				}
				low, high := len(c.rows)/3, len(c.rows)*2/3
				switch c.large {
				case "":
				case c.rows[0]:
					low, high = 1, 1
				default:
					low, high = len(c.rows)-1, len(c.rows)-1
				}
				if below < low || below > high {
					t.Errorf("flushed %v: split at %d bytes parts %d rows from %d", flushed, len(at), below, len(c.rows)-below)
				}
			}
			if c.ends > 0 {
				if _, _, err := s.Split(t.Context(), lastTablet, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
