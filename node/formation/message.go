package formation

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/steledb/stele/internal/wire"
)

// The methods between nodes.
const (
	MethodHello   = "cluster.hello"
	MethodPromise = "cluster.promise"
	MethodJoin    = "cluster.join"
)

// Bounds on the lists in messages.
const (
	freshMax   = 2 * expectMax // fresh nodes
	membersMax = 64            // members of a cluster; gossip finds the others
)

// hello is a node's information about itself, as request and as answer.
type hello struct {
	Peer
	version   string
	cluster   string // empty when fresh
	raftEpoch uint64
	expect    int
	key       []byte // fingerprint of the gossip key, empty for none
	attempt   uint64
	active    bool
	promised  string      // founder's id
	fresh     []candidate // fresh nodes that it knows
	members   []Peer      // some members of its cluster
}

// candidate is a fresh node that takes part in forming a cluster.
type candidate struct {
	Peer
	expect int
}

// promiseRequest requests the promise that the founder may found a cluster.
type promiseRequest struct {
	founder Peer
	expect  int
	key     []byte
	attempt uint64
}

// promiseAnswer is the answer to a promiseRequest.
type promiseAnswer struct {
	node    string // the answering node
	granted bool
	attempt uint64 // of the request
	to      Peer   // the node that has the promise instead
	cluster string // a cluster that exists
}

// joinRequest requests membership.
type joinRequest struct {
	Peer
	cluster string
	key     []byte
}

// joinAnswer grants membership.
type joinAnswer struct {
	cluster   string
	raftEpoch uint64
	members   []Peer
}

// fingerprint identifies a gossip key. It proves nothing, but it shows two nodes that their keys
// differ, before gossip fails.
func fingerprint(key []byte) []byte {
	if len(key) == 0 {
		return nil
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte("stele gossip key"))
	return h.Sum(nil)[:16]
}

// field is a map entry to encode.
type field struct {
	key   string
	given bool
	write func(e *wire.Encoder)
}

func str(key, v string) field {
	return field{key, v != "", func(e *wire.Encoder) { e.Str(v) }}
}

func num(key string, v uint64) field {
	return field{key, v != 0, func(e *wire.Encoder) { e.Uint(v) }}
}

func flag(key string, v bool) field {
	return field{key, v, func(e *wire.Encoder) { e.Bool(v) }}
}

func bin(key string, v []byte) field {
	return field{key, len(v) > 0, func(e *wire.Encoder) { e.Bin(v) }}
}

func list[T any](key string, v []T, write func(e *wire.Encoder, one T)) field {
	return field{key, len(v) > 0, func(e *wire.Encoder) {
		e.Array(len(v))
		for _, one := range v {
			write(e, one)
		}
	}}
}

// appendMap encodes the fields that have values.
func appendMap(e *wire.Encoder, fields ...field) {
	n := 0
	for _, f := range fields {
		if f.given {
			n++
		}
	}
	e.Map(n)
	for _, f := range fields {
		if f.given {
			e.Str(f.key)
			f.write(e)
		}
	}
}

// decodeMap calls each for each key of a map. Each decodes the value, or returns false for an
// unknown key, which is skipped.
func decodeMap(d *wire.Decoder, each func(key string) bool) {
	for range d.Map() {
		if key := d.Bytes(); len(key) > 64 || !each(string(key)) {
			d.Skip()
		}
		if d.Err() != nil {
			return
		}
	}
}

func (p *Peer) fields() []field {
	return []field{str("id", p.ID), str("name", p.Name), str("rpc", p.RPC), str("gossip", p.Gossip)}
}

func (p *Peer) decode(d *wire.Decoder, key string) bool {
	switch key {
	case "id":
		p.ID = d.Str()
	case "name":
		p.Name = d.Str()
	case "rpc":
		p.RPC = d.Str()
	case "gossip":
		p.Gossip = d.Str()
	default:
		return false
	}
	return true
}

func appendPeer(e *wire.Encoder, p Peer) { appendMap(e, p.fields()...) }

func decodePeer(d *wire.Decoder) (p Peer) {
	decodeMap(d, func(key string) bool { return p.decode(d, key) })
	return p
}

func decodePeers(d *wire.Decoder, limit int) []Peer {
	var all []Peer
	for range d.ArrayMax(limit) {
		all = append(all, decodePeer(d))
	}
	return all
}

func (h *hello) append(e *wire.Encoder) {
	appendMap(e, append(h.Peer.fields(),
		str("version", h.version), str("cluster", h.cluster), num("raft_epoch", h.raftEpoch),
		num("expect", uint64(h.expect)), bin("key", h.key),
		num("attempt", h.attempt), flag("active", h.active), str("promised", h.promised),
		list("fresh", h.fresh, func(e *wire.Encoder, c candidate) {
			appendMap(e, append(c.Peer.fields(), num("expect", uint64(c.expect)))...)
		}),
		list("members", h.members, appendPeer))...)
}

func (h *hello) decode(d *wire.Decoder) error {
	*h = hello{}
	decodeMap(d, func(key string) bool {
		switch key {
		case "version":
			h.version = d.Str()
		case "cluster":
			h.cluster = d.Str()
		case "raft_epoch":
			h.raftEpoch = d.Uint()
		case "expect":
			h.expect = decodeExpect(d)
		case "key":
			h.key = append([]byte(nil), d.Bytes()...)
		case "attempt":
			h.attempt = d.Uint()
		case "active":
			h.active = d.Bool()
		case "promised":
			h.promised = d.Str()
		case "fresh":
			for range d.ArrayMax(freshMax) {
				h.fresh = append(h.fresh, decodeCandidate(d))
			}
		case "members":
			h.members = decodePeers(d, membersMax)
		default:
			return h.Peer.decode(d, key)
		}
		return true
	})
	return d.Err()
}

func decodeExpect(d *wire.Decoder) int { return int(min(d.Uint(), expectMax+1)) }

func decodeCandidate(d *wire.Decoder) (c candidate) {
	decodeMap(d, func(key string) bool {
		if key == "expect" {
			c.expect = decodeExpect(d)
			return true
		}
		return c.Peer.decode(d, key)
	})
	return c
}

func (q *promiseRequest) append(e *wire.Encoder) {
	appendMap(e, append(q.founder.fields(), num("expect", uint64(q.expect)), bin("key", q.key), num("attempt", q.attempt))...)
}

func (q *promiseRequest) decode(d *wire.Decoder) error {
	*q = promiseRequest{}
	decodeMap(d, func(key string) bool {
		switch key {
		case "expect":
			q.expect = decodeExpect(d)
		case "key":
			q.key = append([]byte(nil), d.Bytes()...)
		case "attempt":
			q.attempt = d.Uint()
		default:
			return q.founder.decode(d, key)
		}
		return true
	})
	return d.Err()
}

func (a *promiseAnswer) append(e *wire.Encoder) {
	appendMap(e, str("node", a.node), flag("granted", a.granted), num("attempt", a.attempt),
		field{"to", a.to.ID != "", func(e *wire.Encoder) { appendPeer(e, a.to) }}, str("cluster", a.cluster))
}

func (a *promiseAnswer) decode(d *wire.Decoder) error {
	*a = promiseAnswer{}
	decodeMap(d, func(key string) bool {
		switch key {
		case "node":
			a.node = d.Str()
		case "granted":
			a.granted = d.Bool()
		case "attempt":
			a.attempt = d.Uint()
		case "to":
			a.to = decodePeer(d)
		case "cluster":
			a.cluster = d.Str()
		default:
			return false
		}
		return true
	})
	return d.Err()
}

func (q *joinRequest) append(e *wire.Encoder) {
	appendMap(e, append(q.Peer.fields(), str("cluster", q.cluster), bin("key", q.key))...)
}

func (q *joinRequest) decode(d *wire.Decoder) error {
	*q = joinRequest{}
	decodeMap(d, func(key string) bool {
		switch key {
		case "cluster":
			q.cluster = d.Str()
		case "key":
			q.key = append([]byte(nil), d.Bytes()...)
		default:
			return q.Peer.decode(d, key)
		}
		return true
	})
	return d.Err()
}

func (a *joinAnswer) append(e *wire.Encoder) {
	appendMap(e, str("cluster", a.cluster), num("raft_epoch", a.raftEpoch), list("members", a.members, appendPeer))
}

func (a *joinAnswer) decode(d *wire.Decoder) error {
	*a = joinAnswer{}
	decodeMap(d, func(key string) bool {
		switch key {
		case "cluster":
			a.cluster = d.Str()
		case "raft_epoch":
			a.raftEpoch = d.Uint()
		case "members":
			a.members = decodePeers(d, membersMax)
		default:
			return false
		}
		return true
	})
	return d.Err()
}
