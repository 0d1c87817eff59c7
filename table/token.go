package table

import (
	"fmt"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// A Token identifies a row mutation, so that it is made once although it is sent several times. A token belongs to a row.
type Token struct {
	// ID is the same whenever the mutation is sent, and that of no other mutation of the row. It has TokenBytesMin to TokenBytesMax bytes.
	ID []byte
	// Start is when the mutation was first sent, in µs. Zero means unknown: the mutation is then accepted at any time, and made
	// again if the server does not know the token any more.
	Start int64
}

// Bounds of the ID of a Token, in bytes.
const (
	TokenBytesMin = 8
	TokenBytesMax = 1 << 10
)

// TokenWindow is how long a mutation can be sent again. TokenAhead is how far the clock of a client may be ahead.
const (
	TokenWindow = 15 * time.Minute
	TokenAhead  = 5 * time.Minute
)

// validate checks the token; nil is valid. Errors: ErrBadToken, ErrLimit.
func (t *Token) validate() error {
	switch {
	case t == nil:
		return nil
	case len(t.ID) < TokenBytesMin:
		return fmt.Errorf("%w: %d bytes, want at least %d", ErrBadToken, len(t.ID), TokenBytesMin)
	case t.Start < 0:
		return fmt.Errorf("%w: start time %d is negative", ErrBadToken, t.Start)
	}
	return checkLimit("idempotency token bytes", len(t.ID), TokenBytesMax)
}

// CheckStart checks that the mutation may still be sent at a time, in µs. The error is ErrBadToken.
func (t *Token) CheckStart(now int64) error {
	switch {
	case t.Start == 0:
	case t.Start < now-TokenWindow.Microseconds():
		return fmt.Errorf("%w: start time %d µs is more than %v before the server's time %d µs: read the row to see whether the mutation was made", ErrBadToken, t.Start, TokenWindow, now)
	case t.Start > now+TokenAhead.Microseconds():
		return fmt.Errorf("%w: start time %d µs is more than %v after the server's time %d µs: check the client's clock", ErrBadToken, t.Start, TokenAhead, now)
	}
	return nil
}

// AppendToken encodes a token as [id, start], where start is nil if it is unknown.
func AppendToken(e *wire.Encoder, t *Token) {
	e.Array(2)
	e.Bin(t.ID)
	if t.Start == 0 {
		e.Nil()
	} else {
		e.Int(t.Start)
	}
}

// DecodeToken decodes a token. The ID aliases the input. RowMutation.Validate checks its size.
func DecodeToken(d *wire.Decoder) (*Token, error) {
	if _, err := elements(d, "idempotency token", 2, 2); err != nil {
		return nil, err
	}
	t := &Token{ID: d.Bytes()}
	if !d.IsNil() {
		t.Start = d.Int()
	}
	return t, decodeError(d, "idempotency token", nil)
}
