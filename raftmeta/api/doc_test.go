package api

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/rpcdoc"
	"github.com/steledb/stele/internal/wire/wiretest"
)

func TestDocHasEveryMethodAndOption(t *testing.T) {
	text := rpcdoc.Part(t, "### Methods of the lock service", "### Sessions")
	var methods []string
	options := map[string][]string{}
	for _, row := range rpcdoc.Rows(text) {
		if strings.HasPrefix(row[0], "meta.") {
			methods = append(methods, row[0])
			if want := len(shapeOf[row[0]].params); strings.Count(row[1], ",") != want {
				t.Errorf("%s takes %d parameters and options, the table says %s", row[0], want, row[1])
			}
		} else if len(row) == 4 && row[0] != "option" {
			options[row[0]] = strings.Split(row[1], "`, `")
		}
	}
	if !slices.Equal(methods, Methods()) {
		t.Errorf("the table lists\n%v, the code has\n%v", methods, Methods())
	}
	want := map[string][]string{}
	for i := range shapes {
		for _, f := range shapes[i].options {
			want[optionNames[f]] = append(want[optionNames[f]], strings.TrimPrefix(shapes[i].method, "meta."))
		}
	}
	if !reflect.DeepEqual(options, want) {
		t.Errorf("the table of options has\n%v, the code has\n%v", options, want)
	}
}

func TestDocHasEveryError(t *testing.T) {
	rpcdoc.CheckErrors(t, rpcdoc.Part(t, "### Errors of the lock service", "## Limits"), 200, 299, kinds.Kinds, CodeOutcomeUnknown)
}

func TestDocHasEveryEvent(t *testing.T) {
	var got []string
	for _, row := range rpcdoc.Rows(rpcdoc.Part(t, "### Sessions", "### A lock, step by step")) {
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

// TestDocExamples: the hexadecimal examples are what the code encodes.
func TestDocExamples(t *testing.T) {
	examples := regexp.MustCompile("(?s)```hex (meta[a-z_.]+)\n(.*?)```").FindAllStringSubmatch(rpcdoc.Part(t, "### A lock, step by step", "### Errors of the lock service"), -1)
	if len(examples) < 5 {
		t.Errorf("%d examples", len(examples))
	}
	for _, x := range examples {
		if !slices.ContainsFunc(goldens, func(g struct {
			request
			hex string
		}) bool {
			return g.method == x[1] && bytes.Equal(wiretest.Unhex(t, g.hex), wiretest.Unhex(t, x[2]))
		}) {
			t.Errorf("%s: the example is not what the code writes", x[1])
		}
	}
}
