package client

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// ScanOption restricts or tunes a scan.
type ScanOption interface{ scan(*scanOptions) }

// ReadOption restricts the cells that a read or a scan returns. Options combine in a fixed way,
// whatever their order: a cell must be in one of the Families, in one of the Columns, and in the
// TimeRange. The remaining cells pass through the Filters in the order given. Of their result,
// Versions keeps the newest.
type ReadOption interface {
	ScanOption
	read(*readOptions)
}

type readOptions struct {
	narrow   []table.Filter
	filters  []table.Filter
	versions int
	rowBytes int64
	err      error
}

type scanOptions struct {
	readOptions
	start, end string // [start, end); an empty end means unbounded
	empty      bool   // the range contains no row
	limit      int64
	batchRows  int
	batchBytes int
	reversed   bool
	stats      bool
	onProgress func(next []byte)
	ranges     []table.RowRange
	someRows   bool // only the rows in ranges
}

// rows returns the set of the rows in ranges; nil means all rows.
func (o *scanOptions) rows() *table.RowSet {
	if !o.someRows {
		return nil
	}
	return table.NewRowSet(o.ranges)
}

type readOption func(*readOptions)

func (f readOption) read(o *readOptions) { f(o) }
func (f readOption) scan(o *scanOptions) { f(&o.readOptions) }

type scanOption func(*scanOptions)

func (f scanOption) scan(o *scanOptions) { f(o) }

// Families keeps the cells of these column families.
func Families(names ...string) ReadOption {
	return readOption(func(o *readOptions) {
		quoted := make([]string, len(names))
		for i, name := range names {
			if err := (*table.Limits)(nil).CheckFamilyName(name); err != nil && o.err == nil {
				o.err = err
			}
			quoted[i] = strings.ReplaceAll(name, ".", `\.`)
		}
		if len(names) == 0 {
			o.narrow = append(o.narrow, table.BlockAll{})
			return
		}
		o.narrow = append(o.narrow, table.FamilyRegex(strings.Join(quoted, "|")))
	})
}

// Columns keeps the cells of these columns, named "family:qualifier". A filter holds at most 900 of
// them.
func Columns(names ...string) ReadOption {
	return readOption(func(o *readOptions) {
		names := slices.Compact(slices.Sorted(slices.Values(names)))
		var each table.Interleave
		for _, name := range names {
			family, qualifier, err := ParseColumn(name)
			if err != nil && o.err == nil {
				o.err = err
			}
			bound := table.Closed(qualifier)
			each = append(each, table.ColumnRange{Family: family, Qualifiers: table.ByteRange{Start: bound, End: bound}})
		}
		switch len(each) {
		case 0:
			o.narrow = append(o.narrow, table.BlockAll{})
		case 1:
			o.narrow = append(o.narrow, each[0])
		default:
			o.narrow = append(o.narrow, each)
		}
	})
}

// ColumnsMatching keeps the cells of the columns that match a pattern: a regular expression for the
// family, a colon, and one for the qualifier, such as `anchor:.*\.cnn\.com`. Both are RE2 over
// bytes and match whole names. The first colon separates them, so the first expression cannot
// contain a colon.
func ColumnsMatching(pattern string) ReadOption {
	return readOption(func(o *readOptions) {
		family, qualifier, ok := strings.Cut(pattern, ":")
		if !ok {
			if o.err == nil {
				o.err = &table.NameError{What: "column pattern", Name: pattern, Reason: `has no colon: want "family:qualifier"`}
			}
			return
		}
		o.narrow = append(o.narrow, table.FamilyRegex(family), table.QualifierRegex(qualifier))
	})
}

// TimeRange keeps the cells with timestamps in [since, until). A zero time means unbounded.
func TimeRange(since, until time.Time) ReadOption {
	return readOption(func(o *readOptions) {
		r := table.TimestampRange{}
		if !since.IsZero() {
			r.Start = max(0, since.UnixMicro())
		}
		if !until.IsZero() { // a range that ends before it starts is empty
			r.End = table.Before(max(r.Start, until.UnixMicro()))
		}
		o.narrow = append(o.narrow, r)
	})
}

// Versions keeps the newest n versions of each column; n is at least 1.
func Versions(n int) ReadOption {
	return readOption(func(o *readOptions) {
		o.atLeastOne("versions", int64(n))
		o.versions = n
	})
}

// RowBytesMax bounds the memory of a row, which is estimated as that of its names, labels and values and 96
// bytes for each cell; n is at least 1. A larger row is a *RowTooLargeError, whose Limit is n. A scan first
// returns the rows before it. Nodes of earlier versions reject the option.
func RowBytesMax(n int64) ReadOption {
	return readOption(func(o *readOptions) {
		o.atLeastOne("row_bytes", n)
		o.rowBytes = n
	})
}

// Filter passes cells through any filter of package table.
func Filter(f table.Filter) ReadOption {
	return readOption(func(o *readOptions) {
		if f != nil {
			o.filters = append(o.filters, f)
		}
	})
}

// Start starts the scan at the first row at or after row.
func Start(row string) ScanOption {
	return scanOption(func(o *scanOptions) { o.start = max(o.start, row) })
}

// End ends the scan before row. An empty row means unbounded.
func End(row string) ScanOption {
	return scanOption(func(o *scanOptions) {
		if row != "" && (o.end == "" || row < o.end) {
			o.end = row
		}
	})
}

// Prefix scans the rows whose keys begin with prefix.
func Prefix(prefix string) ScanOption {
	return scanOption(func(o *scanOptions) {
		Start(prefix).scan(o)
		End(string(api.PrefixEnd([]byte(prefix)))).scan(o)
	})
}

// RowKeys scans the rows with these keys. With RowKeys and RowRange options, a scan returns the rows of any of them, each
// once and in order, that are also within Start, End and Prefix. Their number is not limited: a request has a part of
// them. Nodes of earlier versions reject it.
func RowKeys(keys ...string) ScanOption {
	return scanOption(func(o *scanOptions) {
		o.someRows = true
		for _, key := range keys {
			o.ranges = append(o.ranges, table.RowKeyRange([]byte(key)))
		}
	})
}

// RowRange scans the rows start <= row < end; an empty end means no end. See RowKeys.
func RowRange(start, end string) ScanOption {
	return scanOption(func(o *scanOptions) {
		o.someRows = true
		o.ranges = append(o.ranges, table.RowRange{Start: []byte(start), End: []byte(end)})
	})
}

// Limit ends the scan after n rows; n is at least 1. Rows without cells after filtering do not
// count. A scan without this option has no limit.
func Limit(n int64) ScanOption {
	return scanOption(func(o *scanOptions) {
		o.atLeastOne("limit", n)
		o.limit = n
	})
}

// Reversed returns the rows from the last to the first. Start and End are the same keys as in other scans. Nodes
// of earlier versions reject it.
func Reversed() ScanOption {
	return scanOption(func(o *scanOptions) { o.reversed = true })
}

// CountSeen makes the scan count the rows and cells that servers examine: see Scanner.Stats. Nodes of earlier versions
// reject it.
func CountSeen() ScanOption {
	return scanOption(func(o *scanOptions) { o.stats = true })
}

// BatchRows sets the maximum number of rows in one response of the server: from 1 to 100,000,
// default 1000.
func BatchRows(n int) ScanOption {
	return scanOption(func(o *scanOptions) {
		o.atLeastOne("batch_rows", int64(n))
		o.batchRows = n
	})
}

// BatchBytes sets the approximate size of one response of the server: from 1 byte to 16 MiB,
// default 256 KiB. A scan holds two responses in memory. A single larger row is returned alone.
func BatchBytes(n int) ScanOption {
	return scanOption(func(o *scanOptions) {
		o.atLeastOne("batch_bytes", int64(n))
		o.batchBytes = n
	})
}

// OnProgress makes Next call f when a batch without rows has arrived, because the filter dropped all rows that were looked at. next is the row
// at which the scan continues or, if it is reversed, below which. f must not keep it.
func OnProgress(f func(next []byte)) ScanOption {
	return scanOption(func(o *scanOptions) { o.onProgress = f })
}

// atLeastOne records an error if an option's value is below 1.
func (o *readOptions) atLeastOne(name string, n int64) {
	if n < 1 && o.err == nil {
		o.err = fmt.Errorf("%s: %d, want at least 1", name, n)
	}
}

// filter returns the combined filter of the options; nil if they keep all cells.
func (o *readOptions) filter() table.Filter {
	all := slices.Concat(table.Chain(o.narrow), o.filters)
	if o.versions > 0 {
		all = append(all, table.CellsPerColumnLimit(o.versions))
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

func readOptionsOf(opts []ReadOption) (o readOptions) {
	for _, opt := range opts {
		opt.read(&o)
	}
	return o
}

func scanOptionsOf(opts []ScanOption) (o scanOptions) {
	for _, opt := range opts {
		opt.scan(&o)
	}
	o.empty = o.end != "" && o.start >= o.end
	return o
}
