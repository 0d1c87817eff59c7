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
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/folder"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
)

// SecurityFolder is where the keys of a node are kept below its first data folder, unless
// they are kept elsewhere.
const SecurityFolder = "security"

// firstByteTimeout ends connections that have done their handshake and say nothing. Nodes
// and clients speak at once.
const firstByteTimeout = 10 * time.Second

// security is how a node proves who it is, and knows others. An open node has none: all
// methods work on nil, and leave connections plain.
type security struct {
	endpoint *pki.Endpoint
	cluster  string
	node     string
	file     string // of the node's credential
	// issuer is the authority, nil on a node that has not its key.
	issuer atomic.Pointer[pki.Authority]
	// next is the authority that is to replace it, and rollover how far that is, as this node knows: nil if it is not.
	// rolling is held by each step of it.
	next       atomic.Pointer[pki.Authority]
	rollover   atomic.Pointer[rollover.Record]
	rolling    sync.Mutex
	rotator    *pki.Rotator
	gossipKeys atomic.Pointer[[][]byte] // the first encrypts
	keying     sync.Mutex               // held by each step of a rotation of the gossip key

	// joins and tokens bound requests of strangers: to join, and by access tokens.
	joins, tokens hostGate
	// spending holds a value while a join token is used, on the master's node.
	spending  chan struct{}
	promoting promotions
	// removed is the node's list of removed nodes.
	removed *removals
	// tcp is Config.dial.
	tcp func(ctx context.Context, addr string) (net.Conn, error)
}

// Initialise makes a node without data the first one of a new cluster with certificates:
// its id, and a folder of keys. It returns the credential of the cluster's first principal,
// which is kept nowhere else. Hosts are the names and addresses of this host beside its own
// name and those of loopback, for clients that check them. Errors: folder.ErrExists, those of the data folders and of the disk.
func Initialise(dataDirs []string, keys string, hosts []string, now time.Time) (*pki.Credential, error) {
	return InitialiseSealed(dataDirs, keys, "", hosts, now)
}

// InitialiseSealed is Initialise with the authority's key encrypted by a passphrase, unless that is empty.
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
		return nil, fmt.Errorf("data folder %s is of cluster %s: a new cluster begins with empty folders", dataDirs[0], folders.Cluster)
	}
	if err := folders.Write(); err != nil { // before the certificate that names the node
		return nil, err
	}
	return folder.At(keys).SealedBy(passphrase).Init(folders.Node, withLocal(hosts, ""), now)
}

// keys returns the node's folder of keys.
func (n *Node) keys() folder.Folder { return folder.At(n.cfg.Security).SealedBy(n.passphrase) }

// ReadPassphrase reads the passphrase of the authority's key from a file, which must be for its owner alone. No name is no
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

// openSecurity reads the node's keys, if it has any. Its data folders must be of the node
// and cluster that its certificate names.
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
		return fmt.Errorf("the certificate in %s is of node %s, and the data folders are of node %s: give the folder of keys that belongs to them",
			n.cfg.Security, own.Name, folders.Node)
	case folders.Cluster != "" && own.Cluster != folders.Cluster:
		return fmt.Errorf("the certificate in %s is of cluster %s, and the data folders are of cluster %s", n.cfg.Security, own.Cluster, folders.Cluster)
	}
	s := &security{tcp: n.cfg.dial, cluster: own.Cluster, node: own.Name, file: n.keys().NodeFile(), spending: make(chan struct{}, 1), removed: &n.removed}
	s.joins.limits, s.tokens.limits = joinLimits, tokenLimits
	s.gossipKeys.Store(&keys.GossipKeys)
	s.issuer.Store(keys.Authority)
	s.next.Store(keys.Next)
	s.endpoint = pki.NewEndpoint(keys.Credential, pki.Options{Refuse: s.refuse, PrincipalConnsMax: min(principalConnsMax, n.cfg.connsMax()/principalShare)})
	s.rotator = pki.NewRotator(pki.RotatorConfig{Endpoint: s.endpoint, File: s.file, Renew: n.renewOwn,
		OwnClock: func() bool { return s.issuer.Load() != nil }, Logger: n.log.With("part", "security")})
	n.security = s
	return nil
}

// fingerprint returns that of the authority that has signed the nodes' certificates, as far as this one's tells.
func (s *security) fingerprint() pki.Fingerprint {
	return pki.FingerprintOf(s.endpoint.Credential().Signer())
}

// gossipKeys returns the keys of gossip; none if it is in the clear.
func (n *Node) gossipKeys() [][]byte {
	if n.security == nil {
		return nil
	}
	return *n.security.gossipKeys.Load()
}

// keepCertificate renews the node's certificate in time, until ctx ends.
func (n *Node) keepCertificate() {
	if n.security != nil {
		n.security.rotator.Run(n.ctx)
	}
}

// renewOwn gets the node's next certificate: an issuer signs it itself, any other node has
// the master sign it, or another voter.
func (n *Node) renewOwn(ctx context.Context, request []byte) (*x509.Certificate, *pki.Trust, error) {
	s := n.security
	hosts := withLocal(s.endpoint.Credential().Hosts(), n.cfg.Name) // certificates of earlier versions lack them
	own := s.endpoint.Credential()
	if issuer := s.signs(rollover.Renew); issuer != nil {
		leaf, err := issuer.SignNode(request, s.node, hosts, time.Now())
		return leaf, own.Trust(), err
	}
	ids := n.issuers()
	for wait := time.Now(); len(ids) == 0 && time.Since(wait) < issuersWait && ctx.Err() == nil; ids = n.issuers() {
		pause(ctx, 200*time.Millisecond)
	}
	var errs []error
	for _, id := range ids {
		got := &enrolment{}
		err := n.peers.call(ctx, id, methodRenew, func(e *wire.Encoder) {
			e.Array(2)
			e.Bin(request)
			appendTexts(e, hosts)
		}, got.decode)
		if err == nil {
			n.checkClock(got.now)
			leaf, trust, err := got.certificate()
			if err == nil && own.Trust().Signed(leaf) { // which authorities count, the lock service says
				trust = own.Trust()
			}
			return leaf, trust, err
		}
		errs = append(errs, fmt.Errorf("ask node %s to sign: %w", id, err))
	}
	return nil, nil, cmp.Or(errors.Join(errs...), errors.New("it is not known which nodes vote, and sign certificates"))
}

// issuersWait is how long a renewal waits for the node to hear of others that sign: it may
// have just started.
const issuersWait = 20 * time.Second

// issuers returns nodes that should have the authority's key, the master first.
func (n *Node) issuers() (ids []string) {
	if boss, _ := n.epochs.last(); boss != "" && boss != n.id() {
		ids = append(ids, boss)
	}
	if n.ring == nil {
		return ids
	}
	for _, m := range n.ring.Members() {
		if m.Voter && !m.Self && m.State == gossip.Alive && !slices.Contains(ids, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// clockOff is how far the clocks of two nodes may differ before one says so.
const clockOff = 5 * time.Minute

// checkClock says so if this host's clock is far from a signer's: certificates are judged by
// the clock of who looks at them.
func (n *Node) checkClock(theirs time.Time) {
	if off := time.Until(theirs); off.Abs() > clockOff {
		n.log.Warn("this host's clock differs from that of the node that signs certificates: set it right, else others do not know this node one day",
			"by", off.Round(time.Second))
	}
}

// clusterToFound is the id of the cluster that a fresh node founds, empty for any.
func (s *security) clusterToFound() string {
	if s == nil {
		return ""
	}
	return s.cluster
}

// found has a fresh node found the cluster, alone, if it has the authority's key: it is the
// one that "stele init" was run on. Others join it, and nothing else: two groups of nodes with
// certificates of one cluster must not each found it.
func (s *security) found(cfg *formation.Config) error {
	cfg.Expect = 0
	if s.issuer.Load() != nil {
		cfg.Join = nil
		return nil
	}
	if len(cfg.Join) == 0 {
		return fmt.Errorf("node %s has a certificate of cluster %s and no data yet: it can only join that cluster, so give nodes of it with --join", s.node, s.cluster)
	}
	return nil
}

// connsForNodes of the connections that a node takes are for nodes, and for Raft: each of the others needs a few.
const connsForNodes = 512

// principalConnsMax is how many one principal may have of them: his programs need one or two each.
const principalConnsMax = 1024

// memoryForNodes is which part of the memory for requests nodes have for themselves: what a user sends must not keep logs
// from being written.
const memoryForNodes = 8

// refusePlain answers a client that speaks plain mode without TLS, so that it can tell why.
func refusePlain(first []byte) []byte {
	return rpc.RefusePlain(first, api.ToRPC(&api.IdentityError{
		Reason: api.IdentityNoTLS, Text: "this cluster has certificates: connect by TLS 1.3, with a certificate or a token of it",
	}))
}

// guard returns a listener of TLS. Who shows a certificate, shows one of the cluster. Of those who show none it takes so many,
// 0 for as many as pki does.
func (s *security) guard(l net.Listener, strangersMax int, refused func(net.Addr, error)) net.Listener {
	if s == nil {
		return l
	}
	return pki.Listen(l, pki.ListenerConfig{Endpoint: s.endpoint, StrangersMax: strangersMax, NotTLS: refusePlain, Refused: refused})
}

// limit has the server know its peers, end connections that say nothing, keep some for nodes,
// and take from strangers only what they may ask for.
func (s *security) limit(cfg rpc.ServerConfig) rpc.ServerConfig {
	if s == nil {
		return cfg
	}
	cfg.FirstByteTimeout = firstByteTimeout
	cfg.ConnsKept, cfg.Preferred = min(connsForNodes, cfg.ConnsMax/keptShare), func(p *rpc.Peer) bool { return peerOf(p).Kind == pki.Node }
	cfg.Identify = identify
	cfg.OwnerOf = ownerOf
	cfg.MemoryKept = cfg.MemoryBytesMax / memoryForNodes
	// Nodes do not read slowly to harm others, and one connection has all that two of them have to do with each other.
	cfg.Patient = func(p *rpc.Peer) bool { return peerOf(p).Kind == pki.Node }
	cfg.Guard = func(p *rpc.Peer, method string) error { return guardStranger(peerOf(p), method) }
	return cfg
}

// dialer returns what connects to that node, or to any node of the cluster if id is empty;
// nil, which is plain TCP, for an open node.
func (s *security) dialer(id string) func(context.Context, string) (net.Conn, error) {
	if s == nil {
		return nil
	}
	return func(ctx context.Context, addr string) (net.Conn, error) { return s.connect(ctx, id, addr) }
}

// dial connects as dialer says.
func (s *security) dial(ctx context.Context, id, addr string) (net.Conn, error) {
	if s == nil {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
	return s.connect(ctx, id, addr)
}

// connect connects to that node, or to any of the cluster.
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

// requireNode refuses a connection that is not from that node.
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

// client has the node's own client prove that it is the node.
func (s *security) client(cfg client.Config) client.Config {
	if d := s.dialer(""); d != nil {
		cfg.Dial = d
	}
	return cfg
}

// refuseConn tells of a connection that was not taken, each reason once in a while, and has it in the audit log.
func (n *Node) refuseConn(from net.Addr, err error) {
	n.audit.turnedAway(from.String(), err)
	n.refused.warn(n.log, hostOf(from.String()), fmt.Errorf("connection: %w", err))
}

// plainHTTP reports whether a listener speaks HTTP without TLS, to every process of this host: one on loopback, or of an
// open node.
func (s *security) plainHTTP(l net.Listener) bool {
	tcp, ok := l.Addr().(*net.TCPAddr)
	return s == nil || ok && tcp.IP.IsLoopback()
}

// guardHTTP has a listener that other machines reach speak TLS, and its handler answer
// nobody whom may does not let in, but for what is open: whether the node is well.
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
	return s.guard(l, webConnsMax/2, refused) // so that strangers do not keep users out
}
