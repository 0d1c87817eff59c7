package dataapi

import (
	"fmt"
	"testing"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// TestFilterCacheBytes: what compiled filters take together is bounded, however large each is, and small ones stay.
func TestFilterCacheBytes(t *testing.T) {
	var c filterCache
	compile := func(pattern string) {
		var e wire.Encoder
		f := table.ValueRegex(pattern)
		table.AppendFilter(&e, f)
		if _, err := c.compile(e.Bytes(), f, &table.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 * filtersMax {
		compile(fmt.Sprintf(".*(?:[a-z]?){800}%d", i))
		var sum int64
		for _, p := range c.programs {
			sum += p.Bytes()
		}
		if sum > programBytesMax || sum != c.bytes || sum == 0 {
			t.Fatalf("%d programs of %d bytes after %d filters; counted are %d, the limit is %d", len(c.programs), sum, i+1, c.bytes, programBytesMax)
		}
	}
	c = filterCache{}
	for i := range filtersMax {
		compile(fmt.Sprintf("[a-f]+%d", i))
		compile(fmt.Sprintf("[a-f]+%d", i))
	}
	if len(c.programs) != filtersMax {
		t.Errorf("%d of %d small programs are kept", len(c.programs), filtersMax)
	}
}
