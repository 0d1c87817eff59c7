// Package rollover plans the replacement of a cluster's authority, and of its gossip key, without
// downtime.
//
// # Stages of the authority
//
// The old and the new authority are both trusted until the last stage. A stage starts when all
// nodes of the cluster have completed the previous one, so that no node gets a certificate that it
// does not trust:
//
//	trust   nodes trust both authorities; voters get the key of the new one
//	sign    the new authority signs certificates of users; users replace theirs now
//	renew   nodes renew their certificates, signed by the new authority
//	forget  nodes trust only the new authority; voters delete the key of the old one
//
// The operator ends the stage sign, because later stages lock out users with older credentials. The
// other stages end by themselves. A node that is down blocks its stage until it is back or is
// removed from the cluster.
//
// # Stages of the gossip key
//
// The key is replaced when a node is removed, because that node has it. The record identifies keys
// by their ids (IDOfKey). The keys themselves are only in the nodes' directories. A node that lacks
// a key gets it from another node.
//
//	install  nodes accept the new key in addition to the old one
//	use      nodes encrypt with the new key and still accept the old one
//	retire   nodes accept only the new key; the record stays until the next rotation
//
// A stage starts when all nodes that gossip considers alive have completed the previous one, so
// that no message is lost. Nodes that are down block nothing. When they are back they get the keys
// of the stage by RPC, before gossip accepts them.
//
// # Files
//
// The records, and the progress of each node for each record, are JSON files in the namespace of
// the lock service. The master writes the records and each node its progress. A restarted node
// continues from them.
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

// Stage is the stage of an authority rollover. Values are stored: append only.
type Stage uint8

// The stages, in order. The zero Stage means no rollover.
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

// Record is a rollover in progress. It is immutable.
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

// Encode returns the encoded record.
func (r *Record) Encode() []byte {
	b, _ := json.Marshal(recordText{format, r.Stage, r.Old.Raw, r.New.Raw, r.Started.UTC().Truncate(time.Second)}) // cannot fail
	return b
}

// Decode decodes what Encode returns.
func Decode(b []byte) (*Record, error) {
	var t recordText
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("decode authority rollover: %w", err)
	}
	if t.Format != format || t.Stage < Trust || t.Stage > Forget {
		return nil, fmt.Errorf("authority rollover of format %d, stage %d: this version reads format %d, stages 1 to %d", t.Format, t.Stage, format, Forget)
	}
	r := &Record{Stage: t.Stage, Started: t.Started}
	var err error
	if r.Old, err = x509.ParseCertificate(t.Old); err == nil {
		r.New, err = x509.ParseCertificate(t.New)
	}
	if err != nil {
		return nil, fmt.Errorf("decode the certificates of an authority rollover: %w", err)
	}
	_, err = pki.NewTrust(r.Old, r.New) // checks that both are of one cluster
	return r, err
}

// At returns the record at another stage.
func (r *Record) At(s Stage) *Record {
	c := *r
	c.Stage = s
	return &c
}

// Authorities returns the certificates that nodes trust at this stage, with the new authority last.
func (r *Record) Authorities() []*x509.Certificate {
	if r.Stage == Forget {
		return []*x509.Certificate{r.New}
	}
	return []*x509.Certificate{r.Old, r.New}
}

// Progress is the last stage that a node has completed.
type Progress struct {
	Format int    `json:"format"`
	New    []byte `json:"new"` // fingerprint of the new authority
	Stage  Stage  `json:"stage"`
}

// Done returns the encoded progress of a node that has completed the stage.
func (r *Record) Done() []byte {
	f := pki.FingerprintOf(r.New)
	b, _ := json.Marshal(Progress{format, f[:], r.Stage}) // cannot fail
	return b
}

// IsDone reports whether b, a node's encoded progress, shows that the node has completed the stage.
// It is false for nil and for malformed progress.
func (r *Record) IsDone(b []byte) bool {
	var p Progress
	f := pki.FingerprintOf(r.New)
	return json.Unmarshal(b, &p) == nil && p.Format == format && bytes.Equal(p.New, f[:]) && p.Stage >= r.Stage
}

// Waiting returns those of nodes that have not completed the stage of r, sorted.
func Waiting(r interface{ IsDone(progress []byte) bool }, nodes []string, progress map[string][]byte) (waiting []string) {
	for _, id := range nodes {
		if !r.IsDone(progress[id]) {
			waiting = append(waiting, id)
		}
	}
	slices.Sort(waiting)
	return waiting
}

// Next returns the stage to start when all nodes have completed the current one. It returns the
// same stage if the operator must start the next one, and the zero Stage after the last.
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
