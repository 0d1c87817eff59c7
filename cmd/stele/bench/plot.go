package bench

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/bench/report"
)

const plotLong = `Plot reports of "stele bench --report" side by side, as one SVG image: the throughput of
each workload, the latency of its calls, and the CPU time per row or operation. Each
report is compared with the first.`

const plotExample = `  stele bench plot today.json --out bench.svg
  stele bench plot yesterday.json today.json > bench.svg`

func plotCommand(a *cli.App) *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:     "plot REPORT [REPORT...] [--out FILE]",
		Short:   "Plot reports side by side, as SVG",
		Long:    plotLong,
		Example: plotExample,
		Args:    cobra.RangeArgs(1, report.RunsMax),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			reports, err := openReports(args)
			if err != nil {
				return err
			}
			if out == "" {
				if a.OutTTY {
					return cli.Usagef("add --out bench.svg", "refusing to write an image to a terminal")
				}
				return report.Plot(a.Out, reports...)
			}
			file, err := os.Create(out)
			if err != nil {
				return err
			}
			return errors.Join(report.Plot(file, reports...), file.Close())
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "write the image to `FILE` (default: standard output)")
	return cmd
}
