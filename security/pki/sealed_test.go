package pki

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/vfs"
)

// TestSealedAuthority: an encrypted key is read only with its passphrase, also by OpenSSL, and is
// not in the file in the clear.
func TestSealedAuthority(t *testing.T) {
	a := newAuthorityT(t, "c1")
	file := filepath.Join(t.TempDir(), "ca.key")
	const passphrase = "correct horse battery"
	if err := On(vfs.OS()).WriteSealedAuthority(file, a, passphrase); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil || !bytes.HasPrefix(b, []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\n")) || bytes.Contains(b, []byte("BEGIN PRIVATE KEY")) {
		t.Fatalf("the file is %s, %v", b, err)
	}
	again, sealed, err := On(vfs.OS()).ReadSealedAuthority(file, passphrase)
	if err != nil || !sealed || again.Fingerprint() != a.Fingerprint() {
		t.Errorf("read again: %v, %v", sealed, err)
	}
	if _, sealed, err := On(vfs.OS()).ReadSealedAuthority(file, ""); !sealed || !errors.Is(err, ErrSealed) {
		t.Errorf("without the passphrase: %v", err)
	}
	if _, _, err := On(vfs.OS()).ReadSealedAuthority(file, passphrase+"x"); !errors.Is(err, ErrPassphrase) {
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
		t.Error("a short passphrase was accepted")
	}
}

// TestSealedLengths: keys with the minimum and the maximum padding round-trip.
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

// TestSealedGarbage: malformed input is rejected quickly.
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

// sealing is the content of an encrypted key, with few rounds.
type sealing struct {
	scheme, derivation, prf, encryption asn1.ObjectIdentifier
	rounds                              int
	iv                                  []byte
	encrypted                           []byte // nil: text under the passphrase "x"
	text                                []byte // with its padding
}

func (s *sealing) der(t *testing.T) []byte {
	t.Helper()
	encode := func(v any) []byte {
		t.Helper()
		b, err := asn1.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	salt := []byte("salt")
	if s.encrypted == nil {
		key, err := pbkdf2.Key(sha256.New, "x", salt, s.rounds, 32)
		if err != nil {
			t.Fatal(err)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			t.Fatal(err)
		}
		s.encrypted = bytes.Clone(s.text)
		cipher.NewCBCEncrypter(block, s.iv).CryptBlocks(s.encrypted, s.encrypted)
	}
	derivation := encode(pbkdf2Params{Salt: salt, Rounds: s.rounds, PRF: pkix.AlgorithmIdentifier{Algorithm: s.prf, Parameters: asn1.NullRawValue}})
	params := encode(pbes2Params{
		KeyDerivation: pkix.AlgorithmIdentifier{Algorithm: s.derivation, Parameters: asn1.RawValue{FullBytes: derivation}},
		Encryption:    pkix.AlgorithmIdentifier{Algorithm: s.encryption, Parameters: asn1.RawValue{FullBytes: encode(s.iv)}},
	})
	return encode(sealedKey{pkix.AlgorithmIdentifier{Algorithm: s.scheme, Parameters: asn1.RawValue{FullBytes: params}}, s.encrypted})
}

// TestSealedForms: an unsupported algorithm, number of rounds or length is rejected with the
// reason. Wrong padding is reported as a wrong passphrase.
func TestSealedForms(t *testing.T) {
	pad := func(n int, with byte, text int) []byte {
		return append(bytes.Repeat([]byte{'k'}, text), bytes.Repeat([]byte{with}, n)...)
	}
	const algorithm, rounds, length, passphrase = "unsupported encryption", "rounds, want 1 to", "wrong length", "wrong passphrase"
	other := asn1.ObjectIdentifier{1, 2, 3}
	for name, c := range map[string]struct {
		change func(s *sealing)
		want   string // part of the error; empty for none
	}{
		"good":                  {func(*sealing) {}, ""},
		"another scheme":        {func(s *sealing) { s.scheme = other }, algorithm},
		"another derivation":    {func(s *sealing) { s.derivation = other }, algorithm},
		"another hash":          {func(s *sealing) { s.prf = other }, algorithm},
		"another cipher":        {func(s *sealing) { s.encryption = other }, algorithm},
		"no rounds":             {func(s *sealing) { s.encrypted, s.rounds = make([]byte, 16), 0 }, rounds},
		"fewer rounds":          {func(s *sealing) { s.encrypted, s.rounds = make([]byte, 16), -1 }, rounds},
		"too many rounds":       {func(s *sealing) { s.encrypted, s.rounds = make([]byte, 16), sealedRoundsMax+1 }, rounds},
		"a short vector":        {func(s *sealing) { s.encrypted, s.iv = make([]byte, 16), s.iv[1:] }, length},
		"nothing":               {func(s *sealing) { s.encrypted = []byte{} }, length},
		"a part of a block":     {func(s *sealing) { s.encrypted = make([]byte, 17) }, length},
		"a padding of 1":        {func(s *sealing) { s.text = pad(1, 1, 15) }, ""},
		"a padding of 16":       {func(s *sealing) { s.text = pad(16, 16, 16) }, ""},
		"a padding of 16 alone": {func(s *sealing) { s.text = pad(16, 16, 0) }, ""},
		"a padding of 0":        {func(s *sealing) { s.text = pad(1, 0, 15) }, passphrase},
		"a padding of 17":       {func(s *sealing) { s.text = pad(17, 17, 15) }, passphrase},
		"an uneven padding":     {func(s *sealing) { s.text = append(pad(1, 1, 14), 2) }, passphrase},
	} {
		s := &sealing{oidPBES2, oidPBKDF2, oidHMACSHA256, oidAES256CBC, 1, make([]byte, aes.BlockSize), nil, pad(4, 4, 12)}
		c.change(s)
		got, err := unseal(s.der(t), "x")
		switch {
		case c.want == "":
			if want := bytes.TrimRight(s.text, "\x01\x04\x10"); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: read as %q, %v, want %q", name, got, err, want)
			}
		case err == nil || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
}
