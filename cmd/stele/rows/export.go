package rows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/rowfile"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/internal/transfer"
	"github.com/steledb/stele/table"
)

const exportLong = `Write the rows of a table to a file, a folder, or standard output, in a form that "stele
import" reads.

JSON lines have every version of every cell, with its timestamp: see docs/files.md. CSV,
if the name of FILE ends in .csv, has a column for each column of the table and its
newest value. Avro, if it ends in .avro, has every version, too, in the form of the
templates of Dataflow. A name that ends in .gz or .zst is compressed.

If PATH is a folder, or ends in a slash, the export has several files, which are written
at the same time, and export.json, with the families of the table. If it is interrupted,
the same command continues it. A complete export is not written again. Neither is a file
that exists, without --force.

Each row is read as a whole, but different rows at different times. To have a table as it
is now, make a backup, and export what "stele backup restore" makes of it.`

const exportExample = `  stele export webtable > webtable.jsonl
  stele export webtable --out webtable.jsonl.zst --family anchor --since 30d
  stele export webtable --out /backup/webtable/
  stele export webtable --out avro/ --format avro --compress gzip
  stele export users --out users.csv --column 'info:(name|email)'`

// exportFlags are the flags of "stele export".
type exportFlags struct {
	out, format, compression string
	force                    bool
	parallel                 int
	cells                    selection
	rows                     span
}

func exportCommand(a *cli.App) *cobra.Command {
	f := &exportFlags{}
	cmd := &cobra.Command{
		Use:               "export TABLE [--out PATH]",
		Short:             "Write the rows of a table to files",
		Long:              exportLong,
		Example:           exportExample,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				e := &export{a: a, flags: f, c: c, cfg: transfer.ExportConfig{Table: c.Table(args[0])}}
				if err := e.configure(cmd); err != nil {
					return err
				}
				return e.run(ctx)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.out, "out", "-", "the `PATH` of the file or folder; - is standard output")
	flags.BoolVar(&f.force, "force", false, "overwrite the file of --out")
	flags.StringVar(&f.format, "format", "", "the `format` of the files in a folder, or of standard output: jsonl or avro")
	flags.StringVar(&f.compression, "compress", "zstd", "compression of the files in a folder, and in Avro: zstd, gzip or none")
	flags.IntVar(&f.parallel, "parallel", min(8, 2*runtime.NumCPU()), "write `N` files of a folder at the same time")
	f.rows.register(cmd)
	f.cells.register(cmd)
	a.EscapesFlag(cmd)
	return cmd
}

// export is an export that runs.
type export struct {
	a       *cli.App
	flags   *exportFlags
	c       *client.Client
	cfg     transfer.ExportConfig
	options string // as in the manifest
	done    transfer.Exported
	began   time.Time
	total   int64 // the estimated size of the table
}

// configure sets what is selected.
func (e *export) configure(cmd *cobra.Command) error {
	f := e.flags
	if err := e.a.Texts(&f.rows.start, &f.rows.end, &f.rows.prefix); err != nil {
		return err
	}
	if f.parallel < 1 || f.parallel > 64 {
		return cli.Usagef("", "--parallel is %d, want 1 to 64", f.parallel)
	}
	cells, err := f.cells.options(cmd)
	if err != nil {
		return err
	}
	for _, o := range cells {
		e.cfg.Options = append(e.cfg.Options, o)
	}
	e.cfg.Start = max(f.rows.start, f.rows.prefix)
	e.cfg.End = f.rows.end
	if end := string(api.PrefixEnd([]byte(f.rows.prefix))); end != "" && (e.cfg.End == "" || end < e.cfg.End) {
		e.cfg.End = end
	}
	if e.cfg.End != "" && e.cfg.Start >= e.cfg.End {
		return cli.Usagef("", "--start, --end and --prefix select no row")
	}
	var given []string
	for _, name := range []string{"start", "end", "prefix", "family", "column", "value-regex", "filter", "versions", "since", "until", "format"} {
		if flag := cmd.Flags().Lookup(name); flag.Changed {
			given = append(given, "--"+name+"="+flag.Value.String())
		}
	}
	e.options = strings.Join(given, " ")
	if f.format != "" && f.format != string(rowfile.JSON) && f.format != string(rowfile.Avro) {
		return cli.Usagef("", "--format is %q, want jsonl or avro", f.format)
	}
	if rowfile.AvroCodecs[f.compression] == "" {
		return cli.Usagef("", "--compress is %q, want zstd, gzip or none", f.compression)
	}
	return nil
}

// writer sets the writer of files of a format.
func (e *export) writer(ctx context.Context, format rowfile.Format) error {
	switch format {
	case rowfile.JSON:
		e.cfg.NewWriter = func(out io.Writer) (transfer.Writer, error) { return rowfile.NewJSONWriter(out), nil }
	case rowfile.Avro:
		codec := rowfile.AvroCodecs[e.flags.compression]
		e.cfg.NewWriter = func(out io.Writer) (transfer.Writer, error) { return rowfile.NewAvroWriter(out, codec) }
	case rowfile.CSV:
		columns, err := e.columns(ctx)
		if err != nil {
			return err
		}
		e.cfg.Options = append(e.cfg.Options, client.Versions(1))
		e.cfg.NewWriter = func(out io.Writer) (transfer.Writer, error) { return rowfile.NewCSVWriter(out, columns) }
	default:
		return cli.Usagef("name a file that ends in .avro, .jsonl or .csv", "files of the format %s are not written", format)
	}
	return nil
}

func (e *export) run(ctx context.Context) error {
	samples, err := e.cfg.Table.SampleRowKeys(ctx)
	if err != nil {
		return err
	}
	for _, s := range samples {
		e.total = max(e.total, s.Offset)
	}
	e.began = time.Now()
	if info, err := os.Stat(e.flags.out); strings.HasSuffix(e.flags.out, "/") || err == nil && info.IsDir() {
		return e.folder(ctx)
	}
	return e.file(ctx)
}

// file writes one file, or standard output.
func (e *export) file(ctx context.Context) error {
	if info, err := os.Stat(e.flags.out); err == nil && info.Mode().IsRegular() && !e.flags.force && e.flags.out != "-" {
		return cli.Conflictf("name another file, or add --force", "%s exists", e.flags.out)
	}
	format, _ := rowfile.FormatOf(e.flags.out)
	if e.flags.out == "-" && e.flags.format != "" {
		format = rowfile.Format(e.flags.format)
	}
	if err := e.writer(ctx, format); err != nil {
		return err
	}
	if e.flags.out == "-" {
		return e.report(e.watch(func() error { return transfer.Export(ctx, e.cfg, e.a.Out, &e.done) }))
	}
	return e.report(e.watch(func() error { return transfer.ExportFile(ctx, e.cfg, e.flags.out, &e.done) }))
}

// columnsMax bounds the columns of a CSV file.
const columnsMax = 10_000

// columns returns the names of all columns that are selected.
func (e *export) columns(ctx context.Context) (columns []string, err error) {
	opts := slices.Concat(e.cfg.Options, []client.ScanOption{client.Start(e.cfg.Start), client.End(e.cfg.End), client.Filter(table.StripValue{}), client.Versions(1)})
	s := e.cfg.Table.Scan(ctx, opts...)
	defer s.Close()
	seen := map[string]bool{}
	for s.Next() {
		for _, c := range s.Row().Cells {
			if name := c.Family + ":" + string(c.Qualifier); !seen[name] {
				seen[name] = true
				columns = append(columns, name)
			}
		}
		if len(columns) > columnsMax {
			return nil, cli.Usagef("select columns with --family or --column, or export to JSON lines", "more than %s columns are too many for CSV", cli.FormatCount(columnsMax))
		}
	}
	slices.Sort(columns)
	return columns, s.Err()
}

// folder writes the files of a folder that are missing.
func (e *export) folder(ctx context.Context) error {
	dir := filepath.Clean(e.flags.out)
	suffix := map[string]string{"zstd": ".jsonl.zst", "gzip": ".jsonl.gz", "none": ".jsonl"}[e.flags.compression]
	format := cmp.Or(rowfile.Format(e.flags.format), rowfile.JSON)
	if format == rowfile.Avro {
		suffix = ".avro"
	}
	if err := e.writer(ctx, format); err != nil {
		return err
	}
	m, err := transfer.ReadManifest(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if m, err = e.manifest(ctx, dir, suffix); err != nil {
			return err
		}
	case err != nil:
		return err
	case m.Table != e.cfg.Table.Name() || m.Options != e.options:
		return cli.Usagef("name another folder", "%s has an export of %s with other options: %q", dir, m.Table, m.Options)
	case transfer.Complete(dir, m):
		return cli.Conflictf("name another folder, or remove this one", "%s is a complete export, which began at %s: nothing was exported", dir, m.Began.Local().Format(time.DateTime))
	default:
		e.a.Notef("%s: continuing the export that began at %s", m.Table, m.Began.Local().Format(time.DateTime))
	}
	return e.report(e.watch(func() error { return transfer.ExportFolder(ctx, e.cfg, dir, m, e.flags.parallel, &e.done) }))
}

// manifest returns a new manifest, and creates the folder.
func (e *export) manifest(ctx context.Context, dir, suffix string) (*transfer.Manifest, error) {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return nil, cli.Usagef("name an empty folder", "%s has other files", dir)
	}
	info, err := e.c.Tables().Describe(ctx, e.cfg.Table.Name())
	if err != nil {
		return nil, err
	}
	m := &transfer.Manifest{Format: 1, Table: e.cfg.Table.Name(), Began: time.Now().UTC().Truncate(time.Second), Options: e.options,
		Granularity: info.Schema.Granularity.String()}
	for i := range info.Schema.Families {
		if spec, ok := info.Schema.Spec(info.Schema.Families[i].Name); ok {
			m.Families = append(m.Families, spec.String())
		}
	}
	if m.Parts, err = e.cfg.Parts(ctx, suffix); err != nil {
		return nil, err
	}
	return m, os.MkdirAll(dir, 0o777)
}

// watch shows the progress of an export.
func (e *export) watch(do func() error) error {
	if e.flags.out == "-" && e.a.OutTTY {
		return do()
	}
	p := e.a.NewProgress("exporting " + e.cfg.Table.Name())
	p.Start(max(e.total, 1), func() (int64, string) {
		return min(e.done.Bytes.Load(), e.total), fmt.Sprintf("%s rows, %s", cli.FormatCount(e.done.Rows.Load()), cli.FormatSize(e.done.Bytes.Load()))
	})
	defer p.Stop()
	return do()
}

func (e *export) report(err error) error {
	if err != nil {
		hint := cli.FaultOf(err).Hint
		if strings.HasSuffix(e.flags.out, "/") && hint == "" {
			hint = "run the same command again to continue"
		}
		return cli.WithHint(fmt.Errorf("%w (after %s rows)", err, cli.FormatCount(e.done.Rows.Load())), hint)
	}
	took := time.Since(e.began)
	if e.a.JSON && e.flags.out != "-" {
		return e.a.PrintJSON(struct {
			Table   string  `json:"table"`
			Rows    int64   `json:"rows"`
			Cells   int64   `json:"cells"`
			Bytes   int64   `json:"bytes"`
			Seconds float64 `json:"seconds"`
		}{e.cfg.Table.Name(), e.done.Rows.Load(), e.done.Cells.Load(), e.done.Bytes.Load(), took.Seconds()})
	}
	e.a.Notef("%s: exported %s with %s, %s, in %s", e.cfg.Table.Name(), cli.Plural(e.done.Rows.Load(), "row"), cli.Plural(e.done.Cells.Load(), "cell"),
		cli.FormatSize(e.done.Bytes.Load()), text.Duration(took))
	return nil
}
