package usage

import (
	"fmt"
	"testing"

	"github.com/steledb/stele/node/metric"
	"github.com/steledb/stele/tablet"
)

// TestMetricsOfTablesAreBounded: of many tables the largest have metrics of their own.
func TestMetricsOfTablesAreBounded(t *testing.T) {
	var all []tablet.TableSize
	total := int64(0)
	for i := range int64(metric.LabelsMax + 500) {
		all = append(all, tablet.TableSize{Table: fmt.Sprint(i), DiskBytes: i, MemtableBytes: 1})
		total += i
	}
	got, sum := accounted(all), int64(0)
	for _, x := range got {
		sum += x.DiskBytes
	}
	last := got[len(got)-1]
	if len(got) != metric.LabelsMax+1 || sum != total || got[0].DiskBytes != metric.LabelsMax+499 || last.Table != "(other)" || last.MemtableBytes != 500 {
		t.Errorf("%d tables with %d of %d bytes, the last is %+v", len(got), sum, total, last)
	}
}
