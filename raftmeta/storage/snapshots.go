package storage

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/internal/wire"
)

// doc.go specifies the snapshot file.
const (
	fileMagic       = "STELESNF"
	fileVersion     = 1
	fileHeaderBytes = 8 + 4 + 4 + 4
	// fileMetaBytesMax bounds the description, which has the ids and addresses of a few servers.
	fileMetaBytesMax = 64 << 10
	// MembersMax bounds the members of a group in a description.
	MembersMax = 1024

	// writeBufferBytes is the size of a frame of the stream.
	writeBufferBytes = 64 << 10

	SnapshotSuffix = ".snap"
	tempSuffix     = ".tmp"
	// SnapshotsKept is the number of snapshots to keep: the newest, which is the only one that is
	// ever read, and the previous one for the operator.
	SnapshotsKept = 2
)

// Snapshots stores snapshots as files of one directory. It implements raft.SnapshotStore.
//
// Raft's own file store keeps index and term in a JSON file without a checksum, so one flipped
// digit would make raft skip log entries. It also skips a snapshot whose description it cannot
// read, and raft would then start with less than was acknowledged.
type Snapshots struct {
	fs  vfs.FS
	dir string
	// onFail reports a failed fsync. It does not block.
	onFail func(error)
	// onDamage is called with a *CorruptError if a snapshot turns out to be corrupt while raft
	// runs. It does not block. May be nil.
	onDamage func(error)

	// mu guards the field in it. Never held across I/O.
	mu struct {
		sync.Mutex
		// damaged has the ids of snapshots that could not be read.
		damaged map[string]bool
	}
}

// OpenSnapshots creates the directory if necessary, and removes unfinished snapshots. onFail
// is called after a failed fsync, and onDamage, which may be nil, with a *CorruptError if a snapshot
// turns out to be corrupt while raft runs. Neither may block.
func OpenSnapshots(fsys vfs.FS, dir string, onFail, onDamage func(error)) (*Snapshots, error) {
	if err := vfs.MakeDir(fsys, dir); err != nil {
		return nil, fmt.Errorf("snapshot directory: %w", err)
	}
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read snapshot directory: %w", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, tempSuffix) {
			if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
				return nil, fmt.Errorf("remove unfinished snapshot: %w", err)
			}
		}
	}
	return &Snapshots{fs: fsys, dir: dir, onFail: onFail, onDamage: onDamage}, nil
}

// IDs returns the ids of the snapshots, newest first. An id begins with term and index in
// hexadecimal of fixed width, so ids sort by age.
func (s *Snapshots) IDs() ([]string, error) {
	names, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("read snapshot directory: %w", err)
	}
	var ids []string
	for _, name := range slices.Backward(names) {
		if id, ok := strings.CutSuffix(name, SnapshotSuffix); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (s *Snapshots) file(id string) string { return filepath.Join(s.dir, id+SnapshotSuffix) }

// List implements raft.SnapshotStore. It returns only the newest snapshot: raft would fall back to
// older ones if it cannot read the newest, and would then start with less than was acknowledged.
func (s *Snapshots) List() ([]*raft.SnapshotMeta, error) {
	ids, err := s.IDs()
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	meta, f, err := s.Open(ids[0])
	if err != nil {
		return nil, err
	}
	return []*raft.SnapshotMeta{meta}, f.Close()
}

// SnapshotFile reads and verifies the stream in a snapshot file. It implements io.ReadCloser.
type SnapshotFile struct {
	store  *Snapshots
	meta   *raft.SnapshotMeta
	f      vfs.File
	header int64 // bytes before the stream
	stream io.Reader
	check  *fsm.StreamCheck
}

// Read implements io.Reader. It returns io.EOF only at the end of a complete and valid stream.
func (s *SnapshotFile) Read(p []byte) (int, error) {
	n, err := s.stream.Read(p)
	_, bad := s.check.Write(p[:n])
	if err == io.EOF && bad == nil {
		bad = s.check.End()
	}
	if bad != nil {
		return 0, s.store.bad(s.meta.ID, s.locate(bad))
	}
	return n, err
}

// Description returns the description in the header of the file.
func (s *SnapshotFile) Description() *raft.SnapshotMeta { return s.meta }

// Close implements io.Closer.
func (s *SnapshotFile) Close() error { return s.f.Close() }

// locate adds the file and the offset to an error of fsm.ReadSnapshot or of a fsm.StreamCheck.
func (s *SnapshotFile) locate(err error) error {
	file := s.store.file(s.meta.ID)
	var known *CorruptError
	var newer *fsm.VersionError
	var at *fsm.StreamError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &newer):
		newer.File = file
		return newer
	case errors.As(err, &at) && errors.Is(err, fsm.ErrBadSnapshot):
		return &CorruptError{file, s.header + at.Offset, at.Err.Error()}
	}
	return fmt.Errorf("read snapshot %s: %w", file, err)
}

// Open implements raft.SnapshotStore. The error, also that of a read, is a *CorruptError or
// *VersionError if the file is invalid.
func (s *Snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	f, err := s.open(id)
	if err != nil {
		return nil, nil, err
	}
	return f.meta, f, nil
}

func (s *Snapshots) open(id string) (*SnapshotFile, error) {
	f, err := s.fs.OpenRead(s.file(id))
	if err != nil {
		return nil, fmt.Errorf("open snapshot: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open snapshot: %w", err), f.Close())
	}
	meta, header, err := readSnapshotHeader(io.NewSectionReader(f, 0, size), s.file(id))
	if err != nil {
		return nil, errors.Join(s.bad(id, err), f.Close())
	}
	meta.ID, meta.Size = id, size-header
	return &SnapshotFile{s, meta, f, header, io.NewSectionReader(f, header, meta.Size), fsm.NewStreamCheck()}, nil
}

// bad records that a snapshot is corrupt, if err is ErrCorrupt, and returns err.
func (s *Snapshots) bad(id string, err error) error {
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	s.mu.Lock()
	if s.mu.damaged == nil {
		s.mu.damaged = map[string]bool{}
	}
	s.mu.damaged[id] = true
	s.mu.Unlock()
	if s.onDamage != nil {
		s.onDamage(err)
	}
	return err
}

// dropDamaged removes the snapshots that could not be read. A newer one must have replaced them.
func (s *Snapshots) dropDamaged() error {
	s.mu.Lock()
	damaged := slices.Collect(maps.Keys(s.mu.damaged))
	s.mu.Unlock()
	for _, id := range damaged {
		if err := s.fs.Remove(s.file(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove corrupt snapshot: %w", err)
		}
		s.mu.Lock()
		delete(s.mu.damaged, id)
		s.mu.Unlock()
	}
	return nil
}

// Create implements raft.SnapshotStore.
func (s *Snapshots) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration,
	membersIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	meta := &raft.SnapshotMeta{
		Version:            version,
		Index:              index,
		Term:               term,
		Configuration:      members,
		ConfigurationIndex: membersIndex,
	}
	// Two snapshots of one index can only be the same state with different members. The time makes
	// their ids differ.
	meta.ID = fmt.Sprintf("%016x-%016x-%013x", term, index, time.Now().UnixMilli())
	temp := filepath.Join(s.dir, meta.ID+tempSuffix)
	f, err := s.fs.Create(temp)
	if err != nil {
		return nil, fmt.Errorf("create snapshot: %w", err)
	}
	sink := &SnapshotSink{store: s, meta: meta, temp: temp, f: f, check: fsm.NewStreamCheck()}
	sink.w = bufio.NewWriterSize(io.NewOffsetWriter(f, 0), writeBufferBytes)
	if _, err := sink.w.Write(encodeSnapshotHeader(meta)); err != nil {
		return nil, errors.Join(fmt.Errorf("create snapshot: %w", err), sink.Cancel())
	}
	return sink, nil
}

// retain removes all but the n newest snapshots, ignoring those known to be corrupt.
func (s *Snapshots) retain(n int) error {
	ids, err := s.IDs()
	if err != nil {
		return err
	}
	s.mu.Lock()
	ids = slices.DeleteFunc(ids, func(id string) bool { return s.mu.damaged[id] })
	s.mu.Unlock()
	for _, id := range ids[min(n, len(ids)):] {
		if err := s.fs.Remove(s.file(id)); err != nil {
			return fmt.Errorf("remove old snapshot: %w", err)
		}
	}
	return nil
}

// SnapshotSink writes a snapshot file. It implements raft.SnapshotSink.
type SnapshotSink struct {
	store *Snapshots
	meta  *raft.SnapshotMeta
	temp  string
	f     vfs.File
	w     *bufio.Writer
	check *fsm.StreamCheck
	done  bool
}

// Description returns the description of the snapshot.
func (s *SnapshotSink) Description() *raft.SnapshotMeta { return s.meta }

// ID implements raft.SnapshotSink.
func (s *SnapshotSink) ID() string { return s.meta.ID }

// Write implements raft.SnapshotSink. It rejects a corrupt stream, as may come from another server,
// as soon as it detects the corruption.
func (s *SnapshotSink) Write(b []byte) (int, error) {
	if _, err := s.check.Write(b); err != nil {
		return 0, err
	}
	return s.w.Write(b)
}

// Close implements raft.SnapshotSink. If the stream is complete, Close makes the snapshot durable
// and gives it its name; raft truncates the log afterwards. Closing again does nothing.
func (s *SnapshotSink) Close() error {
	if s.done {
		return nil
	}
	if err := s.check.End(); err != nil {
		return errors.Join(err, s.Cancel())
	}
	if err := s.w.Flush(); err != nil {
		return errors.Join(fmt.Errorf("write snapshot: %w", err), s.Cancel())
	}
	if err := s.sync("sync snapshot", s.f.Sync); err != nil {
		return errors.Join(err, s.Cancel())
	}
	s.done = true
	moment.Pass("a snapshot is durable without its name", "")
	if err := s.f.Close(); err != nil {
		return fmt.Errorf("close snapshot: %w", err)
	}
	if err := s.store.fs.Rename(s.temp, s.store.file(s.meta.ID)); err != nil {
		return fmt.Errorf("rename snapshot: %w", err)
	}
	err := s.sync("sync snapshot directory", func() error { return s.store.fs.SyncDir(s.store.dir) })
	if err != nil {
		return err
	}
	moment.Pass("a snapshot is durable", "")
	return errors.Join(s.store.dropDamaged(), s.store.retain(SnapshotsKept))
}

// sync calls f, which syncs a file or a directory, and reports its failure as that of the disk.
func (s *SnapshotSink) sync(what string, f func() error) error {
	start := time.Now()
	err := f()
	if err != nil {
		err = &DiskError{what, time.Since(start), err}
		s.store.onFail(err)
	}
	return err
}

// Cancel implements raft.SnapshotSink. It removes the file.
func (s *SnapshotSink) Cancel() error {
	if s.done {
		return nil
	}
	s.done = true
	return errors.Join(s.f.Close(), s.store.fs.Remove(s.temp))
}

// encodeSnapshotHeader returns the bytes of the file before the stream.
func encodeSnapshotHeader(meta *raft.SnapshotMeta) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(5)
	e.Uint(uint64(meta.Version))
	e.Uint(meta.Index)
	e.Uint(meta.Term)
	e.Uint(meta.ConfigurationIndex)
	e.Array(len(meta.Configuration.Servers))
	for _, s := range meta.Configuration.Servers {
		e.Array(3)
		e.Uint(uint64(s.Suffrage))
		e.Str(string(s.ID))
		e.Str(string(s.Address))
	}
	b := make([]byte, 0, fileHeaderBytes+e.Len())
	b = append(b, fileMagic...)
	b = binary.BigEndian.AppendUint32(b, fileVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(e.Len()))
	sum := crc.Sum(b, e.Bytes())
	b = binary.BigEndian.AppendUint32(b, sum)
	return append(b, e.Bytes()...)
}

// readSnapshotHeader reads the result of encodeSnapshotHeader, and also returns its size in bytes.
// file is the name for errors.
func readSnapshotHeader(r io.Reader, file string) (*raft.SnapshotMeta, int64, error) {
	corrupt := func(at int64, format string, args ...any) error {
		return &CorruptError{file, at, "snapshot header: " + fmt.Sprintf(format, args...)}
	}
	var h [fileHeaderBytes]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, 0, corrupt(0, "%v", err)
	}
	if string(h[:8]) != fileMagic {
		return nil, 0, corrupt(0, "bad magic")
	}
	n := binary.BigEndian.Uint32(h[12:])
	if n > fileMetaBytesMax {
		return nil, 0, corrupt(12, "description of %d bytes, at most %d", n, fileMetaBytesMax)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, 0, corrupt(12, "read description of %d bytes: %v", n, err)
	}
	sum := crc.Sum(h[:16], b)
	if got := binary.BigEndian.Uint32(h[16:]); got != sum {
		return nil, 0, corrupt(0, "checksum is %08x, not %08x", got, sum)
	}
	if v := binary.BigEndian.Uint32(h[8:]); v != fileVersion {
		return nil, 0, &fsm.VersionError{File: file, What: "snapshot file", Version: uint64(v), Known: fileVersion}
	}
	meta, err := decodeSnapshotMeta(b)
	if err != nil {
		return nil, 0, corrupt(fileHeaderBytes, "%v", err)
	}
	return meta, fileHeaderBytes + int64(n), nil
}

// descriptionError returns what is wrong with a description.
func descriptionError(d *wire.Decoder) error {
	if err := d.Err(); err != nil {
		return err
	}
	return errors.New("wrong number of values, or one out of range")
}

func decodeSnapshotMeta(b []byte) (*raft.SnapshotMeta, error) {
	d := wire.NewDecoder(b)
	n := d.Array()
	meta := &raft.SnapshotMeta{
		Version: raft.SnapshotVersion(d.Uint()),
		Index:   d.Uint(),
		Term:    d.Uint(),
	}
	meta.ConfigurationIndex = d.Uint()
	servers := d.ArrayMax(MembersMax)
	for range servers {
		if d.Array() != 3 {
			return nil, descriptionError(&d)
		}
		meta.Configuration.Servers = append(meta.Configuration.Servers, raft.Server{
			Suffrage: raft.ServerSuffrage(d.Uint()),
			ID:       raft.ServerID(d.Str()),
			Address:  raft.ServerAddress(d.Str()),
		})
	}
	if d.Err() != nil || n != 5 || d.More() {
		return nil, descriptionError(&d)
	}
	return meta, nil
}
