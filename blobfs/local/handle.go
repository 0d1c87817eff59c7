package local

import (
	"errors"

	"github.com/steledb/stele/internal/wire"
)

// Handle locates and identifies a blob: it is all that a reader needs. The owner of a blob stores
// its handle; the store has no list of handles. A Handle is immutable and safe to share.
type Handle struct {
	ID     ID
	Length int64 // bytes, the sum of the extents' lengths
	// Extents are in order. An empty blob has one empty extent.
	Extents []ExtentRef
}

// ExtentRef describes a sealed extent of a blob.
type ExtentRef struct {
	Index  int
	Length int64 // bytes of the blob in this extent
	// CRC is the CRC-32C of the extent's chunk table, the concatenated checksums of its chunks. It
	// identifies the extent's content.
	CRC uint32
	// Replicas are the nodes that held the extent when it was sealed. A hint.
	Replicas []string
}

// Handles on the wire and in METADATA are
//
//	[version, id, length, [[index, length, crc, [replica...]]...]]
//
// Later versions append fields; a reader skips unknown ones.
const handleVersion = 1

// Limits enforced by DecodeHandle. A million extents of 64 MiB are 64 TiB.
const (
	// ExtentsMax is the maximum number of extents in a blob.
	ExtentsMax        = 1 << 20
	maxHandleReplicas = 64
)

var errBadHandle = errors.New("blob handle is inconsistent")

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

// DecodeHandle decodes a value that AppendHandle encoded. For an invalid value, or one whose
// lengths do not add up, it sets d's error and returns the zero Handle.
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
