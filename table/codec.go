package table

import (
	"errors"
	"fmt"
	"math"

	"github.com/steledb/stele/internal/wire"
)

// The codecs encode the data model as MessagePack. A byte string may arrive as bin or as str.
// Decoded byte slices alias the input unless documented otherwise; names are copied.
//
// The first error of a Decode function is also recorded in the wire.Decoder.

// unlimited is the maximum number of elements of arrays that later versions may extend.
const unlimited = math.MaxInt

// errForm returns an error for well-formed MessagePack with an unexpected shape or value.
func errForm(format string, args ...any) error { return fmt.Errorf(format, args...) }

// decodeError wraps err, or the decoder's own error if err is nil, with the name of the part being
// decoded. It returns nil if there is neither.
func decodeError(d *wire.Decoder, path string, err error) error {
	if err == nil {
		err = d.Err()
	}
	if err == nil {
		return nil
	}
	var inner *DecodeError
	if errors.As(err, &inner) {
		path, err = path+": "+inner.Path, inner.Err
	}
	return &DecodeError{Path: path, Err: err}
}

// finish records the error of a Decode function in the decoder.
func finish(d *wire.Decoder, err error) error {
	if err != nil {
		d.Fail(err)
	}
	return err
}

// elements reads an array header and checks that the array has least to most elements. what names
// the array in errors.
func elements(d *wire.Decoder, what string, least, most int) (int, error) {
	n := d.Array()
	if err := d.Err(); err != nil {
		return 0, decodeError(d, what, err)
	}
	if n < least {
		return 0, decodeError(d, what, errForm("%d elements, want at least %d", n, least))
	}
	if n > most {
		return 0, decodeError(d, what, errForm("%d elements, want at most %d", n, most))
	}
	return n, nil
}

// count reads an array header and checks that the array has at most limit elements.
func count(d *wire.Decoder, what string, limit int64) (int, error) {
	n := d.Array()
	if err := checkLimit(what, n, limit); err != nil {
		return 0, err
	}
	return n, nil
}

// grow returns s emptied, with capacity for n elements, limited to what the unread input can hold
// at size or more bytes per element.
func grow[T any](s []T, d *wire.Decoder, n, size int) []T {
	n = min(n, len(d.Rest())/size+1)
	if cap(s) < n {
		return make([]T, 0, n)
	}
	return s[:0]
}
