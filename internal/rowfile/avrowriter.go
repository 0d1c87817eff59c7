package rowfile

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"

	"github.com/steledb/stele/table"
)

// avroBlockBytes is the size of a block that is written: that of Java's writer.
const avroBlockBytes = 64_000

// AvroCodecs are the names of Avro's codecs, by those of "stele export --compress".
var AvroCodecs = map[string]string{"gzip": "deflate", "zstd": "zstandard", "none": "null"}

// AvroWriter writes rows as Dataflow's template Cloud Bigtable to Cloud Storage Avro does.
type AvroWriter struct {
	out    *ocf.Writer
	record []byte
}

// NewAvroWriter returns a writer, and writes the header. Call Flush at the end. The codec is one of AvroCodecs.
func NewAvroWriter(out io.Writer, codec string) (*AvroWriter, error) {
	opts := []ocf.WriterOpt{ocf.WithSchema(avroSchema), ocf.WithBlockBytes(avroBlockBytes)}
	switch codec {
	case "null":
	case "deflate":
		opts = append(opts, ocf.WithCodec(ocf.DeflateCodec(-1)))
	case "zstandard":
		c, err := ocf.ZstdCodec(nil, nil)
		if err != nil {
			return nil, err
		}
		opts = append(opts, ocf.WithCodec(c))
	default:
		return nil, fmt.Errorf("codec %q is not written", codec)
	}
	schema, err := avro.Parse(avroSchema)
	if err != nil {
		return nil, err
	}
	w, err := ocf.NewWriter(out, schema, opts...)
	return &AvroWriter{out: w}, err
}

// Write writes a row.
func (w *AvroWriter) Write(row *table.Row) error {
	b := appendAvroBytes(w.record[:0], row.Key)
	if len(row.Cells) > 0 {
		b = binary.AppendVarint(b, int64(len(row.Cells)))
	}
	for i := range row.Cells {
		c := &row.Cells[i]
		b = appendAvroBytes(b, c.Family)
		b = appendAvroBytes(b, c.Qualifier)
		b = binary.AppendVarint(b, c.Timestamp)
		b = appendAvroBytes(b, c.Value)
	}
	w.record = append(b, 0)
	_, err := w.out.Write(w.record)
	return err
}

// Flush writes what is buffered, and ends the file.
func (w *AvroWriter) Flush() error { return w.out.Close() }

// appendAvroBytes appends bytes or text, with their length.
func appendAvroBytes[T []byte | string](b []byte, v T) []byte {
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}
