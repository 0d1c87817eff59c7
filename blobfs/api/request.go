package api

import (
	"fmt"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
)

// Bounds of requests.
const (
	// ListMax is the most extents that one List returns.
	ListMax = 1024
	// blobBytesMax exceeds the length of any blob: the maximum extents times their maximum size.
	blobBytesMax = local.ExtentsMax << 30
	nodesMax     = local.HoldersMax
	// CheckMax is the most extents in one Check.
	CheckMax = 256
)

// request holds the parameters of any method; its shape determines which fields are used.
type request struct {
	*shape
	stream        StreamID
	extent        local.ExtentID
	offset        int64
	length        int64
	crc           uint32
	last          bool
	holders       local.Holders
	nodes         []string
	data          []byte // aliases the message
	count         int
	reason        Reason
	extents       []local.ExtentID
	priorityBytes int64
	toCopy        bool
}

// append encodes the parameters.
func (r *request) append(e *wire.Encoder) {
	n := 0
	for _, f := range r.params {
		if r.sends(f) {
			n += f.values()
		}
	}
	e.Array(n)
	for _, f := range r.params {
		if r.sends(f) {
			r.appendField(e, f)
		}
	}
}

// sends reports whether the field is sent: an appended one only if it is not zero.
func (r *request) sends(f field) bool {
	switch f {
	case fieldPriorityBytes:
		return r.priorityBytes > 0
	case fieldToCopy:
		return r.toCopy
	}
	return true
}

func (r *request) appendField(e *wire.Encoder, f field) {
	switch f {
	case fieldStream:
		e.Bin(r.stream[:])
	case fieldBlob:
		e.Bin(r.extent.Blob[:])
	case fieldIndex:
		e.Int(int64(r.extent.Index))
	case fieldOffset:
		e.Int(r.offset)
	case fieldLength:
		e.Int(r.length)
	case fieldCRC:
		e.Uint(uint64(r.crc))
	case fieldLast:
		e.Bool(r.last)
	case fieldHolders:
		e.Uint(r.holders.Epoch)
		appendNodes(e, r.holders.Nodes)
	case fieldNodes:
		appendNodes(e, r.nodes)
	case fieldData:
		e.Bin(r.data)
	case fieldCount:
		e.Int(int64(r.count))
	case fieldReason:
		e.Uint(uint64(r.reason))
	case fieldExtents:
		appendList(e, r.extents, appendExtentID)
	case fieldPriorityBytes:
		e.Int(r.priorityBytes)
	case fieldToCopy:
		e.Bool(r.toCopy)
	}
}

func appendNodes(e *wire.Encoder, nodes []string) {
	e.Array(len(nodes))
	for _, n := range nodes {
		e.Str(n)
	}
}

// decode decodes n parameters. It returns ErrBadRequest if one is out of bounds.
func (r *request) decode(d *wire.Decoder, n int) error {
	if n < r.minValues() {
		return fmt.Errorf("%w: %d parameters of %s, want %d", ErrBadRequest, n, r.method, r.minValues())
	}
	for _, f := range r.params {
		if n < f.values() {
			break // an appended parameter that was not sent
		}
		r.decodeField(d, f)
		n -= f.values()
	}
	skip(d, n)
	return d.Err()
}

func (r *request) decodeField(d *wire.Decoder, f field) {
	switch f {
	case fieldStream:
		decode16(d, (*[16]byte)(&r.stream))
	case fieldBlob:
		decode16(d, (*[16]byte)(&r.extent.Blob))
	case fieldIndex:
		low := int64(0)
		if r.method == MethodList {
			low = -1 // before the first extent of the blob
		}
		r.extent.Index = int(decodeInt(d, low, local.ExtentsMax-1))
	case fieldOffset:
		r.offset = decodeInt(d, 0, blobBytesMax)
	case fieldLength:
		r.length = decodeInt(d, 0, blobBytesMax)
	case fieldCRC:
		r.crc = decodeCRC(d)
	case fieldLast:
		r.last = d.Bool()
	case fieldHolders:
		r.holders = decodeHolders(d)
	case fieldNodes:
		r.nodes = decodeNodes(d)
	case fieldData:
		r.data = d.Bytes()
		if len(r.data) > PieceBytesMax {
			d.Fail(badBytes(len(r.data)))
		}
	case fieldCount:
		r.count = int(decodeInt(d, 0, PieceBytesMax))
	case fieldReason:
		r.reason = Reason(decodeInt(d, 1, int64(reasonsN)-1))
	case fieldExtents:
		r.extents = decodeList(d, CheckMax, decodeExtentID)
	case fieldPriorityBytes:
		r.priorityBytes = decodeInt(d, 0, blobBytesMax)
	case fieldToCopy:
		r.toCopy = d.Bool()
	}
}

func badBytes(n int) error {
	return fmt.Errorf("%w: %d bytes at once, at most %d", ErrBadRequest, n, PieceBytesMax)
}

func decode16(d *wire.Decoder, to *[16]byte) {
	if b := d.Bytes(); len(b) == len(to) {
		*to = [16]byte(b)
	} else {
		d.Fail(fmt.Errorf("%w: id of %d bytes", ErrBadRequest, len(b)))
	}
}

func decodeInt(d *wire.Decoder, low, high int64) int64 {
	v := d.Int()
	if v < low || v > high {
		d.Fail(fmt.Errorf("%w: %d is not between %d and %d", ErrBadRequest, v, low, high))
		return low
	}
	return v
}

func decodeCRC(d *wire.Decoder) uint32 { return uint32(decodeInt(d, 0, 1<<32-1)) }

func decodeHolders(d *wire.Decoder) local.Holders {
	h := local.Holders{Epoch: d.Uint(), Nodes: decodeNodes(d)}
	if err := h.Validate(); err != nil {
		d.Fail(fmt.Errorf("%w: %w", ErrBadRequest, err))
		return local.Holders{}
	}
	return h
}

func decodeNodes(d *wire.Decoder) []string {
	n := d.ArrayMax(nodesMax)
	if n == 0 {
		return nil
	}
	nodes := make([]string, 0, n)
	for range n {
		b := d.Bytes()
		if len(b) == 0 || len(b) > local.HolderNameBytesMax {
			d.Fail(fmt.Errorf("%w: node name of %d bytes", ErrBadRequest, len(b)))
			return nil
		}
		nodes = append(nodes, string(b))
	}
	return nodes
}
