package rows

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/internal/webload"
	"github.com/steledb/stele/internal/webtable"
)

// webtableName is the default table: the sample of "stele serve --dev".
const webtableName = "webtable"

func loadCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Load a table from files, and verify a load",
		Example: `  stele load webtable ./site --base-url https://www.example.com/
  stele load verify acks.jsonl --table webtable`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(loadWebtableCommand(a), loadVerifyCommand(a))
	return cmd
}

// loadFlags are the flags of load webtable.
type loadFlags struct {
	base, table, language, acks string
	force                       bool
}

const loadWebtableLong = `Load a folder of HTML pages into the paper's Webtable (its section 2, figure 1).

A page is a file that ends in .html, .htm or .xhtml. Its row key is its URL without the
scheme and with the host name reversed, so that the pages of a domain are contiguous:

  https://www.cnn.com/            com.cnn.www
  https://www.cnn.com/a.html?x=1  com.cnn.www/a.html?x=1
  http://cnn.com:8080/            com.cnn:8080

  contents:          the page
  language:          the language that the page declares, such as en-US
  anchor:URL         in the row of a link's target: the link text, by the URL of the
                     page with the link; several texts are separated by newlines

All cells have the modification time of their page's file. Rows of link targets outside
the folder have only anchors. A link to a folder is a link to its index page.

The table is created if it does not exist. A page that is in the table with the time of
its file is skipped, so an interrupted load continues when it is run again. --ack-file
records every acknowledged cell, for "stele load verify".`

const loadWebtableExample = `  stele load webtable /usr/share/doc/python3-doc/html --base-url https://docs.python.org/3/ --table webtable
  stele load webtable ./site --base-url https://www.example.com/ --ack-file acks.jsonl`

func loadWebtableCommand(a *cli.App) *cobra.Command {
	f := &loadFlags{}
	cmd := &cobra.Command{
		Use:     "webtable DIR --base-url URL [--table NAME]",
		Short:   "Load a folder of HTML pages into the paper's Webtable",
		Long:    loadWebtableLong,
		Example: loadWebtableExample,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.base == "" {
				return cli.Usagef("add the URL of the folder on the web, such as --base-url https://www.example.com/", "--base-url is missing")
			}
			site, err := webtable.Open(args[0], f.base)
			if err != nil {
				return siteError(err)
			}
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return loadWebtable(ctx, a, c, site, f)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.base, "base-url", "", "the `URL` of the folder on the web")
	flags.StringVar(&f.table, "table", webtableName, "the table's `NAME`")
	flags.StringVar(&f.language, "language", webload.DefaultLanguage, "language `TAG` of pages that declare none")
	flags.StringVar(&f.acks, "ack-file", "", "append a line to `FILE` for each acknowledged cell")
	flags.BoolVar(&f.force, "force", false, "also load pages that are in the table already")
	_ = cmd.RegisterFlagCompletionFunc("table", a.CompleteTable)
	return cmd
}

func siteError(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return err
	}
	return cli.Usagef("such as: stele load webtable ./site --base-url https://www.example.com/", "%w", err)
}

func loadWebtable(ctx context.Context, a *cli.App, c *client.Client, site *webtable.Site, f *loadFlags) (err error) {
	cfg := webload.Config{Table: c.Table(f.table), Site: site, Language: f.language, Force: f.force}
	if f.acks != "" {
		file, err := os.OpenFile(f.acks, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		cfg.Acks = webload.NewAckWriter(file)
	}
	created, err := webload.Prepare(ctx, c, f.table)
	if err != nil {
		return err
	}
	if created {
		a.Notef("created table %s", f.table)
	}
	p := a.NewProgress("loading " + f.table)
	cfg.Warn = func(err error) { p.Notef("skipped: %v", err) }
	l := webload.New(cfg)
	pages, _ := site.Total(func() bool { return ctx.Err() != nil })
	began := time.Now()
	p.Start(pages, func() (int64, string) {
		s := l.Stats()
		return s.Pages + s.Skipped, fmt.Sprintf("%s of %s pages, %s anchors", cli.FormatCount(s.Pages+s.Skipped), cli.FormatCount(pages), cli.FormatCount(s.Anchors))
	})
	err = l.Run(ctx)
	p.Stop()
	return reportLoad(a, f, l.Stats(), pages, time.Since(began), err)
}

// loadJSON is the --json form of a load: its counts, with the table and the time.
type loadJSON struct {
	Table    string `json:"table"`
	Complete bool   `json:"complete"`
	webload.Stats
	Seconds float64 `json:"seconds"`
}

func reportLoad(a *cli.App, f *loadFlags, s webload.Stats, pages int64, took time.Duration, err error) error {
	if a.JSON {
		j := loadJSON{f.table, err == nil && s.Failed == 0, s, took.Seconds()}
		if err := a.PrintJSON(j); err != nil {
			return err
		}
	} else {
		a.Notef("%s: loaded %s and %s from %s in %s; skipped %s that were in the table", f.table, cli.Plural(s.Pages, "page"),
			cli.Plural(s.Anchors, "anchor"), cli.Plural(s.Links, "link"), text.Duration(took), cli.FormatCount(s.Skipped))
	}
	switch {
	case errors.Is(err, context.Canceled):
		return cli.WithHint(fmt.Errorf("interrupted at %s of %s", cli.FormatCount(s.Pages+s.Skipped), cli.Plural(pages, "page")), "run the same command again to continue")
	case err != nil:
		hint := cli.FaultOf(err).Hint
		if hint == "" || errors.Is(err, client.ErrAmbiguous) {
			hint = "run the same command again to continue"
		}
		return cli.WithHint(err, hint)
	case s.Failed > 0:
		return fmt.Errorf("load %s: %s skipped after errors", f.table, cli.Plural(s.Failed, "file"))
	}
	return nil
}

func loadVerifyCommand(a *cli.App) *cobra.Command {
	name := ""
	cmd := &cobra.Command{
		Use:   "verify ACK-FILE [--table NAME]",
		Short: "Verify the acknowledged cells of a load",
		Long: `Read every cell in the file of "stele load webtable --ack-file", and compare the
checksum of its value. A cell that is missing, or has another value, was lost after it
was acknowledged, or was deleted or garbage-collected since.`,
		Example: `  stele load verify acks.jsonl --table webtable`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return loadVerify(ctx, a, c.Table(name), file)
			})
		},
	}
	cmd.Flags().StringVar(&name, "table", webtableName, "the table's `NAME`")
	_ = cmd.RegisterFlagCompletionFunc("table", a.CompleteTable)
	return cmd
}

// verifyJSON is the --json form of a verification: its counts, with the table and the time.
type verifyJSON struct {
	Table string `json:"table"`
	webload.Verification
	Seconds float64 `json:"seconds"`
}

func loadVerify(ctx context.Context, a *cli.App, t *client.Table, file *os.File) error {
	began := time.Now()
	p := a.NewProgress("verifying " + t.Name())
	var now atomic.Value
	now.Store(webload.Verification{})
	total := int64(0)
	if info, err := file.Stat(); err == nil {
		total = info.Size()
	}
	in := &cli.CountingReader{Reader: file}
	p.Start(total, func() (int64, string) {
		v := now.Load().(webload.Verification)
		return in.Count(), fmt.Sprintf("%s cells, %s missing, %s wrong", cli.FormatCount(v.Cells), cli.FormatCount(v.Missing), cli.FormatCount(v.Wrong))
	})
	v, err := webload.Verify(ctx, t, in, func(v webload.Verification) { now.Store(v) })
	p.Stop()
	if err != nil {
		return err
	}
	return reportVerification(a, t.Name(), v, time.Since(began))
}

// reportVerification prints the result of a verification, and returns an error if cells are missing or wrong.
func reportVerification(a *cli.App, name string, v webload.Verification, took time.Duration) error {
	if a.JSON {
		if err := a.PrintJSON(verifyJSON{name, v, took.Seconds()}); err != nil {
			return err
		}
	} else {
		a.Notef("%s: verified %s of acknowledged values in %s: %s missing, %s wrong", name, cli.FormatSize(v.Bytes), cli.Plural(v.Cells, "cell"), cli.FormatCount(v.Missing), cli.FormatCount(v.Wrong))
	}
	if v.Missing+v.Wrong > 0 {
		return fmt.Errorf("verify acknowledged cells: %s of %s missing or wrong, the first: %s", cli.FormatCount(v.Missing+v.Wrong), cli.Plural(v.Cells, "cell"), v.First)
	}
	return nil
}
