package api

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/rpc"
)

func decodeRequest(method string, params []byte) (request, error) {
	r := request{shape: shapeOf[method]}
	d := wire.NewDecoder(params)
	n := d.Array()
	if err := d.Err(); err != nil {
		return r, err
	}
	return r, r.decode(&d, n)
}

var (
	testStream  = StreamID{1, 15: 2}
	testExtent  = local.ExtentID{Blob: local.ID{3, 15: 4}, Index: 5}
	testHolders = local.Holders{Epoch: 6, Nodes: []string{"n1", "n2"}}
)

// goldens are the parameters of each method. They must not change.
var goldens = []struct {
	request
	hex string
}{
	{request{shape: shapeOf[MethodBegin], stream: testStream, extent: testExtent, offset: 7, nodes: []string{"n3"}},
		"95c41001000000000000000000000000000002c410030000000000000000000000000000040507" + "91a26e33"},
	{request{shape: shapeOf[MethodBegin], stream: testStream, extent: testExtent, offset: 7, nodes: []string{"n3"}, priorityBytes: 65536},
		"96c41001000000000000000000000000000002c410030000000000000000000000000000040507" + "91a26e33" + "ce00010000"},
	{request{shape: shapeOf[MethodPiece], stream: testStream, offset: 65536, data: []byte("abc")},
		"93c41001000000000000000000000000000002ce00010000c403616263"},
	{request{shape: shapeOf[MethodSeal], stream: testStream, length: 300, crc: 0xdeadbeef, last: true, holders: testHolders},
		"96c41001000000000000000000000000000002cd012ccedeadbeefc3" + "0692a26e31a26e32"},
	{request{shape: shapeOf[MethodResume], stream: testStream}, "91c41001000000000000000000000000000002"},
	{request{shape: shapeOf[MethodReread], stream: testStream, offset: 1, count: 2}, "93c410010000000000000000000000000000020102"},
	{request{shape: shapeOf[MethodAbort], stream: testStream}, "91c41001000000000000000000000000000002"},
	{request{shape: shapeOf[MethodRead], extent: testExtent, crc: 8, offset: 9, count: 10}, "95c410030000000000000000000000000000040508090a"},
	{request{shape: shapeOf[MethodRead], extent: testExtent, crc: 8, offset: 9, count: 10, toCopy: true}, "96c410030000000000000000000000000000040508090ac3"},
	{request{shape: shapeOf[MethodStat], extent: testExtent}, "92c4100300000000000000000000000000000405"},
	{request{shape: shapeOf[MethodList], extent: local.ExtentID{Index: -1}, count: 10}, "93c41000000000000000000000000000000000ff0a"},
	{request{shape: shapeOf[MethodDrop], extent: testExtent, reason: Corrupt}, "93c410030000000000000000000000000000040502"},
	{request{shape: shapeOf[MethodDropBlob], extent: local.ExtentID{Blob: testExtent.Blob}, reason: Deleted}, "92c4100300000000000000000000000000000401"},
	{request{shape: shapeOf[MethodCopy], extent: testExtent, crc: 8, nodes: []string{"n4"}, holders: testHolders},
		"96c41003000000000000000000000000000004050891a26e340692a26e31a26e32"},
	{request{shape: shapeOf[MethodSetHolders], extent: testExtent, holders: testHolders}, "94c41003000000000000000000000000000004050692a26e31a26e32"},
	{request{shape: shapeOf[MethodCheck], extents: []local.ExtentID{testExtent, {Index: 1}}},
		"919292c410030000000000000000000000000000040592c4100000000000000000000000000000000001"},
	{request{shape: shapeOf[MethodVerify], extent: testExtent, crc: 8}, "93c41003000000000000000000000000000004" + "0508"},
}

func allValues(s *shape) (n int) {
	for _, f := range s.params {
		n += f.values()
	}
	return n
}

func TestGoldenRequests(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range goldens {
		seen[g.method] = true
		b := wiretest.Encode(g.append)
		if got := hex.EncodeToString(b); got != g.hex {
			t.Errorf("%s is written as %s", g.method, got)
		}
		r, err := decodeRequest(g.method, b)
		if err != nil || !reflect.DeepEqual(r, g.request) {
			t.Errorf("%s reads as %+v, %v", g.method, r, err)
		}
		if n := int(b[0] & 15); n < allValues(g.shape) {
			continue // without appended parameters
		}
		// A later version appends.
		longer := append([]byte{b[0] + 1}, b[1:]...)
		if r, err := decodeRequest(g.method, append(longer, 0x91, 0x05)); err != nil || !reflect.DeepEqual(r, g.request) {
			t.Errorf("%s with more behind reads as %+v, %v", g.method, r, err)
		}
	}
	for _, s := range shapes {
		if !seen[s.method] {
			t.Errorf("no golden of %s", s.method)
		}
	}
}

func TestBounds(t *testing.T) {
	many := make([]string, nodesMax+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for name, r := range map[string]request{
		"index":         {shape: shapeOf[MethodStat], extent: local.ExtentID{Index: local.ExtentsMax}},
		"index below 0": {shape: shapeOf[MethodStat], extent: local.ExtentID{Index: -1}},
		"offset":        {shape: shapeOf[MethodPiece], offset: -1},
		"far offset":    {shape: shapeOf[MethodPiece], offset: blobBytesMax + 1},
		"piece":         {shape: shapeOf[MethodPiece], data: make([]byte, PieceBytesMax+1)},
		"read":          {shape: shapeOf[MethodRead], count: PieceBytesMax + 1},
		"reason":        {shape: shapeOf[MethodDrop], reason: reasonsN},
		"no reason":     {shape: shapeOf[MethodDrop]},
		"vital":         {shape: shapeOf[MethodBegin], priorityBytes: blobBytesMax + 1},
		"chain":         {shape: shapeOf[MethodBegin], nodes: many},
		"name":          {shape: shapeOf[MethodBegin], nodes: []string{strings.Repeat("x", 256)}},
		"no name":       {shape: shapeOf[MethodBegin], nodes: []string{""}},
		"holders":       {shape: shapeOf[MethodSetHolders], holders: local.Holders{Epoch: 1, Nodes: many}},
		"extents":       {shape: shapeOf[MethodCheck], extents: make([]local.ExtentID, CheckMax+1)},
		"twice":         {shape: shapeOf[MethodSetHolders], holders: local.Holders{Epoch: 1, Nodes: []string{"a", "a"}}},
	} {
		if _, err := decodeRequest(r.method, wiretest.Encode(r.append)); err == nil {
			t.Errorf("%s out of bounds is taken", name)
		} else if code := ToRPC(err).Code; code != rpc.CodeBadRequest {
			t.Errorf("%s out of bounds: %v is code %v", name, err, code)
		}
	}
}

func TestResults(t *testing.T) {
	st := local.ExtentStat{ExtentInfo: local.ExtentInfo{ID: testExtent, Length: 9, Last: true, Created: time.UnixMilli(12345), Holders: testHolders}, Offset: 10, CRC: 11}
	b := wiretest.Encode(func(e *wire.Encoder) { appendStat(e, &st) })
	if got := hex.EncodeToString(b); got != "99c41003000000000000000000000000000004"+"0509c3cd30390692a26e31a26e320a0b" {
		t.Errorf("a stat is written as %s", got)
	}
	var back local.ExtentStat
	d := wire.NewDecoder(b)
	if decodeStat(&d, &back); d.Err() != nil || !reflect.DeepEqual(back, st) {
		t.Errorf("stat reads as %+v, %v", back, d.Err())
	}
	infos := []local.ExtentInfo{st.ExtentInfo, {ID: local.ExtentID{Index: 1}, Created: time.UnixMilli(0)}}
	d = wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { appendInfos(e, infos) }))
	if got := decodeInfos(&d); d.Err() != nil || !reflect.DeepEqual(got, infos) {
		t.Errorf("list reads as %+v, %v", got, d.Err())
	}
	held := []Held{{}, {State: Good, Repairs: true, Length: 7, Holders: testHolders}}
	b = wiretest.Encode(func(e *wire.Encoder) { appendHeld(e, held) })
	if got := hex.EncodeToString(b); got != "929500c200009"+"09501c3070692a26e31a26e32" {
		t.Errorf("what is held is written as %s", got)
	}
	d = wire.NewDecoder(b)
	if got := decodeHeld(&d); d.Err() != nil || !reflect.DeepEqual(got, held) {
		t.Errorf("what is held reads as %+v, %v", got, d.Err())
	}
	for _, s := range []sealed{{}, {nodes: []string{"a", "b"}}, {nodes: []string{"a"}, failed: &ReplicaError{"b", ErrDiskFull}}} {
		var got sealed
		d = wire.NewDecoder(wiretest.Encode(s.append))
		got.decode(&d)
		if d.Err() != nil || !reflect.DeepEqual(got.nodes, s.nodes) || (got.failed == nil) != (s.failed == nil) {
			t.Errorf("seal reads as %+v, %v", got, d.Err())
		}
		if s.failed != nil && (got.failed.Node != "b" || !errors.Is(got.failed, ErrDiskFull)) {
			t.Errorf("failure reads as %v", got.failed)
		}
	}
}

func TestErrorsSurvive(t *testing.T) {
	corrupt := &CorruptError{File: "f", Offset: 1, Got: 0xdeadbeef, Want: 3, Reason: "r"}
	for _, want := range []error{
		ErrNoExtent, ErrExtentExists, ErrStaleHolders, ErrNoStream, ErrBadStream, ErrBusy, ErrDiskFull, ErrFolderRetired,
		ErrUnreachable, ErrBadRequest, corrupt, &ReplicaError{"n2", ErrDiskFull}, &ReplicaError{"n2", corrupt}, &ReplicaError{"n2", ErrUnreachable},
		&ReplicaError{"n2", &ReplicaError{"n3", ErrNoStream}},
	} {
		e := ToRPC(fmt.Errorf("some call: %w", want))
		if e.Message != "some call: "+want.Error() {
			t.Errorf("%v: %+v", want, e)
		}
		got := FromRPC(fmt.Errorf("call: %w", e))
		var gotReplica, wantReplica *ReplicaError
		if errors.As(want, &wantReplica) {
			if !errors.As(got, &gotReplica) || gotReplica.Node != wantReplica.Node {
				t.Errorf("%v became %v", want, got)
				continue
			}
			got, want = gotReplica.Err, wantReplica.Err
			if errors.As(want, &wantReplica) {
				continue // does not nest
			}
		}
		var gotCorrupt *CorruptError
		if want == error(corrupt) {
			if !errors.As(got, &gotCorrupt) || *gotCorrupt != *corrupt {
				t.Errorf("%v became %v", want, got)
			}
		} else if !errors.Is(got, want) {
			t.Errorf("%v became %v", want, got)
		}
	}
	for err, want := range map[error]error{
		local.ErrClosed: ErrUnreachable, context.DeadlineExceeded: ErrUnreachable, rpc.CodeOverloaded: ErrBusy,
	} {
		if got := FromRPC(ToRPC(err)); !errors.Is(got, want) {
			t.Errorf("%v became %v", err, got)
		}
	}
	if e := ToRPC(errors.New("other")); e.Code != rpc.CodeInternal || FromRPC(e) != error(e) {
		t.Errorf("an unknown error is %v", e)
	}
}

// FuzzRequest feeds bytes to the decoder of each method. Accepted input survives encoding and
// decoding; rejected input is the sender's fault.
func FuzzRequest(f *testing.F) {
	for _, g := range goldens {
		for i := range shapes {
			if &shapes[i] == g.shape {
				f.Add(uint8(i), wiretest.Encode(g.append))
			}
		}
	}
	f.Fuzz(func(t *testing.T, i uint8, params []byte) {
		method := shapes[int(i)%len(shapes)].method
		err := wiretest.RoundTrip(t, params, func(b []byte) ([]byte, error) {
			r, err := decodeRequest(method, b)
			if err != nil {
				return nil, err
			}
			return wiretest.Encode(r.append), nil
		})
		if err != nil && ToRPC(err).Code != rpc.CodeBadRequest {
			t.Fatalf("internal error %v", err)
		}
	})
}

func FuzzStat(f *testing.F) {
	f.Add(wiretest.Encode(func(e *wire.Encoder) {
		appendStat(e, &local.ExtentStat{ExtentInfo: local.ExtentInfo{ID: testExtent, Holders: testHolders}})
	}))
	wiretest.FuzzResult(f, decodeStat, appendStat)
}

func FuzzList(f *testing.F) {
	f.Add(wiretest.Encode(func(e *wire.Encoder) { appendInfos(e, []local.ExtentInfo{{ID: testExtent, Holders: testHolders}, {}}) }))
	wiretest.FuzzResult(f, func(d *wire.Decoder, r *[]local.ExtentInfo) { *r = decodeInfos(d) },
		func(e *wire.Encoder, r *[]local.ExtentInfo) { appendInfos(e, *r) })
}

func FuzzSealed(f *testing.F) {
	f.Add(wiretest.Encode((&sealed{nodes: []string{"a"}, failed: &ReplicaError{"b", ErrDiskFull}}).append))
	wiretest.FuzzResult(f, func(d *wire.Decoder, s *sealed) { s.decode(d) }, func(e *wire.Encoder, s *sealed) { s.append(e) })
}

func FuzzHeld(f *testing.F) {
	f.Add(wiretest.Encode(func(e *wire.Encoder) { appendHeld(e, []Held{{State: Bad, Holders: testHolders}, {}}) }))
	wiretest.FuzzResult(f, func(d *wire.Decoder, r *[]Held) { *r = decodeHeld(d) }, func(e *wire.Encoder, r *[]Held) { appendHeld(e, *r) })
}
