package rows

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/internal/rowfile"
	"github.com/steledb/stele/internal/transfer"
)

// formatNames returns the names of the formats in a sentence.
func formatNames() string {
	var names []string
	for _, f := range rowfile.Formats {
		names = append(names, string(f))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// addFolder adds the files of a folder that another program has exported: those of binary formats, in the order of their names. Files whose names
// begin with . or _ are of the program itself, such as _SUCCESS.
func (im *importer) addFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(e.Name(), "_") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if ok, err := isRecords(path, info); err != nil {
			return err
		} else if !ok {
			return cli.Usagef("name its files", "%s is a folder that has no %s, and %s is not a file of records, such as Avro", dir, transfer.ManifestName, e.Name())
		}
		names = append(names, e.Name())
		im.files, im.total = append(im.files, path), im.total+info.Size()
	}
	if len(names) == 0 {
		return cli.Usagef("name a file, or another folder", "%s has neither %s nor other files", dir, transfer.ManifestName)
	}
	return missingShard(dir, names)
}

// isRecords reports whether a file is of a binary format.
func isRecords(path string, info os.FileInfo) (bool, error) {
	if !info.Mode().IsRegular() {
		return false, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	_, compression := rowfile.FormatOf(path)
	z, err := rowfile.Decompress(f, compression)
	if err != nil {
		return false, fileError(path, err)
	}
	defer z.Close()
	format := rowfile.Detect(bufio.NewReader(z), path)
	return format.Unit() == "record", nil
}

// shard matches the names of files that Dataflow writes: the number of the file, and how many there are.
var shard = regexp.MustCompile(`^(.*-)(\d{5,9})(-of-(\d{5,9}).*)$`)

// missingShard returns an error if a file is missing of those that the names of others count.
func missingShard(dir string, names []string) error {
	have, checked := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		have[name] = true
	}
	for _, name := range names {
		m := shard.FindStringSubmatch(name)
		if m == nil || checked[m[1]+m[3]] {
			continue
		}
		checked[m[1]+m[3]] = true
		n, _ := strconv.Atoi(m[4]) // it has digits only
		for i := range min(n, len(names)+1) {
			if part := fmt.Sprintf("%s%0*d%s", m[1], len(m[2]), i, m[3]); !have[part] {
				return cli.WithHint(fmt.Errorf("the export in %s is not complete: %s is missing", dir, part), "copy it to the folder, or name the files to import")
			}
		}
	}
	return nil
}

// openFile opens a file, or standard input, and decompresses it. Closing it closes both.
func (im *importer) openFile(name string) (*inputFile, error) {
	in := &inputFile{}
	im.in.Reader = im.a.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		im.in.Reader, in.file = f, f
	}
	_, compression := rowfile.FormatOf(name)
	z, err := rowfile.Decompress(&im.in, compression)
	if err != nil {
		return nil, errors.Join(fileError(name, err), in.file.Close())
	}
	in.ReadCloser, in.plain = z, compression == ""
	return in, nil
}

// inputFile is a file that is imported.
type inputFile struct {
	io.ReadCloser          // what it has, decompressed
	file          *os.File // nil if it is standard input
	plain         bool     // it is not compressed
}

// Close implements io.Closer.
func (f *inputFile) Close() error {
	if f.file == nil {
		return f.ReadCloser.Close()
	}
	return errors.Join(f.ReadCloser.Close(), f.file.Close())
}

// source returns the rows of a file, of the format of --format, or else of what its first bytes and its name state.
func (im *importer) source(in *inputFile, name string) (rowfile.Source, error) {
	buffered := bufio.NewReaderSize(in, 1<<20)
	format := rowfile.Format(im.flags.format)
	if format == "" {
		format = rowfile.Detect(buffered, name)
	}
	im.note(format, name)
	if format != rowfile.Parquet || in.file == nil || !in.plain {
		return rowfile.Open(format, buffered, im.flags.family)
	}
	info, err := in.file.Stat()
	if err != nil {
		return nil, err
	}
	return rowfile.OpenParquet(countingAt{in.file, &im.in}, info.Size())
}

// countingAt counts what is read of a file anywhere. It is used by one goroutine.
type countingAt struct {
	file  *os.File
	count *cli.CountingReader
}

// ReadAt implements io.ReaderAt.
func (c countingAt) ReadAt(p []byte, off int64) (int, error) {
	c.count.Reader = io.NewSectionReader(c.file, off, int64(len(p)))
	return io.ReadFull(c.count, p)
}

// note reports where an interrupted import continues.
func (im *importer) note(format rowfile.Format, name string) {
	if im.resumed {
		im.a.Notef("continuing behind %s %s of %s", format.Unit(), cli.FormatCount(im.state.Line), name)
		im.resumed = false
	}
}

// fileError adds the name of a file to an error.
func fileError(name string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
