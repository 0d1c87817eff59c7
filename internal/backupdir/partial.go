package backupdir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/vfs"
)

// partial records the files that a copy has stored.
type partial struct {
	key *Key
	// mu guards the fields in it. It is held across writes, which are short.
	mu struct {
		sync.Mutex
		f        vfs.File
		at       int64
		unsynced int64 // bytes of the objects whose lines are not synced
	}
}

// syncBytes is how much may be copied again after a power loss, in bytes of objects.
const syncBytes = 64 << 20

// partialFile is a line of ID.partial.
type partialFile struct {
	File
	Key string `json:"key,omitempty"`
}

// readPartial returns the files that an unfinished copy has stored. Damaged lines, and those of another key, are left out.
func (d *Dir) readPartial(id string) ([]File, error) {
	raw, err := d.readFile(d.partialName(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []File
	for line := range strings.Lines(string(raw)) {
		text, sum, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		var x partialFile
		if sum != fmt.Sprintf("%08x", crc.Sum([]byte(text))) || json.Unmarshal([]byte(text), &x) != nil ||
			x.check() != nil || !isHex(x.SHA256, sha256Digits) || x.Key != d.key.ID() {
			continue
		}
		all = append(all, x.File)
	}
	return all, nil
}

// openPartial opens the record of a copy for more lines.
func (d *Dir) openPartial(id string) (*partial, error) {
	name, p := d.partialName(id), &partial{key: d.key}
	f, err := d.fs.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = d.fs.Create(name); err == nil {
			err = d.fs.SyncDir(d.name(backupsDir))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("record the progress of the copy: %w", err)
	}
	size, err := f.Size()
	if err == nil && size > 0 {
		_, err = f.WriteAt([]byte("\n"), size) // the last line may be cut off
		size++
	}
	if err != nil {
		_ = f.Close() // the first error is returned
		return nil, fmt.Errorf("record the progress of the copy: %w", err)
	}
	p.mu.f, p.mu.at = f, size
	return p, nil
}

// line returns the line of a file.
func (f *File) line(key *Key) ([]byte, error) {
	b, err := json.Marshal(&partialFile{*f, key.ID()})
	return fmt.Appendf(b, " %08x\n", crc.Sum(b)), err
}

// add records a file, whose object is stored.
func (p *partial) add(x *File) error {
	b, err := x.line(p.key)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.mu.f.WriteAt(b, p.mu.at)
	p.mu.at += int64(n)
	if p.mu.unsynced += x.Bytes; err == nil && p.mu.unsynced >= syncBytes {
		p.mu.unsynced = 0
		err = p.mu.f.Sync()
	}
	if err != nil {
		return fmt.Errorf("record the progress of the copy: %w", err)
	}
	return nil
}

// close closes the record. It is a hint: what is lost is copied again.
func (p *partial) close() {
	_ = p.mu.f.Sync()
	_ = p.mu.f.Close()
}
