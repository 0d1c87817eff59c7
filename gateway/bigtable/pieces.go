package bigtable

import (
	"encoding/binary"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/steledb/stele/gateway/errcode"
)

// pieces reads the fields of an encoded message from the buffers in which it was received. close must be called.
type pieces struct {
	r      *mem.Reader
	peeked [][]byte
	joined []byte // a value that was in several buffers
}

func readPieces(data mem.BufferSlice) *pieces { return &pieces{r: data.Reader()} }

func (p *pieces) close() { _ = p.r.Close() } // it returns no error

// errMalformed is the status of a request that cannot be decoded.
var errMalformed = errcode.Invalid("The request is malformed.")

// next returns the number of the next field whose value has a length, and that length. All others are skipped. The number is 0 at the end of the
// message. The caller reads or skips the value. The error is a status.
func (p *pieces) next() (number protowire.Number, n int, err error) {
	for p.r.Remaining() > 0 {
		tag, err := binary.ReadUvarint(p.r)
		if err != nil {
			return 0, 0, errMalformed
		}
		number, kind := protowire.DecodeTag(tag)
		if number < protowire.MinValidNumber {
			return 0, 0, errMalformed
		}
		size := uint64(0)
		switch kind {
		case protowire.VarintType:
			_, err = binary.ReadUvarint(p.r)
		case protowire.Fixed32Type:
			size = 4
		case protowire.Fixed64Type:
			size = 8
		case protowire.BytesType:
			size, err = binary.ReadUvarint(p.r)
		default: // groups, which no message of the API has
			return 0, 0, errMalformed
		}
		if err != nil || size > uint64(p.r.Remaining()) {
			return 0, 0, errMalformed
		}
		if kind == protowire.BytesType {
			return number, int(size), nil
		}
		p.skip(int(size))
	}
	return 0, 0, nil
}

// value reads the n bytes of a value. They are valid until the next call.
func (p *pieces) value(n int) []byte {
	p.peeked, _ = p.r.Peek(n, p.peeked[:0]) // next has found that there are as many
	defer p.skip(n)
	if len(p.peeked) == 1 {
		return p.peeked[0]
	}
	p.joined = p.joined[:0]
	for _, b := range p.peeked {
		p.joined = append(p.joined, b...)
	}
	return p.joined
}

func (p *pieces) skip(n int) { _, _ = p.r.Discard(n) }
