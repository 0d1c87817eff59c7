package bigtable

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// Bounds of rows, as client.RowBytesMax has them, and the memory of reads with them.
const (
	// pointRowBytes is the first bound of a point read. The charge of a call covers such a row.
	pointRowBytes = 64 << 10
	// scanRowBytes is the first bound of a scan.
	scanRowBytes = 256 << 10
	// scanBytes is the memory of a scan with rows up to scanRowBytes: two batches of the client, each
	// of which ends with the row that reaches 256 KiB, and a message, which does so, too.
	scanBytes = 3 * (256<<10 + scanRowBytes)
	// mediumRowBytes is the second bound. The third one, and last, is Config.RowBytesMax.
	mediumRowBytes = 1 << 20
	// rowBytesMaxDefault is the default of Config.RowBytesMax.
	rowBytesMaxDefault = 32 << 20
)

// rowCharge returns the memory of a read with rows up to a bound: as the tablet server has sent them,
// as they are sent to the client, and half of that for what is larger while it is converted.
func rowCharge(bytes int64) int64 { return 5 * bytes / 2 }

// rowMemory bounds the rows that a call reads. It holds the memory of the call.
type rowMemory struct {
	service *Service
	bytes   int64 // the bound
	call    *held // of a scan, or of the message of a point read
	row     *held // of rows above the first bound
}

// pointRow avoids an allocation in most point reads.
var pointRow = client.RowBytesMax(pointRowBytes)

// option returns the option of a read for the bound.
func (m *rowMemory) option() client.ReadOption {
	if m.bytes == pointRowBytes {
		return pointRow
	}
	return client.RowBytesMax(m.bytes)
}

// grow raises the bound, and reserves memory for it, if err means that a row exceeds the present one.
// Then it returns nil: the read must be repeated. What was reserved for rows before is released first, so
// that no two point reads wait for each other. Errors: err if it has another cause; a status if no larger row
// can be read; those of Config.Reserve.
func (m *rowMemory) grow(ctx context.Context, err error) error {
	if !errors.Is(err, client.ErrRowTooLarge) {
		return err
	}
	next := m.service.cfg.RowBytesMax
	if m.bytes >= next {
		return status.Errorf(codes.FailedPrecondition,
			"A row takes more than %d bytes of memory, the most that this node can send: raise the node's setting \"memory\", or read fewer cells with a filter.", m.bytes)
	}
	if m.bytes < mediumRowBytes {
		next = min(next, mediumRowBytes)
	}
	m.row.end(ctx)
	m.row = nil
	if m.row, err = m.reserve(ctx, rowCharge(next)); err != nil {
		return err
	}
	m.bytes = next
	return nil
}

// reserve reserves memory, if it is bounded. Errors: those of Config.Reserve.
func (m *rowMemory) reserve(ctx context.Context, bytes int64) (*held, error) {
	if m.service.cfg.Reserve == nil {
		return nil, nil
	}
	release, err := m.service.cfg.Reserve(ctx, bytes)
	if err != nil {
		return nil, err
	}
	return hold(release), nil
}

// reserveScan reserves the memory of a scan.
func (m *rowMemory) reserveScan(ctx context.Context) (err error) {
	m.bytes = scanRowBytes
	m.call, err = m.reserve(ctx, scanBytes)
	return err
}

// reserveMessage reserves memory for the message of a point read, unless it is small or what is reserved
// for the row covers it.
func (m *rowMemory) reserveMessage(ctx context.Context, row *table.Row) (err error) {
	if n := encodedBytes(row); m.row == nil && n > firstBytes {
		m.call, err = m.reserve(ctx, int64(n))
	}
	return err
}

// current returns what messages use: nil if nothing is reserved.
func (m *rowMemory) current() *held {
	switch {
	case m == nil:
		return nil
	case m.row != nil:
		return m.row
	}
	return m.call
}

// end releases what is reserved when the messages of the call are written. ctx is that of its stream.
func (m *rowMemory) end(ctx context.Context) {
	m.row.end(ctx)
	m.call.end(ctx)
	m.row, m.call = nil, nil
}

// get reads a row, and reserves memory for it if it is large. Errors: those of Table.Get and of grow.
func (m *rowMemory) get(ctx context.Context, t Table, key string, options ...client.ReadOption) (*table.Row, error) {
	for {
		row, err := t.Get(ctx, key, append(options[:len(options):len(options)], m.option())...)
		if err == nil {
			return row, nil
		}
		if err := m.grow(ctx, err); err != nil {
			return nil, err
		}
	}
}

// withRowBytesMax returns a configuration with RowBytesMax, within what a tablet server returns.
func (c Config) withRowBytesMax() Config {
	if c.RowBytesMax == 0 {
		c.RowBytesMax = rowBytesMaxDefault
	}
	c.RowBytesMax = min(c.RowBytesMax, api.ResultBytesMax)
	return c
}

// after returns what a scan has yet to read of spans: the rows after the row last or, in descending
// order, those before it.
func after(spans []span, last string, reversed bool) (left []span) {
	for _, s := range spans {
		switch {
		case s.one:
			if s.start == last || s.start < last != reversed {
				continue
			}
		case reversed:
			if s.end == "" || s.end > last {
				s.end = last
			}
		default:
			s.start = max(s.start, successor([]byte(last)))
		}
		if !s.empty() {
			left = append(left, s)
		}
	}
	return left
}
