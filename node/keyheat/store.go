package keyheat

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/internal/wire"
)

const (
	magic      = "STELEHEAT1\n"
	headerSize = 4096 // the page that an encrypted file has in the clear
	recordHead = 8
	// segmentBytesMax bounds a file: two weeks of hours at 15 KiB each.
	segmentBytesMax = 5 << 20
)

// layer is the columns of one length.
type layer struct {
	name string
	span int64 // of a column, in minutes
	keep int   // columns of a file: it spans so much time
	// of the newer file
	size  int64
	count int
	last  int64 // start of the last column, -1 if there is none
}

// store keeps columns in files: see package doc.
type store struct {
	fs  vfs.FS
	dir string
	log *slog.Logger

	// mu guards layers and the files. Held while files are read and written.
	mu     sync.Mutex
	layers [3]layer
}

// openStore opens the files in a directory, which it makes if needed.
func openStore(fsys vfs.FS, dir string, log *slog.Logger) (*store, error) {
	s := &store{fs: fsys, dir: dir, log: log}
	s.layers = [3]layer{{name: "minutes", span: 1, keep: 240}, {name: "quarters", span: 15, keep: 192}, {name: "hours", span: 60, keep: 336}}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, err
	}
	for i := range s.layers {
		if err := s.openLayer(&s.layers[i]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// encrypted returns a file system that encrypts files with keys that follow from the master keys of the block store. Without any it is fsys.
func encrypted(fsys vfs.FS, masters []blobfs.MasterKey) vfs.FS {
	if len(masters) == 0 {
		return fsys
	}
	var keys []vfs.DataKey
	for _, m := range masters {
		secret, err := hkdf.Key(sha256.New, m[:], nil, "stele key heat 1", vfs.DataKeyBytes)
		if err != nil {
			panic("BUG: " + err.Error()) // the length is constant
		}
		id := m.ID()
		keys = append(keys, vfs.DataKey{Number: binary.BigEndian.Uint32(id[:]) | 1, Secret: [vfs.DataKeyBytes]byte(secret)})
	}
	return vfs.NewCrypt(fsys, keys, func(string) bool { return true })
}

func (s *store) file(l *layer, n int) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s.%d", l.name, n))
}

// openLayer finds the end of a layer's newer file, and truncates it there.
func (s *store) openLayer(l *layer) error {
	l.last = -1
	name := s.file(l, 0)
	for n := range 2 {
		err := s.each(l, 1-n, func(c *column, end int64) { // the older one first
			l.last = max(l.last, c.minute)
			if n == 1 {
				l.size, l.count = end, l.count+1
			}
		})
		if err != nil {
			return err
		}
	}
	if l.size == 0 { // no record is readable, for example because the node has another master key
		if err := s.fs.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	f, err := s.fs.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(l.size), f.Close())
}

// each calls do with each column of a file, and where its record ends. It ends at the first damaged record.
func (s *store) each(l *layer, n int, do func(c *column, end int64), only ...uint64) error {
	name := s.file(l, n)
	b, err := vfs.ReadFile(s.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && len(b) >= headerSize && bytes.HasPrefix(b, []byte(magic)) {
		at := headerSize
		for at < len(b) {
			c, size := record(b[at:], only...)
			if c == nil {
				break
			}
			at += size
			do(c, int64(at))
		}
		if at == len(b) {
			return nil
		}
	}
	if err == nil {
		err = errors.New("a header, length or checksum is wrong")
	}
	s.log.Warn("key heat file damaged; later records are lost", "file", name, "err", err)
	return nil
}

// record decodes the record at the start of b. It returns nil if it is damaged.
func record(b []byte, only ...uint64) (*column, int) {
	if len(b) < recordHead {
		return nil, 0
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n > int64(len(b)-recordHead) {
		return nil, 0
	}
	body := b[recordHead : recordHead+n]
	if crc.Sum(body) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, 0
	}
	c, d := &column{}, wire.NewDecoder(body)
	if c.decode(&d, only...) != nil {
		return nil, 0
	}
	return c, recordHead + int(n)
}

// add adds a minute. It first adds up the quarter and the hour that have ended before it. A minute that is not after the last one, because the clock
// went back, is dropped.
func (s *store) add(c *column) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.layers[0].last
	if last >= c.minute {
		return nil
	}
	for i := 1; i < len(s.layers) && last >= 0; i++ {
		l := &s.layers[i]
		if start := last - last%l.span; start != c.minute-c.minute%l.span && start > l.last {
			if err := s.sum(i, start); err != nil {
				return err
			}
		}
	}
	return s.append(&s.layers[0], c)
}

// sum adds the column of a layer that begins at start, from those of the layer below.
func (s *store) sum(i int, start int64) error {
	l, below := &s.layers[i], &s.layers[i-1]
	total := &column{minute: start}
	for n := range 2 {
		err := s.each(below, 1-n, func(c *column, _ int64) {
			if c.minute >= start && c.minute < start+l.span {
				total.merge(c)
			}
		})
		if err != nil {
			return err
		}
	}
	if len(total.tables) == 0 {
		return nil
	}
	total.reduce()
	return s.append(l, total)
}

// append appends a column to the newer file of a layer.
func (s *store) append(l *layer, c *column) error {
	var e wire.Encoder
	c.append(&e, formLatest)
	body := e.Bytes()
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
	b = append(binary.LittleEndian.AppendUint32(b, crc.Sum(body)), body...)
	if l.size > 0 && (l.count >= l.keep || l.size+int64(len(b)) > segmentBytesMax) {
		if err := s.fs.Rename(s.file(l, 0), s.file(l, 1)); err != nil {
			return err
		}
		l.size, l.count = 0, 0
	}
	f, err := s.openLast(l)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, l.size)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	l.size, l.count, l.last = l.size+int64(len(b)), l.count+1, c.minute
	return nil
}

// openLast opens the newer file of a layer for writing, and makes it if needed.
func (s *store) openLast(l *layer) (vfs.File, error) {
	if l.size > 0 {
		return s.fs.Open(s.file(l, 0))
	}
	f, err := s.fs.Create(s.file(l, 0))
	if err != nil {
		return nil, err
	}
	first := make([]byte, headerSize)
	copy(first, magic)
	if _, err := f.WriteAt(first, 0); err != nil {
		return nil, errors.Join(err, f.Close(), s.fs.Remove(s.file(l, 0)))
	}
	l.size = headerSize
	return f, nil
}

// read calls do with the columns from one minute and below another, in the layer with that number and, for the time that it does not have yet, in the
// finer ones.
func (s *store) read(coarsest int, from, to int64, do func(*column), only ...uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := coarsest; i >= 0 && from < to; i-- {
		l := &s.layers[i]
		if l.last < 0 || l.last+l.span <= from {
			continue
		}
		for n := range 2 {
			err := s.each(l, 1-n, func(c *column, _ int64) {
				if c.minute+l.span > from && c.minute < to {
					do(c)
				}
			}, only...)
			if err != nil {
				return err
			}
		}
		from = l.last + l.span
	}
	return nil
}
