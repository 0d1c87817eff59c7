package api

import (
	"fmt"
	"math"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
)

// Methods of garbage collection.
const (
	MethodSweepBegin         = "sweep.begin"
	MethodSweepPins          = "sweep.pins"
	MethodSweepExtents       = "sweep.extents"
	MethodSweepJudge         = "sweep.judge"
	MethodSweepReplicas      = "sweep.replicas"
	MethodSweepJudgeReplicas = "sweep.judge_replicas"
	MethodSweepEnd           = "sweep.end"
	MethodSweepRevive        = "sweep.revive"
	MethodSweepClear         = "sweep.clear"
)

// gcField is a parameter of a method of garbage collection.
type gcField uint8

const (
	gcFieldRound gcField = iota
	gcFieldBlob
	gcFieldCount
	gcFieldExtent   // [blob, index]
	gcFieldExtents  // [[blob, index]...]
	gcFieldReplica  // [log, extent]
	gcFieldReplicas // [[log, extent]...]
)

// gcShape lists the parameters of a method, see shape.
type gcShape struct {
	method string
	params []gcField
}

var gcShapes = []gcShape{
	{MethodSweepBegin, []gcField{gcFieldRound}},
	{MethodSweepPins, []gcField{gcFieldRound, gcFieldBlob, gcFieldCount}},
	{MethodSweepExtents, []gcField{gcFieldRound, gcFieldCount}},
	{MethodSweepJudge, []gcField{gcFieldRound, gcFieldExtent, gcFieldExtents}},
	{MethodSweepReplicas, []gcField{gcFieldRound, gcFieldCount}},
	{MethodSweepJudgeReplicas, []gcField{gcFieldRound, gcFieldReplica, gcFieldReplicas}},
	{MethodSweepEnd, []gcField{gcFieldRound}},
	{MethodSweepRevive, []gcField{gcFieldBlob}},
	{MethodSweepClear, nil},
}

func gcShapeOf(method string) *gcShape {
	for i := range gcShapes {
		if gcShapes[i].method == method {
			return &gcShapes[i]
		}
	}
	panic("BUG: no method " + method)
}

// gcRequest holds the parameters of any method of garbage collection.
type gcRequest struct {
	*gcShape
	round    uint64
	blob     local.ID
	count    int
	extent   local.ExtentID
	extents  []local.ExtentID
	replica  ReplicaKey
	replicas []ReplicaKey
}

func (r *gcRequest) append(e *wire.Encoder) {
	e.Array(len(r.params))
	for _, f := range r.params {
		switch f {
		case gcFieldRound:
			e.Uint(r.round)
		case gcFieldBlob:
			e.Bin(r.blob[:])
		case gcFieldCount:
			e.Int(int64(r.count))
		case gcFieldExtent:
			appendExtentID(e, &r.extent)
		case gcFieldExtents:
			appendList(e, r.extents, appendExtentID)
		case gcFieldReplica:
			appendReplicaKey(e, &r.replica)
		case gcFieldReplicas:
			appendList(e, r.replicas, appendReplicaKey)
		}
	}
}

// decode decodes n parameters. It returns ErrBadRequest if one is out of bounds.
func (r *gcRequest) decode(d *wire.Decoder, n int) error {
	if n < len(r.params) {
		return fmt.Errorf("%w: %d parameters of %s, want %d", ErrBadRequest, n, r.method, len(r.params))
	}
	for _, f := range r.params {
		switch f {
		case gcFieldRound:
			r.round = d.Uint()
		case gcFieldBlob:
			decode16(d, (*[16]byte)(&r.blob))
		case gcFieldCount:
			r.count = int(decodeInt(d, 0, SweepMax))
		case gcFieldExtent:
			decodeExtentID(d, &r.extent)
		case gcFieldExtents:
			r.extents = decodeList(d, SweepMax, decodeExtentID)
		case gcFieldReplica:
			decodeReplicaKey(d, &r.replica)
		case gcFieldReplicas:
			r.replicas = decodeList(d, SweepMax, decodeReplicaKey)
		}
	}
	skip(d, n-len(r.params))
	return d.Err()
}

func appendExtentID(e *wire.Encoder, x *local.ExtentID) {
	e.Array(2)
	e.Bin(x.Blob[:])
	e.Int(int64(x.Index))
}

func decodeExtentID(d *wire.Decoder, x *local.ExtentID) {
	more := d.Array() - 2
	decode16(d, (*[16]byte)(&x.Blob))
	x.Index = int(decodeInt(d, 0, local.ExtentsMax-1))
	skip(d, more)
}

func appendReplicaKey(e *wire.Encoder, k *ReplicaKey) {
	e.Array(2)
	e.Bin(k.Log[:])
	e.Uint(k.Seq)
}

func decodeReplicaKey(d *wire.Decoder, k *ReplicaKey) {
	more := d.Array() - 2
	decode16(d, (*[16]byte)(&k.Log))
	k.Seq = d.Uint()
	skip(d, more)
}

// A log replica to judge is the array [log, extent, server].
func appendSweepReplicas(e *wire.Encoder, all []SweepReplica) {
	appendList(e, all, func(e *wire.Encoder, x *SweepReplica) {
		e.Array(3)
		e.Bin(x.Log[:])
		e.Uint(x.Seq)
		e.Str(x.Server)
	})
}

func decodeSweepReplicas(d *wire.Decoder) []SweepReplica {
	return decodeList(d, SweepMax, func(d *wire.Decoder, x *SweepReplica) {
		more := d.Array() - 3
		decode16(d, (*[16]byte)(&x.Log))
		x.Seq, x.Server = d.Uint(), decodeServer(d)
		skip(d, more)
	})
}

func appendBlobIDs(e *wire.Encoder, all []local.ID) {
	appendList(e, all, func(e *wire.Encoder, id *local.ID) { e.Bin(id[:]) })
}

func decodeBlobIDs(d *wire.Decoder) []local.ID {
	return decodeList(d, SweepMax, func(d *wire.Decoder, id *local.ID) { decode16(d, (*[16]byte)(id)) })
}

// The result of EndSweep is the array
//
//	[warned, quarantined, removed, bytes, revived, more, alarm]
const sweptValues = 7

func appendSwept(e *wire.Encoder, s *Swept) {
	e.Array(sweptValues)
	e.Int(int64(s.Warned))
	e.Int(int64(s.Quarantined))
	e.Int(int64(s.Removed))
	e.Int(s.Bytes)
	e.Int(int64(s.Revived))
	e.Bool(s.More)
	e.Str(s.Alarm)
}

func decodeSwept(d *wire.Decoder) (s Swept) {
	more := d.Array() - sweptValues
	count := func() int { return int(decodeInt(d, 0, math.MaxInt32)) }
	s.Warned, s.Quarantined, s.Removed = count(), count(), count()
	s.Bytes = decodeInt(d, 0, math.MaxInt64)
	s.Revived, s.More, s.Alarm = count(), d.Bool(), d.Str()
	skip(d, more)
	return s
}
