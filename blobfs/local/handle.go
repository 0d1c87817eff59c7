package local

import (
	"errors"

	"github.com/steledb/stele/internal/wire"
)

// Handle is all that a reader needs to find a blob and to know that it has the
// right one. Whoever keeps a blob keeps its handle; the store has no list of
// them. A handle never changes, and is safe to share.
type Handle struct {
	ID     ID
	Length int64 // bytes, the sum of the extents' lengths
	// Extents in order. A blob of no bytes has one extent of no bytes.
	Extents []ExtentRef
}

// ExtentRef is one extent of a blob, as it was sealed.
type ExtentRef struct {
	Index  int
	Length int64 // bytes of the blob in this extent
	// CRC is the CRC-32C of the extent's chunk table, the checksums of its
	// chunks one after another: it tells this extent from any other.
	CRC uint32
	// Replicas are the nodes that held it when it was sealed: a hint.
	Replicas []string
}

// Handles on the wire and in METADATA are
//
//	[version, id, length, [[index, length, crc, [replica...]]...]]
//
// Later versions append fields; a reader skips those that it does not know.
const handleVersion = 1

// Bounds on what DecodeHandle believes. A blob of a million extents of 64 MiB is 64 TiB.
const (
	// ExtentsMax is the most extents that a blob may have.
	ExtentsMax        = 1 << 20
	maxHandleReplicas = 64
)

var errBadHandle = errors.New("blob handle does not add up")

// AppendHandle appends h to e as one MessagePack value.
func AppendHandle(e *wire.Encoder, h Handle) {
	e.Array(4)
	e.Uint(handleVersion)
	e.Bin(h.ID[:])
	e.Int(h.Length)
	e.Array(len(h.Extents))
	for _, x := range h.Extents {
		e.Array(4)
		e.Int(int64(x.Index))
		e.Int(x.Length)
		e.Uint(uint64(x.CRC))
		e.Array(len(x.Replicas))
		for _, r := range x.Replicas {
			e.Str(r)
		}
	}
}

// DecodeHandle reads what AppendHandle wrote. A value that is no handle, or
// whose lengths do not add up, is d's error, and the result is the zero Handle.
func DecodeHandle(d *wire.Decoder) Handle {
	var h Handle
	n := d.Array()
	if version := d.Uint(); d.Err() == nil && (n < 4 || version < handleVersion) {
		d.Fail(errBadHandle)
	}
	if id := d.Bytes(); len(id) == len(h.ID) {
		h.ID = ID(id)
	} else {
		d.Fail(errBadHandle)
	}
	h.Length = d.Int()
	sum := int64(0)
	for i, extents := 0, d.ArrayMax(ExtentsMax); i < extents && d.Err() == nil; i++ {
		x := decodeExtentRef(d)
		if x.Index != i || x.Length < 0 || x.Length > h.Length-sum {
			d.Fail(errBadHandle)
		}
		sum += x.Length
		h.Extents = append(h.Extents, x)
	}
	for range n - 4 {
		d.Skip()
	}
	if sum != h.Length || len(h.Extents) == 0 {
		d.Fail(errBadHandle)
	}
	if d.Err() != nil {
		return Handle{}
	}
	return h
}

func decodeExtentRef(d *wire.Decoder) ExtentRef {
	var x ExtentRef
	n := d.Array()
	if d.Err() == nil && n < 4 {
		d.Fail(errBadHandle)
	}
	x.Index = int(d.Int())
	x.Length = d.Int()
	crc := d.Uint()
	x.CRC = uint32(crc)
	if crc != uint64(x.CRC) {
		d.Fail(errBadHandle)
	}
	for i, replicas := 0, d.ArrayMax(maxHandleReplicas); i < replicas && d.Err() == nil; i++ {
		x.Replicas = append(x.Replicas, d.Str())
	}
	for range n - 4 {
		d.Skip()
	}
	return x
}
