package console

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/steledb/stele/table"
)

const (
	paintTables  = 10
	paintTablets = 1000 // of each table
	paintLoads   = 5    // of each page; the median counts
	paintWatch   = 30 * time.Second
)

// BenchmarkPages measures the console of a node with 10,000 tablets: for each page the time from the start of the navigation to the first contentful paint,
// in ms, and the part of one processor that the node uses for the page while it stays open and live, in %.
//
//	go test -run '^$' -bench Pages -benchtime 1x ./test/console
func BenchmarkPages(b *testing.B) {
	c := startOpen(b)
	for i := range paintTables {
		var splits []string
		for n := range paintTablets - 1 {
			splits = append(splits, fmt.Sprintf("%04d", n+1))
		}
		if _, err := c.admin.Tables().CreateSplit(b.Context(), fmt.Sprintf("t%d", i), splits, table.FamilySpec{Name: "f"}); err != nil {
			b.Fatal(err)
		}
	}
	pages := []string{"/", "/nodes", "/tables", "/tables/t0", "/tables/t0/keys", "/requests", "/logs"}
	for _, path := range pages {
		b.Run(path, func(b *testing.B) {
			x := openTab(b, 1280, 800)
			var all []time.Duration
			for b.Loop() {
				for range paintLoads {
					x.run(chromedp.Navigate(c.address(path)))
					all = append(all, x.paint())
				}
			}
			slices.Sort(all)
			b.ReportMetric(float64(all[len(all)/2].Milliseconds()), "paint-ms")
			b.ReportMetric(100*(busy(paintWatch)), "open-%")
			x.run(chromedp.Navigate("about:blank"))
			b.ReportMetric(100*(busy(paintWatch)), "closed-%")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// busy returns the part of one processor that this process, which has the node, uses.
func busy(d time.Duration) float64 {
	before := used()
	time.Sleep(d)
	return float64(used()-before) / float64(d)
}

func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // with these arguments it cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
