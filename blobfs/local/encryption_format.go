package local

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/vfs"
)

// The package comment specifies the layout of the key file.
const (
	keyFileMagic   = "STELEKEY"
	keyFileVersion = 1
	keyFileHeader  = 16
	wrappedBytes   = 80
	// dataKeysMax is the maximum number of data keys in a folder: as many as fit a page.
	dataKeysMax = (pageBytes - 4 - keyFileHeader) / wrappedBytes

	masterKeyInfo = "stele master key id 1"
)

// MasterKeyBytes is the length of a master key: AES-256.
const MasterKeyBytes = 32

// EncryptionMemory is the maximum memory for the buffers of an encrypted folder, in bytes.
const EncryptionMemory = vfs.CryptMemory

// MasterKey wraps the data keys of folders. It is never stored in the folders.
type MasterKey [MasterKeyBytes]byte

// MasterKeyID identifies a master key without revealing it.
type MasterKeyID [8]byte

// String returns the ID in hexadecimal.
func (id MasterKeyID) String() string { return hex.EncodeToString(id[:]) }

// ID returns the key's ID.
func (k MasterKey) ID() MasterKeyID {
	b, err := hkdf.Key(sha256.New, k[:], nil, masterKeyInfo, len(MasterKeyID{}))
	if err != nil {
		panic("BUG: " + err.Error()) // the length is constant
	}
	return MasterKeyID(b)
}

func (k MasterKey) aead() cipher.AEAD {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		panic("BUG: " + err.Error()) // the length is constant
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return aead
}

// keyFile is the content of a key file.
type keyFile []wrappedKey

// wrappedKey is a data key encrypted by a master key.
type wrappedKey struct {
	number uint32
	master MasterKeyID
	nonce  [12]byte
	sealed [vfs.DataKeyBytes + 16]byte
}

func newDataKey(number uint32) vfs.DataKey {
	k := vfs.DataKey{Number: number}
	rand.Read(k.Secret[:])
	return k
}

func wrapKeys(keys []vfs.DataKey, master MasterKey) (f keyFile) {
	for _, k := range keys {
		w := wrappedKey{number: k.Number, master: master.ID()}
		rand.Read(w.nonce[:])
		f = append(f, w.seal(k, master))
	}
	return f
}

func (w wrappedKey) seal(k vfs.DataKey, master MasterKey) wrappedKey {
	master.aead().Seal(w.sealed[:0], w.nonce[:], k.Secret[:], w.about())
	return w
}

// about returns the additional data that the master key authenticates.
func (w *wrappedKey) about() []byte {
	return append(binary.LittleEndian.AppendUint32([]byte(keyFileMagic), w.number), w.master[:]...)
}

// unwrap returns the data keys that masters can unwrap, and the ids of the missing master keys for
// the others.
func (f keyFile) unwrap(masters []MasterKey) (keys []vfs.DataKey, missing []MasterKeyID) {
	for _, w := range f {
		k := vfs.DataKey{Number: w.number}
		i := slices.IndexFunc(masters, func(m MasterKey) bool { return m.ID() == w.master })
		if i >= 0 {
			if _, err := masters[i].aead().Open(k.Secret[:0], w.nonce[:], w.sealed[:], w.about()); err != nil {
				i = -1
			}
		}
		if i < 0 {
			if !slices.Contains(missing, w.master) {
				missing = append(missing, w.master)
			}
			continue
		}
		keys = append(keys, k)
	}
	return keys, missing
}

// staleFor reports whether any key is not wrapped by master.
func (f keyFile) staleFor(master MasterKey) bool {
	id := master.ID()
	return slices.ContainsFunc(f, func(w wrappedKey) bool { return w.master != id })
}

// encode returns the file: two copies of one page.
func (f keyFile) encode() []byte {
	b := make([]byte, pageBytes, 2*pageBytes)
	le := binary.LittleEndian
	copy(b, keyFileMagic)
	le.PutUint32(b[8:], keyFileVersion)
	le.PutUint32(b[12:], uint32(len(f)))
	for i, w := range f {
		r := b[keyFileHeader+i*wrappedBytes:]
		le.PutUint32(r, w.number)
		copy(r[8:], w.master[:])
		copy(r[16:], w.nonce[:])
		copy(r[28:], w.sealed[:])
	}
	le.PutUint32(b[pageBytes-4:], crc.Sum(b[:pageBytes-4]))
	return append(b, b...)
}

// readKeyFile returns the first valid copy. Errors are fs.ErrNotExist and *CorruptError.
func readKeyFile(fsys vfs.FS, name string) (keyFile, error) {
	a, b, err := readKeyCopies(fsys, name)
	if err != nil {
		return nil, err
	}
	keys, err := decodeKeyCopy(a, name, 0)
	if err != nil {
		if second, errSecond := decodeKeyCopy(b, name, pageBytes); errSecond == nil {
			return second, nil
		}
	}
	return keys, err
}

func readKeyCopies(fsys vfs.FS, name string) (a, b []byte, err error) {
	file, err := fsys.OpenRead(name)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	pages := make([]byte, 2*pageBytes)
	size, err := file.Size()
	if err != nil {
		return nil, nil, err
	}
	if size != int64(len(pages)) {
		return nil, nil, &CorruptError{File: name, Offset: min(size, int64(len(pages))), Reason: fmt.Sprintf("key file has %d bytes, want %d", size, len(pages))}
	}
	if _, err := readFull(file, pages, 0); err != nil {
		return nil, nil, readError(err, name, 0)
	}
	return pages[:pageBytes], pages[pageBytes:], nil
}

func decodeKeyCopy(b []byte, name string, at int64) (keyFile, error) {
	le := binary.LittleEndian
	if got, want := crc.Sum(b[:pageBytes-4]), le.Uint32(b[pageBytes-4:]); got != want {
		return nil, &CorruptError{File: name, Offset: at, Got: got, Want: want}
	}
	n := le.Uint32(b[12:])
	if v := le.Uint32(b[8:]); string(b[:8]) != keyFileMagic || v != keyFileVersion || n == 0 || n > dataKeysMax {
		return nil, &CorruptError{File: name, Offset: at, Reason: fmt.Sprintf("unknown key file version %d, or bad number of keys %d", v, n)}
	}
	f := make(keyFile, n)
	for i := range f {
		r := b[keyFileHeader+i*wrappedBytes:]
		f[i] = wrappedKey{number: le.Uint32(r), master: MasterKeyID(r[8:16]), nonce: [12]byte(r[16:28]), sealed: [48]byte(r[28:76])}
	}
	return f, nil
}
