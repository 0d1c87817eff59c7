package transfer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/rowfile"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/table"
)

// Writer writes rows of an export.
type Writer interface {
	Write(row *table.Row) error
	// Flush writes what is buffered.
	Flush() error
}

// ExportConfig is what an export needs.
type ExportConfig struct {
	Table *client.Table
	// Options select rows and cells, but not a range of rows: see Start and End.
	Options []client.ScanOption
	// Start and End are the range of rows [Start, End). An empty End is the end of the table.
	Start, End string
	// NewWriter returns the writer of a file.
	NewWriter func(out io.Writer) (Writer, error)
}

// Exported counts what has been written. It is safe for concurrent use.
type Exported struct{ Rows, Cells, Bytes atomic.Int64 }

// counter counts the bytes that are written.
type counter struct {
	io.Writer
	bytes *atomic.Int64
}

func (c counter) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.bytes.Add(int64(n))
	return n, err
}

// Export writes the rows to one file. Errors: those of the scan and of out.
func Export(ctx context.Context, cfg ExportConfig, out io.Writer, done *Exported) error {
	return cfg.write(ctx, cfg.Start, cfg.End, out, done)
}

// write writes the rows of a range.
func (cfg *ExportConfig) write(ctx context.Context, start, end string, out io.Writer, done *Exported) error {
	buffered := bufio.NewWriterSize(counter{out, &done.Bytes}, 256<<10)
	w, err := cfg.NewWriter(buffered)
	if err != nil {
		return err
	}
	opts := slices.Concat(cfg.Options, []client.ScanOption{client.Start(start)})
	if end != "" {
		opts = append(opts, client.End(end))
	}
	s := cfg.Table.Scan(ctx, opts...)
	defer s.Close()
	for s.Next() {
		if err := w.Write(s.Row()); err != nil {
			return err
		}
		done.Rows.Add(1)
		done.Cells.Add(int64(len(s.Row().Cells)))
	}
	if err := s.Err(); err != nil {
		return err
	}
	return errors.Join(w.Flush(), buffered.Flush())
}

// ManifestName is the name of the file that describes a directory of an export.
const ManifestName = "export.json"

// manifestFormat is the version of manifests.
const manifestFormat = 1

// Manifest describes a directory of an export.
type Manifest struct {
	Format  int       `json:"format"` // 1
	Table   string    `json:"table"`
	Began   time.Time `json:"began"`
	Options string    `json:"options"` // what was selected, as the user gave it
	// Families has the column families of the table, as "stele table create --family" takes them.
	Families []string `json:"families"`
	// Granularity is that of the table's timestamps.
	Granularity string `json:"granularity"`
	Parts       []Part `json:"parts"`
}

// Part is a file of an export.
type Part struct {
	File  string `json:"file"`
	Start []byte `json:"start"` // first key; base64 in JSON
	End   []byte `json:"end"`   // first key behind it; empty at the end of the table
}

// FormatError means that a manifest cannot be read.
type FormatError struct {
	File string
	Why  string
}

func (e *FormatError) Error() string { return e.File + ": " + e.Why }

// ReadManifest reads the manifest of a directory. Errors: fs.ErrNotExist, *FormatError, those of the file system.
func ReadManifest(dir string) (*Manifest, error) {
	name := filepath.Join(dir, ManifestName)
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	switch err := json.Unmarshal(b, m); {
	case err != nil:
		return nil, &FormatError{name, err.Error()}
	case m.Format != manifestFormat:
		return nil, &FormatError{name, fmt.Sprintf("format %d: this version reads format %d", m.Format, manifestFormat)}
	}
	for _, p := range m.Parts {
		if p.File == "" || filepath.Base(p.File) != p.File {
			return nil, &FormatError{name, fmt.Sprintf("part %q is not the name of a file", p.File)}
		}
	}
	return m, nil
}

// TableSpec returns a table with the families and the granularity of the exported one. Errors: those of package table.
func (m *Manifest) TableSpec() (*client.TableSpec, error) {
	spec := &client.TableSpec{}
	var err error
	if m.Granularity != "" {
		if spec.Granularity, err = table.ParseGranularity(m.Granularity); err != nil {
			return nil, err
		}
	}
	for _, text := range m.Families {
		f, err := table.ParseFamilySpec(text)
		if err != nil {
			return nil, err
		}
		spec.Families = append(spec.Families, f)
	}
	for _, p := range m.Parts {
		if len(p.Start) > 0 {
			spec.SplitAt = append(spec.SplitAt, string(p.Start))
		}
	}
	return spec, nil
}

// partBytes is the size of a part of the table from which it has a file of its own.
const partBytes = 64 << 20

// Parts divides a range of the table into parts. suffix is that of their files, such as ".jsonl.zst". Errors: those of Table.SampleRowKeys.
func (cfg *ExportConfig) Parts(ctx context.Context, suffix string) (parts []Part, err error) {
	samples, err := cfg.Table.SampleRowKeys(ctx)
	if err != nil {
		return nil, err
	}
	start, at := []byte(cfg.Start), int64(0)
	add := func(end []byte) {
		parts = append(parts, Part{fmt.Sprintf("part-%05d%s", len(parts), suffix), start, end})
		start = end
	}
	for _, s := range samples {
		key := string(s.Key)
		if key == "" || key <= string(start) || cfg.End != "" && key >= cfg.End {
			continue
		}
		if s.Offset-at >= partBytes {
			add(s.Key)
			at = s.Offset
		}
	}
	add([]byte(cfg.End))
	return parts, nil
}

// ExportFolder writes the parts of a manifest that are missing in its directory, workers of them at a time. Errors: those of scans and of the file system.
func ExportFolder(ctx context.Context, cfg ExportConfig, dir string, m *Manifest, workers int, done *Exported) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := vfs.WriteFile(vfs.OS(), filepath.Join(dir, ManifestName), append(b, '\n')); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, p := range m.Parts {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return cfg.writePart(ctx, filepath.Join(dir, p.File), p, done)
		})
	}
	return group.Wait()
}

// Complete reports whether all parts of an export are in its directory.
func Complete(dir string, m *Manifest) bool {
	return !slices.ContainsFunc(m.Parts, func(p Part) bool {
		_, err := os.Stat(filepath.Join(dir, p.File))
		return err != nil
	})
}

// writePart writes a part, unless it exists.
func (cfg *ExportConfig) writePart(ctx context.Context, name string, p Part, done *Exported) error {
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeFile(name, func(out io.Writer) error { return cfg.write(ctx, string(p.Start), string(p.End), out, done) })
}

// ExportFile writes the rows to a file, compressed as its name states. It has its final name once it is complete and durable. Errors: those of the
// scan and of the file system.
func ExportFile(ctx context.Context, cfg ExportConfig, name string, done *Exported) error {
	return writeFile(name, func(out io.Writer) error { return Export(ctx, cfg, out, done) })
}

// writeFile writes a file under another name, and renames it when it is durable (TR3).
func writeFile(name string, write func(io.Writer) error) error {
	unfinished := name + ".unfinished"
	f, err := os.Create(unfinished)
	if err != nil {
		return err
	}
	_, compression := rowfile.FormatOf(name)
	z, err := rowfile.Compress(f, compression)
	if err == nil {
		err = errors.Join(write(z), z.Close())
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(unfinished) // the first error is returned
		return err
	}
	if err := os.Rename(unfinished, name); err != nil {
		return err
	}
	return vfs.OS().SyncDir(filepath.Dir(name))
}
