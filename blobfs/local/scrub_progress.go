package local

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/steledb/stele/internal/crc"
)

// ScrubProgress is the progress of a scrub.
type ScrubProgress struct {
	// After is the last extent scrubbed in this pass; its index is -1 before the first.
	After   ExtentID
	Started time.Time // start of the pass; zero if none started
	Ended   time.Time // end of the last complete pass; zero if there was none
}

const (
	scrubFile          = "scrub"
	scrubMagic         = "STELESCB"
	scrubVersion       = 1
	scrubProgressBytes = 64
)

func (m ScrubProgress) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, scrubProgressBytes)
	copy(b, scrubMagic)
	le.PutUint32(b[8:], scrubVersion)
	le.PutUint32(b[12:], uint32(m.After.Index+1))
	copy(b[16:], m.After.Blob[:])
	for at, t := range map[int]time.Time{32: m.Started, 40: m.Ended} {
		if !t.IsZero() {
			le.PutUint64(b[at:], uint64(t.Unix()))
		}
	}
	le.PutUint32(b[60:], crc.Sum(b[:60]))
	return b
}

func decodeScrubProgress(b []byte) (m ScrubProgress, ok bool) {
	le := binary.LittleEndian
	if len(b) != scrubProgressBytes || string(b[:8]) != scrubMagic || le.Uint32(b[8:]) != scrubVersion || le.Uint32(b[60:]) != crc.Sum(b[:60]) {
		return m, false
	}
	index := le.Uint32(b[12:])
	if index > ExtentsMax {
		return m, false
	}
	m.After = ExtentID{Blob: ID(b[16:32]), Index: int(index) - 1}
	if t := le.Uint64(b[32:]); t > 0 {
		m.Started = time.Unix(int64(t), 0)
	}
	if t := le.Uint64(b[40:]); t > 0 {
		m.Ended = time.Unix(int64(t), 0)
	}
	return m, true
}

// LoadScrubProgress returns the progress saved last, or progress before the first extent. It may be some
// minutes old, or lost; then the scrub starts again.
func (s *disks) LoadScrubProgress() ScrubProgress {
	newest := ScrubProgress{After: ExtentID{Index: -1}}
	for _, f := range s.folders {
		b, err := readAll(f.fs, filepath.Join(f.path, scrubFile))
		if err != nil {
			continue
		}
		if m, ok := decodeScrubProgress(b); ok && !m.Started.Before(newest.Started) {
			newest = m
		}
	}
	return newest
}

// SaveScrubProgress saves the progress in the first folder that accepts the write. ErrReadOnly,
// ErrClosed, ErrDiskFull, or ErrFolderRetired if none does.
func (s *disks) SaveScrubProgress(m ScrubProgress) error {
	if s.cfg.ReadOnly {
		return ErrReadOnly
	}
	s.running.RLock()
	defer s.running.RUnlock()
	if s.closed {
		return ErrClosed
	}
	err := error(ErrFolderRetired)
	for _, f := range s.folders {
		if f.isRetired() {
			continue
		}
		if err = f.saveScrubProgress(m); err == nil {
			return nil
		}
		f.failed(err)
		err = fullError(err)
	}
	return err
}

func (f *folder) saveScrubProgress(m ScrubProgress) error {
	name := filepath.Join(f.path, scrubFile)
	tmp := name + tmpSuffix
	if err := f.fs.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := f.fs.Create(tmp)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteAt(m.encode(), 0); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return f.fs.Rename(tmp, name)
}
