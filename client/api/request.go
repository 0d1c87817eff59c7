package api

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// Options holds the options that every method accepts in its last parameter.
type Options struct {
	// Timeout is how long the caller waits; 0 means forever. In framed mode the frame's header
	// contains it as well.
	Timeout time.Duration
	// TraceID identifies the request in traces; at most 64 bytes.
	TraceID []byte
}

// TableOptions holds the options that methods about rows accept as well.
type TableOptions struct {
	Options
	// TableID is the id of the requested table. If another table has the name now, the request is
	// rejected. 0 means unset: the table that has the name at execution is used.
	TableID uint64
	// View is the name of a view of the table, to which the request is confined; empty for the whole table.
	View string
}

const (
	traceIDBytesMax = 64
	timeoutMax      = 24 * time.Hour
)

// optionReader is a request with options of its own. option reads the value of the option with that
// key. It returns false without reading anything if the option is unknown.
type optionReader interface {
	option(key []byte, d *wire.Decoder) bool
}

// params checks that a method has from atLeast to atMost parameters.
func params(method string, n, atLeast, atMost int) error {
	if n < atLeast || n > atMost {
		return rpc.Errorf(rpc.CodeBadRequest, "%s: %d parameters, want %d to %d", method, n, atLeast, atMost)
	}
	return nil
}

// decode decodes the map of options, which is the next value if has is set. An unknown key is an
// error: ignoring a misspelt "limit", for example, would return all rows. Keys with the prefix "x_"
// are reserved for extensions and are skipped.
func (o *Options) decode(d *wire.Decoder, has bool, own optionReader) error {
	o.Timeout, o.TraceID = 0, nil
	if !has || d.IsNil() {
		return d.Err()
	}
	for range d.Map() {
		key := d.Bytes()
		switch {
		case string(key) == "timeout_ms":
			o.Timeout = millisOption(d, "timeout_ms", timeoutMax)
		case string(key) == "trace_id":
			o.TraceID = optionalBytes(d)
			if err := within("trace id bytes", len(o.TraceID), traceIDBytesMax); err != nil {
				return err
			}
		case own != nil && own.option(key, d):
		case bytes.HasPrefix(key, []byte("x_")):
			d.Skip()
		case d.Err() == nil:
			return rpc.Errorf(rpc.CodeBadRequest, "unknown option %.40q", key)
		}
		if d.Err() != nil {
			return optionError(key, d.Err())
		}
	}
	return d.Err()
}

// optionError adds the option's name to an error about a value's type. Errors about a value's range
// already contain it.
func optionError(key []byte, err error) error {
	var bad *wire.FormatError
	if errors.As(err, &bad) {
		return fmt.Errorf("option %.40s: %w", key, err)
	}
	return err
}

// count returns the number of common options that are set.
func (o *Options) count() int {
	n := 0
	if o.Timeout > 0 {
		n++
	}
	if len(o.TraceID) > 0 {
		n++
	}
	return n
}

// append writes the header of a map of n options and the common options; the caller writes the
// others. It writes nothing if n is 0.
func (o *Options) append(e *wire.Encoder, n int) {
	if n == 0 {
		return
	}
	e.Map(n)
	if o.Timeout > 0 {
		e.Str("timeout_ms")
		e.Int(max(1, o.Timeout.Milliseconds()))
	}
	appendBytes(e, "trace_id", o.TraceID)
}

// decode is Options.decode. own is the request; its option method must fall back to o.option.
func (o *TableOptions) decode(d *wire.Decoder, has bool, own optionReader) error {
	o.TableID, o.View = 0, ""
	return o.Options.decode(d, has, own)
}

func (o *TableOptions) option(key []byte, d *wire.Decoder) bool {
	switch string(key) {
	case "table_id":
		o.TableID = uint64(countOption(d, "table_id"))
	case "view":
		o.View = textOption(d, "view")
	default:
		return false
	}
	return true
}

func (o *TableOptions) count() int {
	n := o.Options.count()
	if o.TableID != 0 {
		n++
	}
	if o.View != "" {
		n++
	}
	return n
}

func (o *TableOptions) append(e *wire.Encoder, n int) {
	o.Options.append(e, n)
	if o.TableID != 0 {
		e.Str("table_id")
		e.Uint(o.TableID)
	}
	appendText(e, "view", o.View)
}

func appendBytes(e *wire.Encoder, key string, b []byte) {
	if len(b) > 0 {
		e.Str(key)
		e.Bin(b)
	}
}

// appendCount writes an option unless n is 0, which means unset. It also writes a negative n, so
// that the server rejects it; omitting it would select everything.
func appendCount(e *wire.Encoder, key string, n int64) {
	if n != 0 {
		e.Str(key)
		e.Int(n)
	}
}

// wholeMillis returns t in milliseconds, rounded away from 0, because 0 means unset.
func wholeMillis(t time.Duration) int64 {
	ms := t.Milliseconds()
	switch {
	case t > time.Duration(ms)*time.Millisecond:
		ms++
	case t < time.Duration(ms)*time.Millisecond:
		ms--
	}
	return ms
}

// countOption reads the option key: an integer of at least 1, or nil, which means unset and returns
// 0. An explicit 0 is an error: it would mean no limit or the default, and a caller that computes 0
// intends neither.
func countOption(d *wire.Decoder, key string) int64 {
	if d.IsNil() {
		return 0
	}
	n := d.Int()
	if n < 1 && d.Err() == nil {
		d.Fail(rpc.Errorf(rpc.CodeBadRequest, "option %s is %d, want at least 1; omit it for the default", key, n))
		return 0
	}
	return n
}

// millisOption reads a countOption in milliseconds. Values above limit are reduced to limit.
func millisOption(d *wire.Decoder, key string, limit time.Duration) time.Duration {
	return time.Duration(min(countOption(d, key), limit.Milliseconds())) * time.Millisecond
}

// textOption reads the option key: a string that is not empty, or nil, which means unset and
// returns "". An explicit empty string is an error, because it would widen a request that the
// option is meant to narrow.
func textOption(d *wire.Decoder, key string) string {
	if d.IsNil() {
		return ""
	}
	s := d.Str()
	if s == "" && d.Err() == nil {
		d.Fail(rpc.Errorf(rpc.CodeBadRequest, "option %s is empty; omit it for no restriction", key))
	}
	return s
}

// optionalBytes reads a byte string; it returns nil for nil.
func optionalBytes(d *wire.Decoder) []byte {
	if d.IsNil() {
		return nil
	}
	return d.Bytes()
}

// names interns the names in requests that are decoded into the same struct.
type names struct {
	last string
	in   *table.Interner
}

// nameBytesMax is the longest name that is interned; no table has a longer one.
const nameBytesMax = 64

// internedMax is the number of family names that a request struct interns.
const internedMax = 256

// table decodes a table's name.
func (n *names) table(d *wire.Decoder) string {
	b := d.Bytes()
	if string(b) == n.last {
		return n.last
	}
	name := string(b)
	if len(name) <= nameBytesMax {
		n.last = name
	}
	return name
}

// families returns the interner for family names.
func (n *names) families() *table.Interner {
	if n.in == nil {
		n.in = table.NewInterner(internedMax)
	}
	return n.in
}

// retainedMax is the number of elements whose memory a request struct retains: enough for batches
// of the usual size.
const retainedMax = 16 << 10

// reuse returns s with length 0, or nil if its capacity exceeds retainedMax.
func reuse[T any](s []T) []T {
	if cap(s) > retainedMax {
		return nil
	}
	return s[:0]
}

// limitsOf returns lim, or the defaults if it is nil, with all fields set.
func limitsOf(lim *table.Limits) *table.Limits {
	if lim == nil {
		return &defaultLimits
	}
	if lim.BatchRows > 0 && lim.RowKeyBytes > 0 && lim.FilterBytes > 0 && lim.FilterNodes > 0 {
		return lim
	}
	full := lim.WithDefaults()
	return &full
}

var defaultLimits = table.DefaultLimits()

// within returns a *table.LimitError if got exceeds limit.
func within(what string, got int, limit int64) error {
	if int64(got) > limit {
		return &table.LimitError{What: what, Limit: limit, Got: int64(got)}
	}
	return nil
}
