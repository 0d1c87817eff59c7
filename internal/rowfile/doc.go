// Package rowfile reads and writes files of rows: JSON lines, which lose nothing, and CSV, for spreadsheets. It reads files that Cloud Bigtable
// and HBase export. The paper has no such files: its users load tables with MapReduce.
//
// # JSON lines
//
// A line is an object with the key of a row and some of its cells. A row may have several lines:
//
//	{"row":"com.cnn.www","cells":[{"column":"anchor:cnnsi.com","timestamp":9,"value":"CNN"}]}
//
// The column is family:qualifier. The timestamp is in microseconds; a cell without one gets that of the server's clock. Instead of row, column
// and value, which are text in UTF-8, an object may have row_base64, column_base64 and value_base64, for any bytes (RFC 4648, with padding).
// If it has both, base64 counts. Instead of a value, value_int is a number, stored as a counter: 8 bytes, big-endian. Labels and
// value_distinct are ignored.
// Other fields, fields that occur twice, and invalid UTF-8 are errors. "stele scan --json" prints this form, too.
//
// A line has at most 136 MiB and 100,000 cells. JSONWriter begins another line after one MiB of cells or 10,000 of them.
//
// # CSV
//
// The format is that of RFC 4180. The first record is a header: a name for the keys of rows, which has no meaning, and then the column of
// each field, family:qualifier. Each further record is a row: its key, and a value for each column. An empty field is no cell. CSV has no
// timestamps, and only the newest value of a column, and cannot hold empty values.
//
// # Records
//
// Binary files have a record for each row. They may be damaged, or made to do harm: no length in them is trusted, and what a reader allocates is bounded by
// what it has read, and by blockBytesMax. Errors of a file are FileErrors, with the place. A record with many or large cells has several items, the last of
// which ends it.
//
// Avro container files have the schema avroSchema, or another one with its fields. AvroWriter writes the former.
//
// Parquet files have the same record as nested lists: see parquetReader.
//
// Sequence files are those of HBase's Export: see sequenceFile and hbaseReader. Its marks of deletions become Deletions of an item.
//
// # Compression
//
// Files whose name ends in .gz or .zst are compressed with gzip or Zstandard.
//
// The package starts no goroutines, except those of the compression libraries, which end with Close.
package rowfile
