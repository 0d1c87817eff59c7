package keydir

import (
	"bytes"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/secretfile"
	"github.com/steledb/stele/security/pki"
)

var epoch = time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)

func inited(t *testing.T) (Dir, *Contents, *pki.Credential) {
	t.Helper()
	f := At(filepath.Join(t.TempDir(), "data", "security"))
	admin, err := f.Init("n1", []string{"host1", "10.0.0.1"}, epoch)
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	return f, c, admin
}

// joining returns what a cluster gives a node that joins.
func joining(t *testing.T, a *pki.Authority, node string) *Contents {
	t.Helper()
	c, err := issue(a, func(r []byte) (*x509.Certificate, error) { return a.SignNode(r, node, nil, epoch) })
	if err != nil {
		t.Fatal(err)
	}
	return &Contents{Credential: c, GossipKeys: [][]byte{bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)}}
}

func TestInit(t *testing.T) {
	f, c, admin := inited(t)
	if p := c.Credential.Peer(); p.Kind != pki.Node || p.Name != "n1" || len(p.Cluster) != 17 || p.Cluster != c.Authority.Cluster() {
		t.Errorf("the node is %+v", p)
	}
	if p := admin.Peer(); p.Kind != pki.Principal || p.Name != FirstPrincipal || p.Generation != 0 || p.Cluster != c.Authority.Cluster() {
		t.Errorf("the first principal is %+v", p)
	}
	if len(c.GossipKeys) != 1 || len(c.GossipKeys[0]) != 32 || bytes.Equal(c.GossipKeys[0], make([]byte, 32)) {
		t.Errorf("keys of gossip: %d", len(c.GossipKeys))
	}
	if trust, err := pki.ReadTrust(f.file(trustFile)); err != nil || trust.Cluster() != c.Authority.Cluster() {
		t.Errorf("%v, %v", trust, err)
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil || len(entries) != 4 {
		t.Errorf("files are %v, %v", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(f.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info.Mode(), err)
	}
	_, other, _ := inited(t)
	if other.Authority.Cluster() == c.Authority.Cluster() || other.Authority.Fingerprint() == c.Authority.Fingerprint() {
		t.Error("two clusters are one")
	}
}

// TestNothingIsReplaced: E2.
func TestNothingIsReplaced(t *testing.T) {
	f, c, _ := inited(t)
	try := func(what string, f Dir) {
		t.Helper()
		before := snapshot(t, f.dir)
		if _, err := f.Init("n1", nil, epoch); !errors.Is(err, ErrExists) {
			t.Errorf("%s: init: %v", what, err)
		}
		if err := f.Enrol(joining(t, c.Authority, "n1")); !errors.Is(err, ErrExists) {
			t.Errorf("%s: enrol: %v", what, err)
		}
		if snapshot(t, f.dir) != before {
			t.Errorf("%s: files were changed", what)
		}
	}
	try("all files", f)
	for _, keep := range []string{nodeFile, authorityFile} {
		g := At(t.TempDir())
		b, err := os.ReadFile(f.file(keep))
		if err != nil {
			t.Fatal(err)
		}
		if err := secretfile.Write(g.file(keep), b); err != nil {
			t.Fatal(err)
		}
		try(keep+" alone", g)
	}
	g := At(t.TempDir())
	if err := os.WriteFile(g.file("audit.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Init("n1", nil, epoch); err == nil {
		t.Error("a folder with other files was replaced")
	}
	if _, err := os.Stat(g.file("audit.log")); err != nil {
		t.Error(err)
	}
}

func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(e.Name() + "\n" + string(b))
	}
	return all.String()
}

// TestInterruptedInitAndEnrol: E1. The remains of an interrupted Init or Enrol are ignored and do
// not block another attempt.
func TestInterruptedInitAndEnrol(t *testing.T) {
	f := At(filepath.Join(t.TempDir(), "security"))
	half := Dir{dir: f.dir + ".new"}
	for _, name := range []string{authorityFile, ".node.pem123"} {
		if err := secretfile.Write(half.file(name), []byte("half")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Init("n1", nil, epoch); err != nil {
		t.Fatal(err)
	}
	c, err := f.Load()
	if err != nil || c.Authority == nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(half.dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", half.dir, err)
	}
	if entries, err := os.ReadDir(f.dir); err != nil || len(entries) != 4 {
		t.Errorf("files are %v, %v", entries, err)
	}

	// A failed Init leaves no directory.
	g := At(filepath.Join(t.TempDir(), "security"))
	if _, err := g.Init("a/b", nil, epoch); err == nil {
		t.Error("a node of a bad name")
	}
	if _, err := os.Stat(g.dir); !os.IsNotExist(err) {
		t.Errorf("%s is there: %v", g.dir, err)
	}

	// An interrupted Enrol left all files of another cluster except the last.
	other := joining(t, mustAuthority(t), "n2")
	if err := g.Enrol(other); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(g.NodeFile()); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Load(); !errors.Is(err, ErrNotEnrolled) {
		t.Errorf("without a credential: %v", err)
	}
	if err := g.Enrol(joining(t, c.Authority, "n2")); err != nil {
		t.Fatal(err)
	}
	if got, err := g.Load(); err != nil || got.Credential.Peer().Cluster != c.Authority.Cluster() || got.Authority != nil || len(got.GossipKeys) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

func mustAuthority(t *testing.T) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority("cother", epoch)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestIssuers(t *testing.T) {
	_, first, _ := inited(t)
	g := At(filepath.Join(t.TempDir(), "security"))
	if err := g.SetAuthority(first.Authority); err == nil {
		t.Error("a node without a credential became an issuer")
	}
	if err := g.Enrol(joining(t, first.Authority, "n2")); err != nil {
		t.Fatal(err)
	}
	if err := g.SetAuthority(mustAuthority(t)); err == nil {
		t.Error("another cluster's authority was accepted")
	}
	if err := g.SetAuthority(first.Authority); err != nil {
		t.Fatal(err)
	}
	c, err := g.Load()
	if err != nil || c.Authority == nil || c.Authority.Fingerprint() != first.Authority.Fingerprint() {
		t.Fatal(c, err)
	}
	if err := errors.Join(g.DropAuthority(), g.DropAuthority()); err != nil {
		t.Fatal(err)
	}
	if c, err := g.Load(); err != nil || c.Authority != nil {
		t.Error(c, err)
	}
}

// TestLoadRefuses: E3.
func TestLoadRefuses(t *testing.T) {
	if _, err := At(filepath.Join(t.TempDir(), "none")).Load(); !errors.Is(err, ErrNotEnrolled) {
		t.Errorf("no folder: %v", err)
	}
	_, other, _ := inited(t)
	for what, spoil := range map[string]func(Dir) error{
		"another cluster's authority": func(f Dir) error { return pki.WriteAuthority(f.file(authorityFile), other.Authority) },
		"an admin's credential":       func(f Dir) error { return pki.WriteCredential(f.NodeFile(), admin(t, other.Authority)) },
		"another cluster's credential": func(f Dir) error {
			return pki.WriteCredential(f.NodeFile(), other.Credential)
		},
		"no gossip key":      func(f Dir) error { return secretfile.Write(f.file(gossipFile), []byte("\n")) },
		"a short gossip key": func(f Dir) error { return secretfile.Write(f.file(gossipFile), []byte("00ff\n")) },
		"no digits":          func(f Dir) error { return secretfile.Write(f.file(gossipFile), []byte(strings.Repeat("xy", 32))) },
		"many gossip keys": func(f Dir) error {
			return secretfile.Write(f.file(gossipFile), []byte(strings.Repeat(strings.Repeat("0", 64)+"\n", 5)))
		},
		"no gossip file":         func(f Dir) error { return os.Remove(f.file(gossipFile)) },
		"garbage as authority":   func(f Dir) error { return secretfile.Write(f.file(authorityFile), []byte("x")) },
		"gossip key for all":     func(f Dir) error { return os.Chmod(f.file(gossipFile), 0o644) },
		"credential for all":     func(f Dir) error { return os.Chmod(f.NodeFile(), 0o604) },
		"authority for all":      func(f Dir) error { return os.Chmod(f.file(authorityFile), 0o644) },
		"credential is no file":  func(f Dir) error { return errors.Join(os.Remove(f.NodeFile()), os.Mkdir(f.NodeFile(), 0o700)) },
		"credential of no bytes": func(f Dir) error { return secretfile.Write(f.NodeFile(), nil) },
	} {
		f, _, _ := inited(t)
		if err := spoil(f); err != nil {
			t.Fatal(err)
		}
		c, err := f.Load()
		if err == nil || errors.Is(err, ErrNotEnrolled) || c != nil {
			t.Errorf("%s: %v, %v", what, c, err)
		} else if !strings.Contains(err.Error(), f.dir) {
			t.Errorf("%s: the error names no file: %v", what, err)
		}
	}
	f := At(filepath.Join(t.TempDir(), "security"))
	if err := f.Enrol(&Contents{Credential: admin(t, other.Authority), GossipKeys: other.GossipKeys}); err == nil {
		t.Error("enrolled with a principal's credential")
	}
	for _, keys := range [][][]byte{nil, {make([]byte, 31)}, make([][]byte, 5)} {
		if err := f.Enrol(&Contents{Credential: other.Credential, GossipKeys: keys}); err == nil {
			t.Errorf("enrolled with %d keys of gossip", len(keys))
		}
	}
	if _, err := f.Load(); !errors.Is(err, ErrNotEnrolled) {
		t.Errorf("after refusals: %v", err)
	}
}

func admin(t *testing.T, a *pki.Authority) *pki.Credential {
	t.Helper()
	c, err := issue(a, func(r []byte) (*x509.Certificate, error) { return a.SignPrincipal(r, "ann", 0, 0, epoch) })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestJoinKey: a host uses one join key until it is enrolled, also across restarts, and another one
// when it joins again.
func TestJoinKey(t *testing.T) {
	_, c, _ := inited(t)
	f := At(filepath.Join(t.TempDir(), "security"))
	hash := func() [32]byte {
		t.Helper()
		key, err := f.JoinKey()
		if err != nil {
			t.Fatal(err)
		}
		request, err := pki.NewRequest(key)
		if err != nil {
			t.Fatal(err)
		}
		h, err := pki.KeyHash(request)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	first := hash()
	if hash() != first {
		t.Error("asked twice, it has two keys")
	}
	if info, err := os.Stat(f.file(joinFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
	if err := f.Enrol(joining(t, c.Authority, "n2")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.file(joinFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is enrolled, and the key is still there: %v", err)
	}
	if hash() == first {
		t.Error("it joins again with the old key")
	}
	again := joining(t, c.Authority, "n2")
	if err := f.Renew(again); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Load(); err != nil || got.Credential.Peer().Serial != again.Credential.Peer().Serial {
		t.Errorf("after it has joined again: %v", err)
	}
	if _, err := os.Stat(f.file(joinFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has joined again, and the key is still there: %v", err)
	}
	_, other, _ := inited(t)
	for what, c := range map[string]*Contents{"another node": joining(t, c.Authority, "n3"), "another cluster": joining(t, other.Authority, "n2")} {
		if err := f.Renew(c); err == nil {
			t.Errorf("its credential was replaced by one of %s", what)
		}
	}
	if err := At(t.TempDir()).Renew(again); !errors.Is(err, ErrNotEnrolled) {
		t.Errorf("a node that is not enrolled is renewed: %v", err)
	}
	if err := os.WriteFile(f.file(joinFile), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.JoinKey(); err == nil || strings.Contains(err.Error(), "no key") {
		t.Errorf("a file that is no key: %v", err)
	}
}

// TestSealedKeys: with a passphrase no authority key is stored in the clear; Load encrypts one that
// is.
func TestSealedKeys(t *testing.T) {
	const passphrase = "correct horse battery"
	dir := filepath.Join(t.TempDir(), "keys")
	if _, err := At(dir).Init("n1", nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	sealed := At(dir).SealedBy(passphrase)
	c, err := sealed.Load()
	if err != nil {
		t.Fatal(err)
	}
	next, err := pki.NewAuthority(c.Authority.Cluster(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := sealed.SetNext(next); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.key", "ca.next.key"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(b), "BEGIN ENCRYPTED PRIVATE KEY") {
			t.Errorf("%s is in the clear: %v", name, err)
		}
	}
	again, err := sealed.Load()
	if err != nil || again.Authority.Fingerprint() != c.Authority.Fingerprint() || again.Next.Fingerprint() != next.Fingerprint() {
		t.Errorf("loaded again: %v", err)
	}
	if _, err := At(dir).Load(); !errors.Is(err, pki.ErrSealed) || !strings.Contains(err.Error(), "--authority-passphrase-file") {
		t.Errorf("without the passphrase: %v", err)
	}
	if _, err := At(dir).SealedBy("another passphrase").Load(); !errors.Is(err, pki.ErrPassphrase) {
		t.Errorf("with another: %v", err)
	}
	if err := errors.Join(sealed.DropNext(), sealed.DropAuthority()); err != nil {
		t.Fatal(err)
	}
	if c, err := At(dir).Load(); err != nil || c.Authority != nil || c.Next != nil {
		t.Errorf("without keys: %v", err)
	}
}

// TestMostGossipKeys: the maximum number of gossip keys round-trips; one more is rejected on write
// and on read.
func TestMostGossipKeys(t *testing.T) {
	var keys [][]byte
	for i := range gossipKeysMax {
		keys = append(keys, bytes.Repeat([]byte{byte(i)}, gossipKeyBytes))
	}
	b, err := formatGossipKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parseGossipKeys(b); err != nil || !slices.EqualFunc(got, keys, bytes.Equal) {
		t.Errorf("%d keys were read, %v", len(got), err)
	}
	if _, err := formatGossipKeys(append(keys, keys[0])); err == nil {
		t.Error("one key more was written")
	}
	if _, err := parseGossipKeys(append(b, b[:2*gossipKeyBytes+1]...)); err == nil || !strings.Contains(err.Error(), "64 hexadecimal digits") {
		t.Errorf("one key more: %v", err)
	}
}
