package api

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/errkind"
	"github.com/steledb/stele/rpc"
)

// doc returns what lies between two headings of docs/rpc.md.
func doc(t *testing.T, from, to string) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/rpc.md")
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

// tableRows returns the cells of the tables in text, without the heads.
func tableRows(text string) (rows [][]string) {
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

func TestDocHasEveryMethodAndOption(t *testing.T) {
	text := doc(t, "### Methods of the lock service", "### Sessions")
	var methods []string
	options := map[string]string{}
	for _, row := range tableRows(text) {
		if strings.HasPrefix(row[0], "meta.") {
			methods = append(methods, row[0])
			if want := len(shapeOf[row[0]].params); strings.Count(row[1], ",") != want {
				t.Errorf("%s takes %d parameters and options, the table says %s", row[0], want, row[1])
			}
		} else if len(row) == 4 {
			options[row[0]] = row[1]
		}
	}
	if !slices.Equal(methods, Methods()) {
		t.Errorf("the table lists\n%v, the code has\n%v", methods, Methods())
	}
	for i := range shapes {
		for _, f := range shapes[i].options {
			name, method := optionNames[f], strings.TrimPrefix(shapes[i].method, "meta.")
			if !slices.Contains(strings.Split(options[name], "`, `"), method) {
				t.Errorf("option %s of %s is not in the table: %q", name, method, options[name])
			}
		}
	}
}

func TestDocHasEveryError(t *testing.T) {
	var want []string
	for code := rpc.Code(200); code < 300; code++ {
		if strings.HasPrefix(code.String(), "code_") {
			continue
		}
		retryable, executed := "no", "no"
		if slices.ContainsFunc(kinds.Kinds, func(k errkind.Kind) bool { return k.Code == code && k.Retryable }) {
			retryable = "yes"
		}
		if code == CodeOutcomeUnknown {
			executed = "unknown"
		}
		want = append(want, fmt.Sprint(uint32(code), " ", code, " ", retryable, " ", executed))
	}
	var got []string
	for _, row := range tableRows(doc(t, "### Errors of the lock service", "## Limits")) {
		if row[0] != "code" {
			got = append(got, strings.Join(row[:4], " "))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table has\n%v, the code\n%v", got, want)
	}
}

func TestDocHasEveryEvent(t *testing.T) {
	var got []string
	for _, row := range tableRows(doc(t, "### Sessions", "### A lock, step by step")) {
		if row[0] != "kind" {
			got = append(got, row[0]+" "+row[1])
		}
	}
	var want []string
	for k := ContentsChanged; k <= CacheInvalid; k <<= 1 {
		want = append(want, fmt.Sprint(uint8(k), " ", k))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table has\n%v, the code\n%v", got, want)
	}
}

// The hexadecimal examples are what the code writes.
func TestDocExamples(t *testing.T) {
	examples := regexp.MustCompile("(?s)```hex (meta[a-z_.]+)\n(.*?)```").FindAllStringSubmatch(doc(t, "### A lock, step by step", "### Errors of the lock service"), -1)
	if len(examples) < 5 {
		t.Errorf("%d examples", len(examples))
	}
	for _, x := range examples {
		if !slices.ContainsFunc(goldens, func(g struct {
			request
			hex string
		}) bool {
			return g.method == x[1] && bytes.Equal(unhex(t, g.hex), unhex(t, x[2]))
		}) {
			t.Errorf("%s: the example is not what the code writes", x[1])
		}
	}
}
