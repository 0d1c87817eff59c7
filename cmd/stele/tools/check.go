package tools

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/node/masterkeys"
	"github.com/steledb/stele/node/verify"
	"github.com/steledb/stele/tablet/sstable"
)

// The exit codes that monitoring systems expect of a plugin.
const (
	monitorCritical = 2
	monitorUnknown  = 3
)

const checkLong = `Check the data of a stopped node: all checksums, the order of keys in every complete
SSTable, and every frame of the commit logs. Name all data folders of the node, and its
master keys if they are encrypted. The command changes nothing. It cannot detect missing
extents: use "stele blob fsck" for that.

The first lines list the problems, each with file and offset. The last line is a
summary. Exit codes: 0 no problems, 5 problems found, any other: the check did not
finish. With --monitor they are those of monitoring plugins: 0 OK, 2 critical, 3
unknown.`

const checkExample = `  stele check /var/lib/stele
  stele check /data1 /data2 --json
  stele check --monitor /var/lib/stele
  stele check /var/lib/stele --encryption-key-file /etc/stele/encryption`

func checkCommand(a *cli.App) *cobra.Command {
	monitor, encryption := false, masterkeys.Source{}
	cmd := &cobra.Command{
		Use:     "check DATA-DIR...",
		Short:   "Check the data folders of a stopped node",
		Long:    checkLong,
		Example: checkExample,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := a.Within(cmd, cli.NoTimeout)
			defer cancel()
			err := checkFolders(ctx, a, args, encryption)
			if !monitor || err == nil {
				return err
			}
			if f := cli.FaultOf(err); f.Code != cli.ExitUnhealthy {
				a.Report(err)
				return cli.SilentExit(monitorUnknown)
			}
			return cli.SilentExit(monitorCritical)
		},
	}
	cmd.Flags().StringVar(&encryption.File, "encryption-key-file", "", "`FILE` with the node's master keys, if its data is encrypted")
	cmd.Flags().StringVar(&encryption.Command, "encryption-key-command", "", "shell `COMMAND` that prints the node's master keys")
	cmd.Flags().BoolVar(&monitor, "monitor", false, "exit with the codes of monitoring plugins")
	return cmd
}

// problemJSON is the --json form of a problem of a file or an SSTable.
type problemJSON struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Error  string `json:"error"`
}

// problemOf returns the problem that err reports, with its file and offset if err is a CorruptError.
func problemOf(src *extents, err error) problemJSON {
	p := problemJSON{File: src.name, Error: err.Error()}
	var corrupt *sstable.CorruptError
	if errors.As(err, &corrupt) {
		p.File, p.Offset = src.place(corrupt.Offset)
		p.Error = corrupt.Reason
		if corrupt.Got != corrupt.Want {
			p.Error = fmt.Sprintf("%s: checksum is %08x, want %08x", corrupt.Reason, corrupt.Got, corrupt.Want)
		}
	}
	return p
}

// printProblem prints one problem. On a terminal it flushes the output.
func printProblem(a *cli.App, p problemJSON) {
	if a.JSON {
		_ = a.PrintJSON(p)
		return
	}
	fmt.Fprintf(a.Out, "%s at offset %d: %s\n", cli.EscapeText(p.File), p.Offset, cli.EscapeLines(p.Error))
	if a.OutTTY {
		_ = a.Out.Flush()
	}
}

// verdict returns "sound", or "damaged" with the number of problems.
func verdict(a *cli.App, problems int) string {
	if problems == 0 {
		return a.Paint(a.OutTTY, cli.StyleGood, "sound")
	}
	return a.Paint(a.OutTTY, cli.StyleError, "damaged") + ": " + cli.Plural(int64(problems), "problem")
}

func checkFolders(ctx context.Context, a *cli.App, dirs []string, encryption masterkeys.Source) error {
	start, problems := time.Now(), 0
	stop := a.StartTicker(func() string {
		return fmt.Sprintf("checking, %s", text.Uptime(time.Since(start)))
	})
	defer stop()
	sum, err := verify.Folders(ctx, dirs, encryption, func(p verify.Problem) {
		problems++
		printProblem(a, problemJSON{p.File, p.Offset, p.Err.Error()})
	})
	stop()
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if a.JSON {
		err = a.PrintJSON(struct {
			OK       bool    `json:"ok"`
			Problems int     `json:"problems"`
			Blobs    int64   `json:"blobs"`
			Bytes    int64   `json:"bytes"` // of blobs
			SSTables int64   `json:"sstables"`
			Entries  int64   `json:"entries"` // of SSTables
			Logs     int64   `json:"logs"`
			Seconds  float64 `json:"seconds"`
		}{problems == 0, problems, sum.Blobs, sum.Bytes, sum.SSTables, sum.Entries, sum.Logs, time.Since(start).Seconds()})
	} else {
		_, err = fmt.Fprintf(a.Out, "%s: %s of %s, %s with %s, %s, checked in %s\n", verdict(a, problems),
			cli.Plural(sum.Blobs, "blob"), cli.FormatSize(sum.Bytes), cli.Plural(sum.SSTables, "SSTable"), cli.Plural(sum.Entries, "entry"),
			cli.Plural(sum.Logs, "log extent"), text.Duration(time.Since(start)))
	}
	if err == nil && problems > 0 {
		err = cli.SilentExit(cli.ExitUnhealthy)
	}
	return err
}
