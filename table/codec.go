package table

import (
	"errors"
	"fmt"
	"math"

	"github.com/steledb/stele/internal/wire"
)

// The codecs write and read the data model as MessagePack. A byte string may come
// as bin or as str. What Decode functions fill aliases the input, but for names
// and what is said to be copied.
//
// The first error of a Decode function sticks to the wire.Decoder as well.

// later is how many elements are allowed where later versions may add some.
const later = math.MaxInt

// errForm is what is wrong with values that are well-formed MessagePack.
func errForm(format string, args ...any) error { return fmt.Errorf(format, args...) }

// decodeError wraps err, or else the decoder's own error, as an error of the part
// called path. It returns nil if there is neither.
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

// finish makes the error of a Decode function stick.
func finish(d *wire.Decoder, err error) error {
	if err != nil {
		d.Fail(err)
	}
	return err
}

// elements reads the header of an array that is what, and checks that it has from
// least to most elements.
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

// count reads the header of an array whose elements are what, of at most limit.
func count(d *wire.Decoder, what string, limit int64) (int, error) {
	n := d.Array()
	if err := within(what, n, limit); err != nil {
		return 0, err
	}
	return n, nil
}

// grow returns s emptied, with room for n elements if the rest of the input, of
// which each takes at least size bytes, can hold so many.
func grow[T any](s []T, d *wire.Decoder, n, size int) []T {
	n = min(n, len(d.Rest())/size+1)
	if cap(s) < n {
		return make([]T, 0, n)
	}
	return s[:0]
}
