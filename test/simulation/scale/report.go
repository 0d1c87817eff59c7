package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/steledb/stele/test/simulation/bigcluster"
)

// report prints the figures, a line for each and a column for each cluster. It returns an error if there were problems.
func report(out io.Writer, all []bigcluster.Result) (err error) {
	fmt.Fprintf(out, "| %-24s | %-40s |", "phase", "figure")
	for _, r := range all {
		fmt.Fprintf(out, " %4d nodes |", r.Nodes)
	}
	fmt.Fprintln(out)
	for _, row := range rowsOf(all) {
		fmt.Fprintf(out, "| %-24s | %-40s |", row.phase, row.figure)
		for _, r := range all {
			fmt.Fprintf(out, " %10s |", valueOf(r, row))
		}
		fmt.Fprintln(out)
	}
	for _, r := range all {
		for _, p := range r.Problems {
			fmt.Fprintf(out, "%d nodes: problem: %s\n", r.Nodes, p)
			err = errors.New("there were problems")
		}
	}
	return err
}

// key names a figure.
type key struct{ phase, figure string }

// rowsOf returns the figures of all results in order.
func rowsOf(all []bigcluster.Result) (rows []key) {
	seen := map[key]bool{}
	for _, r := range all {
		for _, p := range r.Phases {
			for _, f := range p.Figures {
				if k := (key{p.Name, f.Name}); !seen[k] {
					seen[k], rows = true, append(rows, k)
				}
			}
		}
	}
	return rows
}

// valueOf returns a figure as text; a dash if the cluster has none.
func valueOf(r bigcluster.Result, k key) string {
	for _, p := range r.Phases {
		for _, f := range p.Figures {
			if p.Name == k.phase && f.Name == k.figure {
				return strconv.FormatFloat(f.Value, 'g', 4, 64)
			}
		}
	}
	return "-"
}
