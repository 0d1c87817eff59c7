package client

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// ScanOption narrows a scan or tunes it.
type ScanOption interface{ scan(*scanOptions) }

// ReadOption narrows the cells that a read or a scan returns. Options narrow
// together, whatever their order: a cell must be in one of the Families, and one
// of the Columns, and in the TimeRange; what is left passes through the Filters in
// the order given; of what those let through, Versions keeps the newest.
type ReadOption interface {
	ScanOption
	read(*readOptions)
}

type readOptions struct {
	narrow   []table.Filter
	filters  []table.Filter
	versions int
	err      error
}

type scanOptions struct {
	readOptions
	start, end string // [start, end); an empty end is no bound
	empty      bool   // the range holds no row
	limit      int64
	batchRows  int
	batchBytes int
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

// Columns keeps the cells of these columns, named "family:qualifier". At most 900
// at a time fit into a filter.
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

// ColumnsMatching keeps the cells of the columns whose names match a pattern: a
// regular expression for the family, a colon, and one for the qualifier, such as
// `anchor:.*\.cnn\.com`. Both are RE2 over bytes and match whole names. The first
// colon divides them, so that for the family has none in it.
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

// TimeRange keeps the cells with timestamps in [since, until). A zero time is no
// bound.
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

// Filter passes cells through any filter of package table.
func Filter(f table.Filter) ReadOption {
	return readOption(func(o *readOptions) {
		if f != nil {
			o.filters = append(o.filters, f)
		}
	})
}

// Start begins the scan at the first row at or after row.
func Start(row string) ScanOption {
	return scanOption(func(o *scanOptions) { o.start = max(o.start, row) })
}

// End ends the scan before row. An empty row is no bound.
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

// Limit ends the scan after n rows; n is at least 1. Rows of which the filters leave
// no cell do not count. A scan without this option has no limit.
func Limit(n int64) ScanOption {
	return scanOption(func(o *scanOptions) {
		o.atLeastOne("limit", n)
		o.limit = n
	})
}

// BatchRows sets the most rows that one answer of the server holds: from 1 to
// 100,000, default 1000.
func BatchRows(n int) ScanOption {
	return scanOption(func(o *scanOptions) {
		o.atLeastOne("batch_rows", int64(n))
		o.batchRows = n
	})
}

// BatchBytes sets about how many bytes of rows one answer of the server holds: from 1
// to 16 MiB, default 256 KiB. A scan holds two answers in memory. A single larger row
// comes alone.
func BatchBytes(n int) ScanOption {
	return scanOption(func(o *scanOptions) {
		o.atLeastOne("batch_bytes", int64(n))
		o.batchBytes = n
	})
}

// atLeastOne records an error if the number given for an option is below 1.
func (o *readOptions) atLeastOne(name string, n int64) {
	if n < 1 && o.err == nil {
		o.err = fmt.Errorf("%s: %d, want at least 1", name, n)
	}
}

// filter returns the filter that the options amount to; nil if they keep all.
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
