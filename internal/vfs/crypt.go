package vfs

import (
	"fmt"
	"io"
	"time"
)

// Crypt is an FS that encrypts the contents of files of another FS. Names and sizes are not hidden.
// Its sizes and offsets are those of the plaintext.
type Crypt struct {
	inner   FS
	keys    map[uint32]*[DataKeyBytes]byte
	newest  uint32
	applies func(name string) bool
	reads   cryptCallers
	writes  cryptCallers
}

// NewCrypt returns a Crypt on top of inner. It encrypts files for which applies returns true and
// passes others through. New files use the key with the highest number. At least one key is
// required.
func NewCrypt(inner FS, keys []DataKey, applies func(name string) bool) *Crypt {
	c := &Crypt{inner: inner, keys: map[uint32]*[DataKeyBytes]byte{}, applies: applies,
		reads: make(cryptCallers, cryptCalls), writes: make(cryptCallers, cryptCalls)}
	for _, k := range keys {
		c.keys[k.Number] = &k.Secret
		c.newest = max(c.newest, k.Number)
	}
	return c
}

// Create implements FS.
func (c *Crypt) Create(name string) (File, error) {
	file, err := c.inner.Create(name)
	if err != nil || !c.applies(name) {
		return file, err
	}
	h := newCryptHeader(c.newest)
	page := make([]byte, cryptHeaderBytes)
	h.encode(page)
	if _, err := file.WriteAt(page, 0); err != nil {
		file.Close()
		if IsDiskFull(err) { // after any other error, do not touch the disk again
			_ = c.inner.Remove(name)
		}
		return nil, err
	}
	return c.wrap(file, h, name)
}

// Open implements FS.
func (c *Crypt) Open(name string) (File, error) { return c.open(name, c.inner.Open) }

// OpenRead implements FS.
func (c *Crypt) OpenRead(name string) (File, error) { return c.open(name, c.inner.OpenRead) }

func (c *Crypt) open(name string, open func(string) (File, error)) (File, error) {
	file, err := open(name)
	if err != nil || !c.applies(name) {
		return file, err
	}
	h, err := headerOf(file, name)
	if err != nil {
		file.Close()
		return nil, err
	}
	return c.wrap(file, h, name)
}

func (c *Crypt) wrap(file File, h cryptHeader, name string) (File, error) {
	secret := c.keys[h.key]
	if secret == nil {
		file.Close()
		return nil, &DamageError{File: name, Reason: fmt.Sprintf("unknown data key %d", h.key)}
	}
	aead, err := h.aead(secret)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &cryptFile{inner: file, name: name, aead: aead, reads: c.reads, writes: c.writes, size: -1}, nil
}

// HasOldKey reports whether a file is encrypted with an older data key than new files of fsys. It
// returns false if fsys is not a Crypt.
func HasOldKey(fsys FS, name string) (bool, error) {
	c, ok := fsys.(*Crypt)
	if !ok || len(c.keys) == 1 || !c.applies(name) {
		return false, nil
	}
	h, err := readHeader(c.inner, name)
	return h.key != c.newest, err
}

// IsEncrypted reports whether a file of fsys, which is not a Crypt, has an intact encryption
// header.
func IsEncrypted(fsys FS, name string) bool {
	_, err := readHeader(fsys, name)
	return err == nil
}

func readHeader(inner FS, name string) (cryptHeader, error) {
	file, err := inner.OpenRead(name)
	if err != nil {
		return cryptHeader{}, err
	}
	defer file.Close()
	return headerOf(file, name)
}

func headerOf(file File, name string) (cryptHeader, error) {
	page := make([]byte, cryptSecondCopy+cryptCopyBytes)
	if n, err := file.ReadAt(page, 0); n < len(page) {
		if err == io.EOF {
			err = &DamageError{File: name, Reason: "the file ends before its encryption header"}
		}
		return cryptHeader{}, err
	}
	return decodeCryptHeader(page, name)
}

// Remove implements FS.
func (c *Crypt) Remove(name string) error { return c.inner.Remove(name) }

func (c *Crypt) removeLater(name string) (free func(pause func(took time.Duration)), err error) {
	return RemoveLater(c.inner, name)
}

// Rename implements FS. Both names must be encrypted, or neither.
func (c *Crypt) Rename(oldName, newName string) error { return c.inner.Rename(oldName, newName) }

// MkdirAll implements FS.
func (c *Crypt) MkdirAll(dir string) error { return c.inner.MkdirAll(dir) }

// ReadDir implements FS.
func (c *Crypt) ReadDir(dir string) ([]string, error) { return c.inner.ReadDir(dir) }

// Stat implements FS. The size is that of the plaintext.
func (c *Crypt) Stat(name string) (size int64, mod time.Time, err error) {
	size, mod, err = c.inner.Stat(name)
	if err == nil && c.applies(name) {
		size = cryptPlain(size)
	}
	return size, mod, err
}

// SyncDir implements FS.
func (c *Crypt) SyncDir(dir string) error { return c.inner.SyncDir(dir) }

// FreeBytes implements FS. It returns plaintext bytes and ignores the headers of files.
func (c *Crypt) FreeBytes(dir string) (int64, error) {
	d, err := c.Disk(dir)
	return d.FreeBytes, err
}

// Disk implements Disks, in bytes of plaintext, as FreeBytes.
func (c *Crypt) Disk(dir string) (Disk, error) {
	d, err := DiskOf(c.inner, dir)
	d.TotalBytes = d.TotalBytes / cryptSlotBytes * cryptUnitBytes
	d.FreeBytes = d.FreeBytes / cryptSlotBytes * cryptUnitBytes
	return d, err
}

func (c *Crypt) sameFile(a, b string) bool { return SameFile(c.inner, a, b) }

// Lock implements Locker if the inner FS does. Otherwise it returns a lock that excludes no other
// process.
func (c *Crypt) Lock(name string) (io.Closer, error) {
	if l, ok := c.inner.(Locker); ok {
		return l.Lock(name)
	}
	return io.NopCloser(nil), nil
}
