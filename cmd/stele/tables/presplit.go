package tables

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
)

// splitHelp describes how to create a table with several tablets.
const splitHelp = `A new table has one tablet, on one node, which is split as it grows. To spread the first
load over all nodes, create it with several tablets: --split-at lists the last row of
each tablet but the last one; --split-hex creates N tablets of equal ranges for keys
that begin with hexadecimal digits, such as hashes.`

// splitFlags are the flags for the split points of a new table.
type splitFlags struct {
	at  []string
	hex int
}

func (f *splitFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.at, "split-at", nil, "create a tablet boundary after each of these `rows`, separated by commas; may be repeated")
	cmd.Flags().IntVar(&f.hex, "split-hex", 1, "create `N` tablets with equal ranges of hexadecimal keys")
}

// rows returns the split points, in no particular order.
func (f *splitFlags) rows(a *cli.App) (rows []string, err error) {
	for _, list := range f.at {
		for _, row := range strings.Split(list, ",") {
			if row == "" {
				return nil, cli.Usagef("", "--split-at: %q has an empty row", list)
			}
			rows = append(rows, row)
			if err := a.Texts(&rows[len(rows)-1]); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case f.hex < 1 || f.hex > api.SplitAtMax:
		return nil, cli.Usagef("", "--split-hex: %d is not a number of tablets between 1 and %d", f.hex, api.SplitAtMax)
	case f.hex > 1 && len(rows) > 0:
		return nil, cli.Usagef("use one of them", "--split-at and --split-hex are both given")
	}
	return append(rows, hexSplitPoints(f.hex)...), nil
}

// hexSplitPoints returns the n-1 split points that divide hexadecimal keys into n equal ranges. If n does not
// divide a power of 16, the ranges differ slightly.
func hexSplitPoints(n int) (rows []string) {
	if n <= 1 {
		return nil
	}
	digits, keys := 1, 16
	for keys < n || keys%n != 0 && digits < 6 {
		digits, keys = digits+1, keys*16
	}
	for i := 1; i < n; i++ {
		rows = append(rows, fmt.Sprintf("%0*x", digits, i*keys/n))
	}
	return rows
}

// inTablets returns " of N tablets" for a table with several tablets; empty for one.
func inTablets(splitPoints int) string {
	if splitPoints == 0 {
		return ""
	}
	return " of " + cli.Plural(int64(splitPoints)+1, "tablet")
}
