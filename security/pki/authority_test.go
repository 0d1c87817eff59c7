package pki

import (
	"crypto"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/internal/vfs"
)

// TestKindsOfKeys: certificates are issued for keys of ECDSA on P-256 and P-384 and of Ed25519
// only.
func TestKindsOfKeys(t *testing.T) {
	a := newAuthorityT(t, "c1")
	on := func(c elliptic.Curve) crypto.Signer {
		k, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key  crypto.Signer
		want bool
	}{
		"P-256": {on(elliptic.P256()), true}, "P-384": {on(elliptic.P384()), true}, "P-521": {on(elliptic.P521()), false},
		"P-224": {on(elliptic.P224()), false}, "Ed25519": {edwards, true},
	} {
		request, err := NewRequest(c.key)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := a.SignNode(request, "n1", nil, epoch)
		if (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if _, err := NewCredential(c.key, leaf, trustIn(t, a)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestRequestBytes: a request of 8 KiB is accepted, one byte more is not.
func TestRequestBytes(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader) // all signatures have the same length
	if err != nil {
		t.Fatal(err)
	}
	request := func(n int) []byte {
		var r []byte
		for name := n - 300; len(r) < n; name++ {
			if r, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: strings.Repeat("x", name)}}, key); err != nil {
				t.Fatal(err)
			}
		}
		if len(r) != n {
			t.Fatalf("a request of %d bytes, want %d", len(r), n)
		}
		return r
	}
	if _, err := KeyHash(request(8 << 10)); err != nil {
		t.Errorf("8 KiB: %v", err)
	}
	if _, err := KeyHash(request(8<<10 + 1)); err == nil || !strings.Contains(err.Error(), "at most 8192") {
		t.Errorf("a byte more: %v", err)
	}
}

// TestSerials: serial numbers have 127 bits and are unique.
func TestSerials(t *testing.T) {
	seen := map[string]bool{}
	for range 64 {
		n := serial()
		if n.BitLen() != 127 || n.Sign() <= 0 || seen[n.String()] {
			t.Errorf("serial number %x", n)
		}
		seen[n.String()] = true
	}
}

// TestAuthorities: an authority's certificate must be a CA certificate, self-signed, and name a
// cluster.
func TestAuthorities(t *testing.T) {
	for name, c := range map[string]struct {
		uri    string
		change func(*x509.Certificate)
		want   string // part of the error; empty for none
	}{
		"good":                     {"stele://c1", func(*x509.Certificate) {}, ""},
		"not an authority":         {"stele://c1", func(c *x509.Certificate) { c.IsCA = false }, "not a certificate of an authority"},
		"one that may not sign":    {"stele://c1", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }, "not a certificate of an authority"},
		"one for nothing":          {"stele://c1", func(c *x509.Certificate) { c.KeyUsage = 0 }, "not a certificate of an authority"},
		"of a bad name":            {"stele://-c1", func(*x509.Certificate) {}, "is not a cluster authority's"},
		"of a node":                {"stele://c1/node/n1", func(*x509.Certificate) {}, "is not a cluster authority's"},
		"of a uri with more":       {"stele://c1?x", func(*x509.Certificate) {}, "is not a cluster authority's"},
		"of another scheme":        {"https://c1", func(*x509.Certificate) {}, "does not have exactly one stele:// uri"},
		"of two clusters":          {"stele://c1", func(c *x509.Certificate) { c.URIs = append(c.URIs, &url.URL{Scheme: scheme, Host: "c2"}) }, "does not have exactly one stele:// uri"},
		"that may do more as well": {"stele://c1", func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }, ""},
	} {
		own := forge(t, nil, c.uri, func(template *x509.Certificate) {
			template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
			c.change(template)
		})
		_, err := NewTrust(own.leaf)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	a := newAuthorityT(t, "c1")
	below := signedBy(t, a, "stele://c1", func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign })
	if _, err := NewTrust(below.leaf); err == nil || !strings.Contains(err.Error(), "is not self-signed") {
		t.Errorf("one that another authority has signed: %v", err)
	}
}

// TestManyAuthorities: a credential may trust four authorities, all in its file.
func TestManyAuthorities(t *testing.T) {
	var all []*Authority
	var certs []*x509.Certificate
	for range authoritiesMax + 1 {
		a := newAuthorityT(t, "c1")
		all, certs = append(all, a), append(certs, a.Certificate())
	}
	if _, err := NewTrust(certs...); err == nil {
		t.Error("five authorities are trusted")
	}
	if _, err := NewTrust(); err == nil {
		t.Error("no authority is trusted")
	}
	trust := trustIn(t, all[:authoritiesMax]...)
	last := nodeCredential(t, all[authoritiesMax-1], "n1", epoch)
	c, err := NewCredential(last.key, last.leaf, trust)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseCredential(must(c.PEM()))
	if err != nil || len(again.Trust().Authorities()) != authoritiesMax || !again.Signer().Equal(certs[authoritiesMax-1]) {
		t.Errorf("read again: %v, %v", again, err)
	}
	if !trust.Signed(last.leaf) || trust.Signed(nodeCredential(t, all[authoritiesMax], "n1", epoch).leaf) {
		t.Error("it is not known which certificates the authorities have signed")
	}
	if !slices.Equal(c.Hosts(), []string{"host1.example", "10.0.0.1"}) || c.Leaf() != last.leaf {
		t.Errorf("the certificate is for %v", c.Hosts())
	}
	if none := AnonymousCredential(trust); none.Signer() != nil || none.Leaf() != nil || none.Hosts() != nil {
		t.Error("a credential without a certificate has one")
	}
}

// TestKeyFiles: a key file contains a key and nothing else.
func TestKeyFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key.pem")
	key, err := NewKey()
	if err := errors.Join(err, On(vfs.OS()).WriteKey(file, key)); err != nil {
		t.Fatal(err)
	}
	got, err := On(vfs.OS()).ReadKey(file)
	if err != nil || !got.(*ecdsa.PrivateKey).Equal(key) {
		t.Errorf("read again: %v", err)
	}
	a := newAuthorityT(t, "c1")
	exchange, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(exchange)
	if err != nil {
		t.Fatal(err)
	}
	for want, text := range map[string][]byte{
		"a private key and nothing else":     must(nodeCredential(t, a, "n1", epoch).PEM()),
		"expected a private key and nothing": {},
		"after PEM block 1":                  append(must(keyPEM(key)), 'x'),
		"PEM block 1 is not an ECDSA":        pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}),
		"PEM block 2 has type \"OTHER\"":     append(must(keyPEM(key)), pem.EncodeToMemory(&pem.Block{Type: "OTHER"})...),
		"more than 6 PEM blocks":             append(must(keyPEM(key)), []byte(strings.Repeat(string(trustIn(t, a).PEM()), pemBlocksMax))...),
		"PEM block 2: x509":                  append(must(keyPEM(key)), pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: []byte("x")})...),
		"PEM block 2 has type \"PRIVATE ":    append(must(keyPEM(key)), must(keyPEM(key))...),
	} {
		if err := secretfile.Write(file, text); err != nil {
			t.Fatal(err)
		}
		var bad *FileError
		if _, err := On(vfs.OS()).ReadKey(file); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want a FileError with %q", err, want)
		}
	}
	for name, text := range map[string][]byte{"no certificate": must(keyPEM(a.key)), "no key": trustIn(t, a).PEM(), "two certificates": append(must(a.PEM()), trustIn(t, a).PEM()...)} {
		if _, err := ParseAuthority(text); err == nil || !strings.Contains(err.Error(), "expected a private key and one certificate") {
			t.Errorf("an authority of %s: %v", name, err)
		}
	}
}

// TestErrorTexts: an error has the reason, the claimed subject and the cause, as far as present.
func TestErrorTexts(t *testing.T) {
	node := Peer{Kind: Node, Name: "n1", Cluster: "c1"}
	cause := errors.New("want node n2")
	for want, err := range map[string]error{
		"another node":                                               &PeerError{Why: ErrOtherNode},
		"another node: want node n2":                                 &PeerError{Why: ErrOtherNode, Detail: cause},
		"refused (claims to be node n1 of cluster c1)":               &PeerError{Why: ErrRefused, Claims: node},
		"refused (claims to be node n1 of cluster c1): want node n2": &PeerError{Why: ErrRefused, Claims: node, Detail: cause},
		"f: not a key":                                               &FileError{"f", "not a key", nil},
		"f: not a key: want node n2":                                 &FileError{"f", "not a key", cause},
	} {
		if got := err.Error(); got != want {
			t.Errorf("the text is %q, want %q", got, want)
		}
	}
	for err, want := range map[error]bool{
		&net.OpError{Op: "remote error", Err: cause}: true, &net.OpError{Op: "read", Err: io.EOF}: false, io.EOF: false,
	} {
		if IsAlert(err) != want {
			t.Errorf("%v is an alert: %v", err, !want)
		}
	}
	for kind, want := range map[Kind]string{Anonymous: "anonymous", Node: "node", Principal: "principal", 3: "unknown", 255: "unknown"} {
		if got := kind.String(); got != want {
			t.Errorf("kind %d is called %q, want %q", kind, got, want)
		}
	}
}

// TestDefaults: unset fields get the documented defaults, set fields are kept.
func TestDefaults(t *testing.T) {
	c := ListenerConfig{}.withDefaults()
	if c.HandshakeTimeout != 10*time.Second || c.HandshakesMax != 256 || c.StrangerLife != time.Minute || c.StrangersMax != 256 || c.NotTLS([]byte("x")) != nil {
		t.Errorf("the defaults are %+v", c)
	}
	c.Refused(nil, nil)
	c = ListenerConfig{
		HandshakeTimeout: 1, HandshakesMax: 2, StrangerLife: 3, StrangersMax: 4, NotTLS: func([]byte) []byte { return []byte("no") },
	}.withDefaults()
	if c.HandshakeTimeout != 1 || c.HandshakesMax != 2 || c.StrangerLife != 3 || c.StrangersMax != 4 || string(c.NotTLS(nil)) != "no" {
		t.Errorf("the configuration is %+v", c)
	}
	none := AnonymousCredential(trustIn(t, newAuthorityT(t, "c1")))
	if o := NewEndpoint(none, Options{}).opts; o.PrincipalConnsMax != 1024 || time.Since(o.Now()).Abs() > time.Minute {
		t.Errorf("an endpoint has %d connections for each principal, and its clock says %v", o.PrincipalConnsMax, o.Now())
	}
	if o := NewEndpoint(none, Options{Now: at(epoch).Now, PrincipalConnsMax: 5}).opts; o.PrincipalConnsMax != 5 || !o.Now().Equal(epoch) {
		t.Errorf("an endpoint has %d connections for each principal, and its clock says %v", o.PrincipalConnsMax, o.Now())
	}
}
