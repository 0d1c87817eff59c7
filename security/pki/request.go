package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
)

// requestBytesMax bounds a request: one for a key of ours has some 200 bytes.
const requestBytesMax = 8 << 10

// RequestError is about a request that no certificate is made for.
type RequestError struct{ Err error }

func (e *RequestError) Error() string { return fmt.Sprintf("request for a certificate: %v", e.Err) }

func (e *RequestError) Unwrap() error { return e.Err }

// NewRequest returns what is sent to have a certificate made for a key: a PKCS #10
// request, in DER. It proves that the sender has the key and says nothing else: who
// signs decides what stands in the certificate.
func NewRequest(key crypto.Signer) ([]byte, error) {
	b, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("make a request for a certificate: %w", err)
	}
	return b, nil
}

// KeyHash returns the SHA-256 of the public key that a request is for, once it is sure
// that its sender has the private one. Errors: *RequestError.
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

// readRequest returns the public key that a request is for.
func readRequest(request []byte) (any, error) {
	if len(request) > requestBytesMax {
		return nil, &RequestError{fmt.Errorf("%d bytes, at most %d are taken", len(request), requestBytesMax)}
	}
	r, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, &RequestError{err}
	}
	if !goodKey(r.PublicKey) { // before its signature: large RSA keys take long
		return nil, &RequestError{errors.New("want a key of ECDSA on P-256 or P-384, or of Ed25519")}
	}
	if err := r.CheckSignature(); err != nil {
		return nil, &RequestError{err}
	}
	return r.PublicKey, nil
}
