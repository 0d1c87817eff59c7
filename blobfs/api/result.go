package api

import (
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// The info of an extent is the array
//
//	[blob, index, length, last, created in ms since 1970, epoch, [holder...]]
//
// Its stat is the same array with offset and checksum at the end. Later versions append.
const (
	infoValues = 7
	statValues = 9
)

func appendInfo(e *wire.Encoder, x *local.ExtentInfo, values int) {
	e.Array(values)
	e.Bin(x.ID.Blob[:])
	e.Int(int64(x.ID.Index))
	e.Int(x.Length)
	e.Bool(x.Last)
	e.Int(x.Created.UnixMilli())
	e.Uint(x.Holders.Epoch)
	appendNodes(e, x.Holders.Nodes)
}

// decodeInfo decodes the form that appendInfo writes and returns how many values follow.
func decodeInfo(d *wire.Decoder, x *local.ExtentInfo, values int) (more int) {
	n := d.Array()
	if n < values {
		d.Fail(&wire.FormatError{Offset: d.Offset(), Reason: "extent info is too short"})
		return 0
	}
	decode16(d, (*[16]byte)(&x.ID.Blob))
	x.ID.Index = int(decodeInt(d, 0, local.ExtentsMax-1))
	x.Length = decodeInt(d, 0, blobBytesMax)
	x.Last = d.Bool()
	x.Created = time.UnixMilli(decodeInt(d, -1<<60, 1<<60))
	x.Holders = decodeHolders(d)
	return n - infoValues
}

func appendStat(e *wire.Encoder, x *local.ExtentStat) {
	appendInfo(e, &x.ExtentInfo, statValues)
	e.Int(x.Offset)
	e.Uint(uint64(x.CRC))
}

func decodeStat(d *wire.Decoder, x *local.ExtentStat) {
	more := decodeInfo(d, &x.ExtentInfo, statValues)
	x.Offset = decodeInt(d, 0, blobBytesMax)
	x.CRC = decodeCRC(d)
	skip(d, more-(statValues-infoValues))
}

func appendInfos(e *wire.Encoder, infos []local.ExtentInfo) {
	appendList(e, infos, func(e *wire.Encoder, x *local.ExtentInfo) { appendInfo(e, x, infoValues) })
}

func decodeInfos(d *wire.Decoder) []local.ExtentInfo {
	return decodeList(d, ListMax, func(d *wire.Decoder, x *local.ExtentInfo) { skip(d, decodeInfo(d, x, infoValues)) })
}

// The result of Check is an array of
//
//	[state, repairs, length, epoch, [holder...]]
//
// with one element for each requested extent. Later versions append.
const heldValues = 5

func appendHeld(e *wire.Encoder, all []Held) {
	appendList(e, all, func(e *wire.Encoder, h *Held) {
		e.Array(heldValues)
		e.Uint(uint64(h.State))
		e.Bool(h.Repairs)
		e.Int(h.Length)
		e.Uint(h.Holders.Epoch)
		appendNodes(e, h.Holders.Nodes)
	})
}

func decodeHeld(d *wire.Decoder) []Held {
	return decodeList(d, CheckMax, func(d *wire.Decoder, h *Held) {
		more := d.Array() - heldValues
		h.State = HeldState(decodeInt(d, 0, 255))
		h.Repairs = d.Bool()
		h.Length = decodeInt(d, 0, blobBytesMax)
		h.Holders = decodeHolders(d)
		skip(d, more)
	})
}

// sealed is the result of Seal: the nodes that have sealed the extent, and the first failure as
// [node, code, text], or nil. A seal that failed on some nodes is not an error of the call.
type sealed struct {
	nodes  []string
	failed *ReplicaError
}

const failureTextBytesMax = 1 << 10

func (s *sealed) append(e *wire.Encoder) {
	e.Array(2)
	appendNodes(e, s.nodes)
	if s.failed == nil {
		e.Nil()
		return
	}
	cause := ToRPC(s.failed.Err)
	e.Array(3)
	e.Str(s.failed.Node)
	e.Uint(uint64(cause.Code))
	e.Str(cause.Message[:min(len(cause.Message), failureTextBytesMax)])
}

func (s *sealed) decode(d *wire.Decoder) {
	n := d.Array()
	s.nodes = decodeNodes(d)
	if !d.IsNil() {
		more := d.Array() - 3
		s.failed = &ReplicaError{Node: d.Str()}
		e := &rpc.Error{Code: rpc.Code(decodeCRC(d)), Message: d.Str()}
		s.failed.Err = FromRPC(e)
		skip(d, more)
	}
	skip(d, n-2)
}

// decodeBytes decodes a result of exactly len(p) bytes.
func decodeBytes(d *wire.Decoder, p []byte) {
	b := d.Bytes()
	if d.Err() == nil && len(b) != len(p) {
		d.Fail(&wire.FormatError{Offset: d.Offset(), Reason: "unexpected number of bytes"})
		return
	}
	copy(p, b)
}

// appendList encodes an array of elements that one encodes.
func appendList[T any](e *wire.Encoder, all []T, one func(*wire.Encoder, *T)) {
	e.Array(len(all))
	for i := range all {
		one(e, &all[i])
	}
}

// decodeList decodes an array of at most limit elements that one decodes. It returns nil after an
// error. It allocates memory for a few elements at first: an element is larger than its shortest
// encoding.
func decodeList[T any](d *wire.Decoder, limit int, one func(*wire.Decoder, *T)) []T {
	n := d.ArrayMax(limit)
	if n == 0 {
		return nil
	}
	all := make([]T, 0, min(n, 64))
	for i := 0; i < n && d.Err() == nil; i++ {
		all = append(all, *new(T))
		one(d, &all[i])
	}
	if d.Err() != nil {
		return nil
	}
	return all
}

// skip skips n values of later versions.
func skip(d *wire.Decoder, n int) {
	for range n {
		d.Skip()
	}
}
