package tablet

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/steledb/stele/table"
)

// In a group with two-pass compression, files of minor compactions use a cheaper one, merged files
// use it, with a dictionary, and all data is read back.
func TestTwoPassGroup(t *testing.T) {
	e := newEnv(t, Config{}, "contents:group=pages,compression=two-pass", "anchor")
	frame := ""
	for i := range 60 {
		frame += fmt.Sprintf("<li class=\"toctree\"><a href=\"section-%d.html\">Section %d of the manual</a></li>\n", i, i*i)
	}
	row := func(i int) string { return fmt.Sprintf("org.site/page%04d", i) }
	page := func(i int) string {
		return frame + strings.Repeat(fmt.Sprintf("<p>%d %x</p>", i, i*i*i), 1+i%9) + frame[i%1000:]
	}
	const pages = 200
	compressions := func() (got []table.Compression, dict uint64) {
		t.Helper()
		ts, err := e.served.tabletsOf(testTable)
		if err != nil {
			t.Fatal(err)
		}
		v, _, err := ts[0].views.acquire()
		if err != nil {
			t.Fatal(err)
		}
		defer v.release()
		for _, g := range v.groups {
			for _, f := range g.files {
				if g.name == "pages" {
					got = append(got, f.table.Meta().Compression)
					dict += f.table.Meta().DictBytes
				}
			}
		}
		return got, dict
	}
	check := func(when string) {
		t.Helper()
		for i := range pages {
			var got []string
			err := e.ReadRow(context.Background(), testTable, []byte(row(i)), nil, func(_ []byte, cells []table.Cell) error {
				for _, c := range cells {
					got = append(got, string(c.Value))
				}
				return nil
			})
			if err != nil || len(got) != 1 || got[0] != page(i) {
				t.Fatalf("%s: %s has %d cells, or another value: %v", when, row(i), len(got), err)
			}
		}
	}
	for i := range pages {
		e.mustApply(row(i), set("contents", "", 5, page(i)))
	}
	if err := e.Compact(context.Background(), testTable, false); err != nil {
		t.Fatal(err)
	}
	if got, dict := compressions(); !reflect.DeepEqual(got, []table.Compression{table.CompressionZstd}) || dict != 0 {
		t.Errorf("after a minor compaction: %v, dictionary of %d bytes", got, dict)
	}
	check("after a minor compaction")
	if err := e.Compact(context.Background(), testTable, true); err != nil {
		t.Fatal(err)
	}
	if got, dict := compressions(); !reflect.DeepEqual(got, []table.Compression{table.CompressionTwoPass}) || dict == 0 {
		t.Errorf("after a major compaction: %v, dictionary of %d bytes", got, dict)
	}
	check("after a major compaction")
	e.close()
	e.open()
	check("after a restart")
}
