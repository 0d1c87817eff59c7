package rpc

import (
	"fmt"
	"time"
)

// RefusePlain returns the answer to a client that speaks plain mode where it is not spoken, such as on a port of TLS:
// e, as the answer to the request that first begins with, and to request 0 if that does not tell the number. It
// returns nil if first is not how plain mode begins.
func RefusePlain(first []byte, e *Error) []byte {
	if len(first) == 0 || !opensPlain(first[0]) {
		return nil
	}
	id, ok := peekID(first)
	if !ok {
		id = 0
	}
	return encodeErrorResponse(false, id, e).Bytes()
}

// tlsHandshake is the first byte of what a client of TLS sends.
const tlsHandshake = 0x16

// errWantedTLS is why a client of TLS is refused.
var errWantedTLS = fmt.Errorf("%w: TLS, and this node has no certificate", errUnknownProtocol)

// refuseTLS answers a client of TLS, where it is not spoken, with bytes that are not TLS: libraries report them as such,
// and a connection that is closed as a failure of the network. The bytes have the reason, too.
func (c *serverConn) refuseTLS() {
	e := Errorf(CodeBadRequest, "this node has no certificate and speaks no TLS: connect without it")
	_ = c.nc.SetDeadline(time.Now().Add(lingerTime))
	if _, err := c.nc.Write(encodeErrorResponse(false, 0, e).Bytes()); err == nil {
		c.linger()
	}
}
