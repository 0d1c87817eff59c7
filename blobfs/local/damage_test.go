package local_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/vfs"
)

// museum is a closed store with a file of every type.
type museum struct {
	fs    *vfs.Mem
	cfg   local.Config
	blobs map[local.ID][]byte
	hands []local.Handle
	logs  map[local.ID][]record
	open  local.ID // the log that is not sealed
}

type record struct {
	payload []byte
	pos     int64
}

func newMuseum(t *testing.T, keys ...local.MasterKey) *museum {
	t.Helper()
	m := &museum{fs: vfs.NewMem(vfs.MemOptions{}), blobs: map[local.ID][]byte{}, logs: map[local.ID][]record{}}
	m.cfg = withKeys(crashConfig(m.fs, 2), keys)
	s := m.reopen(t)
	for i, size := range []int{0, 5000, 150_000} {
		w, err := s.Create(ctx)
		noError(t, err)
		data := blobtest.Bytes(uint64(i), size)
		_, err = w.Write(data)
		noError(t, err)
		h, err := w.Seal(ctx)
		noError(t, err)
		m.blobs[h.ID] = data
		m.hands = append(m.hands, h)
	}
	for i, sizes := range [][]int{{10, 9000, 200_000, 30_000}, {100, 5000, 100}} {
		w, err := s.CreateLog(ctx, local.NewID())
		noError(t, err)
		for j, size := range sizes {
			p := blobtest.Bytes(uint64(100+10*i+j), size)
			pos, err := w.Append(ctx, p)
			noError(t, err)
			m.logs[w.ID()] = append(m.logs[w.ID()], record{p, pos})
		}
		if i == 0 {
			noError(t, w.Seal(ctx))
		} else {
			m.open = w.ID()
		}
	}
	gone, err := s.CreateLog(ctx, local.NewID())
	noError(t, err)
	noError(t, s.RemoveLog(ctx, gone.ID())) // leaves a spare
	noError(t, s.Close())
	m.cfg.ReadOnly = true
	return m
}

func (m *museum) reopen(t *testing.T) *local.Store {
	t.Helper()
	m.fs.ReleaseLocks() // stores of earlier calls may be open
	s, err := local.Open(m.cfg)
	noError(t, err)
	return s
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *museum) files(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, f := range m.cfg.Folders {
		for _, sub := range []string{"blobs", "logs"} {
			names, err := m.fs.ReadDir(filepath.Join(f, sub))
			noError(t, err)
			for _, name := range names {
				files = append(files, filepath.Join(f, sub, name))
			}
		}
	}
	return files
}

// change modifies a byte of a file and returns a function that restores it.
func (m *museum) change(t *testing.T, name string, off int64, xor byte) (undo func()) {
	t.Helper()
	f, err := m.fs.Open(name)
	noError(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], off)
	noError(t, err)
	was := b[0]
	b[0] ^= xor
	_, err = f.WriteAt(b[:], off)
	noError(t, err)
	return func() {
		_, err := f.WriteAt([]byte{was}, off)
		noError(t, err)
		noError(t, f.Close())
	}
}

func (m *museum) verify(t *testing.T, s *local.Store) []local.Problem {
	t.Helper()
	var problems []local.Problem
	noError(t, s.Verify(ctx, func(p local.Problem) { problems = append(problems, p) }))
	return problems
}

// readBlobs reads every blob both ways. The result must be correct data or an error with the file.
func (m *museum) readBlobs(t *testing.T, s *local.Store, file string) {
	t.Helper()
	for _, h := range m.hands {
		want := m.blobs[h.ID]
		err := func() error {
			r, err := s.OpenBlob(ctx, h)
			if err != nil {
				return err
			}
			defer r.Close()
			p := make([]byte, len(want))
			n, err := r.ReadAt(p, 0)
			if !bytes.Equal(p[:n], want[:n]) {
				t.Errorf("corrupt bytes of blob %s returned", h.ID)
			}
			errChecked := r.ReadChecked(p, 0, func(p []byte) error {
				if !bytes.Equal(p, want) {
					return errors.New("checksum of the caller is wrong")
				}
				return nil
			})
			if (err == nil) != (errChecked == nil) {
				t.Errorf("ReadAt: %v, ReadChecked: %v", err, errChecked)
			}
			return err
		}()
		var corrupt *local.CorruptError
		if err != nil && (!errors.As(err, &corrupt) || corrupt.File != file) {
			t.Errorf("blob %s: %v", h.ID, err)
		}
	}
}

// readLogs reads every log. It must return a prefix of what was appended. If records are missing,
// an error must have the file, except for the last record of the unsealed log.
func (m *museum) readLogs(t *testing.T, s *local.Store, file string) {
	t.Helper()
	for id, want := range m.logs {
		n := 0
		err := func() error {
			r, err := s.OpenLog(ctx, id)
			if err != nil {
				return err
			}
			defer r.Close()
			for {
				p, pos, err := r.Next()
				if err != nil {
					return err
				}
				if n == len(want) || pos != want[n].pos || !bytes.Equal(p, want[n].payload) {
					t.Fatalf("record %d of log %s is not what was appended", n, id)
				}
				n++
			}
		}()
		var corrupt *local.CorruptError
		switch {
		case err == io.EOF && n == len(want), err == io.EOF && id == m.open && n == len(want)-1:
		case errors.As(err, &corrupt) && corrupt.File == file:
		default:
			t.Errorf("log %s ends after %d of %d records: %v", id, n, len(want), err)
		}
	}
}

// B3, I7: a corrupt byte anywhere in any file is detected and located, and never returned.
func TestEveryByteCounts(t *testing.T) {
	for kind, keys := range encrypted {
		t.Run(kind, func(t *testing.T) { testEveryByteCounts(t, newMuseum(t, keys...)) })
	}
}

func testEveryByteCounts(t *testing.T, m *museum) {
	rng := rand.New(rand.NewPCG(9, 9))
	if problems := m.verify(t, m.reopen(t)); len(problems) > 0 {
		t.Fatalf("before any damage: %v", problems)
	}
	for _, file := range m.files(t) {
		size, _, err := m.fs.Stat(file)
		noError(t, err)
		ends := m.endOfData(t, file)
		for _, off := range sampleOffsets(rng, size) {
			undo := m.change(t, file, off, byte(1+rng.IntN(255)))
			s := m.reopen(t)
			problems := m.verify(t, s)
			m.readBlobs(t, s, file)
			m.readLogs(t, s, file)
			noError(t, s.Close())
			undo()
			found := slices.ContainsFunc(problems, func(p local.Problem) bool {
				at := m.plainOffset(off)
				return p.File == file && p.Offset <= at && at < p.Offset+(64<<10) && p.String() != ""
			})
			if must := m.plainOffset(off) < ends; found != must || (len(problems) > 0) != must {
				t.Errorf("byte %d of %s (of %d, data to %d): problems %v", off, file, size, ends, problems)
			}
			if t.Failed() {
				t.FailNow()
			}
		}
	}
}

// endOfData returns the offset where a file's content ends, or where a log's last frame begins:
// damage there looks like a torn write. If that frame is a seal, no data is lost with it.
func (m *museum) endOfData(t *testing.T, file string) int64 {
	t.Helper()
	s := m.reopen(t)
	defer s.Close()
	f, err := s.OpenFile(file)
	noError(t, err)
	defer f.Close()
	size, err := f.Size()
	noError(t, err)
	if strings.Contains(file, "/blobs/") {
		return size
	}
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	noError(t, err)
	salt := b[80:88]
	end, last, seal := int64(4096), int64(4096), false
	for at := int64(4096); at < size; at += 4096 {
		if bytes.Equal(b[at+24:at+32], salt) && !bytes.Equal(salt, make([]byte, 8)) {
			n := int64(b[at+8]) | int64(b[at+9])<<8 | int64(b[at+10])<<16
			last, end, seal = at, at+(40+n+4095)&^4095, b[at+4] == 5
		}
	}
	if local.ID(b[32:48]) == m.open || seal {
		return last
	}
	return end
}

// plainOffset returns the plaintext offset of the page with a byte of an encrypted file, and the
// byte's own offset in a file in the clear. The encryption header counts as the first byte.
func (m *museum) plainOffset(stored int64) int64 {
	switch {
	case m.cfg.MasterKeys == nil:
		return stored
	case stored < 4096:
		return 0
	case stored < 8192:
		return stored - 4096
	}
	return 4096 + (stored-8192)/(4096+28)*4096
}

// sampleOffsets returns all offsets of structured parts, and some of the others.
func sampleOffsets(rng *rand.Rand, size int64) []int64 {
	var offs []int64
	for off := int64(0); off < size; {
		offs = append(offs, off)
		dense := off < 96 || (off >= 500 && off < 520) || (off >= 2048 && off < 2144) || (off >= 4090 && off < 4140) || off >= size-72
		if dense && !testing.Short() {
			off += 1 + rng.Int64N(3)
		} else {
			off += 1 + rng.Int64N(1500)
		}
	}
	return offs
}

func TestMissingAndShortFiles(t *testing.T) {
	m := newMuseum(t)
	for _, file := range m.files(t) {
		f, err := m.fs.Open(file)
		noError(t, err)
		size, err := f.Size()
		noError(t, err)
		content := make([]byte, size)
		_, err = f.ReadAt(content, 0)
		noError(t, err)
		for _, cut := range []int64{0, 100, 4096, size - 1} {
			noError(t, f.Truncate(cut))
			s := m.reopen(t)
			if problems := m.verify(t, s); len(problems) == 0 || problems[0].File != file {
				t.Errorf("%s cut to %d bytes: %v", file, cut, problems)
			}
			m.readBlobs(t, s, file)
			noError(t, s.Close())
			_, err = f.WriteAt(content, 0)
			noError(t, err)
		}
		noError(t, f.Close())
	}

	h := m.hands[2]
	for _, folder := range m.cfg.Folders {
		_ = m.fs.Remove(filepath.Join(folder, "blobs", fmt.Sprintf("%s.1", h.ID)))
	}
	s := m.reopen(t)
	if _, err := s.OpenBlob(ctx, h); !errors.Is(err, local.ErrNoBlob) {
		t.Errorf("blob without one of its extents: %v", err)
	}
	for _, info := range s.Blobs() {
		if info.Whole != (info.ID != h.ID) {
			t.Errorf("blob %+v", info)
		}
	}
	if problems := m.verify(t, s); len(problems) != 0 {
		t.Errorf("a missing extent is not for Verify to find: %v", problems)
	}
}

// A log with a missing extent is damaged. A log whose newest extent may be missing is rejected.
func TestLogExtentMissing(t *testing.T) {
	m := newMuseum(t)
	var sealed local.ID
	for id := range m.logs {
		if id != m.open {
			sealed = id
		}
	}
	s := m.reopen(t)
	for _, info := range s.Logs() {
		if info.ID == sealed && info.Extents < 4 {
			t.Fatalf("the log has %d extents", info.Extents)
		}
	}
	var corrupt *local.CorruptError
	for _, file := range m.files(t) {
		// Both copies of a header are corrupt: any log might continue in this file.
		undo := m.change(t, file, 3, 1)
		undoCopy := m.change(t, file, 2048+3, 1)
		s := m.reopen(t)
		if _, err := s.OpenLog(ctx, m.open); strings.Contains(file, "/logs/") && (!errors.As(err, &corrupt) || corrupt.File != file) {
			t.Errorf("log that may go on in %s: %v", file, err)
		}
		noError(t, s.Close())
		undoCopy()
		undo()
	}
	m.cfg.Folders = m.cfg.Folders[:1]
	s = m.reopen(t)
	if _, err := s.OpenLog(ctx, sealed); !errors.As(err, &corrupt) {
		t.Errorf("log without the extents of one folder: %v", err)
	}
	if problems := m.verify(t, s); len(problems) == 0 {
		t.Error("no problem found")
	}
}

// A torn last frame is cut off, whichever of its sectors were written.
func TestTornTail(t *testing.T) {
	const size = 9000
	rng := rand.New(rand.NewPCG(4, 4))
	for round := range 40 {
		fs := vfs.NewMem(vfs.MemOptions{})
		cfg := crashConfig(fs, 1)
		s, err := local.Open(cfg)
		noError(t, err)
		if round%2 == 0 { // extents that hold old frames
			old, err := s.CreateLog(ctx, local.NewID())
			noError(t, err)
			_, err = old.Append(ctx, blobtest.Bytes(1, 300_000))
			noError(t, err)
			noError(t, s.RemoveLog(ctx, old.ID()))
		}
		id := local.NewID()
		w, err := s.CreateLog(ctx, id)
		noError(t, err)
		want := 1 + rng.IntN(4)
		for i := range want {
			_, err := w.Append(ctx, blobtest.Bytes(uint64(i), size))
			noError(t, err)
		}
		// Power loss after the write and before the sync.
		fs.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpSync {
				return vfs.ErrPowerCut
			}
			return nil
		})
		if _, err := w.Append(ctx, blobtest.Bytes(uint64(want), size)); err == nil {
			t.Fatal("acknowledged without a sync")
		}
		after := fs.Crash(rng)
		cfg.FS = after
		s, err = local.Open(cfg)
		noError(t, err)
		for range 2 {
			r, err := s.OpenLog(ctx, id)
			noError(t, err)
			n := 0
			for ; ; n++ {
				p, _, err := r.Next()
				if err == io.EOF {
					break
				}
				noError(t, err)
				if !bytes.Equal(p, blobtest.Bytes(uint64(n), size)) {
					t.Fatalf("record %d is not what was appended", n)
				}
			}
			if n != want && n != want+1 {
				t.Fatalf("%d records of %d", n, want)
			}
			noError(t, r.Close())
		}
		noError(t, s.Close())
	}
}

// An invalid frame before a valid one is not a torn tail, even in an unsealed log.
func TestCorruptMiddle(t *testing.T) {
	for kind, keys := range encrypted {
		t.Run(kind, func(t *testing.T) { testCorruptMiddle(t, newMuseum(t, keys...)) })
	}
}

func testCorruptMiddle(t *testing.T, m *museum) {
	var file string
	for _, f := range m.files(t) {
		if strings.Contains(f, "/logs/") && m.endOfData(t, f) == 4096*4 {
			file = f // records at 4096, 8192 and 16384
		}
	}
	at := int64(8192 + 50)
	if m.cfg.MasterKeys != nil {
		at = 8192 + 4096 + 28 + 50
	}
	defer m.change(t, file, at, 1)()
	m.cfg.ReadOnly = false
	for range 2 { // damage is not sealed over
		s := m.reopen(t)
		r, err := s.OpenLog(ctx, m.open)
		noError(t, err)
		p, _, err := r.Next()
		if err != nil || !bytes.Equal(p, m.logs[m.open][0].payload) {
			t.Fatalf("the record before the damage: %v", err)
		}
		_, _, err = r.Next()
		var corrupt *local.CorruptError
		if !errors.As(err, &corrupt) || corrupt.File != file || corrupt.Offset != 8192 {
			t.Fatalf("damaged record: %v", err)
		}
		noError(t, r.Close())
		noError(t, s.Close())
	}
}
