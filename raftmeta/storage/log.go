package storage

import (
	"encoding/binary"
	"fmt"
	"io"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/stall"
	"go.etcd.io/bbolt"
)

// Log stores the log, and raft's term and vote, in one bbolt file. It implements raft.LogStore
// and raft.StableStore on raft-boltdb, and adds a checksum of each value, a deadline for each
// write, and no write after the first failure.
type Log struct {
	opt  LogOptions
	bolt Backend
	// end is the last entry that the newest snapshot covers, once the state in memory includes it;
	// nil before the first snapshot. Raft reads it when it checks the entries that follow, and it
	// may no longer be in the log.
	end atomic.Pointer[EntryID]

	// recent caches new entries, which raft reads again to send and to apply them.
	recent recentEntries

	// broken is the first failure. Nothing is written after it is set.
	broken atomic.Pointer[error]
	// serving is set once raft runs. From then on an error on which raft would panic blocks its
	// goroutine instead.
	serving atomic.Bool

	writes  atomic.Uint64 // calls of StoreLogs
	entries atomic.Uint64 // entries stored
	bytes   atomic.Uint64 // bytes in them
	nanos   atomic.Uint64 // time spent storing them
}

// LogOptions are the options of a Log.
type LogOptions struct {
	// File is the name of the file, for errors.
	File string
	// StallTimeout returns the time limit of a write.
	StallTimeout func() time.Duration
	// OnFail reports a *DiskError or *CorruptError. It must not block.
	OnFail func(error)
	// OnStored is called after entries were stored, with the bytes that they count toward a
	// snapshot. It must not block. May be nil.
	OnStored func(bytes int64)
	// Members receives the configurations in the log. May be nil.
	Members Configurations
}

// Configurations receives each configuration that is in the log.
type Configurations interface {
	// Logged is called with an entry that was stored or read.
	Logged(l *raft.Log)
	// Truncated is called after the entries at index and after it were deleted.
	Truncated(index uint64)
}

// NewLog returns the log in a file that bolt has open.
func NewLog(bolt Backend, o LogOptions) *Log { return &Log{opt: o, bolt: bolt} }

// SetServing records that raft runs.
func (s *Log) SetServing() { s.serving.Store(true) }

// SnapshotEnd returns the last entry that the newest snapshot covers, once the state in memory
// includes it; nil before the first snapshot.
func (s *Log) SnapshotEnd() *EntryID { return s.end.Load() }

// LogCounters count what was stored since the log was opened.
type LogCounters struct {
	Writes, Entries, Bytes uint64
	Time                   time.Duration
}

// Counters returns the counters.
func (s *Log) Counters() LogCounters {
	return LogCounters{s.writes.Load(), s.entries.Load(), s.bytes.Load(), time.Duration(s.nanos.Load())}
}

// EntryID identifies a log entry: entries with equal index and term are equal.
type EntryID struct{ Index, Term uint64 }

// coveredType is the type of an entry that a snapshot covers and that is not in the log. Raft only
// compares its term. It is not one of raft's types, so that raft would refuse to apply the entry,
// and another server to store it.
const coveredType raft.LogType = 0xff

// Backend is the part of raft-boltdb that a Log uses. What a call has stored is durable when it
// returns nil, and a crash leaves all or nothing of it. Get returns an error with the text "not
// found" if there is no value, and GetLog raft.ErrLogNotFound. SetUint64 and GetUint64 are not used.
type Backend interface {
	raft.LogStore
	raft.StableStore
	io.Closer
}

// OpenFunc opens the store that is the file of that name, or creates it, with all that it needs in
// that one file: a closed store is renamed, and found by its file.
type OpenFunc func(file string) (Backend, error)

const (
	// boltLockTimeout bounds the wait for the lock of the bbolt file. The lock of the data
	// directory is already held, so no other process should have it.
	boltLockTimeout = time.Second
	// deleteChunk is the number of entries that one transaction deletes. Writers wait while it
	// runs: 4096 small entries take about 1 ms.
	deleteChunk = 4096
	// entryOverhead is the size counted for an entry beside its data: bbolt's element, the key, and
	// the names of the fields.
	entryOverhead = 128

	sumVersion = 1
	entrySum   = 1 + 4 // bytes in raft.Log.Extensions
	stableSum  = 4     // bytes after each value of the stable store
)

// OpenBolt opens or creates a bbolt file as raft's store.
func OpenBolt(file string) (Backend, error) {
	bolt, err := raftboltdb.New(raftboltdb.Options{
		Path: file,
		BoltOptions: &bbolt.Options{
			Timeout: boltLockTimeout,
			// The free list is rebuilt on open. Writing it with each commit costs more than the
			// entries once a snapshot has freed many pages.
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", file, err)
	}
	return bolt, nil
}

// guard runs f, which reads or writes the file. bbolt maps the file, so an unreadable page causes a
// fault and a corrupt one may fail an assertion. guard converts both to a *DiskError.
func (s *Log) guard(what string, f func() error) (err error) {
	start := time.Now()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = s.failed(&DiskError{what, time.Since(start), fmt.Errorf("%v", r)})
		}
	}()
	return f()
}

// write runs f, which changes the file, with a deadline. No write follows the first failure: the
// kernel may have dropped the pages it could not write, so a later successful fsync proves nothing.
func (s *Log) write(what string, f func() error) error {
	if p := s.broken.Load(); p != nil {
		return *p
	}
	start := time.Now()
	w := stall.After(s.opt.StallTimeout(), func() {
		_ = s.failed(&DiskError{what, time.Since(start), ErrStalled})
	})
	err := s.guard(what, f)
	w.Stop()
	if p := s.broken.Load(); p != nil {
		// The write ended after all, but the deadline has been reported:
		// nothing may be acknowledged from here on.
		return *p
	}
	if err != nil {
		return s.failed(&DiskError{what, time.Since(start), err})
	}
	return nil
}

// failed records err as the failure that stops all writes, unless one is recorded already. It
// returns the recorded failure.
func (s *Log) failed(err error) error {
	if s.broken.CompareAndSwap(nil, &err) {
		s.opt.OnFail(err)
	}
	return *s.broken.Load()
}

// park returns err before raft runs, and never returns afterwards. Raft panics if it cannot read an
// entry or save its term, and a panic in its goroutine cannot be recovered. The failure has been
// reported, so the process is about to exit with a proper message.
func (s *Log) park(err error) error {
	if s.serving.Load() {
		select {}
	}
	return err
}

// place describes where entries are in the log, for their moment.
func (s *Log) place(logs []*raft.Log) string {
	if end := s.end.Load(); end != nil && len(logs) > 0 && logs[0].Index == end.Index+1 {
		return "right after a snapshot"
	}
	return ""
}

// StoreLog implements raft.LogStore.
func (s *Log) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. The entries are durable when it returns nil. If the entries
// do not follow the end of the log, the error is a *GapError and none is stored: a log with a gap
// fails verification at the next start.
func (s *Log) StoreLogs(logs []*raft.Log) error {
	start := time.Now()
	if err := s.checkNext(logs); err != nil {
		return err
	}
	summed := make([]*raft.Log, len(logs))
	sums := make([]byte, 0, entrySum*len(logs))
	var bytes int64
	for i, l := range logs {
		at := len(sums)
		sums = append(sums, sumVersion)
		sums = binary.BigEndian.AppendUint32(sums, sumEntry(l))
		c := *l
		c.Extensions = sums[at:len(sums):len(sums)]
		summed[i] = &c
		bytes += entryBytes(l)
	}
	if err := s.write("store log entries", func() error { return s.bolt.StoreLogs(summed) }); err != nil {
		return err
	}
	moment.Pass("entries of Raft are durable", s.place(logs))
	for _, l := range logs {
		s.recent.put(l)
		if l.Type == raft.LogConfiguration && s.opt.Members != nil {
			s.opt.Members.Logged(l)
		}
	}
	s.writes.Add(1)
	s.entries.Add(uint64(len(logs)))
	s.bytes.Add(uint64(bytes))
	s.nanos.Add(uint64(time.Since(start)))
	if s.opt.OnStored != nil {
		s.opt.OnStored(bytes)
	}
	return nil
}

// checkNext returns a *GapError unless logs follow the end of the log, or the newest snapshot if
// the log is empty.
func (s *Log) checkNext(logs []*raft.Log) error {
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	if end := s.end.Load(); last == 0 && end != nil {
		last = end.Index
	}
	for _, l := range logs {
		if last++; l.Index != last {
			return &GapError{Index: l.Index, Want: last}
		}
	}
	return nil
}

// entryBytes returns the size that an entry counts toward the next snapshot.
func entryBytes(l *raft.Log) int64 { return int64(len(l.Data)) + entryOverhead }

// sumEntry returns the CRC-32C of an entry: index, term, type, time, data.
func sumEntry(l *raft.Log) uint32 {
	var h [25]byte
	binary.BigEndian.PutUint64(h[:], l.Index)
	binary.BigEndian.PutUint64(h[8:], l.Term)
	h[16] = byte(l.Type)
	binary.BigEndian.PutUint64(h[17:], uint64(l.AppendedAt.UnixNano()))
	return crc.Sum(h[:], l.Data)
}

// checkEntry returns what is wrong with the entry stored at index, or an empty string.
func checkEntry(index uint64, l *raft.Log) string {
	switch {
	case len(l.Extensions) != entrySum || l.Extensions[0] != sumVersion:
		return fmt.Sprintf("log entry %d has no checksum of version %d", index, sumVersion)
	case l.Index != index:
		return fmt.Sprintf("log entry %d has index %d", index, l.Index)
	}
	if got, want := binary.BigEndian.Uint32(l.Extensions[1:]), sumEntry(l); got != want {
		return fmt.Sprintf("checksum of log entry %d is %08x, not %08x", index, got, want)
	}
	return ""
}

// GetLog implements raft.LogStore.
func (s *Log) GetLog(index uint64, l *raft.Log) error {
	if s.recent.get(index, l) {
		return nil
	}
	err := s.guard("read log entry", func() error { return s.bolt.GetLog(index, l) })
	if err == raft.ErrLogNotFound {
		if end := s.end.Load(); end != nil && end.Index == index && !planted.On(planted.SnapshotEndForgotten) {
			*l = raft.Log{Index: end.Index, Term: end.Term, Type: coveredType}
			return nil
		}
		return err
	}
	if err == nil {
		if bad := checkEntry(index, l); bad != "" {
			err = &CorruptError{File: s.opt.File, Reason: bad}
		}
	}
	if err != nil {
		return s.park(s.failed(err))
	}
	l.Extensions = nil
	if l.Type == raft.LogConfiguration && s.opt.Members != nil {
		s.opt.Members.Logged(l)
	}
	return nil
}

// Covered records that the newest snapshot ends with the entry e. A snapshot that began before
// another one was installed may be reported later; it is ignored.
func (s *Log) Covered(e EntryID) {
	for {
		old := s.end.Load()
		if old != nil && old.Index >= e.Index || s.end.CompareAndSwap(old, &e) {
			return
		}
	}
}

// Holds reports whether the log contains that entry, or the newest snapshot ends with it.
func (s *Log) Holds(e EntryID) bool {
	var l raft.Log
	return s.GetLog(e.Index, &l) == nil && l.Term == e.Term
}

// IsMonotonic implements raft.MonotonicLogStore. A snapshot from another server replaces the whole
// log, so the log never has a gap, which is also what a lost page would look like.
func (s *Log) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore.
func (s *Log) FirstIndex() (index uint64, err error) {
	err = s.guard("read log", func() error { index, err = s.bolt.FirstIndex(); return err })
	return index, err
}

// LastIndex implements raft.LogStore.
func (s *Log) LastIndex() (index uint64, err error) {
	err = s.guard("read log", func() error { index, err = s.bolt.LastIndex(); return err })
	return index, err
}

// DeleteRange implements raft.LogStore. It deletes the entries from first to last, inclusive, in
// transactions of bounded size. A crash between transactions leaves no gap: if newer entries
// remain, the oldest entries are deleted first, otherwise the newest.
func (s *Log) DeleteRange(first, last uint64) error {
	newest, err := s.LastIndex()
	if err != nil {
		return err
	}
	from, oldEnd := first, last < newest
	moment.Pass("before entries of Raft are deleted", "")
	s.recent.remove(first, last)
	for first <= last {
		lo, hi := first, last
		if n := hi - lo + 1; n > deleteChunk && oldEnd {
			hi = lo + deleteChunk - 1
		} else if n > deleteChunk {
			lo = hi - deleteChunk + 1
		}
		if oldEnd {
			first = hi + 1
		} else {
			last = lo - 1
		}
		if err := s.write("delete log entries", func() error { return s.bolt.DeleteRange(lo, hi) }); err != nil {
			return err
		}
	}
	if !oldEnd && s.opt.Members != nil {
		s.opt.Members.Truncated(from)
	}
	return nil
}

// Set implements raft.StableStore.
func (s *Log) Set(key, value []byte) error {
	b := append(make([]byte, 0, len(value)+stableSum), value...)
	b = binary.BigEndian.AppendUint32(b, sumStable(key, value))
	if err := s.write("store raft state", func() error { return s.bolt.Set(key, b) }); err != nil {
		return s.park(err)
	}
	return nil
}

func sumStable(key, value []byte) uint32 {
	return crc.Sum(key, value)
}

// cutStable returns the value without its checksum, or what is wrong with it.
func cutStable(key, b []byte) (value []byte, bad string) {
	if len(b) < stableSum {
		return nil, fmt.Sprintf("value of %q has no checksum", key)
	}
	value, tail := b[:len(b)-stableSum], b[len(b)-stableSum:]
	if got, want := binary.BigEndian.Uint32(tail), sumStable(key, value); got != want {
		return nil, fmt.Sprintf("checksum of the value of %q is %08x, not %08x", key, got, want)
	}
	return value, ""
}

// Get implements raft.StableStore. The error is raftboltdb.ErrKeyNotFound if there is no value.
func (s *Log) Get(key []byte) (value []byte, err error) {
	err = s.guard("read raft state", func() error { value, err = s.bolt.Get(key); return err })
	if err != nil {
		return nil, err
	}
	value, bad := cutStable(key, value)
	if bad != "" {
		return nil, s.failed(&CorruptError{File: s.opt.File, Reason: bad})
	}
	return value, nil
}

// SetUint64 implements raft.StableStore.
func (s *Log) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements raft.StableStore.
func (s *Log) GetUint64(key []byte) (uint64, error) {
	b, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(b) != 8 {
		return 0, s.failed(&CorruptError{File: s.opt.File, Reason: fmt.Sprintf("value of %q has %d bytes, not 8", key, len(b))})
	}
	return binary.BigEndian.Uint64(b), nil
}
