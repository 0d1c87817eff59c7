package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// epoch is when the tests' clusters are created.
var epoch = time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)

func newAuthorityT(t testing.TB, cluster string) *Authority {
	t.Helper()
	a, err := NewAuthority(cluster, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func trustIn(t testing.TB, as ...*Authority) *Trust {
	t.Helper()
	var certs []*x509.Certificate
	for _, a := range as {
		certs = append(certs, a.Certificate())
	}
	trust, err := NewTrust(certs...)
	if err != nil {
		t.Fatal(err)
	}
	return trust
}

func newRequest(t testing.TB) (crypto.Signer, []byte) {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, r
}

func nodeCredential(t testing.TB, a *Authority, id string, now time.Time) *Credential {
	t.Helper()
	key, r := newRequest(t)
	leaf, err := a.SignNode(r, id, []string{"host1.example", "10.0.0.1"}, now)
	return credential(t, key, leaf, a, err)
}

func principalCredential(t testing.TB, a *Authority, name string, now time.Time) *Credential {
	t.Helper()
	key, r := newRequest(t)
	leaf, err := a.SignPrincipal(r, name, 7, 0, now)
	return credential(t, key, leaf, a, err)
}

func credential(t testing.TB, key crypto.Signer, leaf *x509.Certificate, a *Authority, err error) *Credential {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCredential(key, leaf, trustIn(t, a))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func at(now time.Time) Options { return Options{Now: func() time.Time { return now }} }

// handshake connects a client to a server and exchanges a byte in each direction. It returns the
// error of each side, and the server's state.
func handshake(t testing.TB, server, client *tls.Config) (s tls.ConnectionState, serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		nc, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer nc.Close()
		c := tls.Server(nc, server)
		if err = c.Handshake(); err == nil {
			s = c.ConnectionState()
			err = swapByte(c)
		}
		done <- err
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	c := tls.Client(nc, client)
	clientErr = c.Handshake()
	if clientErr == nil {
		clientErr = swapByte(c)
	}
	_ = nc.Close()
	return s, <-done, clientErr
}

func swapByte(c net.Conn) error {
	if _, err := c.Write([]byte{'x'}); err != nil {
		return err
	}
	var b [1]byte
	_, err := c.Read(b[:])
	return err
}

func TestHandshakesThatAreGood(t *testing.T) {
	a := newAuthorityT(t, "c1")
	n1, n2 := nodeCredential(t, a, "n1", epoch), nodeCredential(t, a, "n2", epoch)
	ann := principalCredential(t, a, "ann", epoch)
	for name, test := range map[string]struct {
		client     *Credential
		want       Peer
		node       string        // intended by the client
		serverSlow time.Duration // how far the server's clock is behind
	}{
		"node to node":            {client: n2, want: Peer{Kind: Node, Name: "n2"}, node: "n1"},
		"node to any":             {client: n2, want: Peer{Kind: Node, Name: "n2"}},
		"principal":               {client: ann, want: Peer{Kind: Principal, Name: "ann", Generation: 7}},
		"anonymous":               {client: AnonymousCredential(trustIn(t, a))},
		"clock 23 h behind":       {client: n2, want: Peer{Kind: Node, Name: "n2"}, serverSlow: 23 * time.Hour},
		"clock nine days ahead":   {client: n2, want: Peer{Kind: Node, Name: "n2"}, serverSlow: -9 * 24 * time.Hour},
		"certificate's last hour": {client: n2, want: Peer{Kind: Node, Name: "n2"}, serverSlow: time.Hour - NodeLife},
	} {
		t.Run(name, func(t *testing.T) {
			server := NewEndpoint(n1, at(epoch.Add(-test.serverSlow)))
			s, serverErr, clientErr := handshake(t, server.Server(), NewEndpoint(test.client, at(epoch)).DialNode(test.node))
			if serverErr != nil || clientErr != nil {
				t.Fatalf("server: %v; client: %v", serverErr, clientErr)
			}
			p, err := server.Identify(s)
			if err != nil {
				t.Fatal(err)
			}
			if p.Kind != test.want.Kind || p.Name != test.want.Name || p.Generation != test.want.Generation || p.Kind != Anonymous && (p.Cluster != "c1" || p.Serial == "" || p.Ends.IsZero()) {
				t.Errorf("the client is %+v, want %+v", p, test.want)
			}
			if s.Version != tls.VersionTLS13 {
				t.Errorf("the connection is of %s", tls.VersionName(s.Version))
			}
		})
	}
}

// forge returns a credential with arbitrary content whose certificate was not signed by the
// authority.
func forge(t testing.TB, signer *Credential, uri string, change func(*x509.Certificate)) *Credential {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(), NotBefore: epoch.Add(-time.Hour), NotAfter: epoch.Add(time.Hour), URIs: []*url.URL{u},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	if change != nil {
		change(template)
	}
	parent, by := template, key
	chain := [][]byte{}
	if signer != nil {
		parent, by, chain = signer.leaf, signer.key, signer.chain.Certificate
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Credential{key: key, leaf: leaf, chain: tls.Certificate{Certificate: append([][]byte{der}, chain...), PrivateKey: key, Leaf: leaf}}
}

// signedBy makes an authority sign arbitrary content, as a careless program might.
func signedBy(t testing.TB, a *Authority, uri string, change func(*x509.Certificate)) *Credential {
	t.Helper()
	c := forge(t, &Credential{leaf: a.cert, key: a.key, chain: tls.Certificate{Certificate: [][]byte{a.cert.Raw}}}, uri, change)
	c.trust = trustIn(t, a)
	return c
}

// TestAttackers: K1 and K2. Each attacker connects to a good node, and poses as one.
func TestAttackers(t *testing.T) {
	a, impostor, other := newAuthorityT(t, "c1"), newAuthorityT(t, "c1"), newAuthorityT(t, "c2")
	n1, n2 := nodeCredential(t, a, "n1", epoch), nodeCredential(t, a, "n2", epoch)
	trust := trustIn(t, a)
	with := func(c *Credential) *Credential { // with trust in the cluster
		d := *c
		d.trust = trust
		return &d
	}
	uri := "stele://c1/node/n2"
	for name, test := range map[string]struct {
		attacker *Credential
		asClient error // the node's reason to reject it, or nil
		asServer error // the reason of a node that dials n2
	}{
		"expired":                       {nodeCredential(t, a, "n2", epoch.Add(-NodeLife-time.Minute)), ErrExpired, ErrExpired},
		"not yet valid":                 {nodeCredential(t, a, "n2", epoch.Add(Backdate+time.Minute)), ErrNotYetValid, ErrNotYetValid},
		"another authority":             {with(nodeCredential(t, impostor, "n2", epoch)), ErrUntrusted, ErrUntrusted},
		"another cluster":               {with(nodeCredential(t, other, "n2", epoch)), ErrOtherCluster, ErrOtherCluster},
		"another node":                  {nodeCredential(t, a, "n3", epoch), nil, ErrOtherNode},
		"principal":                     {principalCredential(t, a, "n2", epoch), nil, ErrUntrusted},
		"signed by itself":              {with(forge(t, nil, uri, nil)), ErrUntrusted, ErrUntrusted},
		"signed by a node":              {with(forge(t, n2, uri, nil)), ErrUntrusted, ErrUntrusted},
		"signed by a principal":         {with(forge(t, principalCredential(t, a, "ann", epoch), uri, nil)), ErrUntrusted, ErrUntrusted},
		"without a uri":                 {with(signedBy(t, a, uri, func(c *x509.Certificate) { c.URIs = nil })), ErrUntrusted, ErrUntrusted},
		"with two uris":                 {with(signedBy(t, a, uri, func(c *x509.Certificate) { c.URIs = append(c.URIs, c.URIs[0]) })), ErrUntrusted, ErrUntrusted},
		"with a common name alone":      {with(signedBy(t, a, "https://n2", func(c *x509.Certificate) { c.Subject.CommonName = "n2" })), ErrUntrusted, ErrUntrusted},
		"an authority below":            {with(signedBy(t, a, uri, func(c *x509.Certificate) { c.IsCA = true })), ErrUntrusted, ErrUntrusted},
		"the authority's own":           {with(&Credential{key: a.key, leaf: a.cert, chain: tls.Certificate{Certificate: [][]byte{a.cert.Raw}, PrivateKey: a.key}}), ErrUntrusted, ErrUntrusted},
		"server's for a client":         {with(signedBy(t, a, uri, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })), ErrUntrusted, nil},
		"principal's uri, all uses":     {with(signedBy(t, a, "stele://c1/principal/n2/0", nil)), nil, ErrNotNode},
		"a node without a good name":    {with(signedBy(t, a, "stele://c1/node/-n2", nil)), ErrUntrusted, ErrUntrusted},
		"a cluster without a good name": {with(signedBy(t, a, "stele://-c1/node/n2", nil)), ErrUntrusted, ErrUntrusted},
		"a node with more behind it":    {with(signedBy(t, a, "stele://c1/node/n2/0", nil)), ErrUntrusted, ErrUntrusted},
		"a principal without number":    {with(signedBy(t, a, "stele://c1/principal/n2", nil)), ErrUntrusted, ErrUntrusted},
		"a principal with a word":       {with(signedBy(t, a, "stele://c1/principal/n2/x", nil)), ErrUntrusted, ErrUntrusted},
		"a principal with a spare zero": {with(signedBy(t, a, "stele://c1/principal/n2/01", nil)), ErrUntrusted, ErrUntrusted},
		"another kind":                  {with(signedBy(t, a, "stele://c1/user/n2", nil)), ErrUntrusted, ErrUntrusted},
		"another kind with a number":    {with(signedBy(t, a, "stele://c1/user/n2/0", nil)), ErrUntrusted, ErrUntrusted},
		"a uri that reads in two ways":  {with(signedBy(t, a, "stele://c1/node/n2?x", nil)), ErrUntrusted, ErrUntrusted},
	} {
		t.Run(name, func(t *testing.T) {
			attacker := NewEndpoint(test.attacker, at(epoch))
			server := NewEndpoint(n1, at(epoch))
			_, err, clientErr := handshake(t, server.Server(), attacker.DialNode(""))
			if !errors.Is(err, test.asClient) || (err == nil) != (test.asClient == nil) {
				t.Errorf("as a client: the node returns %v, want %v (the client: %v)", err, test.asClient, clientErr)
			}
			if test.asClient != nil && clientErr == nil {
				t.Error("as a client: it gets no error")
			}
			_, _, err = handshake(t, attacker.Server(), NewEndpoint(n1, at(epoch)).DialNode("n2"))
			if !errors.Is(err, test.asServer) || (err == nil) != (test.asServer == nil) {
				t.Errorf("as a server: the node returns %v, want %v", err, test.asServer)
			}
			if pe := (*PeerError)(nil); err != nil && !errors.As(err, &pe) {
				t.Errorf("as a server: %T is no PeerError", errors.Unwrap(err))
			}
		})
	}
}

// TestOldTLS: K1, both ways.
func TestOldTLS(t *testing.T) {
	a := newAuthorityT(t, "c1")
	e := NewEndpoint(nodeCredential(t, a, "n1", epoch), at(epoch))
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12} {
		old := func(c *tls.Config) *tls.Config {
			c.MinVersion, c.MaxVersion = tls.VersionTLS10, version
			c.VerifyConnection = nil
			return c
		}
		if _, err, clientErr := handshake(t, e.Server(), old(e.DialNode(""))); err == nil || clientErr == nil {
			t.Errorf("a client of %s was accepted: %v, %v", tls.VersionName(version), err, clientErr)
		}
		if _, err, clientErr := handshake(t, old(e.Server()), e.DialNode("")); err == nil || clientErr == nil {
			t.Errorf("a server of %s was believed: %v, %v", tls.VersionName(version), err, clientErr)
		}
	}
	for what, c := range map[string]*tls.Config{"server": e.Server(), "dialer": e.DialNode(""), "joining": DialPinned(Fingerprint{}, nil, nil)} {
		if c.MinVersion != tls.VersionTLS13 || !c.SessionTicketsDisabled {
			t.Errorf("%s: from %s on, and tickets are not off", what, tls.VersionName(c.MinVersion))
		}
	}
	// A lowered minimum version in a configuration is still detected.
	server, client := e.Server(), e.DialNode("")
	server.MinVersion, server.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	client.MinVersion = tls.VersionTLS12
	if _, _, err := handshake(t, server, client); !errors.Is(err, ErrUntrusted) {
		t.Errorf("a connection of TLS 1.2: %v", err)
	}
}

func TestNoTLS(t *testing.T) {
	a := newAuthorityT(t, "c1")
	e := NewEndpoint(nodeCredential(t, a, "n1", epoch), at(epoch))
	for _, bytes := range []string{"STELE\x01\x00\n", "\x94\x00\x01\xa4ping\x90", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff", strings.Repeat("\x00", 4096)} {
		here, there := net.Pipe()
		go func() {
			_, _ = there.Write([]byte(bytes))
			_ = there.Close()
		}()
		go func() { _, _ = there.Read(make([]byte, 512)) }()
		if err := tls.Server(here, e.Server()).Handshake(); err == nil {
			t.Errorf("%q made a connection", bytes)
		}
		_ = here.Close()
	}
}

func TestRequireNode(t *testing.T) {
	node := Peer{Kind: Node, Name: "n1"}
	for _, test := range []struct {
		peer Peer
		id   string
		want error
	}{
		{node, "", nil}, {node, "n1", nil}, {node, "n2", ErrOtherNode},
		{Peer{Kind: Principal, Name: "n1"}, "", ErrNotNode}, {Peer{Kind: Principal, Name: "n1"}, "n1", ErrNotNode},
		{Peer{}, "", ErrNoCertificate},
	} {
		if err := RequireNode(test.peer, test.id); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%v for node %q: %v, want %v", test.peer, test.id, err, test.want)
		}
	}
}

func TestRefuse(t *testing.T) {
	a := newAuthorityT(t, "c1")
	removed := errors.New("node n2 was removed")
	o := at(epoch)
	o.Refuse = func(p Peer) error {
		if p.Name == "n2" {
			return removed
		}
		return nil
	}
	server := NewEndpoint(nodeCredential(t, a, "n1", epoch), o)
	for id, want := range map[string]error{"n2": removed, "n3": nil} {
		_, err, _ := handshake(t, server.Server(), NewEndpoint(nodeCredential(t, a, id, epoch), at(epoch)).DialNode("n1"))
		if !errors.Is(err, want) || want != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("node %s: %v, want %v", id, err, want)
		}
	}
}

// TestSwap: K3, with configurations created before.
func TestSwap(t *testing.T) {
	a, next := newAuthorityT(t, "c1"), newAuthorityT(t, "c1")
	old := nodeCredential(t, a, "n1", epoch)
	server, peer := NewEndpoint(old, at(epoch)), NewEndpoint(nodeCredential(t, a, "n2", epoch), at(epoch))
	listen, dial := server.Server(), peer.DialNode("n1")
	serial := func() string {
		t.Helper()
		s, serverErr, clientErr := handshake(t, listen, dial)
		if serverErr != nil || clientErr != nil {
			t.Fatal(serverErr, clientErr)
		}
		p, err := server.Identify(s)
		if err != nil {
			t.Fatal(err)
		}
		return p.Serial
	}
	first := serial()
	if err := peer.Swap(nodeCredential(t, a, "n2", epoch)); err != nil {
		t.Fatal(err)
	}
	if serial() == first {
		t.Error("the old certificate is still shown")
	}

	// A change of authority: first everyone trusts both, then each gets a new certificate.
	both := trustIn(t, a, next)
	for _, e := range []*Endpoint{server, peer} {
		c := e.Credential()
		trusting, err := NewCredential(c.key, c.leaf, both)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Swap(trusting); err != nil {
			t.Fatal(err)
		}
	}
	key, r := newRequest(t)
	leaf, err := next.SignNode(r, "n2", nil, epoch)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCredential(key, leaf, both)
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.Swap(c); err != nil {
		t.Fatal(err)
	}
	serial()

	for what, c := range map[string]*Credential{
		"another node's":    nodeCredential(t, a, "n1", epoch),
		"another cluster's": nodeCredential(t, newAuthorityT(t, "c2"), "n2", epoch),
		"a principal's":     principalCredential(t, a, "n2", epoch),
		"none":              AnonymousCredential(both),
	} {
		if peer.Swap(c) == nil {
			t.Errorf("%s credential was accepted", what)
		}
	}
}

// TestDialPinned: K6.
func TestDialPinned(t *testing.T) {
	a, impostor := newAuthorityT(t, "c1"), newAuthorityT(t, "c1")
	now := func() time.Time { return epoch }
	server := func(c *Credential) *tls.Config { return NewEndpoint(c, at(epoch)).Server() }
	var learnt *Trust
	take := func(trust *Trust) { learnt = trust }
	if _, err, clientErr := handshake(t, server(nodeCredential(t, a, "n1", epoch)), DialPinned(a.Fingerprint(), now, take)); err != nil || clientErr != nil {
		t.Fatal(err, clientErr)
	}
	if learnt == nil || learnt.Cluster() != "c1" || FingerprintOf(learnt.Authorities()[0]) != a.Fingerprint() {
		t.Fatal("nothing or something else was learnt")
	}
	learnt = nil
	// Replaying the true authority's certificate after a forged leaf does not help.
	posing := forge(t, nil, "stele://c1/node/n1", nil)
	posing.chain.Certificate = append(posing.chain.Certificate, a.cert.Raw)
	posing.trust = trustIn(t, a)
	for name, test := range map[string]struct {
		c    *Credential
		want error
	}{
		"another authority":        {nodeCredential(t, impostor, "n1", epoch), ErrUntrusted},
		"a principal":              {principalCredential(t, a, "ann", epoch), ErrUntrusted},
		"the authority's for show": {posing, ErrUntrusted},
		"expired":                  {nodeCredential(t, a, "n1", epoch.Add(-2*NodeLife)), ErrExpired},
		"a node's uri, another usage": {signedBy(t, a, "stele://c1/node/n1", func(c *x509.Certificate) {
			c.ExtKeyUsage = nil
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}), ErrUntrusted},
		"a principal's uri, all usage": {signedBy(t, a, "stele://c1/principal/n1/0", nil), ErrNotNode},
	} {
		_, _, err := handshake(t, server(test.c), DialPinned(a.Fingerprint(), now, take))
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if learnt != nil {
			t.Errorf("%s: its authority was learnt", name)
		}
	}
}

// TestCertificateForm pins the properties of certificates that other programs see.
func TestCertificateForm(t *testing.T) {
	a := newAuthorityT(t, "c1")
	node := nodeCredential(t, a, "n1", epoch.Add(30*24*time.Hour)).leaf
	ann := principalCredential(t, a, "ann", epoch.Add(30*24*time.Hour)).leaf
	usages := func(c *x509.Certificate) []x509.ExtKeyUsage { return c.ExtKeyUsage }
	for _, test := range []struct {
		c     *x509.Certificate
		uri   string
		life  time.Duration
		usage []x509.ExtKeyUsage
		ca    bool
	}{
		{a.Certificate(), "stele://c1", authorityLife, nil, true},
		{node, "stele://c1/node/n1", NodeLife, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, false},
		{ann, "stele://c1/principal/ann/7", PrincipalLife, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, false},
	} {
		c := test.c
		if len(c.URIs) != 1 || c.URIs[0].String() != test.uri || c.IsCA != test.ca || !slices.Equal(usages(c), test.usage) {
			t.Errorf("%s: uris %v, authority %v, usages %v", test.uri, c.URIs, c.IsCA, c.ExtKeyUsage)
		}
		if got := c.NotAfter.Sub(c.NotBefore); got != test.life+Backdate {
			t.Errorf("%s: valid for %v, want %v", test.uri, got, test.life+Backdate)
		}
		if c.SignatureAlgorithm != x509.ECDSAWithSHA256 || c.SerialNumber.BitLen() != 127 {
			t.Errorf("%s: signed with %v, serial %x", test.uri, c.SignatureAlgorithm, c.SerialNumber)
		}
	}
	if !slices.Equal(node.DNSNames, []string{"host1.example"}) || len(node.IPAddresses) != 1 || node.IPAddresses[0].String() != "10.0.0.1" {
		t.Errorf("the node's hosts are %v, %v", node.DNSNames, node.IPAddresses)
	}
	// A client in another language trusts the authority and verifies the chain and the host name.
	roots := x509.NewCertPool()
	roots.AddCert(a.Certificate())
	if _, err := node.Verify(x509.VerifyOptions{Roots: roots, DNSName: "host1.example", CurrentTime: epoch.Add(31 * 24 * time.Hour)}); err != nil {
		t.Error(err)
	}
	if !a.cert.MaxPathLenZero {
		t.Error("the authority may have others below it")
	}
}

func TestSignRefuses(t *testing.T) {
	a := newAuthorityT(t, "c1")
	_, good := newRequest(t)
	for _, name := range []string{"", "../x", "a/b", "a b", ".", "@x", "x\n", "é", strings.Repeat("x", 65), "a%2fb"} {
		var bad *NameError
		if _, err := a.SignNode(good, name, nil, epoch); !errors.As(err, &bad) {
			t.Errorf("node %q: %v", name, err)
		}
		if _, err := a.SignPrincipal(good, name, 0, 0, epoch); !errors.As(err, &bad) {
			t.Errorf("principal %q: %v", name, err)
		}
		if _, err := NewAuthority(name, epoch); !errors.As(err, &bad) {
			t.Errorf("cluster %q: %v", name, err)
		}
	}
	for _, host := range []string{"", "*.example", "a b", "a..b", "x/y", "-a", strings.Repeat("x.", 200) + "x", "a:1"} {
		var bad *HostError
		if _, err := a.SignNode(good, "n1", []string{host}, epoch); !errors.As(err, &bad) {
			t.Errorf("host %q: %v", host, err)
		}
	}
	for c := range 256 {
		want := strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", rune(c)) && c < 128
		if err := CheckHost("a" + string([]byte{byte(c)}) + "b"); (err == nil) != want {
			t.Errorf("a host with the byte %#x: %v", c, err)
		}
	}
	for c := range 256 {
		word := strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", rune(c)) && c < 128
		inside := word || strings.ContainsRune("-_.@", rune(c))
		first, second := string([]byte{byte(c), 'x'}), string([]byte{'x', byte(c)})
		if err := CheckName("name", first); (err == nil) != word {
			t.Errorf("a name that begins with the byte %#x: %v", c, err)
		}
		if err := CheckName("name", second); (err == nil) != inside {
			t.Errorf("a name with the byte %#x: %v", c, err)
		}
	}
	if err := CheckName("name", strings.Repeat("x", 64)); err != nil {
		t.Error(err)
	}
	for life, want := range map[time.Duration]bool{time.Minute - 1: false, time.Minute: true, PrincipalLifeMax: true} {
		if _, err := a.SignPrincipal(good, "ann", 0, life, epoch); (err == nil) != want {
			t.Errorf("a certificate for %v: %v", life, err)
		}
	}
	label, labels := strings.Repeat("x", 63), strings.Repeat("xx.", 84)
	for host, want := range map[string]bool{label: true, label + "x": false, labels + "x": true, labels + "xx": false, "-": false, "a-": false, "a.-a": false, "::1": true} {
		if err := CheckHost(host); (err == nil) != want {
			t.Errorf("host %q: %v", host, err)
		}
	}
	if _, err := a.SignNode(good, "n1", slices.Repeat([]string{"h"}, 16), epoch); err != nil {
		t.Errorf("16 hosts: %v", err)
	}
	if _, err := a.SignNode(good, "n1", slices.Repeat([]string{"h"}, 17), epoch); err == nil {
		t.Error("17 hosts were accepted")
	}
	for _, life := range []time.Duration{-time.Hour, time.Second, PrincipalLifeMax + 1} {
		if _, err := a.SignPrincipal(good, "ann", 0, life, epoch); err == nil {
			t.Errorf("a certificate for %v was made", life)
		}
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ofRSA, err := NewRequest(weak)
	if err != nil {
		t.Fatal(err)
	}
	tampered := slices.Clone(good)
	tampered[len(tampered)-1] ^= 1 // in the signature: the sender does not have the key
	for name, r := range map[string][]byte{"none": nil, "cut": good[:len(good)-3], "tampered": tampered, "rsa": ofRSA, "large": make([]byte, 9000), "with more": append(slices.Clone(good), 0)} {
		var bad *RequestError
		if _, err := a.SignNode(r, "n1", nil, epoch); !errors.As(err, &bad) {
			t.Errorf("request %s: %v", name, err)
		}
		if _, err := KeyHash(r); !errors.As(err, &bad) {
			t.Errorf("hash of request %s: %v", name, err)
		}
	}
}

func TestKeyHash(t *testing.T) {
	key, r := newRequest(t)
	again, err := NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	_, other := newRequest(t)
	hash := func(r []byte) [32]byte {
		h, err := KeyHash(r)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if hash(r) != hash(again) || hash(r) == hash(other) {
		t.Error("the hash is not that of the key")
	}
}
