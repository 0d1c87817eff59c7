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

// Options are those that every method takes in its last parameter.
type Options struct {
	// Timeout is how long the caller waits; 0 is for ever. In framed mode the
	// frame's header says it too.
	Timeout time.Duration
	// TraceID names the request in traces; at most 64 bytes.
	TraceID []byte
}

// TableOptions are those that methods about rows take as well.
type TableOptions struct {
	Options
	// TableID is the id of the table that the request is for, so that no other table of the name gets it. 0 is not
	// given: the table that has the name when the request is executed.
	TableID uint64
}

const (
	traceIDBytesMax = 64
	timeoutMax      = 24 * time.Hour
)

// optionReader is a request with options of its own. option reads the value of the
// option called key; it returns false, having read nothing, for one it does not know.
type optionReader interface {
	option(key []byte, d *wire.Decoder) bool
}

// params checks that a method was given from least to most parameters.
func params(method string, n, least, most int) error {
	if n < least || n > most {
		return rpc.Errorf(rpc.CodeBadRequest, "%s: %d parameters, want %d to %d", method, n, least, most)
	}
	return nil
}

// decode reads the map of options, which is the next value if has. A key that is
// not known is an error rather than ignored: a misspelt "limit" would return
// everything. Keys that begin with "x_" are for others and pass.
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

// optionError adds an option's name to the error of a value of another type. The errors of
// values that are out of range have it.
func optionError(key []byte, err error) error {
	var bad *wire.FormatError
	if errors.As(err, &bad) {
		return fmt.Errorf("option %.40s: %w", key, err)
	}
	return err
}

// count returns how many common options are set.
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

// append starts a map of n options, unless n is 0, and writes the common ones. The
// caller writes the others.
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

// decode is Options.decode. own, the request, passes on to option what it does not know.
func (o *TableOptions) decode(d *wire.Decoder, has bool, own optionReader) error {
	o.TableID = 0
	return o.Options.decode(d, has, own)
}

func (o *TableOptions) option(key []byte, d *wire.Decoder) bool {
	if string(key) != "table_id" {
		return false
	}
	o.TableID = uint64(countOption(d, "table_id"))
	return true
}

func (o *TableOptions) count() int {
	n := o.Options.count()
	if o.TableID != 0 {
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
}

func appendBytes(e *wire.Encoder, key string, b []byte) {
	if len(b) > 0 {
		e.Str(key)
		e.Bin(b)
	}
}

// appendCount writes an option that is not given if n is 0. It writes a negative n,
// so that the server rejects it: left out, it would select everything.
func appendCount(e *wire.Encoder, key string, n int64) {
	if n != 0 {
		e.Str(key)
		e.Int(n)
	}
}

// wholeMillis returns t in milliseconds, rounded away from 0, which stands for an option
// that is not given.
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

// countOption reads the option called key, an integer of at least 1, or nil as 0: the
// option is not given. A given 0 is an error. It would mean no limit or the default,
// and a caller that computes 0 means neither.
func countOption(d *wire.Decoder, key string) int64 {
	if d.IsNil() {
		return 0
	}
	n := d.Int()
	if n < 1 && d.Err() == nil {
		d.Fail(rpc.Errorf(rpc.CodeBadRequest, "option %s is %d, want at least 1: leave it out for the default", key, n))
		return 0
	}
	return n
}

// millisOption reads a countOption of milliseconds, of which more than most count as
// most.
func millisOption(d *wire.Decoder, key string, most time.Duration) time.Duration {
	return time.Duration(min(countOption(d, key), most.Milliseconds())) * time.Millisecond
}

// textOption reads the option called key, a text that is not empty, or nil as "": the
// option is not given. A given empty text is an error. It would widen the request to
// what the option is to narrow.
func textOption(d *wire.Decoder, key string) string {
	if d.IsNil() {
		return ""
	}
	s := d.Str()
	if s == "" && d.Err() == nil {
		d.Fail(rpc.Errorf(rpc.CodeBadRequest, "option %s is empty: leave it out for no restriction", key))
	}
	return s
}

// optionalBytes reads a byte string, or nil as none.
func optionalBytes(d *wire.Decoder) []byte {
	if d.IsNil() {
		return nil
	}
	return d.Bytes()
}

// names makes the names in a request that is decoded again and again the same
// strings.
type names struct {
	last string
	in   *table.Interner
}

// nameBytesMax is the longest name that is kept: no table has a longer one.
const nameBytesMax = 64

// namesKept is how many names of families a request struct remembers.
const namesKept = 256

// table reads a table's name.
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

// families returns the interner for names of families.
func (n *names) families() *table.Interner {
	if n.in == nil {
		n.in = table.NewInterner(namesKept)
	}
	return n.in
}

// keepMax is how many elements a request struct keeps the memory of: enough for
// batches of the usual size, not for one that was out of the ordinary.
const keepMax = 16 << 10

// reuse returns s emptied, or nil when it has grown too large to keep.
func reuse[T any](s []T) []T {
	if cap(s) > keepMax {
		return nil
	}
	return s[:0]
}

// limitsOf returns lim, or the defaults for nil, with every field set.
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

// within returns a *table.LimitError when got is over limit.
func within(what string, got int, limit int64) error {
	if int64(got) > limit {
		return &table.LimitError{What: what, Limit: limit, Got: int64(got)}
	}
	return nil
}
