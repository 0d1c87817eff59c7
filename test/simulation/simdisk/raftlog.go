package simdisk

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
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/steledb/stele/internal/vfs"
	bbolt "go.etcd.io/bbolt/errors"

	"github.com/steledb/stele/raftmeta/storage"
)

const (
	// compactBytes is the size below which a RaftLog is not compacted.
	compactBytes = 1 << 20
	// compactSuffix is that of the file that replaces a RaftLog.
	compactSuffix = ".compact"
	// compactRecord bounds the payload of a record that a compaction writes, unless it is one entry.
	compactRecord = 256 << 10
)

// RaftLog stores Raft's log, and its term and vote, in one file of an FS, and keeps all of it in
// memory. Its results and its errors are those of raft-boltdb.
type RaftLog struct {
	fs   vfs.FS
	name string

	// mu guards everything below. It is held across I/O: the log belongs to one process.
	mu      sync.Mutex
	file    vfs.File // nil after Close
	size    int64    // where the next record begins
	live    int64    // bytes of records that a compaction would keep, estimated
	entries map[uint64][]byte
	first   uint64 // zero if there are no entries
	last    uint64
	values  map[string][]byte
	failed  error // why nothing can be written any more
}

var _ storage.Backend = (*RaftLog)(nil)

// OpenRaftLog opens the log in the file of that name, or creates it. The file may be renamed after
// Close. The FS must not be a vfs.Crypt. A damaged record is a *storage.CorruptError.
func OpenRaftLog(fsys vfs.FS, name string) (*RaftLog, error) {
	r := &RaftLog{fs: fsys, name: name, entries: map[uint64][]byte{}, values: map[string][]byte{}}
	if err := r.open(); err != nil {
		if r.file != nil {
			_ = r.file.Close() // the first error is returned
		}
		return nil, fmt.Errorf("open log %s: %w", name, err)
	}
	return r, nil
}

func (r *RaftLog) open() error {
	if err := r.fs.Remove(r.name + compactSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var err error
	if r.file, err = r.fs.Open(r.name); err == nil {
		return r.load()
	}
	if errors.Is(err, fs.ErrNotExist) {
		r.file, err = r.fs.Create(r.name)
	}
	if err != nil {
		return err
	}
	return errors.Join(r.file.Sync(), r.fs.SyncDir(filepath.Dir(r.name)))
}

// load reads the file and removes a torn record at its end.
func (r *RaftLog) load() error {
	content, err := vfs.ReadFile(r.fs, r.name)
	if err != nil {
		return err
	}
	off, last := 0, 0 // the next record, and the one before
	for off < len(content) {
		kind, payload, size, ok := parseRecord(content[off:])
		if ok {
			if err := r.apply(kind, payload); err != nil {
				return fmt.Errorf("record at offset %d: %w", off, err)
			}
			last, off = off, off+size
			continue
		}
		if !torn(content, off, size) || holdsRecord(content[min(off+recordHeader, len(content)):]) {
			return &storage.CorruptError{File: r.name, Offset: int64(off), Reason: "record of the log is not valid"}
		}
		break
	}
	r.size = int64(off)
	return r.secure(content[last:off], int64(last), len(content) > off)
}

// secure makes the last record durable, whose sync may have failed in an earlier process, and
// removes a torn record after it.
func (r *RaftLog) secure(record []byte, off int64, torn bool) error {
	if torn {
		if err := r.file.Truncate(off + int64(len(record))); err != nil {
			return err
		}
	}
	if _, err := r.file.WriteAt(record, off); err != nil {
		return err
	}
	return r.file.Sync()
}

// apply changes the state in memory by a record. It keeps the payload.
func (r *RaftLog) apply(kind recordKind, payload []byte) error {
	switch {
	case kind == recordEntries:
		for len(payload) > 0 {
			entry, index, rest, err := cutEntry(payload)
			if err != nil {
				return err
			}
			r.put(index, entry)
			payload = rest
		}
	case kind == recordDeletion && len(payload) == 16:
		r.remove(binary.LittleEndian.Uint64(payload), binary.LittleEndian.Uint64(payload[8:]))
	case kind == recordValue && len(payload) >= 4 && len(payload)-4 >= int(binary.LittleEndian.Uint32(payload)):
		n := binary.LittleEndian.Uint32(payload)
		key, value := string(payload[4:4+n]), payload[4+n:]
		r.live += int64(recordBytes(len(payload)))
		if old, ok := r.values[key]; ok {
			r.live -= int64(recordBytes(4 + len(key) + len(old)))
		}
		r.values[key] = value
	default:
		return fmt.Errorf("record of kind %d has %d bytes", kind, len(payload))
	}
	return nil
}

func (r *RaftLog) put(index uint64, entry []byte) {
	r.live += int64(len(entry)) - int64(len(r.entries[index]))
	if len(r.entries) == 0 {
		r.first, r.last = index, index
	}
	r.entries[index] = entry
	r.first, r.last = min(r.first, index), max(r.last, index)
}

// remove deletes the entries from first to last. Most often they are at one end of the log.
func (r *RaftLog) remove(first, last uint64) {
	first, last = max(first, r.first), min(last, r.last)
	for i := first; i <= last && len(r.entries) > 0; i++ {
		r.live -= int64(len(r.entries[i]))
		delete(r.entries, i)
	}
	if len(r.entries) == 0 {
		r.first, r.last = 0, 0
		return
	}
	for r.entries[r.first] == nil {
		r.first++
	}
	for r.entries[r.last] == nil {
		r.last--
	}
}

// write stores a record durably and applies it. After an error it writes nothing any more, since the
// state of the file is not known.
func (r *RaftLog) write(kind recordKind, payload []byte) error {
	switch {
	case r.file == nil:
		return bbolt.ErrDatabaseNotOpen
	case r.failed != nil:
		return r.failed
	}
	record := appendRecord(nil, kind, payload)
	if _, err := r.file.WriteAt(record, r.size); err != nil {
		return r.fail(err)
	}
	if err := r.file.Sync(); err != nil {
		return r.fail(err)
	}
	r.size += int64(len(record))
	if err := r.apply(kind, payload); err != nil {
		return r.fail(err)
	}
	if r.size > compactBytes && r.size > 2*r.live {
		return r.compact()
	}
	return nil
}

func (r *RaftLog) fail(err error) error {
	r.failed = fmt.Errorf("write log %s: %w", r.name, err)
	return r.failed
}

// compact replaces the file by one without obsolete records. If it fails before it has replaced the
// file, the log goes on with the old one.
func (r *RaftLog) compact() error {
	content, temp := r.content(), r.name+compactSuffix
	file, err := r.fs.Create(temp)
	if err != nil {
		return r.abandon(err)
	}
	if _, err = file.WriteAt(content, 0); err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = r.fs.Rename(temp, r.name)
	}
	if err != nil {
		_ = file.Close() // the first error counts
		return r.abandon(err)
	}
	_ = r.file.Close() // nothing is written to it any more
	r.file, r.size = file, int64(len(content))
	if err := r.fs.SyncDir(filepath.Dir(r.name)); err != nil {
		return r.fail(err)
	}
	return nil
}

// abandon removes what a failed compaction has written. Only an error that leaves the disk in an
// unknown state ends the log: the record before the compaction is durable.
func (r *RaftLog) abandon(err error) error {
	if removeErr := r.fs.Remove(r.name + compactSuffix); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) {
		return r.fail(removeErr)
	}
	if !vfs.IsDiskFull(err) {
		return r.fail(err)
	}
	return nil
}

// content returns the records of the current state.
func (r *RaftLog) content() []byte {
	var content, payload []byte
	for _, key := range slices.Sorted(maps.Keys(r.values)) {
		content = appendRecord(content, recordValue, valuePayload(key, r.values[key]))
	}
	for i := r.first; i <= r.last && len(r.entries) > 0; i++ {
		payload = append(payload, r.entries[i]...)
		if len(payload) > 0 && (len(payload) >= compactRecord || i == r.last) {
			content = appendRecord(content, recordEntries, payload)
			payload = nil
		}
	}
	return content
}

func valuePayload(key string, value []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(key)))
	return append(append(b, key...), value...)
}

// FirstIndex implements raft.LogStore.
func (r *RaftLog) FirstIndex() (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first, r.readable()
}

// LastIndex implements raft.LogStore.
func (r *RaftLog) LastIndex() (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, r.readable()
}

func (r *RaftLog) readable() error {
	if r.file == nil {
		return bbolt.ErrDatabaseNotOpen
	}
	return nil
}

// GetLog implements raft.LogStore. It returns raft.ErrLogNotFound if there is no such entry.
func (r *RaftLog) GetLog(index uint64, l *raft.Log) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.readable(); err != nil {
		return err
	}
	entry := r.entries[index]
	if entry == nil {
		return raft.ErrLogNotFound
	}
	decodeEntry(entry, l)
	return nil
}

// StoreLog implements raft.LogStore.
func (r *RaftLog) StoreLog(l *raft.Log) error { return r.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. A crash leaves all or none of the entries.
func (r *RaftLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	var payload []byte
	for _, l := range logs {
		payload = appendEntry(payload, l)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write(recordEntries, payload)
}

// DeleteRange implements raft.LogStore. It deletes the entries from first to last, inclusive.
func (r *RaftLog) DeleteRange(first, last uint64) error {
	payload := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, first), last)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write(recordDeletion, payload)
}

// Set implements raft.StableStore.
func (r *RaftLog) Set(key, value []byte) error {
	if len(key) == 0 {
		return bbolt.ErrKeyRequired
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write(recordValue, valuePayload(string(key), value))
}

// Get implements raft.StableStore. It returns raftboltdb.ErrKeyNotFound if there is no value.
func (r *RaftLog) Get(key []byte) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.readable(); err != nil {
		return nil, err
	}
	value, ok := r.values[string(key)]
	if !ok {
		return nil, raftboltdb.ErrKeyNotFound
	}
	return cloneOrNil(value), nil
}

// SetUint64 implements raft.StableStore.
func (r *RaftLog) SetUint64(key []byte, value uint64) error {
	return r.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (r *RaftLog) GetUint64(key []byte) (uint64, error) {
	b, err := r.Get(key)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("value of %q has %d bytes, not 8", key, len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}

// Close implements io.Closer.
func (r *RaftLog) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}
