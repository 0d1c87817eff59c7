package rollover

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// KeyStage is how far a rotation of the gossip key is. Numbers are stored: append only.
type KeyStage uint8

// The stages of a rotation, in their order.
const (
	Install KeyStage = 1
	Use     KeyStage = 2
	Retire  KeyStage = 3
)

var keyStageNames = [...]string{"none", Install: "install", Use: "use", Retire: "retire"}

func (s KeyStage) String() string {
	if int(s) < len(keyStageNames) {
		return keyStageNames[s]
	}
	return "unknown"
}

// KeyID identifies a gossip key and reveals nothing about it.
type KeyID [sha256.Size]byte

// IDOfKey returns the id of a gossip key.
func IDOfKey(key []byte) (id KeyID) {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("stele gossip key id"))
	h.Sum(id[:0])
	return id
}

// KeyRecord is a rotation of the gossip key. It does not change.
type KeyRecord struct {
	Stage KeyStage
	// Old and New are the keys before and after the rotation.
	Old, New KeyID
	// Removed is RemovedDigest at the time when New was made. Nodes that were removed before do not have New.
	Removed [sha256.Size]byte
	Started time.Time
}

type keyRecordText struct {
	Format  int       `json:"format"`
	Stage   KeyStage  `json:"stage"`
	Old     []byte    `json:"old"`
	New     []byte    `json:"new"`
	Removed []byte    `json:"removed"`
	Started time.Time `json:"started"`
}

// Encode returns the record's bytes.
func (r *KeyRecord) Encode() []byte {
	b, _ := json.Marshal(keyRecordText{format, r.Stage, r.Old[:], r.New[:], r.Removed[:], r.Started.UTC().Truncate(time.Second)}) // it cannot fail
	return b
}

// DecodeKeyRecord reads what KeyRecord.Encode writes.
func DecodeKeyRecord(b []byte) (*KeyRecord, error) {
	var t keyRecordText
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("read the rotation of the gossip key: %w", err)
	}
	if t.Format != format || t.Stage < Install || t.Stage > Retire {
		return nil, fmt.Errorf("rotation of the gossip key has the format %d and the stage %d: this version reads format %d, stages 1 to %d", t.Format, t.Stage, format, Retire)
	}
	r := &KeyRecord{Stage: t.Stage, Started: t.Started}
	for _, field := range []struct{ to, from []byte }{{r.Old[:], t.Old}, {r.New[:], t.New}, {r.Removed[:], t.Removed}} {
		if copy(field.to, field.from); len(field.from) != sha256.Size {
			return nil, fmt.Errorf("rotation of the gossip key has an id of %d bytes, want %d", len(field.from), sha256.Size)
		}
	}
	return r, nil
}

// At returns the record at another stage.
func (r *KeyRecord) At(s KeyStage) *KeyRecord {
	c := *r
	c.Stage = s
	return &c
}

// Next returns the stage that follows when no node is waited for, which after the last is the same.
func (r *KeyRecord) Next() KeyStage { return min(r.Stage+1, Retire) }

// Keys returns the keys that nodes accept at this stage. They encrypt by the first.
func (r *KeyRecord) Keys() []KeyID {
	switch r.Stage {
	case Install:
		return []KeyID{r.Old, r.New}
	case Use:
		return []KeyID{r.New, r.Old}
	}
	return []KeyID{r.New}
}

// RemovedDigest returns a digest of the removed nodes and the Raft epoch. A change of either requires another key. The epoch is 0 unless
// the lock service was recovered.
func RemovedDigest(removed map[string]bool, raftEpoch uint64) (d [sha256.Size]byte) {
	h := sha256.New()
	for _, id := range slices.Sorted(maps.Keys(removed)) {
		fmt.Fprintf(h, "%q\n", id)
	}
	if raftEpoch > 0 {
		fmt.Fprintf(h, "raft epoch %d\n", raftEpoch)
	}
	h.Sum(d[:0])
	return d
}

// Done returns the bytes of a node's progress when it has done what the stage asks.
func (r *KeyRecord) Done() []byte {
	b, _ := json.Marshal(Progress{format, r.New[:], Stage(r.Stage)}) // it cannot fail
	return b
}

// IsDone reports whether a node's progress says that it has done what the stage asks. Nil, and what cannot be read, does not.
func (r *KeyRecord) IsDone(b []byte) bool {
	var p Progress
	return json.Unmarshal(b, &p) == nil && p.Format == format && bytes.Equal(p.New, r.New[:]) && KeyStage(p.Stage) >= r.Stage
}
