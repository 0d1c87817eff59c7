// Package rollover plans the replacement of a cluster's authority, and of its gossip key, while its nodes serve.
//
// # Stages of the authority
//
// The old authority and the new one are both trusted until the last stage. A stage begins
// when all nodes of the cluster have done what the one before it asks, so that no node
// meets a certificate that it does not trust:
//
//	trust   nodes trust both authorities; voters get the key of the new one
//	sign    certificates of users are signed by the new authority; users get new ones now
//	renew   nodes renew their certificates, signed by the new authority
//	forget  nodes trust the new authority alone; voters delete the key of the old one
//
// The operator ends the stage sign, since users whose credentials are of before it are
// locked out by those that follow. The other stages end by themselves. A node that is away
// holds its stage up, until it is back or is removed from the cluster.
//
// # Stages of the gossip key
//
// The key is replaced when a node was removed, since that node has it. The record names keys by
// their ids (IDOfKey); the keys are in the nodes' folders alone, and a node gets a key that it
// lacks from another node.
//
//	install  nodes accept the new key beside the old one
//	use      nodes encrypt by the new key, and accept the old one still
//	retire   nodes accept the new key alone; the record stays until the next rotation
//
// A stage begins when all nodes that gossip sees have done what the one before it asks, so that
// no message is lost. Nodes that are away hold nothing up: they get the keys of the stage by RPC
// when they are back, before gossip accepts them.
//
// # Files
//
// JSON, in the namespace of the lock service: the records, and for each node and record how far it
// has come. They are written by the master and by the node; a node that starts anew goes on by
// them.
//
// The package starts no goroutine.
package rollover

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/security/pki"
)

// Stage is how far a rollover has come. Numbers are stored: append only.
type Stage uint8

// The stages, in their order. The zero Stage is no rollover.
const (
	Trust  Stage = 1
	Sign   Stage = 2
	Renew  Stage = 3
	Forget Stage = 4
)

var stageNames = [...]string{"none", Trust: "trust", Sign: "sign", Renew: "renew", Forget: "forget"}

func (s Stage) String() string {
	if int(s) < len(stageNames) {
		return stageNames[s]
	}
	return "unknown"
}

const format = 1

// Record is a rollover that has begun. It does not change.
type Record struct {
	Stage   Stage
	Old     *x509.Certificate
	New     *x509.Certificate
	Started time.Time
}

type recordText struct {
	Format  int       `json:"format"`
	Stage   Stage     `json:"stage"`
	Old     []byte    `json:"old"` // DER
	New     []byte    `json:"new"`
	Started time.Time `json:"started"`
}

// Encode returns the record's bytes.
func (r *Record) Encode() []byte {
	b, _ := json.Marshal(recordText{format, r.Stage, r.Old.Raw, r.New.Raw, r.Started.UTC().Truncate(time.Second)}) // it cannot fail
	return b
}

// Decode reads what Encode writes.
func Decode(b []byte) (*Record, error) {
	var t recordText
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("read the rollover of the authority: %w", err)
	}
	if t.Format != format || t.Stage < Trust || t.Stage > Forget {
		return nil, fmt.Errorf("rollover of the authority has the format %d and the stage %d: this version knows format %d, stages 1 to %d", t.Format, t.Stage, format, Forget)
	}
	r := &Record{Stage: t.Stage, Started: t.Started}
	var err error
	if r.Old, err = x509.ParseCertificate(t.Old); err == nil {
		r.New, err = x509.ParseCertificate(t.New)
	}
	if err != nil {
		return nil, fmt.Errorf("read the authorities of a rollover: %w", err)
	}
	_, err = pki.NewTrust(r.Old, r.New) // of one cluster
	return r, err
}

// At returns the record at another stage.
func (r *Record) At(s Stage) *Record {
	c := *r
	c.Stage = s
	return &c
}

// Authorities returns the certificates that nodes trust at this stage, the one that they sign by last.
func (r *Record) Authorities() []*x509.Certificate {
	if r.Stage == Forget {
		return []*x509.Certificate{r.New}
	}
	return []*x509.Certificate{r.Old, r.New}
}

// Progress is how far a node has come.
type Progress struct {
	Format int    `json:"format"`
	New    []byte `json:"new"` // fingerprint of the new authority
	Stage  Stage  `json:"stage"`
}

// Done returns the bytes of a node's progress when it has done what the stage asks.
func (r *Record) Done() []byte {
	f := pki.FingerprintOf(r.New)
	b, _ := json.Marshal(Progress{format, f[:], r.Stage}) // it cannot fail
	return b
}

// IsDone reports whether a node's progress says that it has done what the stage asks. Nil, and what cannot be read, does not.
func (r *Record) IsDone(b []byte) bool {
	var p Progress
	f := pki.FingerprintOf(r.New)
	return json.Unmarshal(b, &p) == nil && p.Format == format && bytes.Equal(p.New, f[:]) && p.Stage >= r.Stage
}

// Waiting returns the nodes that have yet to do what the stage of r asks, of all that there are.
func Waiting(r interface{ IsDone(progress []byte) bool }, nodes []string, progress map[string][]byte) (waiting []string) {
	for _, id := range nodes {
		if !r.IsDone(progress[id]) {
			waiting = append(waiting, id)
		}
	}
	slices.Sort(waiting)
	return waiting
}

// Next returns the stage that follows when no node is waited for: the same if the operator has to begin it, and the zero
// Stage if all is done.
func (r *Record) Next() Stage {
	switch r.Stage {
	case Trust:
		return Sign
	case Renew:
		return Forget
	case Forget:
		return 0
	}
	return r.Stage
}
