package wire

import (
	"errors"
	"fmt"
)

// ErrIncomplete means that the bytes end before the value does.
var ErrIncomplete = errors.New("incomplete MessagePack value")

// FormatError means that bytes are not the MessagePack that was expected.
type FormatError struct {
	Offset int    // of the offending value, in bytes from the start of the input
	Reason string // what is wrong with it
	Limit  bool   // it may be well-formed, but is over the size limit
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("bad MessagePack at byte %d: %s", e.Offset, e.Reason)
}

// depthMax is the deepest nesting of arrays and maps that is ever accepted. No
// message of ours nests deeper than a filter of depth 20 inside a request.
const depthMax = 32

// Limits bounds what Check and Walker accept.
type Limits struct {
	// Bytes is the largest size of the whole value. Zero means 320 MiB, which
	// holds a row mutation of 256 MiB.
	Bytes int
	// Depth is the deepest nesting of arrays and maps. Zero, and anything over
	// 32, means 32.
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

// Check returns the length of the first value in b. It returns ErrIncomplete when
// b ends before the value does, and a *FormatError when the value nests deeper
// than lim.Depth, is larger than lim.Bytes or claims to be, or has a byte that
// MessagePack does not use (0xc1). It allocates nothing but the error.
func Check(b []byte, lim Limits) (n int, err error) {
	var w Walker
	w.Reset(lim)
	return w.Walk(b)
}

// CheckOne returns nil if b is exactly one value, and otherwise an error as Check does. Bytes after the value are a
// *FormatError.
func CheckOne(b []byte, lim Limits) error {
	n, err := Check(b, lim)
	if err == nil && n != len(b) {
		return &FormatError{Offset: n, Reason: fmt.Sprintf("%d bytes after the value", len(b)-n)}
	}
	return err
}

// Walker finds the end of one value in bytes that arrive in pieces. Call Reset
// before each value.
type Walker struct {
	lim   Limits
	off   int  // start of the next value to look at; may lie past what has come
	depth int  // open containers
	done  bool // the value ends at off
	need  int  // what the value has at least
	left  [depthMax]uint64
}

// Reset prepares the Walker for a new value.
func (w *Walker) Reset(lim Limits) {
	w.lim, w.off, w.depth, w.done, w.need = lim.withDefaults(), 0, 0, false, 1
}

// Need returns the number of bytes, counted from the value's start, that the
// value is now known to have at least: Walk cannot succeed with fewer.
func (w *Walker) Need() int { return w.need }

// Walk goes on where the last call stopped. b holds all the bytes of the value
// that have come so far, those of earlier calls included. It returns the value's
// length, or an error as Check does; after ErrIncomplete, call again with more
// bytes, and not after any other error.
func (w *Walker) Walk(b []byte) (n int, err error) {
	for !w.done && w.off < len(b) {
		h := headOf(b[w.off:])
		switch {
		case h.kind == KindEnd:
			w.need = w.off + h.size
			return 0, ErrIncomplete
		case h.kind == KindInvalid:
			return 0, &FormatError{Offset: w.off, Reason: "byte 0xc1"}
		case h.kids+h.body > uint64(w.lim.Bytes) || w.off+h.size+int(h.kids+h.body) > w.lim.Bytes:
			return 0, &FormatError{Offset: w.off, Reason: "length over the limit", Limit: true}
		}
		if h.kids > 0 {
			if w.depth == w.lim.Depth {
				return 0, &FormatError{Offset: w.off, Reason: "nested too deep"}
			}
			w.left[w.depth] = h.kids
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

// close counts a value that has ended, and with it the containers that it completes.
func (w *Walker) close() {
	for w.depth > 0 {
		if w.left[w.depth-1]--; w.left[w.depth-1] > 0 {
			return
		}
		w.depth--
	}
	w.done = true
}
