package api

import (
	"errors"
	"fmt"
	"math"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/wire"
)

// Log methods.
const (
	MethodLogOpen   = "log.open"
	MethodLogAppend = "log.append"
	MethodLogFence  = "log.fence"
	MethodLogCut    = "log.cut"
	MethodLogRefill = "log.refill"
	MethodLogStat   = "log.stat"
	MethodLogRead   = "log.read"
	MethodLogDrop   = "log.drop"
	MethodLogList   = "log.list"
	MethodLogVerify = "log.verify"
)

// logField is a parameter of a log method.
type logField uint8

const (
	logFieldLog logField = iota
	logFieldServer
	logFieldSeq
	logFieldEpoch
	logFieldSalt
	logFieldStart
	logFieldPos
	logFieldLength
	logFieldOffset
	logFieldCount
	logFieldFrames
	logFieldNodes
	logFieldHighPriority
)

// logShape lists the parameters of a log method in wire order. Later versions may append
// parameters; readers skip unknown ones.
type logShape struct {
	method string
	params []logField
}

// appended reports whether a later version added the field. It is left out if it has its zero
// value.
func (f logField) appended() bool { return f == logFieldHighPriority }

// minValues returns the number of values that the first version sent.
func (s *logShape) minValues() int {
	n := len(s.params)
	for _, f := range s.params {
		if f.appended() {
			n--
		}
	}
	return n
}

var logShapes = []logShape{
	{MethodLogOpen, []logField{logFieldLog, logFieldServer, logFieldSeq, logFieldEpoch, logFieldSalt, logFieldHighPriority}},
	{MethodLogAppend, []logField{logFieldLog, logFieldSeq, logFieldEpoch, logFieldStart, logFieldPos, logFieldFrames}},
	{MethodLogFence, []logField{logFieldLog, logFieldEpoch}},
	{MethodLogCut, []logField{logFieldLog, logFieldSeq, logFieldEpoch, logFieldStart, logFieldLength}},
	{MethodLogRefill, []logField{logFieldLog, logFieldSeq, logFieldEpoch, logFieldStart, logFieldLength, logFieldNodes}},
	{MethodLogStat, []logField{logFieldLog, logFieldSeq}},
	{MethodLogRead, []logField{logFieldLog, logFieldSeq, logFieldStart, logFieldLength, logFieldOffset, logFieldCount}},
	{MethodLogDrop, []logField{logFieldLog, logFieldSeq}},
	{MethodLogList, []logField{logFieldLog, logFieldSeq, logFieldCount}},
	{MethodLogVerify, []logField{logFieldLog, logFieldSeq}},
}

func logShapeOf(method string) *logShape {
	for i := range logShapes {
		if logShapes[i].method == method {
			return &logShapes[i]
		}
	}
	panic("BUG: no method " + method)
}

// logRequest holds the parameters of any log method.
type logRequest struct {
	*logShape
	log              local.ID
	server           string
	seq, epoch, salt uint64
	start, pos       int64
	length, offset   int64
	count            int
	frames           []byte // aliases the message
	nodes            []string
	highPriority     bool
}

func (r *logRequest) append(e *wire.Encoder) {
	n := r.minValues()
	if r.highPriority {
		n++
	}
	e.Array(n)
	for _, f := range r.params[:n] {
		r.appendField(e, f)
	}
}

func (r *logRequest) appendField(e *wire.Encoder, f logField) {
	switch f {
	case logFieldLog:
		e.Bin(r.log[:])
	case logFieldServer:
		e.Str(r.server)
	case logFieldSeq:
		e.Uint(r.seq)
	case logFieldEpoch:
		e.Uint(r.epoch)
	case logFieldSalt:
		e.Uint(r.salt)
	case logFieldStart:
		e.Int(r.start)
	case logFieldPos:
		e.Int(r.pos)
	case logFieldLength:
		e.Int(r.length)
	case logFieldOffset:
		e.Int(r.offset)
	case logFieldCount:
		e.Int(int64(r.count))
	case logFieldFrames:
		e.Bin(r.frames)
	case logFieldNodes:
		appendNodes(e, r.nodes)
	case logFieldHighPriority:
		e.Bool(r.highPriority)
	}
}

// decode decodes n parameters. It returns ErrBadRequest if one is out of bounds.
func (r *logRequest) decode(d *wire.Decoder, n int) error {
	if n < r.minValues() {
		return fmt.Errorf("%w: %d parameters of %s, want %d", ErrBadRequest, n, r.method, r.minValues())
	}
	for _, f := range r.params[:min(n, len(r.params))] {
		r.decodeField(d, f)
	}
	skip(d, n-len(r.params))
	return d.Err()
}

func (r *logRequest) decodeField(d *wire.Decoder, f logField) {
	switch f {
	case logFieldLog:
		decode16(d, (*[16]byte)(&r.log))
	case logFieldServer:
		r.server = decodeServer(d)
	case logFieldSeq:
		r.seq = d.Uint()
	case logFieldEpoch:
		r.epoch = d.Uint()
	case logFieldSalt:
		r.salt = d.Uint()
	case logFieldStart:
		r.start = decodeInt(d, 0, math.MaxInt64)
	case logFieldPos:
		r.pos = decodeInt(d, 0, math.MaxInt64-LogBytesMax)
	case logFieldLength:
		r.length = decodeInt(d, 0, logExtentBytesMax)
	case logFieldOffset:
		r.offset = decodeInt(d, 0, logExtentBytesMax)
	case logFieldCount:
		r.count = int(decodeInt(d, 0, LogBytesMax))
	case logFieldFrames:
		if r.frames = d.Bytes(); len(r.frames) > LogBytesMax {
			d.Fail(badBytes(len(r.frames)))
		}
	case logFieldNodes:
		r.nodes = decodeNodes(d)
	case logFieldHighPriority:
		r.highPriority = d.Bool()
	}
}

// logExtentBytesMax is the longest log extent, in bytes, as in package local.
const logExtentBytesMax = 1 << 30

func decodeServer(d *wire.Decoder) string {
	b := d.Bytes()
	if len(b) > logproto.NodeBytesMax {
		d.Fail(fmt.Errorf("%w: server name of %d bytes", ErrBadRequest, len(b)))
		return ""
	}
	return string(b)
}

func (r *logRequest) cut() local.LogCut {
	return local.LogCut{Log: r.log, CutRequest: logproto.CutRequest{Seq: r.seq, Epoch: r.epoch, Start: r.start, Length: r.length}}
}

// The state of a replica of a fenced log is the array [extent, started, start, length, scanned].
// The first version had no scanned.
const logStateValues = 5

func appendLogStates(e *wire.Encoder, states []logproto.State) {
	appendList(e, states, func(e *wire.Encoder, s *logproto.State) {
		e.Array(logStateValues)
		e.Uint(s.Seq)
		e.Bool(s.Started)
		e.Int(s.Start)
		e.Int(s.Length)
		e.Bool(s.Scanned)
	})
}

func decodeLogStates(d *wire.Decoder) []logproto.State {
	return decodeList(d, logproto.ExtentsMax, func(d *wire.Decoder, s *logproto.State) {
		values := d.Array()
		s.Seq, s.Started = d.Uint(), d.Bool()
		s.Start, s.Length = decodeInt(d, 0, math.MaxInt64), decodeInt(d, 0, logExtentBytesMax)
		if values >= logStateValues {
			s.Scanned = d.Bool()
		}
		skip(d, values-logStateValues)
	})
}

// The info of a log replica is the array
//
//	[log, server, extent, salt, epoch, fence, started, start, cut, length, bytes on disk, bytes of the file, damaged]
const logInfoValues = 13

// errDamaged stands for the Damage of another node's replica, which is not sent.
var errDamaged = errors.New("replica is damaged")

func appendLogInfo(e *wire.Encoder, x *local.LogReplicaInfo) {
	e.Array(logInfoValues)
	e.Bin(x.Log[:])
	e.Str(x.Server)
	e.Uint(x.Seq)
	e.Uint(x.Salt)
	e.Uint(x.Epoch)
	e.Uint(x.Fence)
	e.Bool(x.Started)
	e.Int(x.Start)
	e.Bool(x.Sealed)
	e.Int(x.Length)
	e.Int(x.Durable)
	e.Int(x.Bytes)
	e.Bool(x.Damage != nil)
}

func decodeLogInfo(d *wire.Decoder, x *local.LogReplicaInfo) {
	more := d.Array() - logInfoValues
	decode16(d, (*[16]byte)(&x.Log))
	x.Server = decodeServer(d)
	x.Seq, x.Salt = d.Uint(), d.Uint()
	x.Epoch, x.Fence = d.Uint(), d.Uint()
	x.Started, x.Start = d.Bool(), decodeInt(d, 0, math.MaxInt64)
	x.Sealed, x.Length = d.Bool(), decodeInt(d, 0, logExtentBytesMax)
	x.Durable, x.Bytes = decodeInt(d, 0, logExtentBytesMax), decodeInt(d, 0, logExtentBytesMax)
	if d.Bool() {
		x.Damage = errDamaged
	}
	skip(d, more)
}

func appendLogInfos(e *wire.Encoder, infos []local.LogReplicaInfo) {
	appendList(e, infos, appendLogInfo)
}

func decodeLogInfos(d *wire.Decoder) []local.LogReplicaInfo {
	return decodeList(d, ListMax, decodeLogInfo)
}
