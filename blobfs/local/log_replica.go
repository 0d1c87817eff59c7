package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/vfs"
)

// LogOpen makes a replica of an extent of a log.
type LogOpen struct {
	Log    ID
	Server string // whose log it is, at most 64 bytes
	Seq    uint64
	Epoch  uint64
	Salt   uint64 // of the extent, random; the same on all replicas
	// Vital means that the extent may take a folder down to half of its reserve.
	Vital bool
}

// LogAppend is frames for a replica.
type LogAppend struct {
	Log        ID
	Seq, Epoch uint64
	Start, Pos int64  // of the extent, and of the first frame
	Frames     []byte // whole frames, as EncodeLogFrame makes them
	// Trusted means that the caller has made the frames itself, so that they need not be
	// checked.
	Trusted bool
}

// LogCut is what the log's list says of a sealed extent.
type LogCut struct {
	Log ID
	logproto.CutRequest
}

// LogReplicaInfo is what the store knows of a replica.
type LogReplicaInfo struct {
	Log    ID
	Server string
	Seq    uint64
	Salt   uint64
	logproto.Meta
	Durable int64 // bytes of frames; 0 if not known yet, after the store was opened
	Bytes   int64 // of the file
	// Damage is set if the replica is not to be trusted.
	Damage error
	// QuarantineRound and QuarantinedSince are set if it is in quarantine.
	QuarantineRound  uint64
	QuarantinedSince time.Time
	born             uint64
}

// logReplicas are the store's replicas of extents of logs.
type logReplicas struct {
	// mu guards logs. Never held across I/O.
	mu   sync.Mutex
	logs map[ID]*replicaLog
}

// replicaLog is what this node has of one log.
type replicaLog struct {
	id ID
	// op makes all that changes headers take turns. Held across I/O. Taken before mu and
	// before an extent's io.
	op sync.Mutex
	// mu guards what follows, with what it points to. Never held across I/O.
	mu      sync.Mutex
	r       logproto.Replica
	extents map[uint64]*replicaExtent
}

// replicaExtent is one replica.
type replicaExtent struct {
	log *replicaLog
	x   *logproto.ReplicaExtent
	f   *logFile

	// io is held by whoever writes the file. Taken before replicaLog.mu.
	io   sync.Mutex
	file vfs.File // open while it is written; guarded by io

	// Guarded by log.mu, like x and f.header.
	loaded   bool          // its end is known, and header and end are on disk
	damage   error         // why it is not to be trusted
	stopped  bool          // a fence or cut is under way: nothing more is queued
	flushing bool          // somebody writes what is queued
	queue    []byte        // room for a page, then frames
	waiters  []queueWaiter // those that wait for what is queued
	other    []byte        // the queue's other buffer
	born     uint64        // round of the sweep when it was made
	// quarantinedSince is when it was put into quarantine, zero if it is not there. It changes only with
	// op held as well.
	quarantinedSince time.Time
}

type queueWaiter struct {
	end  int64 // bytes of frames
	done func(length int64, err error)
}

// queueBytesMax bounds the frames that wait for a replica's disk. The writer has a window that
// is smaller.
const queueBytesMax = 16 << 20

func (rs *logReplicas) init() { rs.logs = make(map[ID]*replicaLog) }

// log returns what is known of a log; with add it makes an entry.
func (rs *logReplicas) log(id ID, add bool) *replicaLog {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	l := rs.logs[id]
	if l == nil && add {
		l = &replicaLog{id: id, extents: make(map[uint64]*replicaExtent)}
		rs.logs[id] = l
	}
	return l
}

// all returns what is known of all logs.
func (rs *logReplicas) all() []*replicaLog {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Collect(maps.Values(rs.logs))
}

// adopt takes a replica that was found when the store is opened. It takes no appends.
func (rs *logReplicas) adopt(s *Store, f *logFile) {
	h := f.header
	l := rs.log(h.log, true)
	if old := l.extents[h.seq]; old != nil {
		// A refill in another folder was cut short, or a removal was not durable.
		s.cfg.Logger.Warn("log extent has two replicas on one node", "log", h.log, "extent", h.seq, "file", f.path(), "other", old.f.path())
		if !preferred(h, old.f.header) {
			return
		}
		l.r.Remove(h.seq)
	}
	x := &logproto.ReplicaExtent{Seq: h.seq, Closed: true}
	x.Restart(h.meta(), h.meta().Length)
	l.r.Add(x)
	l.extents[h.seq] = &replicaExtent{log: l, x: x, f: f, quarantinedSince: h.quarantineAge()}
}

func preferred(a, b logHeader) bool {
	if a.sealed != b.sealed {
		return a.sealed
	}
	return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.fence, b.fence)) > 0
}

func (h *logHeader) meta() logproto.Meta {
	return logproto.Meta{Epoch: h.epoch, Fence: h.fence, Started: h.started, Start: h.start, Sealed: h.sealed, Length: h.length}
}

// with returns the header that says m.
func (h logHeader) with(m logproto.Meta) logHeader {
	h.generation++
	h.epoch, h.fence, h.started, h.start = m.Epoch, m.Fence, m.Started, m.Start
	h.sealed, h.length = m.Sealed, m.Length
	return h
}

// close lets go of the files. No call is under way.
func (rs *logReplicas) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, l := range rs.logs {
		for _, e := range l.extents {
			e.io.Lock()
			e.closeFile()
			e.io.Unlock()
		}
	}
}

func (e *replicaExtent) closeFile() {
	if e.file != nil {
		e.file.Close()
		e.file = nil
	}
}

// LogReplicas lists the replicas, by log and extent.
func (s *Store) LogReplicas() []LogReplicaInfo {
	logs := s.replicas.all()
	slices.SortFunc(logs, func(a, b *replicaLog) int { return cmp.Compare(string(a.id[:]), string(b.id[:])) })
	var infos []LogReplicaInfo
	for _, l := range logs {
		l.mu.Lock()
		for _, x := range l.r.Extents {
			infos = append(infos, l.extents[x.Seq].infoLocked())
		}
		l.mu.Unlock()
	}
	return infos
}

func (e *replicaExtent) infoLocked() LogReplicaInfo {
	h := &e.f.header
	return LogReplicaInfo{
		Log: h.log, Server: h.server, Seq: h.seq, Salt: h.salt, Meta: e.x.Meta,
		Durable: e.x.Durable, Bytes: h.bytes, Damage: e.damage,
		QuarantineRound: h.quarantineRound, QuarantinedSince: e.quarantinedSince, born: e.born,
	}
}

// StatLogReplica returns what is known of a replica, or logproto.ErrNoExtent.
func (s *Store) StatLogReplica(log ID, seq uint64) (LogReplicaInfo, error) {
	l := s.replicas.log(log, false)
	if l == nil {
		return LogReplicaInfo{}, logproto.ErrNoExtent
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.extents[seq]
	if e == nil {
		return LogReplicaInfo{}, logproto.ErrNoExtent
	}
	return e.infoLocked(), nil
}

// OpenLogReplica makes an empty replica, durably, and returns how many bytes of frames it takes. To
// open it again before anything was appended does nothing. *logproto.FencedError,
// logproto.ErrExtentExists, ErrDiskFull, ErrFolderRetired, ErrReadOnly, ErrClosed.
func (s *Store) OpenLogReplica(ctx context.Context, o LogOpen) (room int64, err error) {
	if o.Seq == 0 || o.Epoch == 0 || len(o.Server) > logServerBytesMax {
		return 0, fmt.Errorf("open extent %d of log %s: bad number, epoch or server", o.Seq, o.Log)
	}
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.end()
	s.spares.start()
	l := s.replicas.log(o.Log, true)
	l.op.Lock()
	defer l.op.Unlock()
	l.mu.Lock()
	meta, fresh, err := l.r.NextOpen(logproto.OpenRequest{Seq: o.Seq, Epoch: o.Epoch})
	e := l.extents[o.Seq]
	if err == nil && !fresh && (e.f.header.salt != o.Salt || e.x.Closed) {
		err = logproto.ErrExtentExists
	}
	l.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if fresh {
		if e, err = s.makeReplica(l, o, meta); err != nil {
			return 0, err
		}
	}
	return e.f.header.bytes - pageBytes, nil
}

// makeReplica makes a spare the replica of an extent. Called with l.op held.
func (s *Store) makeReplica(l *replicaLog, o LogOpen, meta logproto.Meta) (*replicaExtent, error) {
	var f *logFile
	for tries := 0; ; tries++ {
		var err error
		if f, err = s.spares.take(o.Vital); err != nil {
			return nil, err
		}
		h := logHeader{
			state: logFileReplica, generation: f.header.generation, bytes: f.header.bytes,
			log: o.Log, seq: o.Seq, salt: o.Salt, server: o.Server,
		}
		err = f.writeHeader(h.with(meta))
		if err == nil {
			break
		}
		if !f.folder.failed(err) || tries > len(s.folders) {
			s.spares.adopt(f)
			return nil, err
		}
	}
	x := &logproto.ReplicaExtent{Seq: o.Seq, Meta: meta}
	e := &replicaExtent{log: l, x: x, f: f, loaded: true, born: s.round.Load()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.r.Add(x)
	l.extents[o.Seq] = e
	return e, nil
}

// FenceLog durably refuses all writers of the log of lower epochs, and returns what it has
// of its extents. Those that it cannot fence or that are damaged are not among them: of these nothing
// is known, and nothing more is acknowledged. A *logproto.FencedError if a higher epoch was seen.
func (s *Store) FenceLog(ctx context.Context, log ID, epoch uint64) ([]logproto.State, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	l := s.replicas.log(log, true)
	l.op.Lock()
	defer l.op.Unlock()
	m := logproto.FenceRequest{Epoch: epoch}
	l.mu.Lock()
	err := l.r.BeginFence(m)
	all := slices.Clone(l.r.Extents)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for _, x := range all {
		e := l.extents[x.Seq] // changes only with op held
		if err := s.fenceExtent(e, m); err != nil {
			s.cfg.Logger.Warn("replica of a log extent cannot be fenced", "log", log, "extent", x.Seq, "err", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	states := l.r.States(m)
	return slices.DeleteFunc(states, func(st logproto.State) bool {
		e := l.extents[st.Seq]
		return e.damage != nil || !e.loaded
	}), nil
}

func (s *Store) fenceExtent(e *replicaExtent, m logproto.FenceRequest) error {
	e.log.mu.Lock()
	meta, need := e.x.NextFence(m)
	e.log.mu.Unlock()
	if err := s.load(e); err != nil || !need {
		return err
	}
	return s.change(e, meta, &logproto.FencedError{Epoch: m.Epoch})
}

// change makes meta durable. What is queued is refused with cause. The folder's failure makes the
// replica one that is not to be trusted.
func (s *Store) change(e *replicaExtent, meta logproto.Meta, cause error) error {
	l := e.log
	l.mu.Lock()
	e.stopped = true
	l.mu.Unlock()
	e.io.Lock()
	defer e.io.Unlock()
	l.mu.Lock()
	waiters := e.waiters
	e.waiters, e.queue = nil, e.queue[:0]
	err := e.damage
	// Bytes may have become durable since meta was made.
	meta.Started = meta.Started || e.x.Started
	if !meta.Sealed {
		meta.Start = e.x.Start
	}
	h := e.f.header.with(meta)
	l.mu.Unlock()
	for _, w := range waiters {
		w.done(0, cause)
	}
	if err != nil {
		return err
	}
	e.closeFile()
	if err := e.f.writeHeaderLocked(h, &l.mu); err != nil {
		l.mu.Lock()
		e.x.Closed, e.damage = true, err
		l.mu.Unlock()
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.r.Commit(e.x, meta)
	e.queue, e.other = nil, nil
	e.stopped = false
	return nil
}

// writeHeaderLocked is writeHeader for a file whose header others read under mu.
func (f *logFile) writeHeaderLocked(h logHeader, mu *sync.Mutex) error {
	copied := logFile{folder: f.folder, name: f.name, header: f.header}
	if err := copied.writeHeader(h); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	f.header = h
	return nil
}

// CutLog cuts a replica to what the log's list says of it; from then on it can be read. A
// *logproto.ShortError if it has less: RefillLog. ErrMismatch if it was cut otherwise. A
// *CorruptError if its bytes are damaged before that length.
func (s *Store) CutLog(ctx context.Context, c LogCut) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	l, e, err := s.lockReplica(c.Log, c.Seq)
	if err != nil {
		return err
	}
	defer l.op.Unlock()
	if err := e.checkCut(c); err != nil {
		return err
	}
	if err := s.useReplica(e); err != nil {
		return err
	}
	if err := s.load(e); err != nil {
		return err
	}
	l.mu.Lock()
	meta, need, err := e.x.NextCut(c.CutRequest)
	l.mu.Unlock()
	if err != nil || !need {
		return err
	}
	return s.change(e, meta, logproto.ErrExtentClosed)
}

// lockReplica returns a replica with its log's op held.
func (s *Store) lockReplica(log ID, seq uint64) (*replicaLog, *replicaExtent, error) {
	l := s.replicas.log(log, false)
	if l == nil {
		return nil, nil, logproto.ErrNoExtent
	}
	l.op.Lock()
	e := l.extents[seq]
	if e == nil {
		l.op.Unlock()
		return nil, nil, logproto.ErrNoExtent
	}
	return l, e, nil
}

func (e *replicaExtent) checkCut(c LogCut) error {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	if c.Start < 0 || c.Length < 0 || c.Length > e.f.header.bytes-pageBytes || c.Length%pageBytes != 0 {
		return fmt.Errorf("cut extent %d of log %s to %d bytes from %d on: %w", c.Seq, c.Log, c.Length, c.Start, logproto.ErrMismatch)
	}
	return nil
}

// ReadLogReplica reads up to len(p) bytes of frames of a replica, which must have been cut to that
// start and length: logproto.ErrUncut. The bytes are not verified: whoever takes the frames apart
// does that.
func (s *Store) ReadLogReplica(ctx context.Context, log ID, seq uint64, start, length int64, p []byte, off int64) (int, error) {
	if err := s.beginReadOnly(ctx); err != nil {
		return 0, err
	}
	defer s.end()
	l := s.replicas.log(log, false)
	if l == nil {
		return 0, logproto.ErrNoExtent
	}
	l.mu.Lock()
	e := l.extents[seq]
	if e == nil {
		l.mu.Unlock()
		return 0, logproto.ErrNoExtent
	}
	err := e.x.Read(start, length)
	f, kept := e.f, !e.quarantinedSince.IsZero()
	l.mu.Unlock()
	if err == nil && kept {
		l.op.Lock()
		err = s.useReplica(e)
		l.op.Unlock()
	}
	if err != nil {
		return 0, err
	}
	if off < 0 || off > length {
		return 0, fmt.Errorf("read log extent at %d of %d bytes", off, length)
	}
	file, err := f.folder.fs.OpenRead(f.path())
	if err != nil {
		return 0, damaged(err)
	}
	defer file.Close()
	p = p[:min(int64(len(p)), length-off)]
	n, err := readFull(file, p, pageBytes+off)
	if err != nil {
		return n, readError(err, f.path(), pageBytes+off)
	}
	return n, nil
}

// DropLogReplica removes a replica. One that is not there is no error.
func (s *Store) DropLogReplica(ctx context.Context, log ID, seq uint64) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	l, e, err := s.lockReplica(log, seq)
	if errors.Is(err, logproto.ErrNoExtent) {
		return nil
	}
	defer l.op.Unlock()
	return s.dropReplica(e)
}

// dropReplica is called with the log's op held.
func (s *Store) dropReplica(e *replicaExtent) error {
	l := e.log
	l.mu.Lock()
	e.stopped = true
	l.mu.Unlock()
	e.io.Lock()
	defer e.io.Unlock()
	l.mu.Lock()
	waiters := e.waiters
	e.waiters, e.queue = nil, nil
	l.r.Remove(e.x.Seq)
	delete(l.extents, e.x.Seq)
	l.mu.Unlock()
	for _, w := range waiters {
		w.done(0, logproto.ErrNoExtent)
	}
	e.closeFile()
	return s.spares.recycleFile(e.f)
}

// ListLogReplicas returns up to max replicas, by log and extent, from the first after the one given.
func (s *Store) ListLogReplicas(log ID, seq uint64, max int) []LogReplicaInfo {
	all := s.LogReplicas()
	i, found := slices.BinarySearchFunc(all, seq, func(x LogReplicaInfo, seq uint64) int {
		return cmp.Or(cmp.Compare(string(x.Log[:]), string(log[:])), cmp.Compare(x.Seq, seq))
	})
	if found {
		i++
	}
	return all[i:min(i+max, len(all))]
}
