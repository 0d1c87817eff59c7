package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/raftmeta/storage"
)

const (
	kindStore byte = iota + 1
	kindSet
	kindDelete
)

const (
	headerBytes = 8
	// compactBytes is the size of a file that may be replaced.
	compactBytes = 1 << 20
)

// errNotFound has the text that raft expects.
var errNotFound = errors.New("not found")

// Log is a Raft log with raft's term and vote.
type Log struct {
	fs   vfs.FS
	name string
	// mu guards the fields in it, and the file. Held across I/O.
	mu struct {
		sync.Mutex
		file    vfs.File
		size    int64
		values  map[string][]byte
		first   uint64     // index of entries[0]
		entries []raft.Log // without a gap
		live    int64      // bytes of entries and values in the file, about
	}
}

var _ storage.Backend = (*Log)(nil)

// Opener returns a storage.OpenFunc for logs on a file system.
func Opener(fsys vfs.FS) storage.OpenFunc {
	return func(file string) (storage.Backend, error) {
		l, err := Open(fsys, file)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
}

// Open opens the log in a file, or creates it.
func Open(fsys vfs.FS, name string) (*Log, error) {
	l := &Log{fs: fsys, name: name}
	l.mu.values = map[string][]byte{}
	file, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		file, err = fsys.Create(name)
	}
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l.mu.file = file
	if err := l.replay(); err != nil {
		return nil, fmt.Errorf("open log: %w", errors.Join(err, file.Close()))
	}
	return l, nil
}

// replay applies the records of the file.
func (l *Log) replay() error {
	content, err := vfs.ReadFile(l.fs, l.name)
	if err != nil {
		return err
	}
	size := len(content)
	for len(content) >= headerBytes {
		n := int64(binary.BigEndian.Uint32(content))
		if n == 0 || n > int64(len(content)-headerBytes) {
			break
		}
		body := content[headerBytes : headerBytes+n]
		if crc.Sum(body) != binary.BigEndian.Uint32(content[4:]) {
			break
		}
		if err := l.applyLocked(body); err != nil {
			return err
		}
		l.mu.size += headerBytes + n
		content = content[headerBytes+n:]
	}
	if l.mu.size == int64(size) {
		return nil
	}
	return errors.Join(l.mu.file.Truncate(l.mu.size), l.mu.file.Sync())
}

// recordOf returns a record with that body.
func recordOf(body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	b = binary.BigEndian.AppendUint32(b, crc.Sum(body))
	return append(b, body...)
}

// writeLocked makes a record durable and applies it.
func (l *Log) writeLocked(body []byte) error {
	record := recordOf(body)
	if _, err := l.mu.file.WriteAt(record, l.mu.size); err != nil {
		return err
	}
	if err := l.mu.file.Sync(); err != nil {
		return err
	}
	l.mu.size += int64(len(record))
	return l.applyLocked(body)
}

func (l *Log) applyLocked(body []byte) error {
	d := decoder{b: body[1:]}
	switch body[0] {
	case kindStore:
		for d.err == nil && len(d.b) > 0 {
			if e := d.entry(); d.err == nil {
				d.err = l.putLocked(e)
			}
		}
	case kindSet:
		key, value := d.bytes(), d.bytes()
		l.mu.live += int64(len(value)) - int64(len(l.mu.values[string(key)]))
		l.mu.values[string(key)] = value
	case kindDelete:
		l.cutLocked(d.uint(), d.uint())
	default:
		d.err = fmt.Errorf("unknown record of kind %d", body[0])
	}
	return d.err
}

func (l *Log) putLocked(e raft.Log) error {
	if len(l.mu.entries) == 0 {
		l.mu.first = e.Index
	}
	switch at := e.Index - l.mu.first; {
	case at < uint64(len(l.mu.entries)):
		l.mu.live += entryBytes(&e) - entryBytes(&l.mu.entries[at])
		l.mu.entries[at] = e
	case at == uint64(len(l.mu.entries)):
		l.mu.live += entryBytes(&e)
		l.mu.entries = append(l.mu.entries, e)
	default:
		return fmt.Errorf("entry %d leaves a gap", e.Index)
	}
	return nil
}

// cutLocked removes the entries from lo to hi, at one end of the log.
func (l *Log) cutLocked(lo, hi uint64) {
	kept := slices.DeleteFunc(l.mu.entries, func(e raft.Log) bool {
		gone := e.Index >= lo && e.Index <= hi
		if gone {
			l.mu.live -= entryBytes(&e)
		}
		return gone
	})
	if l.mu.entries = kept; len(kept) > 0 {
		l.mu.first = kept[0].Index
	}
}

// compactLocked replaces the file if most of it is deleted.
func (l *Log) compactLocked() error {
	if l.mu.size < compactBytes || l.mu.live > l.mu.size/4 {
		return nil
	}
	var content []byte
	for _, key := range slices.Sorted(maps.Keys(l.mu.values)) {
		content = append(content, recordOf(setBody([]byte(key), l.mu.values[key]))...)
	}
	for i := range l.mu.entries {
		content = append(content, recordOf(appendEntry([]byte{kindStore}, &l.mu.entries[i]))...)
	}
	if err := vfs.WriteFile(l.fs, l.name, content); err != nil {
		return err
	}
	file, err := l.fs.Open(filepath.Clean(l.name))
	if err != nil {
		return err
	}
	old := l.mu.file
	l.mu.file, l.mu.size = file, int64(len(content))
	return old.Close()
}

// StoreLog implements raft.LogStore.
func (l *Log) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

// StoreLogs implements raft.LogStore.
func (l *Log) StoreLogs(entries []*raft.Log) error {
	body := []byte{kindStore}
	for _, e := range entries {
		body = appendEntry(body, e)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writeLocked(body)
}

// DeleteRange implements raft.LogStore.
func (l *Log) DeleteRange(lo, hi uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	body := binary.BigEndian.AppendUint64([]byte{kindDelete}, lo)
	if err := l.writeLocked(binary.BigEndian.AppendUint64(body, hi)); err != nil {
		return err
	}
	return l.compactLocked()
}

// FirstIndex implements raft.LogStore.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.entries) == 0 {
		return 0, nil
	}
	return l.mu.first, nil
}

// LastIndex implements raft.LogStore.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.entries) == 0 {
		return 0, nil
	}
	return l.mu.first + uint64(len(l.mu.entries)) - 1, nil
}

// GetLog implements raft.LogStore.
func (l *Log) GetLog(index uint64, e *raft.Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := index - l.mu.first
	if index < l.mu.first || at >= uint64(len(l.mu.entries)) {
		return raft.ErrLogNotFound
	}
	*e = l.mu.entries[at]
	return nil
}

// Set implements raft.StableStore.
func (l *Log) Set(key, value []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writeLocked(setBody(key, value))
}

// Get implements raft.StableStore.
func (l *Log) Get(key []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	value, ok := l.mu.values[string(key)]
	if !ok {
		return nil, errNotFound
	}
	return append([]byte{}, value...), nil // not nil, which raft's store in memory takes for no value
}

// SetUint64 implements raft.StableStore.
func (l *Log) SetUint64(key []byte, value uint64) error {
	return l.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (l *Log) GetUint64(key []byte) (uint64, error) {
	b, err := l.Get(key)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("value of %q has %d bytes, not 8", key, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.file.Close()
}
