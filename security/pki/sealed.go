package pki

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
)

// pemSealed is a passphrase-encrypted private key: PKCS #8 with PBES2, PBKDF2 with HMAC-SHA-256,
// and AES-256-CBC. OpenSSL reads and writes it: "openssl pkey -in ca.key", "openssl pkcs8 -topk8
// -v2 aes-256-cbc -v2prf hmacWithSHA256".
const pemSealed = "ENCRYPTED PRIVATE KEY"

const (
	// sealedRounds is the OWASP recommendation for PBKDF2 with HMAC-SHA-256. It takes 0.2 s.
	sealedRounds = 600_000
	// sealedRoundsMax bounds the rounds of a file that is read: half a minute.
	sealedRoundsMax = 100 * sealedRounds
	sealedSaltBytes = 16
	// PassphraseBytesMin is the minimum length of a passphrase, in bytes.
	PassphraseBytesMin = 12
)

var (
	// ErrSealed means that a key is encrypted and no passphrase was given.
	ErrSealed = errors.New("key is encrypted by a passphrase")
	// ErrPassphrase means that the passphrase is wrong.
	ErrPassphrase = errors.New("wrong passphrase")
)

var (
	oidPBES2      = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}
	oidPBKDF2     = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}
	oidHMACSHA256 = asn1.ObjectIdentifier{1, 2, 840, 113549, 2, 9}
	oidAES256CBC  = asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 42}
)

// The structures of RFC 8018, appendix A.
type (
	sealedKey struct {
		Algorithm pkix.AlgorithmIdentifier
		Encrypted []byte
	}
	pbes2Params struct {
		KeyDerivation, Encryption pkix.AlgorithmIdentifier
	}
	pbkdf2Params struct {
		Salt      []byte
		Rounds    int
		KeyLength int                      `asn1:"optional"`
		PRF       pkix.AlgorithmIdentifier `asn1:"optional"`
	}
)

// seal encrypts a PKCS #8 private key.
func seal(der []byte, passphrase string) ([]byte, error) {
	salt, iv := make([]byte, sealedSaltBytes), make([]byte, aes.BlockSize)
	_, _ = rand.Read(salt) // never fails
	_, _ = rand.Read(iv)
	key, err := pbkdf2.Key(sha256.New, passphrase, salt, sealedRounds, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	pad := aes.BlockSize - len(der)%aes.BlockSize
	text := append(bytes.Clone(der), bytes.Repeat([]byte{byte(pad)}, pad)...)
	cipher.NewCBCEncrypter(block, iv).CryptBlocks(text, text)

	derivation, err := asn1.Marshal(pbkdf2Params{Salt: salt, Rounds: sealedRounds, PRF: pkix.AlgorithmIdentifier{Algorithm: oidHMACSHA256, Parameters: asn1.NullRawValue}})
	if err != nil {
		return nil, err
	}
	vector, err := asn1.Marshal(iv)
	if err != nil {
		return nil, err
	}
	params, err := asn1.Marshal(pbes2Params{
		KeyDerivation: pkix.AlgorithmIdentifier{Algorithm: oidPBKDF2, Parameters: asn1.RawValue{FullBytes: derivation}},
		Encryption:    pkix.AlgorithmIdentifier{Algorithm: oidAES256CBC, Parameters: asn1.RawValue{FullBytes: vector}},
	})
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(sealedKey{pkix.AlgorithmIdentifier{Algorithm: oidPBES2, Parameters: asn1.RawValue{FullBytes: params}}, text})
}

// unseal decrypts what seal returns. Errors: ErrPassphrase, and others for an unsupported form.
func unseal(der []byte, passphrase string) ([]byte, error) {
	var k sealedKey
	var p pbes2Params
	var d pbkdf2Params
	var iv []byte
	for _, step := range []struct {
		from func() []byte
		to   any
	}{
		{func() []byte { return der }, &k},
		{func() []byte { return k.Algorithm.Parameters.FullBytes }, &p},
		{func() []byte { return p.KeyDerivation.Parameters.FullBytes }, &d},
		{func() []byte { return p.Encryption.Parameters.FullBytes }, &iv},
	} {
		if rest, err := asn1.Unmarshal(step.from(), step.to); err != nil || len(rest) > 0 {
			return nil, errors.New("encrypted key is not PKCS #8")
		}
	}
	switch {
	case !k.Algorithm.Algorithm.Equal(oidPBES2), !p.KeyDerivation.Algorithm.Equal(oidPBKDF2), !d.PRF.Algorithm.Equal(oidHMACSHA256), !p.Encryption.Algorithm.Equal(oidAES256CBC):
		return nil, errors.New("unsupported encryption of the key: want PBES2 with PBKDF2, HMAC-SHA-256 and AES-256-CBC")
	case d.Rounds < 1 || d.Rounds > sealedRoundsMax:
		return nil, fmt.Errorf("encrypted key has %d rounds, want 1 to %d", d.Rounds, sealedRoundsMax)
	case len(iv) != aes.BlockSize || len(k.Encrypted) == 0 || len(k.Encrypted)%aes.BlockSize != 0:
		return nil, errors.New("encrypted key has the wrong length")
	}
	key, err := pbkdf2.Key(sha256.New, passphrase, d.Salt, d.Rounds, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	text := bytes.Clone(k.Encrypted)
	cipher.NewCBCDecrypter(block, iv).CryptBlocks(text, text)
	pad := int(text[len(text)-1])
	if pad < 1 || pad > aes.BlockSize || !bytes.Equal(text[len(text)-pad:], bytes.Repeat([]byte{byte(pad)}, pad)) {
		return nil, ErrPassphrase
	}
	return text[:len(text)-pad], nil
}

// CheckPassphrase returns an error if a passphrase is too short.
func CheckPassphrase(p string) error {
	if len(p) < PassphraseBytesMin {
		return fmt.Errorf("passphrase of the authority's key has %d bytes: want at least %d", len(p), PassphraseBytesMin)
	}
	return nil
}

// WriteSealedAuthority is WriteAuthority with the key encrypted with a passphrase, unless that is
// empty.
func (f Files) WriteSealedAuthority(file string, a *Authority, passphrase string) error {
	b, err := a.PEM()
	if err != nil || passphrase == "" {
		return errors.Join(err, f.secrets.Write(file, b))
	}
	block, rest := pem.Decode(b)
	if block == nil || block.Type != pemKey {
		return errors.New("BUG: an authority without a key")
	}
	if block.Bytes, err = seal(block.Bytes, passphrase); err != nil {
		return fmt.Errorf("encrypt the authority's key: %w", err)
	}
	block.Type = pemSealed
	return f.secrets.Write(file, append(pem.EncodeToMemory(block), rest...))
}

// ReadSealedAuthority is ReadAuthority for a key that may be encrypted. sealed reports whether it
// is. Errors: ErrSealed and ErrPassphrase in a *FileError, those of ReadAuthority.
func (f Files) ReadSealedAuthority(file, passphrase string) (a *Authority, sealed bool, err error) {
	b, err := f.secrets.Read(file)
	if err != nil {
		return nil, false, err
	}
	if block, rest := pem.Decode(b); block != nil && block.Type == pemSealed {
		if passphrase == "" {
			return nil, true, &FileError{file, "it cannot be read", ErrSealed}
		}
		der, err := unseal(block.Bytes, passphrase)
		if err != nil {
			return nil, true, &FileError{file, "it cannot be decrypted", err}
		}
		sealed, b = true, append(pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), rest...)
	}
	if a, err = ParseAuthority(b); err != nil {
		if sealed { // a wrong passphrase yields valid padding once in 256 times
			return nil, true, &FileError{file, "it cannot be decrypted", ErrPassphrase}
		}
		return nil, false, &FileError{file, "not an authority", err}
	}
	return a, sealed, nil
}
