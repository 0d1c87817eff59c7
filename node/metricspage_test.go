package node

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var updateMetrics = flag.Bool("update-metrics", false, "write docs/metrics.md")

const metricsPage = "../docs/metrics.md"

// TestMetricsPage: docs/metrics.md has what the sources name, and so all that a node exports.
func TestMetricsPage(t *testing.T) {
	want := metricsReference(t)
	if *updateMetrics {
		if err := os.WriteFile(metricsPage, []byte(want), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(metricsPage)
	if err != nil || string(page) != want {
		t.Errorf("docs/metrics.md is not of these metrics: go test ./node -run TestMetricsPage -update-metrics (%v)", err)
	}
	n, c := startInternal(t)
	if _, err := c.Status(t.Context()); err != nil { // so that there are figures of a method
		t.Fatal(err)
	}
	families, err := n.monitor.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		name, kind := f.GetName(), strings.ToLower(f.GetType().String())
		if strings.HasPrefix(name, "stele_") && !strings.Contains(want, fmt.Sprintf("| `%s` | %s |", name, kind)) {
			t.Errorf("the page has no %s %s", kind, name)
		}
	}
}

// metricsReference is the page, of the calls that make metrics and the lists of names and help in the sources.
func metricsReference(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Metrics\n\nThe metrics that a node exports at `/metrics`, in addition to those of the Go runtime and the process: see " +
		"[access](operating.md#metrics-and-health).\nThis page is generated from the sources.\n\n" +
		"| name | kind | labels | |\n|---|---|---|---|\n")
	for _, file := range metricFiles(t) {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.CallExpr:
				s, ok := x.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				kind, texts := strings.ToLower(s.Sel.Name), literals(x.Args)
				switch {
				case kind != "gauge" && kind != "counter" && kind != "newdesc" || len(texts) < 2 || texts[0] == "" || texts[1] == "":
					return true
				case kind == "newdesc":
					metricRow(&b, strings.TrimPrefix(texts[0], "stele_"), "histogram", []string{"method"}, texts[1])
					return true
				}
				var labels []string
				for i := 3; i < len(texts); i += 2 { // name and value in turn
					labels = append(labels, texts[i])
				}
				metricRow(&b, texts[0], kind, labels, texts[1])
			case *ast.CompositeLit: // of a list of counters
				if texts := literals(x.Elts); len(texts) == 3 && strings.HasSuffix(texts[0], "_total") && texts[1] != "" {
					metricRow(&b, texts[0], "counter", nil, texts[1])
				}
			}
			return true
		})
	}
	return b.String()
}

// metricFiles returns the files of this package and those below it, those of metrics first. Of files without metrics there is nothing.
func metricFiles(t *testing.T) []string {
	t.Helper()
	first, rest := []string{"monitor/metrics.go"}, []string(nil)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || path == first[0]:
		case filepath.Dir(path) == "metric":
			first = append(first, path)
		default:
			rest = append(rest, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(first, rest...)
}

func metricRow(b *strings.Builder, name, kind string, labels []string, help string) {
	reported := "-"
	if len(labels) > 0 {
		reported = "`" + strings.Join(labels, "` `") + "`"
	}
	fmt.Fprintf(b, "| `stele_%s` | %s | %s | %s |\n", name, kind, reported, help)
}

// literals returns the texts of expressions, empty for what is none.
func literals(of []ast.Expr) []string {
	texts := make([]string, len(of))
	for i, x := range of {
		if l, ok := x.(*ast.BasicLit); ok && l.Kind == token.STRING {
			texts[i], _ = strconv.Unquote(l.Value)
		}
	}
	return texts
}
