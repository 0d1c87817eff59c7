package api

import (
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
)

var logExamples = []logRequest{
	{logShape: logShapeOf(MethodLogOpen), log: local.ID{1}, server: "n1", seq: 2, epoch: 3, salt: 1 << 63},
	{logShape: logShapeOf(MethodLogAppend), log: local.ID{1}, seq: 2, epoch: 3, start: 4096, pos: 8192, frames: []byte("frames")},
	{logShape: logShapeOf(MethodLogFence), log: local.ID{1}, epoch: 3},
	{logShape: logShapeOf(MethodLogCut), log: local.ID{1}, seq: 2, epoch: 3, start: 4096, length: 8192},
	{logShape: logShapeOf(MethodLogRefill), log: local.ID{1}, seq: 2, epoch: 3, start: 4096, length: 8192, nodes: []string{"n2", "n3"}},
	{logShape: logShapeOf(MethodLogStat), log: local.ID{1}, seq: 2},
	{logShape: logShapeOf(MethodLogRead), log: local.ID{1}, seq: 2, start: 4096, length: 8192, offset: 4096, count: 100},
	{logShape: logShapeOf(MethodLogDrop), log: local.ID{1}, seq: 2},
	{logShape: logShapeOf(MethodLogList), log: local.ID{1}, seq: 2, count: 100},
	{logShape: logShapeOf(MethodLogVerify), log: local.ID{1}, seq: 2},
	{logShape: logShapeOf(MethodLogOpen), log: local.ID{1}, server: "n1", seq: 2, epoch: 3, salt: 1 << 63, highPriority: true},
}

// The encoding is fixed: nodes of two versions call each other.
func TestLogGolden(t *testing.T) {
	id := "c41001" + "000000000000000000000000000000"
	golden := []string{
		"95" + id + "a26e310203cf8000000000000000",
		"96" + id + "0203cd1000cd2000c4066672616d6573",
		"92" + id + "03",
		"95" + id + "0203cd1000cd2000",
		"96" + id + "0203cd1000cd200092a26e32a26e33",
		"92" + id + "02",
		"96" + id + "02cd1000cd2000cd100064",
		"92" + id + "02",
		"93" + id + "0264",
		"92" + id + "02",
		"96" + id + "a26e310203cf8000000000000000c3",
	}
	for i := range logExamples {
		b := wiretest.Encode(logExamples[i].append)
		if got := hex.EncodeToString(b); got != golden[i] {
			t.Errorf("%s is now %s", logExamples[i].method, got)
		}
		if r, err := decodeLog(logExamples[i].method, b); err != nil || !reflect.DeepEqual(*r, logExamples[i]) {
			t.Errorf("%s reads as %+v, %v", logExamples[i].method, r, err)
		}
	}
	// A later version appends.
	last := logExamples[len(logExamples)-1]
	b := append(wiretest.Encode(last.append), 0x91, 0x05)
	b[0]++
	if r, err := decodeLog(last.method, b); err != nil || !reflect.DeepEqual(*r, last) {
		t.Errorf("%s with more behind reads as %+v, %v", last.method, r, err)
	}
}

func decodeLog(method string, b []byte) (*logRequest, error) {
	d := wire.NewDecoder(b)
	n := d.Array()
	if d.Err() != nil {
		return nil, d.Err()
	}
	r := &logRequest{logShape: logShapeOf(method)}
	return r, r.decode(&d, n)
}

// FuzzLogRequest feeds bytes to the decoder of each log method. Accepted input survives encoding
// and decoding.
func FuzzLogRequest(f *testing.F) {
	for i := range logExamples {
		f.Add(uint8(i), wiretest.Encode(logExamples[i].append))
	}
	f.Fuzz(func(t *testing.T, i uint8, b []byte) {
		if _, err := wire.Check(b, wire.Limits{}); err != nil {
			return
		}
		method := logShapes[int(i)%len(logShapes)].method
		_ = wiretest.RoundTrip(t, b, func(b []byte) ([]byte, error) {
			r, err := decodeLog(method, b)
			if err != nil {
				return nil, err
			}
			return wiretest.Encode(r.append), nil
		})
	})
}

func FuzzLogResult(f *testing.F) {
	f.Add(wiretest.Encode(func(e *wire.Encoder) {
		appendLogStates(e, []logproto.State{{Seq: 1, Started: true, Start: 2, Length: 3}})
	}))
	f.Add(wiretest.Encode(func(e *wire.Encoder) { appendLogInfos(e, []local.LogReplicaInfo{{Server: "n1", Seq: 1}}) }))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := wire.Check(b, wire.Limits{}); err != nil {
			return
		}
		d := wire.NewDecoder(b)
		if states := decodeLogStates(&d); d.Err() == nil {
			once := wiretest.Encode(func(e *wire.Encoder) { appendLogStates(e, states) })
			d = wire.NewDecoder(once)
			if again := decodeLogStates(&d); d.Err() != nil || len(again) != len(states) {
				t.Fatalf("%+v is written as %x: %v", states, once, d.Err())
			}
		}
		d = wire.NewDecoder(b)
		if infos := decodeLogInfos(&d); d.Err() == nil {
			once := wiretest.Encode(func(e *wire.Encoder) { appendLogInfos(e, infos) })
			d = wire.NewDecoder(once)
			if again := decodeLogInfos(&d); d.Err() != nil || len(again) != len(infos) {
				t.Fatalf("%+v is written as %x: %v", infos, once, d.Err())
			}
		}
	})
}

// Errors keep their identity on the wire.
func TestLogErrors(t *testing.T) {
	var fenced *logproto.FencedError
	if err := callError(ToRPC(&logproto.FencedError{Epoch: 9})); !errors.As(err, &fenced) || fenced.Epoch != 9 {
		t.Errorf("fenced: %v", err)
	}
	var short *logproto.ShortError
	if err := callError(ToRPC(&logproto.ShortError{Length: 7})); !errors.As(err, &short) || short.Length != 7 {
		t.Errorf("short: %v", err)
	}
	for _, want := range []error{
		logproto.ErrNoExtent, logproto.ErrExtentExists, logproto.ErrExtentClosed, logproto.ErrGap, logproto.ErrUncut, logproto.ErrMismatch,
		ErrDiskFull, ErrFolderRetired, ErrBusy, ErrUnreachable,
	} {
		if err := callError(ToRPC(want)); !errors.Is(err, want) {
			t.Errorf("%v becomes %v", want, err)
		}
	}
	if err := callError(ToRPC(&local.TooLargeError{Limit: 1, Got: 2})); !errors.Is(err, ErrBusy) {
		t.Errorf("a full queue becomes %v", err)
	}
	var corrupt *CorruptError
	if err := callError(ToRPC(&CorruptError{File: "f", Offset: 4})); !errors.As(err, &corrupt) || corrupt.Offset != 4 {
		t.Errorf("corrupt: %v", err)
	}
}
