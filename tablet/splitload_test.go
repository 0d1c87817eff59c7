package tablet

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/table"
)

// splitEnv is a server whose OnSplitCandidate calls are collected.
func splitEnv(t *testing.T, cfg Config) (*env, *[]SplitCandidate) {
	var got []SplitCandidate
	cfg.OnSplitCandidate = func(w SplitCandidate) { got = append(got, w) }
	return newEnv(t, cfg, "f:"), &got
}

func TestSplitBySize(t *testing.T) {
	e, got := splitEnv(t, Config{SplitBytes: 200_000})
	for i := range 100 {
		e.mustApply(fmt.Sprintf("row%02d", i), table.Set("f", []byte("q"), 1, noise(1000)))
	}
	e.splits.check(time.Second)
	if len(*got) != 0 {
		t.Fatalf("half of the size: %+v", *got)
	}
	if err := e.Compact(context.Background(), testTable, true); err != nil {
		t.Fatal(err)
	}
	for i := range 130 { // as many again, in the memtable
		e.mustApply(fmt.Sprintf("row%02d", i), table.Set("f", []byte("q2"), 1, noise(1000)))
	}
	e.splits.check(time.Second)
	if len(*got) != 1 || (*got)[0].Ref != lastTablet || (*got)[0].Bytes < 200_000 || (*got)[0].At != nil {
		t.Fatalf("got %+v", *got)
	}
	if _, _, err := e.Split(context.Background(), lastTablet, (*got)[0].At); err != nil {
		t.Fatal(err)
	}
	*got = nil
	e.splits.check(time.Second)
	if len(*got) != 0 { // though each names the same file
		t.Fatalf("the halves: %+v", *got)
	}
}

func TestSplitByLoad(t *testing.T) {
	for name, c := range map[string]struct {
		row  func(i int) string
		want string // "": none
	}{
		"spread":                      {func(i int) string { return fmt.Sprintf("row%03d", i%1000) }, "row"},
		"one row":                     {func(i int) string { return "row" }, ""},
		"one row and some above":      {func(i int) string { return []string{"b", "b", "c"}[i/1024%3] }, "b"},
		"one row and some below":      {func(i int) string { return []string{"b", "b", "a"}[i/1024%3] }, "a"},
		"many rows, most of them low": {func(i int) string { return []string{"a", "b", "c", "z"}[i/1024%4] }, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			e, got := splitEnv(t, Config{SplitOps: 1000})
			for period := range busyPeriods {
				if len(*got) != 0 {
					t.Fatalf("after %d periods: %+v", period, *got)
				}
				for i := range 40_000 { // as operations do
					if _, err := e.For(nil).tabletNow(testTable, []byte(c.row(i))); err != nil {
						t.Fatal(err)
					}
				}
				e.splits.check(10 * time.Second)
			}
			if c.want == "" {
				if len(*got) != 0 {
					t.Fatalf("got %+v", *got)
				}
				return
			}
			if len(*got) != 1 || (*got)[0].OpsPerSecond != 4000 || len((*got)[0].At) == 0 || (*got)[0].At[0] != c.want[0] {
				t.Fatalf("got %+v, want a split at %q", *got, c.want)
			}
			if _, _, err := e.Split(context.Background(), lastTablet, (*got)[0].At); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("a burst", func(t *testing.T) {
		e, got := splitEnv(t, Config{SplitOps: 1000})
		for period := range 10 {
			for i := range 40_000 * (period % busyPeriods) {
				if _, err := e.For(nil).tabletNow(testTable, fmt.Appendf(nil, "row%03d", i%1000)); err != nil {
					t.Fatal(err)
				}
			}
			e.splits.check(10 * time.Second)
		}
		if len(*got) != 0 {
			t.Fatalf("got %+v", *got)
		}
	})
}
