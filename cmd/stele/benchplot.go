package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/internal/bench/report"
)

func (a *app) benchPlotCommand() *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:   "plot REPORT [REPORT...] [--out FILE]",
		Short: "Draw reports beside each other, as SVG",
		Long: `Draw reports of "stele bench --report" beside each other, as one picture in SVG: what
each workload did a second, the latency of its calls, and the processor time of each
row or operation. The others are compared with the first.`,
		Example: `  stele bench plot today.json --out bench.svg
  stele bench plot yesterday.json today.json > bench.svg`,
		Args: cobra.RangeArgs(1, report.RunsMax),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			reports, err := openReports(args)
			if err != nil {
				return err
			}
			if out == "" {
				if a.outTTY {
					return usagef("add --out bench.svg", "the picture is not for a terminal")
				}
				return report.Plot(a.out, reports...)
			}
			file, err := os.Create(out)
			if err != nil {
				return err
			}
			return errors.Join(report.Plot(file, reports...), file.Close())
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "write it to `FILE` (default standard output)")
	return cmd
}
