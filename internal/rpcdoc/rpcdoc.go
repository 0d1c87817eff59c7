// Package rpcdoc parses docs/rpc.md for the tests that keep it consistent with the code. It is
// imported only by tests.
package rpcdoc

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/errkind"
	"github.com/steledb/stele/rpc"
)

// Part returns the text between two headings.
func Part(t testing.TB, from, to string) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	b, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../docs/rpc.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), "\n"+from+"\n")
	text, _, ok2 := strings.Cut(text, "\n"+to+"\n")
	if !ok || !ok2 {
		t.Fatalf("docs/rpc.md has no %q or no %q after it", from, to)
	}
	return text
}

// Rows returns the cells of the tables in text.
func Rows(text string) (rows [][]string) {
	for line := range strings.Lines(text) {
		if cells, ok := strings.CutPrefix(strings.TrimSpace(line), "| "); ok {
			row := strings.Split(strings.TrimSuffix(cells, " |"), " | ")
			for i := range row {
				row[i] = strings.Trim(row[i], " |`")
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// CheckErrors compares a table of errors with the named codes from first to last: the number, the
// name, whether the error is retryable according to kinds, and whether the call was executed, which
// is unknown for the codes in unknown.
func CheckErrors(t testing.TB, text string, first, last rpc.Code, kinds []errkind.Kind, unknown ...rpc.Code) {
	t.Helper()
	var want []string
	for code := first; code <= last; code++ {
		if strings.HasPrefix(code.String(), "code_") {
			continue
		}
		retryable, executed := "no", "no"
		if slices.ContainsFunc(kinds, func(k errkind.Kind) bool { return k.Code == code && k.Retryable }) {
			retryable = "yes"
		}
		if slices.Contains(unknown, code) {
			executed = "unknown"
		}
		want = append(want, fmt.Sprint(uint32(code), " ", code, " ", retryable, " ", executed))
	}
	var got []string
	for _, row := range Rows(text) {
		if row[0] != "code" {
			got = append(got, strings.Join(row[:4], " "))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
