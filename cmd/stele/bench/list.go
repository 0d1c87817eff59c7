package bench

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/steledb/stele/cmd/stele/cli"
)

// countsFlag is one whole number, or several separated by commas, such as 200k or 200000,1M.
// Duplicates are dropped.
type countsFlag []int64

// countUnits are the suffixes that parseCount accepts.
var countUnits = []struct {
	name string
	of   float64
}{{"k", 1e3}, {"K", 1e3}, {"M", 1e6}}

func (c *countsFlag) Set(s string) error {
	var counts []int64
	for text := range strings.SplitSeq(s, ",") {
		n, err := parseCount(text)
		if err != nil {
			return err
		}
		if !slices.Contains(counts, n) {
			counts = append(counts, n)
		}
	}
	*c = counts
	return nil
}

// parseCount reads a whole number such as 200000, 200k or 1M.
func parseCount(s string) (int64, error) {
	number, of := strings.TrimSpace(s), 1.0
	for _, u := range countUnits {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, of = n, u.of
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	v *= of
	if err != nil || v < 1 || v > 1e15 || v != math.Trunc(v) {
		return 0, cli.Usagef("", "%q is not a whole number such as 200000, 200k or 1M", s)
	}
	return int64(v), nil
}

func (c *countsFlag) Type() string { return "counts" }

func (c *countsFlag) String() string {
	texts := make([]string, len(*c))
	for i, n := range *c {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(texts, ",")
}

// countFlag is one whole number, as parseCount reads it.
type countFlag int64

func (c *countFlag) Set(s string) error {
	n, err := parseCount(s)
	*c = countFlag(n)
	return err
}

func (c *countFlag) Type() string { return "count" }

func (c *countFlag) String() string {
	if *c == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*c), 10)
}
