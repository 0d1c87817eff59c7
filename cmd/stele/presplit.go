package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client/api"
)

// splitHelp explains how a table is cut when it is made.
const splitHelp = `A table begins as one tablet, on one node, and is split as it grows. To have all nodes
take part in a first load, cut it beforehand: with --split-at at rows, each the last of a
tablet, or with --split-hex into N tablets for keys that begin with hexadecimal digits,
such as hashes.`

// splitFlags say where a new table is cut.
type splitFlags struct {
	at  []string
	hex int
}

func (f *splitFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.at, "split-at", nil, "cut the table at these `rows`, between commas; may be given several times")
	cmd.Flags().IntVar(&f.hex, "split-hex", 1, "cut it into `N` tablets of as many hexadecimal keys each")
}

// rows returns the rows to cut at, in no order.
func (f *splitFlags) rows(a *app) (rows []string, err error) {
	for _, list := range f.at {
		for _, row := range strings.Split(list, ",") {
			if row == "" {
				return nil, usagef("", "--split-at: %q has an empty row", list)
			}
			rows = append(rows, row)
			if err := a.texts(&rows[len(rows)-1]); err != nil {
				return nil, err
			}
		}
	}
	switch {
	case f.hex < 1 || f.hex > api.SplitAtMax:
		return nil, usagef("", "--split-hex: %d is not a number of tablets from 1 to %d", f.hex, api.SplitAtMax)
	case f.hex > 1 && len(rows) > 0:
		return nil, usagef("", "a table is cut by --split-at or by --split-hex, not by both")
	}
	return append(rows, hexCuts(f.hex)...), nil
}

// hexCuts returns the rows that cut hexadecimal keys into n even parts.
func hexCuts(n int) (rows []string) {
	if n <= 1 {
		return nil
	}
	digits, keys := 1, 16
	for keys < n || keys%n != 0 && digits < 6 { // the parts of a number that is none of 16's differ a little
		digits, keys = digits+1, keys*16
	}
	for i := 1; i < n; i++ {
		rows = append(rows, fmt.Sprintf("%0*x", digits, i*keys/n))
	}
	return rows
}

// inTablets says that a table has several tablets, if it has.
func inTablets(cuts int) string {
	if cuts == 0 {
		return ""
	}
	return " of " + plural(int64(cuts)+1, "tablet")
}
