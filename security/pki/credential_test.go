package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/secretfile"
)

var update = flag.Bool("update", false, "rewrite testdata")

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	a := newAuthorityT(t, "c1")
	c := nodeCredential(t, a, "n1", epoch)
	node, authority, trust := filepath.Join(dir, "node.pem"), filepath.Join(dir, "ca.key"), filepath.Join(dir, "ca.crt")
	if err := errors.Join(WriteCredential(node, c), WriteAuthority(authority, a), os.WriteFile(trust, c.Trust().PEM(), 0o644)); err != nil {
		t.Fatal(err)
	}
	c2, err := ReadCredential(node)
	if err != nil || c2.Peer() != c.Peer() || !c2.leaf.Equal(c.leaf) {
		t.Errorf("read %v, %v", c2, err)
	}
	a2, err := ReadAuthority(authority)
	if err != nil || a2.Fingerprint() != a.Fingerprint() || a2.Cluster() != "c1" {
		t.Fatalf("read %v, %v", a2, err)
	}
	if nodeCredential(t, a2, "n2", epoch).Trust().Cluster() != "c1" {
		t.Error("what was read does not sign")
	}
	if tr, err := ReadTrust(trust); err != nil || tr.Cluster() != "c1" {
		t.Errorf("read %v, %v", tr, err)
	}

	for _, name := range []string{node, authority} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		if err := os.Chmod(name, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var exposed *secretfile.ExposedError
	if _, err := ReadCredential(node); !errors.As(err, &exposed) || !strings.Contains(err.Error(), "chmod 600 "+node) {
		t.Errorf("a credential that all can read: %v", err)
	}
	if _, err := ReadAuthority(authority); !errors.As(err, &exposed) {
		t.Errorf("an authority that all can read: %v", err)
	}
}

// TestMismatchedFiles: files with mismatched content are rejected, and no error contains part of
// a key.
func TestMismatchedFiles(t *testing.T) {
	dir := t.TempDir()
	a, other := newAuthorityT(t, "c1"), newAuthorityT(t, "c2")
	c := nodeCredential(t, a, "n1", epoch)
	good, err := c.PEM()
	if err != nil {
		t.Fatal(err)
	}
	keyText, own, ca := cutPEM(t, good)
	stranger, _, otherCA := cutPEM(t, must(nodeCredential(t, other, "n1", epoch).PEM()))
	imposter := newAuthorityT(t, "c1")
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	weakDER, err := x509.MarshalPKCS8PrivateKey(weak)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "f")
	for what, text := range map[string]string{
		"nothing":                 "",
		"text":                    "hello",
		"no key":                  own + ca,
		"no certificate":          keyText,
		"no authority":            keyText + own,
		"another's key":           stranger + own + ca,
		"two keys":                keyText + keyText + own + ca,
		"another authority":       keyText + own + otherCA,
		"an impostor's":           keyText + own + string(trustIn(t, imposter).PEM()),
		"two clusters'":           keyText + own + ca + otherCA,
		"certificates the wrong":  keyText + ca + own,
		"text at the end":         keyText + own + ca + "x",
		"an RSA key":              string(pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: weakDER})) + own + ca,
		"key of an old form":      strings.ReplaceAll(keyText, pemKey, "EC PRIVATE KEY") + own + ca,
		"damaged":                 keyText[:60] + "!!!" + keyText[63:] + own + ca,
		"cut":                     string(good[:len(good)/2]),
		"many":                    keyText + own + strings.Repeat(ca, 5),
		"damaged in certificates": keyText + own[:100] + "AAAA" + own[104:] + ca,
	} {
		if err := secretfile.Write(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
		_, err := ReadCredential(file)
		var bad *FileError
		if !errors.As(err, &bad) || bad.File != file {
			t.Errorf("%s: %v, want a FileError", what, err)
			continue
		}
		for line := range strings.Lines(keyText) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "--") && strings.Contains(err.Error(), line[:min(16, len(line))]) {
				t.Errorf("%s: the error holds a part of the key: %v", what, err)
			}
		}
		if _, err := ReadAuthority(file); !errors.As(err, &bad) {
			t.Errorf("%s as an authority: %v, want a FileError", what, err)
		}
	}
	if err := secretfile.Write(file, []byte(keyText+ca)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAuthority(file); err == nil {
		t.Error("an authority with another key was accepted")
	}
	if _, err := NewTrust(a.Certificate(), other.Certificate()); err == nil {
		t.Error("authorities of two clusters are trusted together")
	}
	if _, err := ParseTrust([]byte(keyText + ca)); err == nil {
		t.Error("a key among the authorities was ignored")
	}
	if _, err := ParseTrust([]byte(own)); err == nil {
		t.Error("a node was accepted as an authority")
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func cutPEM(t *testing.T, b []byte) (key, own, ca string) {
	t.Helper()
	var parts []string
	for {
		block, rest := pem.Decode(b)
		if block == nil {
			break
		}
		parts, b = append(parts, string(pem.EncodeToMemory(block))), rest
	}
	if len(parts) != 3 {
		t.Fatalf("%d blocks", len(parts))
	}
	return parts[0], parts[1], parts[2]
}

// TestNothingPrintsKeys: K5.
func TestNothingPrintsKeys(t *testing.T) {
	a := newAuthorityT(t, "c1")
	c := nodeCredential(t, a, "n1", epoch)
	der, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "credential", c, "authority", a, "endpoint", NewEndpoint(c, Options{}))
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "credential", c, "authority", a, "endpoint", NewEndpoint(c, Options{}))
	all := log.String()
	for _, verb := range []string{"%v", "%+v", "%s", "%#v", "%q", "%x"} {
		all += fmt.Sprintf(verb, c) + fmt.Sprintf(verb, a) + fmt.Sprintf(verb, struct{ C *Credential }{c})
	}
	d := fmt.Sprint(c.key.(interface{ Bytes() ([]byte, error) }).Bytes())
	for _, secret := range []string{string(der), fmt.Sprintf("%x", der[36:60]), strings.Trim(strings.Fields(d)[0], "[") + " " + strings.Join(strings.Fields(d)[1:6], " ")} {
		if strings.Contains(all, secret) {
			t.Errorf("a key is in what is printed: %s", all)
		}
	}
	if !strings.Contains(all, "credential of node n1") {
		t.Error("the credential's subject is not printed")
	}
}

// TestOldFiles reads the files of the first version.
func TestOldFiles(t *testing.T) {
	files := map[string][]byte{}
	if *update {
		a := newAuthorityT(t, "c0123456789abcdef")
		files["authority.pem"] = append(must(keyPEM(a.key)), trustIn(t, a).PEM()...)
		files["node.pem"] = must(nodeCredential(t, a, "n1", epoch).PEM())
		files["principal.pem"] = must(principalCredential(t, a, "ann", epoch).PEM())
		files["trust.pem"] = trustIn(t, a, newAuthorityT(t, "c0123456789abcdef")).PEM()
		for name, b := range files {
			if err := os.WriteFile(filepath.Join("testdata", name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"authority.pem", "node.pem", "principal.pem", "trust.pem"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
	}
	authority := filepath.Join(dir, "authority.pem") // a checkout is readable by all
	if err := secretfile.Write(authority, files["authority.pem"]); err != nil {
		t.Fatal(err)
	}
	a, err := ReadAuthority(authority)
	if err != nil || a.Cluster() != "c0123456789abcdef" {
		t.Fatal(a, err)
	}
	for name, want := range map[string]string{"node.pem": "node n1", "principal.pem": "principal ann"} {
		c, err := ParseCredential(files[name])
		if err != nil || c.Peer().String() != want || FingerprintOf(c.Trust().Authorities()[0]) != a.Fingerprint() {
			t.Errorf("%s: %v, %v", name, c, err)
			continue
		}
		if again := must(c.PEM()); !bytes.Equal(again, files[name]) {
			t.Errorf("%s is written in another form:\n%s", name, again)
		}
	}
	if trust, err := ParseTrust(files["trust.pem"]); err != nil || len(trust.Authorities()) != 2 {
		t.Error(trust, err)
	}
}

func FuzzParseCredential(f *testing.F) {
	for _, name := range []string{"authority.pem", "node.pem", "principal.pem", "trust.pem"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseCredential(b); err == nil {
			if again, err := ParseCredential(must(c.PEM())); err != nil || again.Peer() != c.Peer() {
				t.Fatalf("%v is read again as %v, %v", c, again, err)
			}
		}
		if trust, err := ParseTrust(b); err == nil {
			if again, err := ParseTrust(trust.PEM()); err != nil || again.Cluster() != trust.Cluster() {
				t.Fatalf("trust is read again as %v, %v", again, err)
			}
		}
	})
}
