package vfs

import (
	"bytes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"io"
	"sync"
	"unsafe"
)

// cryptStep is the number of slots in one read or write of the inner file. 64 KiB at any offset fit
// in it.
const cryptStep = 17

// cryptScratch is the scratch memory of one read or write.
type cryptScratch struct {
	stored [cryptClearBytes + cryptStep*cryptSlotBytes + cryptHeaderBytes]byte // with padding
	unit   [cryptUnitBytes]byte
	old    [cryptSlotBytes]byte              // stored slot that is partly overwritten
	nonces [cryptStep * cryptNonceBytes]byte // random, for the slots of one write
	index  [8]byte                           // additional data: number of the slot
}

// cryptCalls bounds the concurrent reads of a Crypt's files, and separately its concurrent writes,
// because each call has a cryptScratch. The limits are separate so that log appends do not queue
// behind reads.
const cryptCalls = 16

// CryptMemory is the maximum memory of the buffers of one Crypt, in bytes.
const CryptMemory = 2 * cryptCalls * int64(unsafe.Sizeof(cryptScratch{}))

// cryptCallers is a semaphore for calls with a cryptScratch.
type cryptCallers chan struct{}

func (c cryptCallers) enter() *cryptScratch {
	c <- struct{}{}
	return cryptPool.Get().(*cryptScratch)
}

func (c cryptCallers) leave(s *cryptScratch) {
	cryptPool.Put(s)
	<-c
}

var (
	cryptPool  = sync.Pool{New: func() any { return new(cryptScratch) }}
	cryptZeros [cryptSlotBytes]byte
)

// cryptFile is an open encrypted file. Only one handle at a time may change the size.
type cryptFile struct {
	inner  File
	name   string
	aead   cipher.AEAD
	reads  cryptCallers
	writes cryptCallers

	// mu serializes changes of the file through this handle. It is held across I/O.
	mu sync.Mutex
	// size is the plaintext size as changed by this handle, or -1 if unknown. Guarded by mu.
	size int64
	// stable makes WriteAt keep units that already hold the same plaintext. Guarded by mu.
	stable bool
}

// seal appends the slot of a unit. The caller must not pass a nonce twice.
func (f *cryptFile) seal(b []byte, s *cryptScratch, index int64, nonce, unit []byte) []byte {
	binary.LittleEndian.PutUint64(s.index[:], uint64(index))
	b = append(b, nonce...)
	return f.aead.Seal(b, nonce, unit, s.index[:])
}

// open decrypts a slot into dst, which has the length of the unit. Slots that were never written
// are all zeros.
func (f *cryptFile) open(dst []byte, s *cryptScratch, index int64, slot []byte) bool {
	if bytes.Equal(slot[:cryptNonceBytes], cryptZeros[:cryptNonceBytes]) && bytes.Equal(slot, cryptZeros[:len(slot)]) {
		clear(dst)
		return true
	}
	binary.LittleEndian.PutUint64(s.index[:], uint64(index))
	_, err := f.aead.Open(dst[:0], slot[:cryptNonceBytes], slot[cryptNonceBytes:], s.index[:])
	return err == nil
}

// unitStart returns the offset of a slot's unit in the plaintext, and slotStart the offset of the
// slot in the stored file.
func unitStart(index int64) int64 { return cryptClearBytes + index*cryptUnitBytes }
func slotStart(index int64) int64 {
	return cryptHeaderBytes + cryptClearBytes + index*cryptSlotBytes
}

// ReadAt implements File. A *DamageError locates the first unit that fails authentication; the
// bytes before it are valid.
func (f *cryptFile) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return f.inner.ReadAt(p, off) // the error
	}
	if off < cryptClearBytes {
		head := p[:min(int64(len(p)), cryptClearBytes-off)]
		n, err = f.inner.ReadAt(head, cryptHeaderBytes+off)
		if n < len(head) || n == len(p) {
			return n, err
		}
	}
	s := f.reads.enter()
	defer f.reads.leave(s)
	for n < len(p) {
		m, err := f.readUnits(s, s.stored[:], p[n:], off+int64(n))
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// readUnits reads up to cryptStep units at off, using buf for the stored slots. It returns io.EOF
// at the end of the file.
func (f *cryptFile) readUnits(s *cryptScratch, buf, p []byte, off int64) (n int, err error) {
	index := (off - cryptClearBytes) / cryptUnitBytes
	skip := off - unitStart(index)
	want := min((skip+int64(len(p))+cryptUnitBytes-1)/cryptUnitBytes, cryptStep)
	got, err := f.inner.ReadAt(buf[:want*cryptSlotBytes], slotStart(index))
	if err != nil && err != io.EOF {
		return 0, err
	}
	for stored := buf[:got]; n < len(p); index++ {
		slot := stored[:min(len(stored), cryptSlotBytes)]
		stored = stored[len(slot):]
		unit := len(slot) - cryptExtraBytes
		if unit <= int(skip) {
			if want*cryptSlotBytes == int64(got) {
				return n, nil // the next step reads on
			}
			return n, io.EOF
		}
		dst, direct := s.unit[:unit], skip == 0 && len(p)-n >= unit
		if direct {
			dst = p[n:][:unit]
		}
		if !f.open(dst, s, index, slot) {
			return n, &DamageError{File: f.name, Offset: unitStart(index), Reason: "the bytes fail authentication"}
		}
		if direct {
			n += unit
		} else {
			n += copy(p[n:], dst[skip:])
		}
		skip = 0
	}
	return n, nil
}

// WriteAt implements File. A unit that is partly overwritten is read first.
func (f *cryptFile) WriteAt(p []byte, off int64) (n int, err error) { return f.write(p, off, false) }

// write writes p at off. If last is set, the bytes after p are not needed: the rest of the disk
// page is filled with zeros, so that the page need not be read.
func (f *cryptFile) write(p []byte, off int64, last bool) (n int, err error) {
	if off < 0 {
		return f.inner.WriteAt(p, off) // the error
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.loadSize(); err != nil {
		return 0, err
	}
	s := f.writes.enter()
	defer f.writes.leave(s)
	if off > f.size {
		if err := f.truncate(s, off); err != nil {
			return 0, err
		}
	}
	for n < len(p) {
		m, err := f.writeStep(s, p[n:], off+int64(n), last)
		n += m
		if err != nil {
			f.size = -1 // part of p may have been written
			return n, err
		}
		f.size = max(f.size, off+int64(n))
	}
	return n, nil
}

// writeStep writes the part of p that is stored in the clear, and up to cryptStep units. mu must be
// held.
func (f *cryptFile) writeStep(s *cryptScratch, p []byte, off int64, last bool) (n int, err error) {
	b, at := s.stored[:0], cryptHeaderBytes+off
	if off < cryptClearBytes {
		n = int(min(int64(len(p)), cryptClearBytes-off))
		b = append(b, p[:n]...)
	}
	index := max(off-cryptClearBytes, 0) / cryptUnitBytes
	if n == 0 {
		at = slotStart(index)
	}
	nonces := s.nonces[:min(cryptStep, (len(p)-n+2*cryptUnitBytes-1)/cryptUnitBytes)*cryptNonceBytes]
	rand.Read(nonces)
	for end := index + cryptStep; n < len(p) && index < end; index++ {
		skip := off + int64(n) - unitStart(index)
		part := p[n:][:min(int64(len(p)-n), cryptUnitBytes-skip)]
		unit := part
		if old := min(f.size-unitStart(index), cryptUnitBytes); old > 0 && (skip > 0 || int64(len(part)) < old) {
			unit = s.unit[:max(old, skip+int64(len(part)))]
			if err := f.readOld(s, unit[:old], index); err != nil {
				return 0, err
			}
			copy(unit[skip:], part)
		}
		if slot := f.sameSlot(s, index, unit); slot != nil {
			b = append(b, slot...)
		} else {
			b = f.seal(b, s, index, nonces[:cryptNonceBytes], unit)
			nonces = nonces[cryptNonceBytes:]
		}
		n += len(part)
	}
	end := at + int64(len(b))
	if pad := -end & (cryptHeaderBytes - 1); last && n == len(p) && end+pad <= cryptStored(f.size) {
		b = append(b, cryptZeros[:pad]...)
	}
	if _, err := f.inner.WriteAt(b, at); err != nil {
		return 0, err
	}
	return n, nil
}

// loadSize sets size if it is unknown. mu must be held.
func (f *cryptFile) loadSize() (err error) {
	if f.size < 0 {
		if f.size, err = f.Size(); err != nil {
			f.size = -1
		}
	}
	return err
}

// readOld reads the stored beginning of a unit that will be partly overwritten.
func (f *cryptFile) readOld(s *cryptScratch, unit []byte, index int64) error {
	n, err := f.readUnits(s, s.old[:], unit, unitStart(index))
	if n == len(unit) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// sameSlot returns the stored slot if the file is stable and the slot already holds unit, and nil
// otherwise.
func (f *cryptFile) sameSlot(s *cryptScratch, index int64, unit []byte) []byte {
	if !f.stable {
		return nil
	}
	slot := s.old[:len(unit)+cryptExtraBytes]
	if n, _ := f.inner.ReadAt(slot, slotStart(index)); n < len(slot) {
		return nil
	}
	was := make([]byte, len(unit)) // not s.unit, which may hold unit
	if !f.open(was, s, index, slot) || !bytes.Equal(was, unit) {
		return nil
	}
	return slot
}

// Sync implements File.
func (f *cryptFile) Sync() error { return f.inner.Sync() }

// StartSync implements File.
func (f *cryptFile) StartSync(off, n int64) error {
	from, to := cryptStored(off), cryptStored(off+n)
	return f.inner.StartSync(from, to-from)
}

// Truncate implements File.
func (f *cryptFile) Truncate(to int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.loadSize(); err != nil {
		return err
	}
	s := f.writes.enter()
	defer f.writes.leave(s)
	return f.truncate(s, to)
}

// truncate sets the size. It rewrites the last unit if its length changes. mu must be held.
func (f *cryptFile) truncate(s *cryptScratch, to int64) error {
	size := f.size
	from := min(size, to)
	index := max(from-cryptClearBytes, 0) / cryptUnitBytes
	var unit []byte
	if from > unitStart(index) && from < unitStart(index+1) && size != to {
		unit = make([]byte, min(max(size, to)-unitStart(index), cryptUnitBytes))
		if err := f.readOld(s, unit[:min(size-unitStart(index), int64(len(unit)))], index); err != nil {
			return err
		}
		unit = unit[:min(to-unitStart(index), cryptUnitBytes)]
	}
	f.size = -1
	if err := f.inner.Truncate(cryptStored(to)); err != nil {
		return err
	}
	if unit != nil {
		nonce := s.nonces[:cryptNonceBytes]
		rand.Read(nonce)
		if _, err := f.inner.WriteAt(f.seal(s.stored[:0], s, index, nonce, unit), slotStart(index)); err != nil {
			return err
		}
	}
	f.size = to
	return nil
}

// Size implements File.
func (f *cryptFile) Size() (int64, error) {
	stored, err := f.inner.Size()
	return cryptPlain(stored), err
}

// Preallocate implements File.
func (f *cryptFile) Preallocate(n int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.loadSize(); err != nil {
		return err
	}
	if f.size < n {
		s := f.writes.enter()
		defer f.writes.leave(s)
		if err := f.truncate(s, n); err != nil {
			return err
		}
	}
	return f.inner.Preallocate(cryptStored(n))
}

// Close implements File.
func (f *cryptFile) Close() error { return f.inner.Close() }

// AppendAt is WriteAt for data after which the file's content is no longer needed: the bytes after
// p up to the end of the disk page may be lost.
func AppendAt(f File, p []byte, off int64) (n int, err error) {
	if c, ok := f.(*cryptFile); ok {
		return c.write(p, off, true)
	}
	return f.WriteAt(p, off)
}

// Stable returns f with a WriteAt that does not rewrite stored bytes that already hold p. A power
// loss while the same bytes are rewritten then leaves them unchanged. A plain file has this
// property; an encrypted file would store different bytes each time.
func Stable(f File) File {
	if c, ok := f.(*cryptFile); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stable = true
	}
	return f
}

// WriteZeros makes len(zeros) bytes at off occupy disk space. The file must be preallocated and
// never written there. An encrypted file stores plain zeros.
func WriteZeros(f File, zeros []byte, off int64) error {
	if c, ok := f.(*cryptFile); ok {
		from, to := cryptStored(off), cryptStored(off+int64(len(zeros)))
		for from < to {
			n, err := c.inner.WriteAt(zeros[:min(int64(len(zeros)), to-from)], from)
			if err != nil {
				return err
			}
			from += int64(n)
		}
		return nil
	}
	_, err := f.WriteAt(zeros, off)
	return err
}

// VerifyHeader checks what opening an encrypted file does not: that both copies of its header are
// intact and the bytes around them are zero. It returns nil for other files.
func VerifyHeader(f File) error {
	c, ok := f.(*cryptFile)
	if !ok {
		return nil
	}
	page := make([]byte, cryptHeaderBytes)
	if n, err := c.inner.ReadAt(page, 0); n < len(page) {
		return err
	}
	for at := 0; at < len(page); at += cryptSecondCopy {
		if _, err := decodeCryptCopy(page[at:][:cryptCopyBytes], c.name); err != nil {
			return err
		}
		if !bytes.Equal(page[at+cryptCopyBytes:at+cryptSecondCopy], cryptZeros[:cryptSecondCopy-cryptCopyBytes]) {
			return &DamageError{File: c.name, Reason: "nonzero bytes beside the encryption header"}
		}
	}
	return nil
}
