package main

import (
	"fmt"
	"io"
	"os"
)

// sizes are the numbers of servers of the figure.
var sizes = []int{1, 3, 10, 50, 100, 250, 500}

func main() { printAll(os.Stdout) }

// printAll prints the models.
func printAll(out io.Writer) {
	printOne(out, &paper, []workload{paperReads})
	for _, c := range []*cluster{&today, &asPaper} {
		printOne(out, c, workloads)
	}
}

// printOne prints the rates of a cluster, with the loss from 3 servers to the most, and what binds those.
func printOne(out io.Writer, c *cluster, all []workload) {
	fmt.Fprintf(out, "\n%s: operations per second and server\n\n| servers |", c.name)
	for _, n := range sizes {
		fmt.Fprintf(out, " %d |", n)
	}
	fmt.Fprint(out, " 3 to 500 | binds at 500 |\n|---|")
	for range sizes {
		fmt.Fprint(out, "--:|")
	}
	fmt.Fprintln(out, "--:|---|")
	for i := range all {
		w, binds := &all[i], ""
		fmt.Fprintf(out, "| %s |", w.name)
		rates := map[int]float64{}
		for _, n := range sizes {
			rates[n], binds = c.perServer(w, n)
			fmt.Fprintf(out, " %.0f |", rates[n])
		}
		fmt.Fprintf(out, " %+.1f%% | %s |\n", 100*(rates[500]/rates[3]-1), binds)
	}
}
