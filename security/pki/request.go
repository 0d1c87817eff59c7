package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
)

// requestBytesMax bounds a request. One for a supported key has about 200 bytes.
const requestBytesMax = 8 << 10

// RequestError means that a certificate request is not acceptable.
type RequestError struct{ Err error }

func (e *RequestError) Error() string { return fmt.Sprintf("certificate request: %v", e.Err) }

func (e *RequestError) Unwrap() error { return e.Err }

// NewRequest returns a certificate request for a key: PKCS #10, in DER. It proves possession of the
// key and contains nothing else; the signer decides the content of the certificate.
func NewRequest(key crypto.Signer) ([]byte, error) {
	b, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("create a certificate request: %w", err)
	}
	return b, nil
}

// KeyHash verifies a request's proof of possession and returns the SHA-256 of its public key.
// Errors: *RequestError.
func KeyHash(request []byte) ([sha256.Size]byte, error) {
	public, err := readRequest(request)
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return [sha256.Size]byte{}, &RequestError{err}
	}
	return sha256.Sum256(der), nil
}

// readRequest verifies a request and returns its public key.
func readRequest(request []byte) (any, error) {
	if len(request) > requestBytesMax {
		return nil, &RequestError{fmt.Errorf("%d bytes, at most %d", len(request), requestBytesMax)}
	}
	r, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, &RequestError{err}
	}
	if !goodKey(r.PublicKey) { // before the signature, because large RSA keys take long to verify
		return nil, &RequestError{errors.New("unsupported key: want ECDSA on P-256 or P-384, or Ed25519")}
	}
	if err := r.CheckSignature(); err != nil {
		return nil, &RequestError{err}
	}
	return r.PublicKey, nil
}
