package backupdir

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
)

// KeyBytes is the size of a key.
const KeyBytes = 32

const (
	sealMagic   = "STELEBKO"
	saltBytes   = 32
	headerBytes = int64(len(sealMagic)) + saltBytes
	chunkBytes  = 64 << 10
	tagBytes    = 16
	nonceBytes  = 12
	lastChunk   = 1 // the last byte of the nonce of the last chunk
	keyIDBytes  = 8

	namesInfo   = "stele backup names 1"
	contentInfo = "stele backup content 1"
	keyIDInfo   = "stele backup key id 1"
)

// Key encrypts a directory.
type Key struct {
	id      string // public
	names   []byte // of the HMAC that replaces hashes
	content []byte
}

// NewKey derives a key from a secret of KeyBytes.
func NewKey(secret []byte) (*Key, error) {
	if len(secret) != KeyBytes {
		return nil, fmt.Errorf("a key of backups has %d bytes, want %d", len(secret), KeyBytes)
	}
	k := &Key{}
	var id []byte
	for _, x := range []struct {
		to   *[]byte
		info string
		n    int
	}{{&id, keyIDInfo, keyIDBytes}, {&k.names, namesInfo, KeyBytes}, {&k.content, contentInfo, KeyBytes}} {
		b, err := hkdf.Key(sha256.New, secret, nil, x.info, x.n)
		if err != nil {
			return nil, err
		}
		*x.to = b
	}
	k.id = hex.EncodeToString(id)
	return k, nil
}

// hash returns the hash that names objects: SHA-256, or with a key its HMAC, which reveals nothing about the content.
func (k *Key) hash() hash.Hash {
	if k == nil {
		return sha256.New()
	}
	return hmac.New(sha256.New, k.names)
}

// sum returns the hash of p.
func (k *Key) sum(p []byte) string {
	h := k.hash()
	h.Write(p)
	return hex.EncodeToString(h.Sum(nil))
}

// ID returns the public id of a key, empty without one.
func (k *Key) ID() string {
	if k == nil {
		return ""
	}
	return k.id
}

// storedBytes returns the size of an object of n bytes of content.
func (k *Key) storedBytes(n int64) int64 {
	if k == nil {
		return n
	}
	return headerBytes + n + tagBytes*max(1, (n+chunkBytes-1)/chunkBytes)
}

// seal encrypts p as an object.
func (k *Key) seal(p []byte) ([]byte, error) {
	var out bytes.Buffer
	s, err := k.newSealer(&out)
	if err == nil {
		_, err = s.Write(p)
	}
	if err == nil {
		err = s.Close()
	}
	return out.Bytes(), err
}

// unseal decrypts an object.
func (k *Key) unseal(p []byte) ([]byte, error) {
	size := int64(len(p)) - headerBytes
	if size -= tagBytes * ((size + chunkBytes + tagBytes - 1) / (chunkBytes + tagBytes)); size < 0 || k.storedBytes(size) != int64(len(p)) {
		return nil, errSeal
	}
	u, err := k.newUnsealer(bytes.NewReader(p), size)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(u)
}

// aead returns the cipher of an object with that salt.
func (k *Key) aead(salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, k.content, salt, contentInfo, KeyBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// chunkNonce returns the nonce of a chunk.
func chunkNonce(i uint64, last bool) []byte {
	nonce := make([]byte, nonceBytes)
	binary.BigEndian.PutUint64(nonce[nonceBytes-1-8:], i)
	if last {
		nonce[nonceBytes-1] = lastChunk
	}
	return nonce
}

// sealer encrypts what is written to it. Close writes the last chunk.
type sealer struct {
	w     io.Writer
	aead  cipher.AEAD
	chunk []byte
	out   []byte
	i     uint64
}

// newSealer writes the header of an object to w.
func (k *Key) newSealer(w io.Writer) (*sealer, error) {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // it never fails
	return k.newSealerWith(w, salt)
}

func (k *Key) newSealerWith(w io.Writer, salt []byte) (*sealer, error) {
	aead, err := k.aead(salt)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(append([]byte(sealMagic), salt...)); err != nil {
		return nil, err
	}
	return &sealer{w: w, aead: aead, chunk: make([]byte, 0, chunkBytes)}, nil
}

// Write implements io.Writer. A full chunk waits for the next byte: it may be the last one.
func (s *sealer) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		if len(s.chunk) == chunkBytes {
			if err := s.seal(false); err != nil {
				return n, err
			}
		}
		m := min(len(p), chunkBytes-len(s.chunk))
		s.chunk = append(s.chunk, p[:m]...)
		p = p[m:]
		n += m
	}
	return n, nil
}

func (s *sealer) seal(last bool) error {
	if s.i == math.MaxUint64 {
		return errors.New("the object is too large to be encrypted")
	}
	s.out = s.aead.Seal(s.out[:0], chunkNonce(s.i, last), s.chunk, nil)
	s.i++
	s.chunk = s.chunk[:0]
	_, err := s.w.Write(s.out)
	return err
}

// Close writes the last chunk.
func (s *sealer) Close() error { return s.seal(true) }

// errSeal means that an encrypted object was changed, cut off, or exchanged.
var errSeal = errors.New("its encryption is not valid")

// unsealer decrypts an object.
type unsealer struct {
	r    io.Reader // of the chunks
	left int64     // bytes of content that follow
	aead cipher.AEAD
	i    uint64
	raw  []byte
	open []byte // decrypted, and not read yet
	end  bool
}

// newUnsealer reads the header of an object of size bytes of content.
func (k *Key) newUnsealer(r io.Reader, size int64) (*unsealer, error) {
	header := make([]byte, headerBytes)
	if err := readSealed(r, header); err != nil {
		return nil, err
	}
	if string(header[:len(sealMagic)]) != sealMagic {
		return nil, errSeal
	}
	aead, err := k.aead(header[len(sealMagic):])
	return &unsealer{r: r, left: size, aead: aead, raw: make([]byte, chunkBytes+tagBytes)}, err
}

// Read implements io.Reader. Bytes are returned only from chunks that are authentic.
func (u *unsealer) Read(p []byte) (int, error) {
	for len(u.open) == 0 {
		if u.end {
			return 0, io.EOF
		}
		n := min(u.left, chunkBytes)
		u.left -= n
		u.end = u.left == 0
		raw := u.raw[:n+tagBytes]
		err := readSealed(u.r, raw)
		if err != nil {
			return 0, err
		}
		if u.open, err = u.aead.Open(raw[:0], chunkNonce(u.i, u.end), raw, nil); err != nil {
			return 0, errSeal
		}
		u.i++
	}
	n := copy(p, u.open)
	u.open = u.open[n:]
	return n, nil
}

// readSealed fills p. The error is errSeal at the end of an object, else that of r.
func readSealed(r io.Reader, p []byte) error {
	_, err := io.ReadFull(r, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errSeal
	}
	return err
}
