package node

import (
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// TestUsageMetrics: tables and quotas are in the metrics, with what they take and how often they refused.
func TestUsageMetrics(t *testing.T) {
	n, c := startInternal(t)
	ctx := t.Context()
	if _, err := c.Tables().Create(ctx, "t", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Quotas().Set(ctx, client.QuotaOfTable, "t", map[string]int64{api.QuotaWriteOps: 20}, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	reported := func() (memtable, refusals float64) {
		families, err := n.monitor.Registry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				switch {
				case f.GetName() == "stele_table_memtable_bytes" && labels["table"] == "t":
					memtable = m.GetGauge().GetValue()
				case f.GetName() == "stele_quota_refusals_total" && labels["quota"] == `table "t"` && labels["kind"] == "write_ops":
					refusals = m.GetCounter().GetValue()
				}
			}
		}
		return memtable, refusals
	}
	for end := time.Now().Add(20 * time.Second); ; {
		if err := c.Table("t").Apply(ctx, client.NewRowMutation("r").Set("f:q", make([]byte, 1000))); err != nil {
			t.Fatal(err)
		}
		memtable, refusals := reported()
		if memtable > 1000 && refusals > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the table's memtables take %.0f bytes, its quota has refused %.0f", memtable, refusals)
		}
	}
}
