package console

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// activity returns an activity with the same series everywhere.
func activity(values ...int64) *client.Activity {
	a := &client.Activity{IntervalMS: 10_000, EndMS: 1_000_000}
	for _, s := range a.Series() {
		*s = slices.Clone(values)
	}
	return a
}

// TestSumOfNodes: counts of nodes are added up by their place from the end, also of a node that started later; times are those of the slowest.
func TestSumOfNodes(t *testing.T) {
	sum := sumOf(map[string]*client.Activity{"a": activity(1, 2, 30), "b": activity(10, -1)})
	if !slices.Equal(sum.Reads, []int64{1, 12, 29}) || !slices.Equal(sum.ReadP99US, []int64{1, 10, 30}) {
		t.Errorf("%+v", sum)
	}
	if got := sumOf(nil); len(chartsOf(got)) != 0 {
		t.Errorf("charts of no node: %+v", got)
	}
}

// TestCharts: values are by second and in the chart's unit, what there was not is null, and the table has the last values.
func TestCharts(t *testing.T) {
	charts := chartsOf(activity(25, -1, 1234))
	var series struct {
		Unit  string
		Times []int64
		Lines []struct {
			Name   string
			Values []*float64
		}
	}
	if err := json.Unmarshal([]byte(charts[1].Series), &series); err != nil {
		t.Fatal(err)
	}
	if v := series.Lines[0].Values; series.Unit != "ms" || !slices.Equal(series.Times, []int64{980, 990, 1000}) || *v[0] != 0.025 || v[1] != nil || *v[2] != 1.23 {
		t.Errorf("%s", charts[1].Series)
	}
	if got := charts[0].Lines[0].Last; got != "123/s" {
		t.Errorf("the last value is %q", got)
	}
	if got, want := latelyOf(activity(25, -1, 1234)), (lately{"247", "123", "1.23 ms", "1.23 ms"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := latelyOf(nil); got.Reads != "?" {
		t.Errorf("%+v", got)
	}
	if got := latelyOf(activity(-1)); got.ReadP99 != "–" {
		t.Errorf("%+v", got)
	}
}

// A node that restarted, or does not answer, is named where its part of the sums is missing.
func TestGapsInSums(t *testing.T) {
	of := func(intervals int) *client.Activity {
		return &client.Activity{IntervalMS: 15_000, Reads: make([]int64, intervals)}
	}
	nodes := []client.NodeInfo{{ID: "a", Name: "n1"}, {ID: "b", Name: "n2"}, {ID: "c", Name: "n3"}, {ID: "d", Name: "n4"}, {ID: "e", Name: "n5", State: api.NodeLeft}}
	got := strings.Join(gapsOf(nodes, map[string]*client.Activity{"a": of(240), "b": of(8), "c": of(239)}), "; ")
	want := "without node n2 until 2m ago, when it started: its requests of before are lost; without node n4, which does not answer"
	if got != want {
		t.Errorf("%s", got)
	}
}
