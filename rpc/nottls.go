package rpc

import (
	"fmt"
	"time"
)

// RefusePlain returns the response to a client that uses plain mode on a port that does not support
// it, such as a TLS port. The response carries e and the id of the request that first begins with,
// or id 0 if first does not contain the id. RefusePlain returns nil if first does not begin a
// plain-mode request.
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

// tlsHandshake is the first byte that a TLS client sends.
const tlsHandshake = 0x16

// errWantedTLS means that a TLS client was rejected.
var errWantedTLS = fmt.Errorf("%w: TLS, but this node has no certificate", errUnknownProtocol)

// refuseTLS answers a TLS client with bytes that are not TLS. TLS libraries report such bytes as a
// protocol error, but a closed connection as a network failure. The bytes also contain the reason.
func (c *serverConn) refuseTLS() {
	e := Errorf(CodeBadRequest, "this node has no certificate: connect without TLS")
	_ = c.nc.SetDeadline(time.Now().Add(lingerTime))
	if _, err := c.nc.Write(encodeErrorResponse(false, 0, e).Bytes()); err == nil {
		c.linger()
	}
}
