package node

import (
	"os"
	"regexp"
	"testing"
	"time"
)

// TestMonitoringNamesMetrics holds the alerts and the dashboard that people get with ansible/ to metrics that a node exports.
func TestMonitoringNamesMetrics(t *testing.T) {
	n, c := startInternal(t)
	if _, err := c.Status(t.Context()); err != nil { // so that there are figures of a method
		t.Fatal(err)
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

// notExported returns those of the names that are no metrics of a node.
func notExported(t *testing.T, n *Node, names []string) (missing []string) {
	t.Helper()
	families, err := n.registry().Gather()
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
