package rows

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/rowfile"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/transfer"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/table"
)

const importLong = `Write the rows of files to a table: JSON lines, as "stele export" and "stele scan --json"
print them, CSV, if the name ends in .csv, or, by its first bytes, an export of Cloud
Bigtable (Avro, Parquet or a sequence file of Dataflow's templates) or of HBase (a
sequence file of its Export): see docs/files.md. Names that end in .gz or .zst are
decompressed. PATH is a file, the folder of an export, or - for standard input.

The table must exist, with the families of the rows. --create creates it with those that
the folder of an export names.

The first row that is not valid, or that the table does not accept, ends the import.
With --rejects it is written to FILE, and the import goes on. What fails because nodes
are down or busy is repeated. --dry-run checks the files, and writes nothing.

--bulk is for large files. The rows are sorted in memory, 64 MiB of the file at a time,
and written as SSTables instead of through the commit log, which takes less work of the
nodes and up to 1.5 GiB of memory here. The rows of each tablet appear all at once. Few
rows of a tablet, and cells of aggregate families, are written in batches. A table with a
change stream is imported without --bulk.

An import may be repeated: a cell with the same timestamp replaces itself, also in an
aggregate family. Cells without a timestamp get the time at which the import began. With
--state an interrupted import continues where it was.`

const importExample = `  stele import webtable webtable.jsonl.zst
  stele import webtable /backup/webtable/ --create --state webtable.state
  stele import webtable ./dataflow-export/ --state webtable.state
  stele import webtable webtable.jsonl.zst --bulk
  stele import users users.csv --family info --rejects users.rejected.csv
  stele scan other --json | stele import webtable -`

// importFlags are the flags of "stele import".
type importFlags struct {
	format, family, rejects, state string
	create, dryRun, bulk           bool
	parallel                       int
	retryFor                       time.Duration
}

func importCommand(a *cli.App) *cobra.Command {
	f := &importFlags{retryFor: 10 * time.Minute}
	cmd := &cobra.Command{
		Use:     "import TABLE PATH...",
		Short:   "Write the rows of files to a table",
		Long:    importLong,
		Example: importExample,
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.Call(cmd, cli.NoTimeout, func(ctx context.Context, c *client.Client) error {
				return runImport(ctx, a, c, f, args[0], args[1:])
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", "", "the `format` of the files, whatever their names: "+formatNames())
	flags.StringVar(&f.family, "family", "", "the family of the columns of CSV files whose names have none")
	flags.StringVar(&f.rejects, "rejects", "", "write rows that are rejected to `FILE`, as JSON lines or CSV, and go on")
	flags.StringVar(&f.state, "state", "", "keep the progress in `FILE`, and continue from it")
	flags.BoolVar(&f.create, "create", false, "create the table with the families of the export's folder, if it does not exist")
	flags.BoolVar(&f.dryRun, "dry-run", false, "check the files and write nothing")
	flags.BoolVar(&f.bulk, "bulk", false, "sort the rows in memory, and write them as SSTables, around the commit log")
	flags.IntVar(&f.parallel, "parallel", 8, "send `N` batches at the same time")
	flags.Var((*cli.DurationFlag)(&f.retryFor), "retry-for", "how long to repeat what fails because nodes are down or busy")
	return cmd
}

func (f *importFlags) check() error {
	switch {
	case f.format != "" && !slices.Contains(rowfile.Formats, rowfile.Format(f.format)):
		return cli.Usagef("", "--format is %q, want %s", f.format, formatNames())
	case f.parallel < 1 || f.parallel > 256:
		return cli.Usagef("", "--parallel is %d, want 1 to 256", f.parallel)
	case f.retryFor < 0:
		return cli.Usagef("", "--retry-for is negative")
	case f.dryRun && (f.state != "" || f.create):
		return cli.Usagef("", "--dry-run writes nothing, and excludes --state and --create")
	}
	return nil
}

// Bounds of a batch: as many rows, and as many bytes, as the client sends in a few requests.
const (
	importBatchRows  = 1000
	importBatchBytes = 512 << 10
)

// Bounds of a run: rows that are sorted, and written as one SSTable for each tablet. Those of a large file are not in order, so the larger a run is, the fewer
// and larger files a tablet gets. Two runs at a time use the processors of a node while the next one is read.
const (
	importRuns     = 2
	importRunRows  = 500_000
	importRunBytes = 64 << 20
)

// importState is the content of the file of --state.
type importState struct {
	Table     string `json:"table"`
	File      string `json:"file"`      // that is being imported
	Line      int64  `json:"line"`      // up to which it has been
	Timestamp int64  `json:"timestamp"` // of cells without one
}

// importer imports files.
type importer struct {
	a        *cli.App
	flags    *importFlags
	table    *client.Table
	schema   *table.Schema
	files    []string
	skip     int // files that the state has completed
	state    importState
	total    int64 // bytes of all files
	earlier  int64 // bytes of the files that the state has completed
	resumed  bool  // the state is of an earlier run, and no file has been opened
	in       cli.CountingReader
	progress transfer.Progress
	rejects  *os.File
	write    func(*rowfile.Item) error // to rejects, in the format of the current file
	began    time.Time
}

func runImport(ctx context.Context, a *cli.App, c *client.Client, f *importFlags, name string, paths []string) (err error) {
	im := &importer{a: a, flags: f, table: c.Table(name), began: time.Now()}
	if err := im.open(ctx, c, paths); err != nil {
		return err
	}
	if im.rejects != nil {
		defer func() { err = errors.Join(err, im.rejects.Close()) }()
	}
	p := a.NewProgress("importing " + name)
	p.Start(max(im.total, 1), func() (int64, string) {
		text := fmt.Sprintf("%s rows", cli.FormatCount(im.progress.Rows.Load()))
		if n := im.progress.Rejected.Load(); n > 0 {
			text += fmt.Sprintf(", %s rejected", cli.FormatCount(n))
		}
		return im.earlier + im.in.Count(), text
	})
	err = im.run(ctx)
	p.Stop()
	return im.report(err)
}

// open finds the files, and the state of an earlier run.
func (im *importer) open(ctx context.Context, c *client.Client, paths []string) error {
	im.state = importState{Table: im.table.Name(), Timestamp: time.Now().UnixMilli() * 1000} // milliseconds suit all tables
	var exported *transfer.Manifest
	for _, path := range paths {
		m, err := im.add(path)
		if err != nil {
			return err
		}
		if m != nil {
			exported = m
		}
	}
	if err := im.readState(); err != nil {
		return err
	}
	if err := im.prepareTable(ctx, c, exported); err != nil {
		return err
	}
	if im.flags.rejects == "" {
		return nil
	}
	mode := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if im.skip == 0 && im.state.Line == 0 {
		mode |= os.O_TRUNC
	}
	var err error
	im.rejects, err = os.OpenFile(im.flags.rejects, mode, 0o666)
	return err
}

// add adds a file, or the files of an export's folder, whose manifest it returns.
func (im *importer) add(path string) (m *transfer.Manifest, err error) {
	if path == "-" {
		im.files = append(im.files, path)
		return nil, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		im.files, im.total = append(im.files, path), im.total+info.Size()
		return nil, nil
	}
	m, err = transfer.ReadManifest(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, im.addFolder(path)
	} else if err != nil {
		return nil, err
	}
	for _, p := range m.Parts {
		if _, err := im.add(filepath.Join(path, p.File)); errors.Is(err, fs.ErrNotExist) {
			return nil, cli.WithHint(fmt.Errorf("the export in %s is not complete: %s is missing", path, p.File),
				fmt.Sprintf("continue it: stele export %s --out %s/", m.Table, filepath.Clean(path)))
		} else if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// prepareTable creates the table if that is wanted, and checks that it exists.
func (im *importer) prepareTable(ctx context.Context, c *client.Client, exported *transfer.Manifest) error {
	if im.flags.dryRun {
		return nil
	}
	info, err := c.Tables().Describe(ctx, im.table.Name())
	if err == nil {
		im.schema = info.Schema
	}
	if err == nil && im.flags.bulk && im.schema.ChangeRetention > 0 {
		return cli.Usagef("import without --bulk", "--bulk: table %s has a change stream, which would lack the rows", im.table.Name())
	}
	if !errors.Is(err, client.ErrNoTable) || !im.flags.create {
		return err
	}
	if exported == nil {
		return cli.Usagef(fmt.Sprintf("create it: stele table create %s --family NAME", im.table.Name()), "--create needs the folder of an export, which names the families")
	}
	spec, err := exported.TableSpec()
	if err != nil {
		return err
	}
	if im.schema, err = c.Tables().CreateFrom(ctx, im.table.Name(), spec); err == nil {
		im.a.Notef("created table %s", im.table.Name())
	}
	return err
}

// readState reads the state of an earlier run.
func (im *importer) readState() error {
	if im.flags.state == "" {
		return nil
	}
	b, err := os.ReadFile(im.flags.state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var s importState
	in := json.NewDecoder(bytes.NewReader(b))
	in.DisallowUnknownFields()
	if err := in.Decode(&s); err != nil {
		return cli.Usagef("name another file, or remove it", "--state: %s is not the state of an import: %v", im.flags.state, err)
	}
	for im.skip = range im.files {
		if im.skip > 0 {
			if info, err := os.Stat(im.files[im.skip-1]); err == nil {
				im.earlier += info.Size()
			}
		}
		if im.files[im.skip] == s.File && s.Table == im.table.Name() {
			im.state, im.resumed = s, true
			return nil
		}
	}
	return cli.Usagef("give the same table and files, or remove the file", "--state: %s is the state of an import of %s to %s", im.flags.state, s.File, s.Table)
}

// run imports the files one after the other.
func (im *importer) run(ctx context.Context) error {
	for _, name := range im.files[im.skip:] {
		if name != im.state.File {
			im.state.File, im.state.Line = name, 0
		}
		if err := im.file(ctx, name); err != nil {
			return err
		}
	}
	if im.flags.state != "" {
		return os.Remove(im.flags.state)
	}
	return nil
}

// file imports one file, behind the line of the state.
func (im *importer) file(ctx context.Context, name string) error {
	in, err := im.openFile(name)
	if err != nil {
		return err
	}
	defer in.Close()
	source, err := im.source(in, name)
	if err == nil && im.rejects != nil {
		im.write, err = source.Rejects(im.rejects)
	}
	if err == nil {
		err = im.lines(ctx, source)
	}
	return fileError(name, err)
}

// statePeriod is the interval at which the state is written.
const statePeriod = time.Second

// lines imports the rows of a file, and writes the state meanwhile.
func (im *importer) lines(ctx context.Context, source rowfile.Source) error {
	cfg := transfer.ImportConfig{Schema: im.schema, Source: source, From: im.state.Line, Timestamp: im.state.Timestamp, Workers: im.flags.parallel,
		BatchRows: importBatchRows, BatchBytes: importBatchBytes, RetryFor: im.flags.retryFor, Reject: im.reject}
	if !im.flags.dryRun {
		cfg.Table, cfg.Columns = im.table, transfer.TableColumns(im.table)
	}
	if im.flags.bulk && !im.flags.dryRun {
		cfg.Bulk, cfg.Workers, cfg.BatchRows, cfg.BatchBytes = im.table, min(im.flags.parallel, importRuns), importRunRows, importRunBytes
	}
	if im.flags.state == "" {
		return transfer.Import(ctx, cfg, &im.progress)
	}
	saving, stop := context.WithCancel(ctx)
	saved := make(chan struct{})
	im.progress.Line.Store(im.state.Line)
	go func() { // ends with stop, which this waits for
		defer close(saved)
		for timing.Sleep(saving, statePeriod); saving.Err() == nil; timing.Sleep(saving, statePeriod) {
			_ = im.saveState() // the last one reports the error
		}
	}()
	err := transfer.Import(ctx, cfg, &im.progress)
	stop()
	<-saved
	return errors.Join(err, im.saveState())
}

// saveState writes the state durably.
func (im *importer) saveState() error {
	s := im.state
	s.Line = im.progress.Line.Load()
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return vfs.WriteFile(vfs.OS(), im.flags.state, append(b, '\n'))
}

// reject writes a row that is rejected to the file, or ends the import.
func (im *importer) reject(item *rowfile.Item, err error) error {
	var bad *rowfile.LineError
	if !errors.As(err, &bad) {
		err = item.Error(err)
	}
	if im.rejects == nil && !im.flags.dryRun {
		return cli.WithHint(err, "with --rejects FILE such rows are written to FILE, and the others imported")
	}
	if n := im.progress.Rejected.Load(); n <= rejectsShown {
		im.a.Notef("rejected: %s: %v", im.state.File, err)
	} else if n == rejectsShown+1 {
		im.a.Notef("further rejected rows are counted only")
	}
	if im.rejects == nil {
		return nil
	}
	return im.write(item)
}

// rejectsShown is the number of rejected rows whose error is shown.
const rejectsShown = 20

// importJSON is the --json form of an import.
type importJSON struct {
	Table    string  `json:"table"`
	Complete bool    `json:"complete"`
	Rows     int64   `json:"rows"`
	Cells    int64   `json:"cells"`
	Rejected int64   `json:"rejected"`
	Seconds  float64 `json:"seconds"`
}

func (im *importer) report(err error) error {
	p, took := &im.progress, time.Since(im.began)
	rejected := p.Rejected.Load()
	verb := "imported"
	if im.flags.dryRun {
		verb = "checked"
	}
	if im.a.JSON {
		if err := im.a.PrintJSON(importJSON{im.table.Name(), err == nil && rejected == 0, p.Rows.Load(), p.Cells.Load(), rejected, took.Seconds()}); err != nil {
			return err
		}
	} else {
		im.a.Notef("%s: %s %s with %s in %s", im.table.Name(), verb, cli.Plural(p.Rows.Load(), "row"), cli.Plural(p.Cells.Load(), "cell"), text.Duration(took))
	}
	switch {
	case err != nil && im.flags.state != "":
		return cli.WithHint(err, "run the same command again to continue")
	case err != nil:
		return err
	case rejected > 0 && im.rejects != nil:
		return cli.WithHint(fmt.Errorf("%s rejected", cli.Plural(rejected, "row")), "correct and import them: "+im.flags.rejects)
	case rejected > 0:
		return fmt.Errorf("%s rejected", cli.Plural(rejected, "row"))
	}
	return nil
}
