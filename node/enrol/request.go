package enrol

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/security/pki"
)

// MethodJoin enrols a host as a node, or a node whose certificate has expired: a joinRequest, answered with a certs.Issued. Any
// node accepts it and forwards it to the master's node.
const MethodJoin = "security.join"

// joinRequest is the request of a host to join: [token, certificate request, node id, its names and addresses, address].
type joinRequest struct {
	text    string // of the token
	request []byte
	node    string
	hosts   []string
	// from is the address of the host, set by the node that received the request: see joinOrigin.
	from string
}

func (r *joinRequest) append(e *wire.Encoder) {
	e.Array(5)
	e.Str(r.text)
	e.Bin(r.request)
	e.Str(r.node)
	certs.AppendNames(e, r.hosts)
	e.Str(r.from)
}

func (r *joinRequest) decode(d *wire.Decoder, n int) error {
	if n < 4 {
		return fmt.Errorf("%d parameters, want token, request, node and names", n)
	}
	*r = joinRequest{text: d.Str(), request: slices.Clone(d.Bytes()), node: d.Str(), hosts: certs.DecodeNames(d, pki.HostsMax)}
	if n > 4 {
		r.from = d.Str()
	}
	return d.Err()
}

// check returns the hash of the host's key if the request can be signed.
func (r *joinRequest) check() (key [sha256.Size]byte, err error) {
	key, err = pki.KeyHash(r.request)
	if err == nil {
		err = pki.CheckName("id of a node", r.node)
	}
	for _, h := range r.hosts {
		err = errors.Join(err, pki.CheckHost(h))
	}
	return key, err
}
