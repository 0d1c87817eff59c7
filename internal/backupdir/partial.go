package backupdir

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/steledb/stele/internal/crc"
)

// partial records the files that a copy has stored.
type partial struct {
	d  *Dir
	id string
	// mu guards the fields in it. It is held while a record is stored: other files wait for that.
	mu struct {
		sync.Mutex
		next   int // number of the next record
		lines  bytes.Buffer
		bytes  int64 // of the objects in lines
		stored int64 // bytes of the objects in records of this copy
	}
}

// A copy that is killed stores again what it has stored since its last record: at most recordBytesMin, or a part of 1/recordShare of what it has stored.
// So the number of records grows with the logarithm of the bytes.
const (
	recordBytesMin = 64 << 20
	recordShare    = 64
)

// partialFile is a line of ID.partial.N.
type partialFile struct {
	File
	Key string `json:"key,omitempty"`
}

// records calls each for the names of the records of an unfinished copy.
func (d *Dir) records(ctx context.Context, id string, each func(name string, n int) error) error {
	return d.store.List(ctx, backupsDir, func(name string, _ int64) error {
		rest, ok := strings.CutPrefix(path.Base(name), id+partialExt)
		if n, err := strconv.Atoi(rest); ok && err == nil {
			return each(name, n)
		}
		return nil
	})
}

// readPartial returns the files that an unfinished copy has stored. Damaged lines, and those of another key, are left out.
func (d *Dir) readPartial(ctx context.Context, id string) ([]File, error) {
	var all []File
	err := d.records(ctx, id, func(name string, _ int) error {
		raw, err := d.readObject(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for line := range strings.Lines(string(raw)) {
			text, sum, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			var x partialFile
			if sum != fmt.Sprintf("%08x", crc.Sum([]byte(text))) || json.Unmarshal([]byte(text), &x) != nil ||
				x.check() != nil || !isHex(x.SHA256, sha256Digits) || x.Key != d.key.ID() {
				continue
			}
			all = append(all, x.File)
		}
		return err
	})
	return all, err
}

// openPartial opens the record of a copy for more lines.
func (d *Dir) openPartial(ctx context.Context, id string) (*partial, error) {
	p := &partial{d: d, id: id}
	err := d.records(ctx, id, func(_ string, n int) error {
		p.mu.next = max(p.mu.next, n+1)
		return nil
	})
	if err == nil && p.mu.next == 0 { // the copy is listed as unfinished from its beginning
		p.mu.lines.WriteByte('\n')
		err = p.storeLocked(ctx)
	}
	return p, err
}

// line returns the line of a file.
func (f *File) line(key *Key) ([]byte, error) {
	b, err := json.Marshal(&partialFile{*f, key.ID()})
	return fmt.Appendf(b, " %08x\n", crc.Sum(b)), err
}

// add records a file, whose object is stored.
func (p *partial) add(ctx context.Context, x *File) error {
	b, err := x.line(p.d.key)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.lines.Write(b)
	if p.mu.bytes += x.Bytes; p.mu.bytes < max(p.d.recordBytes, p.mu.stored/recordShare) {
		return nil
	}
	return p.storeLocked(ctx)
}

// storeLocked stores a record.
func (p *partial) storeLocked(ctx context.Context) error {
	if p.mu.lines.Len() == 0 {
		return nil
	}
	name := path.Join(backupsDir, fmt.Sprintf("%s%s%06d", p.id, partialExt, p.mu.next))
	if err := p.d.put(ctx, name, false, p.mu.lines.Bytes()); err != nil {
		return fmt.Errorf("record the progress of the copy: %w", err)
	}
	p.mu.next++
	p.mu.stored += p.mu.bytes
	p.mu.bytes = 0
	p.mu.lines.Reset()
	if err := p.d.store.Sync(ctx, []string{name}); err != nil {
		return fmt.Errorf("record the progress of the copy: %w", err)
	}
	return nil
}

// close records what was added, unless the copy has listed its backup. The record is a hint: what is lost is copied again.
func (p *partial) close(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(context.Cause(ctx), ErrLockLost) {
		return // the records belong to another copy
	}
	_ = p.storeLocked(context.WithoutCancel(ctx))
}

// remove removes all records. Some that stay name nothing that the backup does not.
func (p *partial) remove(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.lines.Reset()
	_, _ = p.d.removeRecords(ctx, p.id)
}

// removeRecords removes the records of a copy, and returns their number.
func (d *Dir) removeRecords(ctx context.Context, id string) (n int, err error) {
	var names []string
	err = d.records(ctx, id, func(name string, _ int) error {
		names = append(names, name)
		return nil
	})
	for _, name := range names {
		if err := d.store.Remove(ctx, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	return len(names), err
}
