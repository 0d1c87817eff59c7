package pki

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSealedAuthority: a key that a passphrase encrypts is read with that alone, by OpenSSL as well, and is not in the file.
func TestSealedAuthority(t *testing.T) {
	a := newAuthorityT(t, "c1")
	file := filepath.Join(t.TempDir(), "ca.key")
	const passphrase = "correct horse battery"
	if err := WriteSealedAuthority(file, a, passphrase); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil || !bytes.HasPrefix(b, []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")) || bytes.Contains(b, []byte("BEGIN PRIVATE KEY")) {
		t.Fatalf("the file is %s, %v", b, err)
	}
	again, sealed, err := ReadSealedAuthority(file, passphrase)
	if err != nil || !sealed || again.Fingerprint() != a.Fingerprint() {
		t.Errorf("read again: %v, %v", sealed, err)
	}
	if _, sealed, err := ReadSealedAuthority(file, ""); !sealed || !errors.Is(err, ErrSealed) {
		t.Errorf("without the passphrase: %v", err)
	}
	if _, _, err := ReadSealedAuthority(file, passphrase+"x"); !errors.Is(err, ErrPassphrase) {
		t.Errorf("with another passphrase: %v", err)
	}
	if _, err := ReadAuthority(file); !errors.Is(err, ErrSealed) {
		t.Errorf("as a plain key: %v", err)
	}
	if openssl, err := exec.LookPath("openssl"); err == nil {
		out, err := exec.CommandContext(t.Context(), openssl, "pkey", "-in", file, "-passin", "pass:"+passphrase, "-noout", "-text").CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("prime256v1")) {
			t.Errorf("openssl reads %s, %v", out, err)
		}
	}
	if err := CheckPassphrase("twelve bytes"); err != nil {
		t.Error(err)
	}
	if CheckPassphrase("eleven byte") == nil {
		t.Error("a short passphrase was taken")
	}
}

// TestSealedLengths: keys with the least padding and with the most are read again.
func TestSealedLengths(t *testing.T) {
	for _, n := range []int{15, 16} {
		text := bytes.Repeat([]byte{0x10}, n)
		sealed, err := seal(text, "x")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := unseal(sealed, "x"); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%d bytes are read as %x, %v", n, got, err)
		}
	}
}

// TestSealedGarbage: what is no encrypted key is an error, and takes no time.
func TestSealedGarbage(t *testing.T) {
	good, err := seal([]byte("a key"), "x")
	if err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := unseal(good[:n], "x"); err == nil {
			t.Errorf("the first %d bytes are taken for a key", n)
		}
	}
	if _, err := unseal(append(bytes.Clone(good), 0), "x"); err == nil {
		t.Error("a byte more is taken for a key")
	}
}
