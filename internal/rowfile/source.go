package rowfile

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/steledb/stele/table"
)

// Format is the format of a file.
type Format string

// The formats.
const (
	JSON    Format = "jsonl"
	CSV     Format = "csv"
	Avro    Format = "avro"         // of Dataflow's template Cloud Bigtable to Cloud Storage Avro
	Parquet Format = "parquet"      // of Dataflow's template Cloud Bigtable to Cloud Storage Parquet
	HBase   Format = "sequencefile" // sequence files of HBase's Export, and of Dataflow's template Cloud Bigtable to Cloud Storage SequenceFile
)

// Formats are those that can be read.
var Formats = []Format{JSON, CSV, Avro, Parquet, HBase}

// Unit returns the name of what Item.Line counts.
func (f Format) Unit() string {
	if f == JSON || f == CSV {
		return "line"
	}
	return "record"
}

// title returns the name of the format in a sentence.
func (f Format) title() string {
	return map[Format]string{Avro: "Avro", Parquet: "Parquet", HBase: "sequence"}[f]
}

// Detect returns the format of a file by its first bytes, or else what its name states.
func Detect(in *bufio.Reader, name string) Format {
	named, _ := FormatOf(name)
	first, _ := in.Peek(len(avroMagic)) // an error returns when the file is read
	switch {
	case string(first) == avroMagic:
		return Avro
	case len(first) == 4 && string(first[:3]) == sequenceMagic && first[3] < '\t':
		return HBase
	case string(first) == parquetMagic && named != CSV: // it may be the name of a column
		return Parquet
	}
	return named
}

// FormatOf returns the format and the compression (".gz", ".zst" or "") that a file's name states. An unknown one is JSON.
func FormatOf(name string) (f Format, compression string) {
	for _, c := range []string{".gz", ".zst"} {
		if base, ok := strings.CutSuffix(name, c); ok {
			name, compression = base, c
		}
	}
	for _, f := range Formats[1:] {
		if strings.HasSuffix(name, "."+string(f)) {
			return f, compression
		}
	}
	return JSON, compression
}

// Item is a part of a file with one row, as it was read.
type Item struct {
	Line  int64 // its first, from 1
	Bytes int
	// Record means that Line is a record of a binary file; More that further items of the same record follow.
	Record, More bool
	// Deletions are of cells that are not in the file: in any order with the cells of the item, and of others of the row.
	Deletions []Deletion
	raw       []byte    // of JSON lines
	fields    []string  // of CSV
	row       table.Row // of records
	bad       error     // why the record is not valid
}

// Error adds the line or record to an error of the row.
func (i *Item) Error(err error) error { return &LineError{Line: i.Line, Err: err, Record: i.Record} }

// Source reads a file of rows. Next and Rejects are called by one goroutine; Decode may be called by several.
type Source interface {
	// Next reads the next item. Errors: io.EOF; *LineError, after which the next call goes on behind it; those of the file.
	Next(item *Item) error
	// Decode decodes an item into row, whose memory it reuses. The row is valid until the parser is used again. Errors: *LineError.
	Decode(item *Item, p *Parser, row *table.Row) error
	// Rejects returns a function that writes items to a file of the same format.
	Rejects(out io.Writer) (write func(*Item) error, err error)
}

// lineBytesMax bounds a line: a cell of 100 MiB in base64, and its names.
const lineBytesMax = 136 << 20

// Open returns the source for a file of that format. The family is that of the columns of a CSV file whose names have none. Errors: *LineError,
// *FileError, those of in.
func Open(f Format, in io.Reader, family string) (Source, error) {
	switch f {
	case CSV:
		return newCSVSource(in, family)
	case Avro:
		r, err := newAvroReader(bufio.NewReader(in))
		return newRecordSource(f, r, err)
	case Parquet:
		return nil, &FileError{Format: f, Offset: -1, Err: errors.New("it is read from its end, and so neither compressed nor from standard input: make a file of it first")}
	case HBase:
		r, err := newHBaseReader(bufio.NewReader(in))
		return newRecordSource(f, r, err)
	}
	return &jsonSource{in: bufio.NewReaderSize(in, 1<<20)}, nil
}

// jsonSource reads the lines of a file.
type jsonSource struct {
	in   *bufio.Reader
	line int64
}

// Next implements Source. Empty lines are skipped.
func (s *jsonSource) Next(item *Item) error {
	for {
		s.line++
		item.Line = s.line
		raw, err := s.readLine()
		if err != nil {
			return err
		}
		if len(raw) > 0 {
			item.raw, item.Bytes = raw, len(raw)
			return nil
		}
	}
}

// readLine reads a line into memory of its own.
func (s *jsonSource) readLine() (raw []byte, err error) {
	for {
		part, err := s.in.ReadSlice('\n')
		if len(raw)+len(part) > lineBytesMax {
			return nil, s.skipLine(err)
		}
		raw = append(raw, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == nil, errors.Is(err, io.EOF) && len(raw) > 0:
			return trim(raw), nil
		default:
			return nil, err
		}
	}
}

// skipLine reads on to the end of a line that is too long; err is that of the last read.
func (s *jsonSource) skipLine(err error) error {
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = s.in.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return &LineError{Line: s.line, Err: fmt.Errorf("longer than %d MiB", lineBytesMax>>20)}
}

// trim removes the end of a line.
func trim(line []byte) []byte {
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	return line
}

// Decode implements Source.
func (s *jsonSource) Decode(item *Item, p *Parser, row *table.Row) error {
	err := p.Parse(item.raw, row)
	if bad := (*LineError)(nil); errors.As(err, &bad) {
		bad.Line = item.Line
	}
	if err == nil && len(row.Cells) == 0 {
		return item.Error(errors.New("the row has no cells"))
	}
	return err
}

// Rejects implements Source.
func (s *jsonSource) Rejects(out io.Writer) (func(*Item) error, error) {
	return func(item *Item) error {
		if item.raw == nil {
			return nil // it was too long to be read
		}
		_, err := out.Write(append(item.raw, '\n'))
		return err
	}, nil
}

// Decompress returns a reader of a file's contents, by the compression that FormatOf returned. The caller closes it. Errors: those of in, and of
// a file that is not compressed so.
func Decompress(in io.Reader, compression string) (io.ReadCloser, error) {
	switch compression {
	case ".gz":
		return gzip.NewReader(in)
	case ".zst":
		d, err := zstd.NewReader(in, zstd.WithDecoderMaxMemory(zstdMemoryMax))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(in), nil
}

// zstdMemoryMax bounds the memory for a hostile file.
const zstdMemoryMax = 64 << 20

// Compress returns a writer that compresses to out. Close ends the compressed data, and does not close out.
func Compress(out io.Writer, compression string) (io.WriteCloser, error) {
	switch compression {
	case ".gz":
		return gzip.NewWriter(out), nil
	case ".zst":
		return zstd.NewWriter(out, zstd.WithEncoderConcurrency(1))
	}
	return nopCloser{out}, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
