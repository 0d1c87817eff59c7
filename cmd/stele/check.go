package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/node"
	"github.com/steledb/stele/tablet/sstable"
)

// The exit codes that monitoring systems want of a plugin.
const (
	monitorCritical = 2
	monitorUnknown  = 3
)

func (a *app) checkCommand() *cobra.Command {
	monitor, encryption := false, node.Encryption{}
	cmd := &cobra.Command{
		Use:   "check DATA-DIR...",
		Short: "Check everything in the data folders of a node that is stopped",
		Long: `Check everything that a node keeps, while it is stopped: every checksum, the order
of keys in every SSTable that is there whole, every frame of the commit logs. What
should be there and is not, the cluster knows: see "stele blob fsck". Give all the
node's data folders, and its master keys if they are encrypted. Nothing is changed.

The first lines list the problems, each with file and offset; the last one is a
sentence. Exit codes: 0 all is sound, 5 there are problems, any other: it could
not be checked. With --monitor they are those of monitoring plugins: 0 OK, 2
critical, 3 unknown.`,
		Example: `  stele check /var/lib/stele
  stele check /data1 /data2 --json
  stele check --monitor /var/lib/stele
  stele check /var/lib/stele --encryption-key-file /etc/stele/encryption`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := a.within(cmd, patient)
			defer cancel()
			err := a.check(ctx, args, encryption)
			if !monitor || err == nil {
				return err
			}
			if f := faultOf(err); f.code != exitUnhealthy {
				a.report(err)
				return quietly(monitorUnknown)
			}
			return quietly(monitorCritical)
		},
	}
	cmd.Flags().StringVar(&encryption.KeyFile, "encryption-key-file", "", "`FILE` with the node's master keys, if its data is encrypted")
	cmd.Flags().StringVar(&encryption.KeyCommand, "encryption-key-command", "", "`COMMAND` for sh that prints them")
	cmd.Flags().BoolVar(&monitor, "monitor", false, "exit with the codes of monitoring plugins")
	return cmd
}

// problemJSON is a problem as --json prints it.
type problemJSON struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Error  string `json:"error"`
}

// problemOf finds the place of a problem in an SSTable.
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

// printProblem prints a problem as soon as it is found.
func (a *app) printProblem(p problemJSON) {
	if a.json {
		_ = a.printJSON(p)
		return
	}
	fmt.Fprintf(a.out, "%s at offset %d: %s\n", escapeText(p.File), p.Offset, escapeLines(p.Error))
	if a.outTTY {
		_ = a.out.Flush()
	}
}

// verdict is the first word about something with so many problems.
func (a *app) verdict(problems int) string {
	if problems == 0 {
		return a.paint(a.outTTY, styleGood, "sound")
	}
	return a.paint(a.outTTY, styleError, "damaged") + ": " + plural(int64(problems), "problem")
}

func (a *app) check(ctx context.Context, dirs []string, encryption node.Encryption) error {
	start, problems := time.Now(), 0
	stop := a.startTicker(func() string {
		return fmt.Sprintf("checking, %v", time.Since(start).Round(time.Second))
	})
	defer stop()
	sum, err := node.Check(ctx, dirs, encryption, func(p node.CheckProblem) {
		problems++
		a.printProblem(problemJSON{p.File, p.Offset, p.Err.Error()})
	})
	stop()
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if a.json {
		err = a.printJSON(struct {
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
		_, err = fmt.Fprintf(a.out, "%s: %s of %s, %s with %s, %s, checked in %v\n", a.verdict(problems),
			plural(sum.Blobs, "blob"), formatSize(sum.Bytes), plural(sum.SSTables, "SSTable"), plural(sum.Entries, "entry"),
			plural(sum.Logs, "log extent"), time.Since(start).Round(time.Millisecond))
	}
	if err == nil && problems > 0 {
		err = quietly(exitUnhealthy)
	}
	return err
}
