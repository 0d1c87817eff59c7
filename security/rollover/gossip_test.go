package rollover

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"
)

func keyRecord(s KeyStage) *KeyRecord {
	return &KeyRecord{Stage: s, Old: IDOfKey([]byte("old")), New: IDOfKey([]byte("new")),
		Removed: RemovedDigest(map[string]bool{"n1": true}, 0), Started: time.Unix(1_800_000_000, 0).UTC()}
}

// TestKeyStages: the accepted and the encrypting key of each stage. Nodes at consecutive stages can
// decrypt each other's messages.
func TestKeyStages(t *testing.T) {
	r := keyRecord(Install)
	want := map[KeyStage][]KeyID{Install: {r.Old, r.New}, Use: {r.New, r.Old}, Retire: {r.New}}
	var stages []KeyStage
	for s := Install; ; s = r.At(s).Next() {
		stages = append(stages, s)
		at := r.At(s)
		if !slices.Equal(at.Keys(), want[s]) {
			t.Errorf("keys of stage %s: %x", s, at.Keys())
		}
		next := r.At(at.Next())
		if !slices.Contains(next.Keys(), at.Keys()[0]) || !slices.Contains(at.Keys(), next.Keys()[0]) {
			t.Errorf("nodes at the stages %s and %s do not understand each other", s, next.Stage)
		}
		again, err := DecodeKeyRecord(at.Encode())
		if err != nil || !reflect.DeepEqual(again, at) {
			t.Errorf("stage %s read again: %+v, %v", s, again, err)
		}
		if at.Next() == s {
			break
		}
	}
	if !slices.Equal(stages, []KeyStage{Install, Use, Retire}) {
		t.Errorf("the stages are %v", stages)
	}
}

// TestKeyProgress: progress counts for its own rotation, and for stages up to its own.
func TestKeyProgress(t *testing.T) {
	r, other := keyRecord(Use), keyRecord(Retire)
	other.New = IDOfKey([]byte("other"))
	for what, c := range map[string]struct {
		progress []byte
		want     bool
	}{
		"this stage": {r.Done(), true}, "a later one": {r.At(Retire).Done(), true}, "an earlier one": {r.At(Install).Done(), false},
		"another rotation": {other.Done(), false}, "nothing": {nil, false}, "no JSON": {[]byte("{"), false},
		"another format": {bytes.Replace(r.Done(), []byte(`"format":1`), []byte(`"format":2`), 1), false},
	} {
		if got := r.IsDone(c.progress); got != c.want {
			t.Errorf("%s counts: %v", what, got)
		}
	}
}

func TestBadKeyRecords(t *testing.T) {
	b := keyRecord(Install).Encode()
	for what, bad := range map[string][]byte{
		"nothing": nil, "no stage": keyRecord(0).Encode(), "a later stage": keyRecord(Retire + 1).Encode(),
		"another format": bytes.Replace(b, []byte(`"format":1`), []byte(`"format":2`), 1), "no ids": []byte(`{"format":1,"stage":1}`),
	} {
		if r, err := DecodeKeyRecord(bad); err == nil {
			t.Errorf("%s: read as %+v", what, r)
		}
	}
}

// TestRemovedDigest: different lists of nodes and Raft epochs have different digests.
func TestRemovedDigest(t *testing.T) {
	seen := map[[32]byte]bool{}
	for _, ids := range []map[string]bool{nil, {"a": true}, {"a": true, "b": true}, {"ab": true}, {"a\nb": true}, {"b": true}, {"raft epoch 1": true}} {
		for epoch := range uint64(3) {
			d := RemovedDigest(ids, epoch)
			if seen[d] {
				t.Errorf("the digest of %v and epoch %d is another's", ids, epoch)
			}
			seen[d] = true
		}
	}
	if RemovedDigest(map[string]bool{"a": true, "b": true}, 1) != RemovedDigest(map[string]bool{"b": true, "a": true}, 1) {
		t.Error("the digest of a list depends on more than the list")
	}
}
