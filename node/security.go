package node

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/hostgate"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/folder"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
)

// SecurityFolder is the name of the directory of a node's keys below its first data directory, unless configured elsewhere.
const SecurityFolder = "security"

// firstByteTimeout ends connections that send nothing after the TLS handshake. Nodes and clients send at once.
const firstByteTimeout = 10 * time.Second

// security authenticates the node to its peers, and them to it. It is nil on an open node: all methods work on nil and leave
// connections plain.
type security struct {
	endpoint *pki.Endpoint
	cluster  string
	node     string
	file     string // of the node's credential
	// issuer is the authority; nil on a node without its key.
	issuer atomic.Pointer[pki.Authority]
	// next is the authority that will replace it, and rollover the state of the replacement that this node knows; nil if there is
	// none. Each step of it holds rolling.
	next       atomic.Pointer[pki.Authority]
	rollover   atomic.Pointer[rollover.Record]
	rolling    sync.Mutex
	rotator    *pki.Rotator
	gossipKeys atomic.Pointer[[][]byte] // the first encrypts
	keying     sync.Mutex               // held during each step of a gossip key rotation

	// joins and tokens bound the join requests and access tokens of unauthenticated clients.
	joins, tokens *hostgate.Gate
	// spending is a semaphore: on the master's node, one join token is consumed at a time.
	spending  chan struct{}
	promoting promotions
	// removed reports whether a node was removed.
	removed func(id string) bool
	// tcp is Config.dial.
	tcp func(ctx context.Context, addr string) (net.Conn, error)
}

// Initialise makes a node without data the first node of a new cluster with certificates: it writes the node's id and its
// directory of keys. It returns the credential of the cluster's first principal, which is stored nowhere else. Hosts are further
// names and addresses of this host that clients verify, besides its name and those of loopback. Errors: folder.ErrExists, those of
// the data directories and of the disk.
func Initialise(dataDirs []string, keys string, hosts []string, now time.Time) (*pki.Credential, error) {
	return InitialiseSealed(dataDirs, keys, "", hosts, now)
}

// InitialiseSealed is Initialise with the authority's key encrypted by a passphrase, if it is not empty.
func InitialiseSealed(dataDirs []string, keys, passphrase string, hosts []string, now time.Time) (*pki.Credential, error) {
	if len(dataDirs) == 0 {
		return nil, errors.New("no data folder given")
	}
	if _, err := identity.Inspect(dataDirs); err != nil {
		return nil, err
	}
	unlock, err := identity.Lock(dataDirs)
	if err != nil {
		return nil, err
	}
	defer unlock()
	folders, err := identity.Inspect(dataDirs)
	if err != nil {
		return nil, err
	}
	if !folders.Fresh() {
		return nil, fmt.Errorf("data folder %s belongs to cluster %s: a new cluster needs empty folders", dataDirs[0], folders.Cluster)
	}
	if err := folders.Write(); err != nil { // before the certificate that names the node
		return nil, err
	}
	return folder.At(keys).SealedBy(passphrase).Init(folders.Node, withLocal(hosts, ""), now)
}

// keys returns the node's directory of keys.
func (n *Node) keys() folder.Folder { return folder.At(n.cfg.Security).SealedBy(n.passphrase) }

// ReadPassphrase reads the passphrase of the authority's key from a file that only its owner may read. An empty name means no
// passphrase.
func ReadPassphrase(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := secretfile.Read(file)
	if err != nil {
		return "", fmt.Errorf("read the passphrase of the authority's key: %w", err)
	}
	p := strings.TrimRight(string(b), "\r\n")
	return p, pki.CheckPassphrase(p)
}

// openSecurity reads the node's keys, if it has any. Its certificate must match the node and cluster of its data directories.
func (n *Node) openSecurity(folders *identity.Folders) error {
	if n.cfg.Security == "" {
		return nil
	}
	keys, err := n.keys().Load()
	if err != nil {
		return fmt.Errorf("read the node's keys: %w", err)
	}
	own := keys.Credential.Peer()
	switch {
	case own.Name != folders.Node:
		return fmt.Errorf("the certificate in %s belongs to node %s, but the data folders to node %s: configure the folder of keys of this node",
			n.cfg.Security, own.Name, folders.Node)
	case folders.Cluster != "" && own.Cluster != folders.Cluster:
		return fmt.Errorf("the certificate in %s belongs to cluster %s, but the data folders to cluster %s", n.cfg.Security, own.Cluster, folders.Cluster)
	}
	s := &security{tcp: n.cfg.dial, cluster: own.Cluster, node: own.Name, file: n.keys().NodeFile(), spending: make(chan struct{}, 1), removed: n.removed.Has}
	s.joins, s.tokens = hostgate.New(joinLimits), hostgate.New(tokenLimits)
	s.gossipKeys.Store(&keys.GossipKeys)
	s.issuer.Store(keys.Authority)
	s.next.Store(keys.Next)
	s.endpoint = pki.NewEndpoint(keys.Credential, pki.Options{Refuse: s.refuse, PrincipalConnsMax: min(principalConnsMax, n.cfg.connsMax()/principalShare)})
	s.rotator = pki.NewRotator(pki.RotatorConfig{Endpoint: s.endpoint, File: s.file, Renew: n.renewOwn,
		OwnClock: func() bool { return s.issuer.Load() != nil }, Logger: n.log.With("part", "security")})
	n.security, n.authz.Open = s, false
	return nil
}

// fingerprint returns the fingerprint of the authority that signed this node's certificate.
func (s *security) fingerprint() pki.Fingerprint {
	return pki.FingerprintOf(s.endpoint.Credential().Signer())
}

// gossipKeys returns the keys of gossip; none if gossip is not encrypted.
func (n *Node) gossipKeys() [][]byte {
	if n.security == nil {
		return nil
	}
	return *n.security.gossipKeys.Load()
}

// keepCertificate renews the node's certificate in time, until the node closes.
func (n *Node) keepCertificate() {
	if n.security != nil {
		n.security.rotator.Run(n.ctx)
	}
}

// renewOwn obtains the node's next certificate. A node with the authority's key signs it itself; any other node asks the master, or
// another voter.
func (n *Node) renewOwn(ctx context.Context, request []byte) (*x509.Certificate, *pki.Trust, error) {
	s := n.security
	hosts := withLocal(s.endpoint.Credential().Hosts(), n.cfg.Name) // the certificate may lack them
	own := s.endpoint.Credential()
	if issuer := s.signs(rollover.Renew); issuer != nil {
		leaf, err := issuer.SignNode(request, s.node, hosts, time.Now())
		return leaf, own.Trust(), err
	}
	ids := n.issuers()
	for wait := time.Now(); len(ids) == 0 && time.Since(wait) < issuersWait && ctx.Err() == nil; ids = n.issuers() {
		timing.Sleep(ctx, 200*time.Millisecond)
	}
	var errs []error
	for _, id := range ids {
		got := &enrolment{}
		err := n.peers.Call(ctx, id, methodRenew, func(e *wire.Encoder) {
			e.Array(2)
			e.Bin(request)
			appendTexts(e, hosts)
		}, got.decode)
		if err == nil {
			n.checkClock(got.now)
			leaf, trust, err := got.certificate()
			if err == nil && own.Trust().Signed(leaf) { // the lock service decides which authorities are trusted
				trust = own.Trust()
			}
			return leaf, trust, err
		}
		errs = append(errs, fmt.Errorf("ask node %s to sign: %w", id, err))
	}
	return nil, nil, cmp.Or(errors.Join(errs...), errors.New("no node that signs certificates is known"))
}

// issuersWait is how long a renewal waits until gossip knows nodes that sign: the node may have just started.
const issuersWait = 20 * time.Second

// issuers returns nodes that should have the authority's key, the master first.
func (n *Node) issuers() (ids []string) {
	if masterID, _ := n.epochs.Last(); masterID != "" && masterID != n.id() {
		ids = append(ids, masterID)
	}
	if n.members.Ring() == nil {
		return ids
	}
	for _, m := range n.members.Ring().Members() {
		if m.Voter && !m.Self && m.State == gossip.Alive && !slices.Contains(ids, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// clockOff is the difference between two nodes' clocks above which a warning is logged.
const clockOff = 5 * time.Minute

// checkClock logs a warning if this host's clock is far from a signer's: peers verify certificates by their own clocks.
func (n *Node) checkClock(theirs time.Time) {
	if off := time.Until(theirs); off.Abs() > clockOff {
		n.log.Warn("clock differs from that of the node that signs certificates: correct it, or peers will reject this node's certificate",
			"difference", off.Round(time.Second))
	}
}

// clusterToFound returns the id of the cluster that a fresh node founds, or "" for any.
func (s *security) clusterToFound() string {
	if s == nil {
		return ""
	}
	return s.cluster
}

// found configures a fresh node with the authority's key, on which "stele init" was run, to found the cluster alone. Other nodes
// can only join it: two groups of nodes with certificates of one cluster must not both found it.
func (s *security) found(cfg *formation.Config) error {
	cfg.Expect = 0
	if s.issuer.Load() != nil {
		cfg.Join = nil
		return nil
	}
	if len(cfg.Join) == 0 {
		return fmt.Errorf("node %s has a certificate of cluster %s and no data yet: it can only join that cluster, use --join with nodes of it", s.node, s.cluster)
	}
	return nil
}

// connsForNodes is the number of connections reserved for nodes, including Raft: each node needs a few.
const connsForNodes = 512

// principalConnsMax bounds the connections of one principal: a program needs one or two.
const principalConnsMax = 1024

// memoryForNodes is the divisor of the request memory reserved for nodes: users' requests must not stop commit logs.
const memoryForNodes = 8

// refusePlain returns the answer to a client in plain mode without TLS, which it can decode.
func refusePlain(first []byte) []byte {
	return rpc.RefusePlain(first, api.ToRPC(&api.IdentityError{
		Reason: api.IdentityNoTLS, Text: "this cluster has certificates: connect by TLS 1.3, with a certificate or a token of it",
	}))
}

// guard returns a TLS listener. Client certificates must be of the cluster. At most strangersMax connections have none; 0 means the
// default of pki.
func (s *security) guard(l net.Listener, strangersMax int, refused func(net.Addr, error)) net.Listener {
	if s == nil {
		return l
	}
	return pki.Listen(l, pki.ListenerConfig{Endpoint: s.endpoint, StrangersMax: strangersMax, NotTLS: refusePlain, Refused: refused})
}

// limit configures a server to identify its peers, close silent connections, reserve connections and memory for nodes, and bound
// unauthenticated clients.
func (s *security) limit(cfg rpc.ServerConfig) rpc.ServerConfig {
	if s == nil {
		return cfg
	}
	cfg.FirstByteTimeout = firstByteTimeout
	cfg.ConnsKept, cfg.Preferred = min(connsForNodes, cfg.ConnsMax/keptShare), func(p *rpc.Peer) bool { return authz.PeerOf(p).Kind == pki.Node }
	cfg.Identify = authz.Identify
	cfg.OwnerOf = authz.OwnerOf
	cfg.MemoryKept = cfg.MemoryBytesMax / memoryForNodes
	// Two nodes share one connection, and nodes do not read slowly on purpose.
	cfg.Patient = func(p *rpc.Peer) bool { return authz.PeerOf(p).Kind == pki.Node }
	cfg.Guard = func(p *rpc.Peer, method string) error { return guardStranger(authz.PeerOf(p), method) }
	return cfg
}

// dialer returns the function that connects to a node, or to any node of the cluster if id is empty; nil, which means plain TCP, on
// an open node.
func (s *security) dialer(id string) func(context.Context, string) (net.Conn, error) {
	if s == nil {
		return nil
	}
	return func(ctx context.Context, addr string) (net.Conn, error) { return s.connect(ctx, id, addr) }
}

// dial connects to a node, or to any node of the cluster if id is empty.
func (s *security) dial(ctx context.Context, id, addr string) (net.Conn, error) {
	if s == nil {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
	return s.connect(ctx, id, addr)
}

// connect connects to that node with TLS, or to any node of the cluster if id is empty.
func (s *security) connect(ctx context.Context, id, addr string) (net.Conn, error) {
	if s.tcp == nil {
		return s.endpoint.Dial(ctx, id, addr)
	}
	c, err := s.tcp(ctx, addr)
	if err != nil {
		return nil, err
	}
	return s.endpoint.Over(ctx, id, c)
}

// requireNode returns an error unless the connection is from that node.
func (s *security) requireNode(c net.Conn, id string) error {
	if s == nil {
		return nil
	}
	secured, ok := c.(*pki.Conn)
	if !ok {
		return errors.New("connection is plain")
	}
	return pki.RequireNode(secured.Peer, id)
}

// nodeVerifier returns requireNode; nil on an open node.
func (s *security) nodeVerifier() func(c net.Conn, id string) error {
	if s == nil {
		return nil
	}
	return s.requireNode
}

// client configures the node's own client to authenticate as the node.
func (s *security) client(cfg client.Config) client.Config {
	if d := s.dialer(""); d != nil {
		cfg.Dial = d
	}
	return cfg
}

// refuseConn logs a rejected connection, rate-limited per reason, and records it in the audit log.
func (n *Node) refuseConn(from net.Addr, err error) {
	n.authz.Audit.ConnectionRejected(from.String(), err)
	n.refused.WarnError(n.log, "connection rejected", err, "peer", hostOf(from.String()))
}

// plainHTTP reports whether a listener serves HTTP without TLS: one on loopback, which every process of the host can reach, or one
// of an open node.
func (s *security) plainHTTP(l net.Listener) bool {
	tcp, ok := l.Addr().(*net.TCPAddr)
	return s == nil || ok && tcp.IP.IsLoopback()
}

// guardHTTP makes a listener that other machines can reach use TLS, and its handler reject requests for which may returns an error,
// except for the open paths.
func (s *security) guardHTTP(l net.Listener, server *http.Server, refused func(net.Addr, error),
	may func(*http.Request, pki.Peer) (status int, err error), open ...string) net.Listener {
	if s.plainHTTP(l) {
		return l
	}
	type peerKey struct{}
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, peerKey{}, c.(*pki.Conn).Peer)
	}
	h := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, _ := r.Context().Value(peerKey{}).(pki.Peer)
		if !slices.Contains(open, r.URL.Path) {
			if status, err := may(r, peer); err != nil {
				http.Error(w, err.Error(), status)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
	return s.guard(l, webConnsMax/2, refused) // the others are left for users
}
