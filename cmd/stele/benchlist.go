package main

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// countsFlag is one whole number or several between commas, such as 200000,1M or
// 200k; each is measured.
type countsFlag []int64

// countUnits are those of large numbers.
var countUnits = []struct {
	name string
	of   float64
}{{"k", 1e3}, {"K", 1e3}, {"M", 1e6}}

func (c *countsFlag) Set(s string) error {
	var counts []int64
	for text := range strings.SplitSeq(s, ",") {
		number, of := strings.TrimSpace(text), 1.0
		for _, u := range countUnits {
			if n, ok := strings.CutSuffix(number, u.name); ok {
				number, of = n, u.of
				break
			}
		}
		v, err := strconv.ParseFloat(number, 64)
		v *= of
		if err != nil || v < 1 || v > 1e15 || v != math.Trunc(v) {
			return usagef("", "%q is not a whole number such as 200000, 200k or 1M", text)
		}
		if !slices.Contains(counts, int64(v)) {
			counts = append(counts, int64(v))
		}
	}
	*c = counts
	return nil
}

func (c *countsFlag) Type() string { return "counts" }

func (c *countsFlag) String() string {
	texts := make([]string, len(*c))
	for i, n := range *c {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(texts, ",")
}
