package wire

import (
	"errors"
	"fmt"
)

// ErrIncomplete means that the input ends before the value does.
var ErrIncomplete = errors.New("incomplete MessagePack value")

// FormatError means that the input is not valid MessagePack or not of the expected kind.
type FormatError struct {
	Offset int    // of the offending value, in bytes from the start of the input
	Reason string // what is wrong with it
	Limit  bool   // the value may be well-formed, but exceeds the size limit
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("bad MessagePack at byte %d: %s", e.Offset, e.Reason)
}

// depthMax is the deepest nesting of arrays and maps that is ever accepted. The deepest message of
// this project is a request with a filter of depth 20.
const depthMax = 32

// Limits bounds what Check and Walker accept.
type Limits struct {
	// Bytes is the maximum size of the whole value. Zero means 320 MiB, which holds a row mutation
	// of 256 MiB.
	Bytes int
	// Depth is the maximum nesting of arrays and maps. Zero and values over 32 mean 32.
	Depth int
}

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 320 << 20
	}
	if l.Depth <= 0 || l.Depth > depthMax {
		l.Depth = depthMax
	}
	return l
}

// Check returns the length of the first value in b. It returns ErrIncomplete if b ends before the
// value does. It returns a *FormatError if the value nests deeper than lim.Depth, if its size or a
// length in it exceeds lim.Bytes, or if it has the byte 0xc1, which MessagePack does not use. It
// allocates only the error.
func Check(b []byte, lim Limits) (n int, err error) {
	var w Walker
	w.Reset(lim)
	return w.Walk(b)
}

// CheckOne checks that b is exactly one value. Errors are those of Check; bytes after the value are
// a *FormatError.
func CheckOne(b []byte, lim Limits) error {
	n, err := Check(b, lim)
	if err == nil && n != len(b) {
		return &FormatError{Offset: n, Reason: fmt.Sprintf("%d bytes after the value", len(b)-n)}
	}
	return err
}

// Walker finds the end of one value in input that arrives in pieces. Call Reset before each value.
type Walker struct {
	lim   Limits
	off   int  // start of the next value to check; may be beyond the bytes received
	depth int  // open containers
	done  bool // the value ends at off
	need  int  // minimum length of the value
	left  [depthMax]uint64
}

// Reset prepares the Walker for a new value.
func (w *Walker) Reset(lim Limits) {
	w.lim, w.off, w.depth, w.done, w.need = lim.withDefaults(), 0, 0, false, 1
}

// Need returns the minimum length of the value in bytes, as far as it is known: Walk cannot succeed
// with fewer bytes.
func (w *Walker) Need() int { return w.need }

// Walk continues where the last call stopped. b holds all bytes of the value received so far,
// including those of earlier calls. It returns the value's length, or an error as Check does. After
// ErrIncomplete, call it again with more bytes; after any other error, call Reset first.
func (w *Walker) Walk(b []byte) (n int, err error) {
	for !w.done && w.off < len(b) {
		h := headOf(b[w.off:])
		switch {
		case h.kind == KindEnd:
			w.need = w.off + h.size
			return 0, ErrIncomplete
		case h.kind == KindInvalid:
			return 0, &FormatError{Offset: w.off, Reason: "byte 0xc1"}
		case h.children+h.body > uint64(w.lim.Bytes) || w.off+h.size+int(h.children+h.body) > w.lim.Bytes:
			return 0, &FormatError{Offset: w.off, Reason: "length over the limit", Limit: true}
		}
		if h.children > 0 {
			if w.depth == w.lim.Depth {
				return 0, &FormatError{Offset: w.off, Reason: "nested too deeply"}
			}
			w.left[w.depth] = h.children
			w.depth++
			w.off += h.size
			continue
		}
		w.off += h.size + int(h.body)
		w.close()
	}
	if w.need = w.off; !w.done {
		w.need++
	}
	if w.need > len(b) {
		return 0, ErrIncomplete
	}
	return w.off, nil
}

// close counts a value that has ended, and the containers that end with it.
func (w *Walker) close() {
	for w.depth > 0 {
		if w.left[w.depth-1]--; w.left[w.depth-1] > 0 {
			return
		}
		w.depth--
	}
	w.done = true
}
