package node

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// TestMonitoringNamesMetrics holds the alerts and the dashboard that people get with ansible/ to metrics that a node exports.
func TestMonitoringNamesMetrics(t *testing.T) {
	n, c := startInternal(t)
	if _, err := c.Status(t.Context()); err != nil { // so that there are figures of a method
		t.Fatal(err)
	}
	if _, err := c.Tables().Create(t.Context(), "t", table.FamilySpec{Name: "f"}); err != nil { // and of a table and a quota
		t.Fatal(err)
	}
	if err := c.Quotas().Set(t.Context(), client.QuotaOfTable, "t", map[string]int64{api.QuotaReadOps: 1000}, 0); err != nil {
		t.Fatal(err)
	}
	source, from := startInternal(t) // and of a replication
	if _, err := from.Tables().Create(t.Context(), "r", table.FamilySpec{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Tables().Alter(t.Context(), "r", table.Change{Op: table.ChangeStream, Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := c.Replications().Create(t.Context(), &client.ReplicationSpec{Name: "east", Addrs: []string{source.RPCAddr()}, Tables: []string{"r"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Table("none").Get(t.Context(), "row"); err == nil { // and of a method's errors
		t.Fatal("read a table that does not exist")
	}
	metric := regexp.MustCompile(`\b(stele|process)_[a-z0-9_]+`)
	for _, file := range []string{"stele.rules.yml", "stele-dashboard.json"} {
		text, err := os.ReadFile("../ansible/roles/monitoring/files/" + file)
		if err != nil {
			t.Fatal(err)
		}
		named := metric.FindAllString(string(text), -1)
		if len(named) < 20 {
			t.Errorf("%s names %d metrics only: how are they told?", file, len(named))
		}
		end := time.Now().Add(20 * time.Second)
		missing := notExported(t, n, named)
		for len(missing) > 0 && time.Now().Before(end) { // some are the master's, which takes a moment to begin
			time.Sleep(50 * time.Millisecond)
			missing = notExported(t, n, named)
		}
		for _, name := range missing {
			t.Errorf("%s names %s, which no node exports", file, name)
		}
	}
}

// TestDiskSizesAreTold: of each folder there is the size of its file system beside what is free of it, under the same name as in
// a status.
func TestDiskSizesAreTold(t *testing.T) {
	n, c := startInternal(t)
	s, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	families, err := n.monitor.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	reported := map[string]map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "folder" && m.GetGauge() != nil {
					if reported[l.GetValue()] == nil {
						reported[l.GetValue()] = map[string]float64{}
					}
					reported[l.GetValue()][f.GetName()] = m.GetGauge().GetValue()
				}
			}
		}
	}
	if len(s.Disks) == 0 || len(reported) != len(s.Disks) {
		t.Errorf("a status has %d folders, metrics %d", len(s.Disks), len(reported))
	}
	for _, d := range s.Disks {
		total, free := reported[d.Path]["stele_disk_total_bytes"], reported[d.Path]["stele_disk_free_bytes"]
		if total != float64(d.TotalBytes) || total <= 0 || free <= 0 || free > total {
			t.Errorf("%s: %.0f of %.0f bytes are free, by a status of %d", d.Path, free, total, d.TotalBytes)
		}
	}
}

// notExported returns those of the names that are no metrics of a node.
func notExported(t *testing.T, n *Node, names []string) (missing []string) {
	t.Helper()
	families, err := n.monitor.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	exported := map[string]bool{}
	for _, f := range families {
		exported[f.GetName()] = true
		if f.GetMetric()[0].GetHistogram() != nil {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				exported[f.GetName()+part] = true
			}
		}
	}
	for _, name := range names {
		if !exported[name] {
			missing = append(missing, name)
		}
	}
	return missing
}
