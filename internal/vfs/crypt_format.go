package vfs

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/steledb/stele/internal/crc"
)

// The layout of encrypted files is specified in the package comment.
const (
	cryptMagic       = "STELEENC"
	cryptVersion     = 1
	cryptHeaderBytes = 4096
	cryptCopyBytes   = 64
	cryptSecondCopy  = 2048
	cryptClearBytes  = 4096
	cryptUnitBytes   = 4096
	cryptNonceBytes  = 12
	cryptTagBytes    = 16
	cryptSlotBytes   = cryptNonceBytes + cryptUnitBytes + cryptTagBytes
	cryptExtraBytes  = cryptSlotBytes - cryptUnitBytes
	cryptSaltBytes   = 32
	cryptKeyInfo     = "stele file key 1"
)

// DataKeyBytes is the length of a data key: AES-256.
const DataKeyBytes = 32

// DataKey is a key from which the keys of files are derived.
type DataKey struct {
	Number uint32 // never 0; stored in the header of files
	Secret [DataKeyBytes]byte
}

// DamageError locates bytes of an encrypted file that fail authentication.
type DamageError struct {
	File   string
	Offset int64 // of the file's plaintext
	Reason string
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged at offset %d: %s", e.File, e.Offset, e.Reason)
}

// cryptHeader identifies the key of one file.
type cryptHeader struct {
	key  uint32
	salt [cryptSaltBytes]byte
}

// newCryptHeader returns the header of a new file.
func newCryptHeader(key uint32) cryptHeader {
	h := cryptHeader{key: key}
	rand.Read(h.salt[:])
	return h
}

// encode fills a page with two copies of the header.
func (h cryptHeader) encode(page []byte) {
	clear(page)
	le := binary.LittleEndian
	copy(page, cryptMagic)
	le.PutUint32(page[8:], cryptVersion)
	le.PutUint32(page[12:], h.key)
	copy(page[16:], h.salt[:])
	le.PutUint32(page[cryptCopyBytes-4:], crc.Sum(page[:cryptCopyBytes-4]))
	copy(page[cryptSecondCopy:], page[:cryptCopyBytes])
}

// decodeCryptHeader returns the first intact copy of the header.
func decodeCryptHeader(page []byte, file string) (cryptHeader, error) {
	h, err := decodeCryptCopy(page[:cryptCopyBytes], file)
	if err == nil {
		return h, nil
	}
	if h, errSecond := decodeCryptCopy(page[cryptSecondCopy:][:cryptCopyBytes], file); errSecond == nil {
		return h, nil
	}
	return cryptHeader{}, err
}

func decodeCryptCopy(b []byte, file string) (cryptHeader, error) {
	le := binary.LittleEndian
	if string(b[:8]) != cryptMagic {
		return cryptHeader{}, &DamageError{File: file, Reason: "not an encrypted file: wrong magic"}
	}
	if got, want := crc.Sum(b[:cryptCopyBytes-4]), le.Uint32(b[cryptCopyBytes-4:]); got != want {
		return cryptHeader{}, &DamageError{File: file, Reason: fmt.Sprintf("encryption header has checksum %08x, want %08x", got, want)}
	}
	if v := le.Uint32(b[8:]); v != cryptVersion {
		return cryptHeader{}, &DamageError{File: file, Reason: fmt.Sprintf("unknown encryption version %d", v)}
	}
	return cryptHeader{key: le.Uint32(b[12:]), salt: [cryptSaltBytes]byte(b[16:])}, nil
}

// aead returns the cipher of the file with header h.
func (h cryptHeader) aead(secret *[DataKeyBytes]byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret[:], h.salt[:], cryptKeyInfo, DataKeyBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// cryptStored converts a plaintext offset to the offset in the stored file, if off is in the clear
// page or starts a unit. It also converts a plaintext size to the stored size.
func cryptStored(off int64) int64 {
	if off <= cryptClearBytes {
		return cryptHeaderBytes + off
	}
	n := off - cryptClearBytes
	stored := cryptHeaderBytes + cryptClearBytes + n/cryptUnitBytes*cryptSlotBytes
	if rest := n % cryptUnitBytes; rest > 0 {
		stored += rest + cryptExtraBytes
	}
	return stored
}

// cryptPlain converts a stored size to the plaintext size. A final slot too short to hold data is
// ignored.
func cryptPlain(stored int64) int64 {
	n := stored - cryptHeaderBytes
	if n <= cryptClearBytes {
		return max(n, 0)
	}
	n -= cryptClearBytes
	plain := cryptClearBytes + n/cryptSlotBytes*cryptUnitBytes
	return plain + max(n%cryptSlotBytes-cryptExtraBytes, 0)
}
