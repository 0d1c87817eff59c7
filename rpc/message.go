package rpc

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/steledb/stele/internal/wire"
)

// Message types of MessagePack-RPC.
const (
	typeRequest      = 0
	typeResponse     = 1
	typeNotification = 2
)

// envelopeBytesMax is the space for a request's array header, type and id, if the latter two are
// encoded as floats, their longest form.
const envelopeBytesMax = 24

// methodBytesMax is the maximum length of a method's name, in bytes.
const methodBytesMax = 128

// goaway is the notification of a server in framed mode that shuts down. Its client sends no new
// requests and closes the connection once it has its responses.
const goaway = "rpc.goaway"

var errEnvelope = errors.New("malformed request")

// request is the envelope of a request or notification.
type request struct {
	id     uint32
	notify bool
	method []byte
	params []byte // the elements of the params array
	n      int    // their number
}

// parseRequest decodes the envelope of a client's message.
func parseRequest(body []byte) (q request, err error) {
	d := wire.NewDecoder(body)
	n := d.Array()
	switch typ := d.Uint(); {
	case typ == typeRequest && n == 4:
		id := d.Uint()
		if id > math.MaxUint32 {
			return q, errEnvelope
		}
		q.id = uint32(id)
	case typ == typeNotification && n == 3:
		q.notify = true
	default:
		return q, errEnvelope
	}
	q.method = d.Bytes()
	q.n = d.Array()
	if d.Err() != nil || len(q.method) > methodBytesMax {
		return q, errEnvelope
	}
	q.params = d.Rest()
	return q, nil
}

// peekID returns the id of a request from its first bytes and ignores what follows, so that a
// malformed request can be answered. ok is false if b does not begin like a request.
func peekID(b []byte) (id uint32, ok bool) {
	skip := 1
	switch {
	case len(b) == 0:
		return 0, false
	case b[0] == 0xdc:
		skip = 3
	case b[0] == 0xdd:
		skip = 5
	case b[0]&0xf0 != 0x90:
		return 0, false
	}
	d := wire.NewDecoder(b[min(skip, len(b)):])
	typ, v := d.Uint(), d.Uint()
	return uint32(v), d.Err() == nil && typ == typeRequest && v <= math.MaxUint32
}

// beginResponse starts a response in an empty encoder; the error and the result follow. In framed
// mode it leaves space for the frame's header, which sealFrame fills in.
func beginResponse(enc *wire.Encoder, framed bool, id uint32) {
	if framed {
		enc.Raw(blankHeader[:])
	}
	enc.Array(4)
	enc.Int(typeResponse)
	enc.Uint(uint64(id))
}

var blankHeader [headerBytes]byte

// beginRequest starts a request frame; the params array follows.
func beginRequest(enc *wire.Encoder, id uint32, method string) {
	enc.Raw(blankHeader[:])
	enc.Array(4)
	enc.Int(typeRequest)
	enc.Raw([]byte{uint32Code, byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)})
	enc.Str(method)
}

// A client encodes ids in the long form, so that setID can change one in place.
const (
	uint32Code = 0xce
	idOffset   = headerBytes + 3 // after the array header, the type and uint32Code
)

// setID changes the id of a request frame, which must then be sealed again.
func setID(frame []byte, id uint32) {
	binary.BigEndian.PutUint32(frame[idOffset:], id)
}

// beginNotification starts a notification frame; the params array follows.
func beginNotification(enc *wire.Encoder, method string) {
	enc.Raw(blankHeader[:])
	enc.Array(3)
	enc.Int(typeNotification)
	enc.Str(method)
}
