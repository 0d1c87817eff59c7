package certs

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
)

// Limits of a port that is guarded.
const (
	// firstByteTimeout ends connections that send nothing after the TLS handshake. Nodes and clients send at once.
	firstByteTimeout = 10 * time.Second
	// nodeConns is the number of connections reserved for nodes, including Raft: each node needs a few. nodeConnsShare is a divisor: of
	// the largest share of connections that is reserved.
	nodeConns, nodeConnsShare = 2048, 8
	// principalConnsMax bounds the connections of one principal: a program needs one or two.
	principalConnsMax = 1024
	// nodeMemoryShare is the divisor of the request memory reserved for nodes: users' requests must not stop commit logs.
	nodeMemoryShare = 8
)

// refusePlain returns the answer to a client in plain mode without TLS, which it can decode.
func refusePlain(first []byte) []byte {
	return rpc.RefusePlain(first, api.ToRPC(&api.IdentityError{
		Reason: api.IdentityNoTLS, Text: "this cluster has certificates: connect by TLS 1.3, with a certificate or a token of it",
	}))
}

// Guard returns a TLS listener. Client certificates must be of the cluster. At most strangersMax connections have none; 0 means the
// default of pki.
func (t *Transport) Guard(l net.Listener, strangersMax int, refused func(net.Addr, error)) net.Listener {
	if t == nil {
		return l
	}
	return pki.Listen(l, pki.ListenerConfig{Endpoint: t.endpoint, StrangersMax: strangersMax, NotTLS: refusePlain, Refused: refused})
}

// GuardHTTP2 is Guard for a port of HTTP/2.
func (t *Transport) GuardHTTP2(l net.Listener, strangersMax int, refused func(net.Addr, error)) net.Listener {
	if t == nil {
		return l
	}
	return pki.Listen(l, pki.ListenerConfig{Endpoint: t.endpoint, StrangersMax: strangersMax, Protocols: []string{"h2"}, Refused: refused})
}

// Limit configures a server to identify its peers, close silent connections, reserve connections and memory for nodes, and bound
// unauthenticated clients.
func (t *Transport) Limit(cfg rpc.ServerConfig) rpc.ServerConfig {
	if t == nil {
		return cfg
	}
	cfg.FirstByteTimeout = firstByteTimeout
	cfg.ReservedConns, cfg.Preferred = min(nodeConns, cfg.ConnsMax/nodeConnsShare), fromNode
	cfg.Identify = authz.Identify
	cfg.OwnerOf = authz.OwnerOf
	cfg.ReservedMemory = cfg.MemoryBytesMax / nodeMemoryShare
	cfg.Patient = fromNode // two nodes share one connection, and nodes do not read slowly on purpose
	cfg.Guard = t.guardStranger
	return cfg
}

func fromNode(p *rpc.Peer) bool { return authz.PeerOf(p).Kind == pki.Node }

// guardStranger rejects methods that require a credential.
func (t *Transport) guardStranger(p *rpc.Peer, method string) error {
	if authz.PeerOf(p).Kind != pki.Anonymous || t.ForStrangers(method) {
		return nil
	}
	return api.ToRPC(authz.ErrStranger)
}

// ServesPlain reports whether a listener serves HTTP without TLS: one on loopback, which every process of the host can reach, or one
// of an open node.
func (t *Transport) ServesPlain(l net.Listener) bool {
	tcp, ok := l.Addr().(*net.TCPAddr)
	return t == nil || ok && tcp.IP.IsLoopback()
}

// GuardHTTP makes a listener that other machines can reach use TLS, and a server's requests have their peers (PeerOf). At most strangersMax
// connections have no certificate.
func (t *Transport) GuardHTTP(l net.Listener, server *http.Server, strangersMax int, refused func(net.Addr, error)) net.Listener {
	if t.ServesPlain(l) {
		return l
	}
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, peerKey{}, c.(*pki.Conn).Peer)
	}
	return t.Guard(l, strangersMax, refused)
}

type peerKey struct{}

// PeerOf returns the peer of a request to a guarded server; that of a request without TLS is anonymous.
func PeerOf(r *http.Request) pki.Peer {
	peer, _ := r.Context().Value(peerKey{}).(pki.Peer)
	return peer
}

// IsTLS reports whether a request to a guarded server came by TLS.
func IsTLS(r *http.Request) bool { return r.Context().Value(peerKey{}) != nil }
