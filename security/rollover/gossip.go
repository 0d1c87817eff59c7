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

// KeyStage is the stage of a gossip key rotation. Values are stored: append only.
type KeyStage uint8

// The stages of a rotation, in order.
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

// KeyRecord is a rotation of the gossip key. It is immutable.
type KeyRecord struct {
	Stage KeyStage
	// Old and New are the keys before and after the rotation.
	Old, New KeyID
	// Removed is RemovedDigest when New was generated. Nodes removed before that do not have New.
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

// Encode returns the encoded record.
func (r *KeyRecord) Encode() []byte {
	b, _ := json.Marshal(keyRecordText{format, r.Stage, r.Old[:], r.New[:], r.Removed[:], r.Started.UTC().Truncate(time.Second)}) // cannot fail
	return b
}

// DecodeKeyRecord decodes what KeyRecord.Encode returns.
func DecodeKeyRecord(b []byte) (*KeyRecord, error) {
	var t keyRecordText
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("decode gossip key rotation: %w", err)
	}
	if t.Format != format || t.Stage < Install || t.Stage > Retire {
		return nil, fmt.Errorf("gossip key rotation of format %d, stage %d: this version reads format %d, stages 1 to %d", t.Format, t.Stage, format, Retire)
	}
	r := &KeyRecord{Stage: t.Stage, Started: t.Started}
	for _, field := range []struct{ to, from []byte }{{r.Old[:], t.Old}, {r.New[:], t.New}, {r.Removed[:], t.Removed}} {
		if copy(field.to, field.from); len(field.from) != sha256.Size {
			return nil, fmt.Errorf("gossip key rotation has an id of %d bytes, want %d", len(field.from), sha256.Size)
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

// Next returns the stage to start when all nodes have completed the current one. The last stage has
// no successor and returns itself.
func (r *KeyRecord) Next() KeyStage { return min(r.Stage+1, Retire) }

// Keys returns the keys that nodes accept at this stage. The first encrypts.
func (r *KeyRecord) Keys() []KeyID {
	switch r.Stage {
	case Install:
		return []KeyID{r.Old, r.New}
	case Use:
		return []KeyID{r.New, r.Old}
	}
	return []KeyID{r.New}
}

// RemovedDigest returns a digest of the removed nodes and the Raft epoch. A change of either
// requires a new key. The epoch is 0 unless the lock service was recovered.
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

// Done returns the encoded progress of a node that has completed the stage.
func (r *KeyRecord) Done() []byte {
	b, _ := json.Marshal(Progress{format, r.New[:], Stage(r.Stage)}) // cannot fail
	return b
}

// IsDone reports whether b, a node's encoded progress, shows that the node has completed the stage.
// It is false for nil and for malformed progress.
func (r *KeyRecord) IsDone(b []byte) bool {
	var p Progress
	return json.Unmarshal(b, &p) == nil && p.Format == format && bytes.Equal(p.New, r.New[:]) && KeyStage(p.Stage) >= r.Stage
}
