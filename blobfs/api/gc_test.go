package api

import (
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
)

var sweepExamples = []gcRequest{
	{gcShape: gcShapeOf(MethodSweepBegin), round: 7},
	{gcShape: gcShapeOf(MethodSweepPins), round: 7, blob: local.ID{1}, count: 100},
	{gcShape: gcShapeOf(MethodSweepExtents), round: 7, count: 100},
	{gcShape: gcShapeOf(MethodSweepJudge), round: 7, extent: local.ExtentID{Blob: local.ID{1}, Index: 2}, extents: []local.ExtentID{{Blob: local.ID{1}}, {Blob: local.ID{1}, Index: 2}}},
	{gcShape: gcShapeOf(MethodSweepReplicas), round: 7, count: 100},
	{gcShape: gcShapeOf(MethodSweepJudgeReplicas), round: 7, replica: ReplicaKey{local.ID{1}, 3}, replicas: []ReplicaKey{{local.ID{1}, 3}}},
	{gcShape: gcShapeOf(MethodSweepEnd), round: 7},
	{gcShape: gcShapeOf(MethodSweepRevive), blob: local.ID{1}},
	{gcShape: gcShapeOf(MethodSweepClear)},
}

// The encoding is fixed: nodes of two versions call each other.
func TestSweepGolden(t *testing.T) {
	id := "c41001" + "000000000000000000000000000000"
	golden := []string{
		"9107",
		"9307" + id + "64",
		"920764",
		"930792" + id + "02" + "92" + "92" + id + "00" + "92" + id + "02",
		"920764",
		"930792" + id + "03" + "91" + "92" + id + "03",
		"9107",
		"91" + id,
		"90",
	}
	for i := range sweepExamples {
		if got := hex.EncodeToString(wiretest.Encode(sweepExamples[i].append)); got != golden[i] {
			t.Errorf("%s is now %s", sweepExamples[i].method, got)
		}
	}
	swept := Swept{Warned: 1, Quarantined: 2, Removed: 3, Bytes: 4, Revived: 5, More: true, Alarm: "a"}
	b := wiretest.Encode(func(e *wire.Encoder) { appendSwept(e, &swept) })
	if got := hex.EncodeToString(b); got != "970102030405c3a161" {
		t.Errorf("swept is now %s", got)
	}
	d := wire.NewDecoder(b)
	if back := decodeSwept(&d); back != swept || d.Err() != nil {
		t.Errorf("swept %+v, %v", back, d.Err())
	}
	if err := callError(ToRPC(fmt.Errorf("round 3: %w", ErrStaleRound))); !errors.Is(err, ErrStaleRound) {
		t.Errorf("stale round: %v", err)
	}
}

// FuzzSweep feeds bytes to the decoders of each method of garbage collection. Accepted input
// survives encoding and decoding.
func FuzzSweep(f *testing.F) {
	for i := range sweepExamples {
		f.Add(uint8(i), wiretest.Encode(sweepExamples[i].append))
	}
	f.Add(uint8(200), wiretest.Encode(func(e *wire.Encoder) {
		appendSweepReplicas(e, []SweepReplica{{ReplicaKey{local.ID{1}, 3}, "n1"}})
	}))
	f.Fuzz(func(t *testing.T, i uint8, b []byte) {
		if _, err := wire.Check(b, wire.Limits{}); err != nil {
			return
		}
		if i >= 200 {
			d := wire.NewDecoder(b)
			if all := decodeSweepReplicas(&d); d.Err() == nil {
				d = wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { appendSweepReplicas(e, all) }))
				if again := decodeSweepReplicas(&d); d.Err() != nil || fmt.Sprint(again) != fmt.Sprint(all) {
					t.Fatalf("%+v became %+v: %v", all, again, d.Err())
				}
			}
			return
		}
		_ = wiretest.RoundTrip(t, b, func(b []byte) ([]byte, error) {
			d := wire.NewDecoder(b)
			n := d.Array()
			r := &gcRequest{gcShape: &gcShapes[int(i)%len(gcShapes)]}
			if d.Err() != nil {
				return nil, d.Err()
			}
			if err := r.decode(&d, n); err != nil {
				return nil, err
			}
			return wiretest.Encode(r.append), nil
		})
	})
}
