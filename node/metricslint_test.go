package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/steledb/stele/client"
)

// TestMetricsLint holds all metrics of docs/metrics.md, and a node's page, to the conventions of
// Prometheus.
func TestMetricsLint(t *testing.T) {
	for what, page := range map[string][]byte{"docs/metrics.md": metricsOfPage(t), "a node's page": metricsOfNode(t)} {
		problems, err := promlint.New(bytes.NewReader(page)).Lint()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s %s", what, p.Metric, p.Text)
		}
		promtool(t, what, page)
	}
}

// promtool runs promtool check metrics, if it is installed: its rules are those of its version. make test installs it.
func promtool(t *testing.T, what string, page []byte) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is not installed")
		return
	}
	cmd := exec.CommandContext(t.Context(), path, "check", "metrics")
	cmd.Stdin = bytes.NewReader(page)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s: promtool: %v\n%s", what, err, out)
	}
}

// metricsOfNode returns the page of a node that has served a few requests.
func metricsOfNode(t *testing.T) []byte {
	t.Helper()
	n, err := Start(t.Context(), Config{
		DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", MemoryBytes: 256 << 20, ExtentBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(context.Background())
	c, err := client.Open(t.Context(), n.RPCAddr(), client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Table("none").Get(t.Context(), "row"); err == nil {
		t.Fatal("read a table that does not exist")
	}
	answer, err := http.Get("http://" + n.HTTPAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", answer.StatusCode, err)
	}
	failed := regexp.MustCompile(`stele_rpc_errors_total\{code="table_not_found",method="[a-z_.]+"\} [1-9]`)
	if !failed.Match(page) {
		t.Errorf("the page does not match %s:\n%s", failed, page)
	}
	return page
}

// metricsOfPage returns docs/metrics.md as a page of metrics, with a sample of each.
func metricsOfPage(t *testing.T) []byte {
	t.Helper()
	reference, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	rows := regexp.MustCompile("(?m)^\\| `(stele_[^`]+)` \\| ([a-z]+) \\| (.*?) \\| (.*) \\|$").FindAllStringSubmatch(string(reference), -1)
	if len(rows) < 100 {
		t.Errorf("docs/metrics.md has %d metrics", len(rows))
	}
	for _, row := range rows {
		name, kind, labels, help := row[1], row[2], row[3], row[4]
		fmt.Fprintf(&page, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		if kind == "histogram" {
			fmt.Fprintf(&page, "%s_bucket{le=\"+Inf\"} 1\n%s_sum 1\n%s_count 1\n", name, name, name)
			continue
		}
		var pairs []string
		for label := range strings.FieldsSeq(strings.ReplaceAll(strings.Trim(labels, "-"), "`", "")) {
			pairs = append(pairs, label+`="x"`)
		}
		fmt.Fprintf(&page, "%s{%s} 1\n", name, strings.Join(pairs, ","))
	}
	return page.Bytes()
}
