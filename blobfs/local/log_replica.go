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
	"github.com/steledb/stele/internal/invariant"
	"github.com/steledb/stele/internal/vfs"
)

// LogOpen is a request to create a replica of a log extent.
type LogOpen struct {
	Log    ID
	Server string // that owns the log, at most 64 bytes
	Seq    uint64
	Epoch  uint64
	Salt   uint64 // of the extent, random; the same on all replicas
	// HighPriority means high priority: the extent may use half of a folder's reserve.
	HighPriority bool
}

// LogAppend is an append of frames to a replica.
type LogAppend struct {
	Log        ID
	Seq, Epoch uint64
	Start, Pos int64  // of the extent, and of the first frame
	Frames     []byte // whole frames, as EncodeLogFrame makes them
	// Trusted means that the caller encoded the frames itself, so they are not checked.
	Trusted bool
}

// LogCut is the entry of a sealed extent in the log's extent list.
type LogCut struct {
	Log ID
	logproto.CutRequest
}

// LogReplicaInfo is the store's state of a replica.
type LogReplicaInfo struct {
	Log    ID
	Server string
	Seq    uint64
	Salt   uint64
	logproto.Meta
	Durable int64 // bytes of frames; 0 if not yet known after Open
	Bytes   int64 // of the file
	// Damage is set if the replica must not be used.
	Damage error
	// QuarantineRound and QuarantinedSince are set if the replica is in quarantine.
	QuarantineRound  uint64
	QuarantinedSince time.Time
	createdRound     uint64
}

// logReplicas are the replicas of log extents in the store.
type logReplicas struct {
	*disks
	alarms *alarms

	// mu guards logs. Never held across I/O.
	mu   sync.Mutex
	logs map[ID]*replicaLog
}

// replicaLog is this node's state of one log.
type replicaLog struct {
	id ID
	// op serializes changes of headers. Held across I/O. Order: op, replicaExtent.io, mu.
	op sync.Mutex
	// mu guards the fields below and what they point to. Never held across I/O.
	mu      sync.Mutex
	r       logproto.Replica
	extents map[uint64]*replicaExtent
}

// replicaExtent is one replica.
type replicaExtent struct {
	log *replicaLog
	x   *logproto.ReplicaExtent
	f   *logFile

	// io is held while writing the file. It is acquired before replicaLog.mu.
	io   sync.Mutex
	file vfs.File // open while it is written; guarded by io

	// Guarded by log.mu, like x and f.header.
	loaded       bool          // its end is known and durable, with the header
	damage       error         // why it must not be used; nil if it may
	stopped      bool          // a fence or cut is in progress: appends are rejected
	flushing     bool          // a goroutine is writing the queue
	queue        []byte        // space for a header page, then frames
	waiters      []queueWaiter // callbacks of queued appends
	other        []byte        // spare buffer for queue
	createdRound uint64        // round of the sweep when it was made
	// quarantinedSince is when the replica was put into quarantine; zero if it is not there. It
	// changes only with op held as well.
	quarantinedSince time.Time
	// others are files of the same replica that a crash left behind, see adopt. They are recycled
	// with it.
	others []*logFile
}

type queueWaiter struct {
	end  int64 // bytes of frames
	done func(length int64, err error)
}

// queueBytesMax bounds the frames queued for a replica's disk. The writer's window is smaller.
const queueBytesMax = 16 << 20

func newLogReplicas(d *disks, a *alarms) *logReplicas {
	return &logReplicas{disks: d, alarms: a, logs: map[ID]*replicaLog{}}
}

// log returns the state of a log, or nil. With add it creates a missing entry.
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

// all returns the state of all logs.
func (rs *logReplicas) all() []*replicaLog {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Collect(maps.Values(rs.logs))
}

// adopt adds a replica found by Open. It accepts no appends.
func (rs *logReplicas) adopt(f *logFile) {
	h := f.header
	l := rs.log(h.log, true)
	var others []*logFile
	if old := l.extents[h.seq]; old != nil {
		// A refill in another file was interrupted, or a removal was not durable.
		rs.cfg.Logger.Warn("log extent has two replicas on one node", "log", h.log, "extent", h.seq, "file", f.path(), "other_file", old.f.path())
		if !preferred(h, old.f.header) {
			old.others = append(old.others, f)
			return
		}
		others = append(old.others, old.f)
		l.r.Remove(h.seq)
	}
	x := &logproto.ReplicaExtent{Seq: h.seq, Closed: true}
	x.Restart(h.meta(), h.meta().Length)
	l.r.Add(x)
	l.extents[h.seq] = &replicaExtent{log: l, x: x, f: f, quarantinedSince: h.quarantineTime(), others: others}
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

// with returns h with the fields of m and the next generation.
func (h logHeader) with(m logproto.Meta) logHeader {
	h.generation++
	h.epoch, h.fence, h.started, h.start = m.Epoch, m.Fence, m.Started, m.Start
	h.sealed, h.length = m.Sealed, m.Length
	return h
}

// close closes the files. No other call may be in progress.
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
func (s *logReplicas) LogReplicas() []LogReplicaInfo {
	logs := s.all()
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
		QuarantineRound: h.quarantineRound, QuarantinedSince: e.quarantinedSince, createdRound: e.createdRound,
	}
}

// StatLogReplica returns the state of a replica, or logproto.ErrNoExtent.
func (s *logReplicas) StatLogReplica(log ID, seq uint64) (LogReplicaInfo, error) {
	l := s.log(log, false)
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

// OpenLogReplica durably creates an empty replica and returns its capacity in bytes of frames.
// Opening it again before the first append does nothing. Errors: *logproto.FencedError,
// logproto.ErrExtentExists, ErrDiskFull, ErrFolderRetired, ErrReadOnly, ErrClosed.
func (s *logReplicas) OpenLogReplica(ctx context.Context, o LogOpen) (capacity int64, err error) {
	if o.Seq == 0 || o.Epoch == 0 || len(o.Server) > logServerBytesMax {
		return 0, fmt.Errorf("open extent %d of log %s: invalid number, epoch or server", o.Seq, o.Log)
	}
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.end()
	s.spares.start()
	l := s.log(o.Log, true)
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

// makeReplica turns a spare into a replica. l.op must be held.
func (s *logReplicas) makeReplica(l *replicaLog, o LogOpen, meta logproto.Meta) (*replicaExtent, error) {
	var f *logFile
	for tries := 0; ; tries++ {
		var err error
		if f, err = s.spares.take(o.HighPriority); err != nil {
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
	e := &replicaExtent{log: l, x: x, f: f, loaded: true, createdRound: s.round.Load()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.r.Add(x)
	l.extents[o.Seq] = e
	return e, nil
}

// FenceLog durably rejects all writers of the log with lower epochs and returns the state of its
// extents. It omits extents that are damaged or cannot be fenced: their state is unknown, and they
// acknowledge nothing more. *logproto.FencedError if a higher epoch was seen.
func (s *logReplicas) FenceLog(ctx context.Context, log ID, epoch uint64) ([]logproto.State, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	l := s.log(log, true)
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
			s.cfg.Logger.Warn("log replica not fenced", "log", log, "extent", x.Seq, "err", err)
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

func (s *logReplicas) fenceExtent(e *replicaExtent, m logproto.FenceRequest) error {
	e.log.mu.Lock()
	meta, need := e.x.NextFence(m)
	e.log.mu.Unlock()
	if err := s.load(e); err != nil || !need {
		return err
	}
	return s.change(e, meta, 0, &logproto.FencedError{Epoch: m.Epoch})
}

// change makes meta durable and rejects queued appends with cause. The first filled bytes were copied
// from another replica. If the write fails, the replica is marked as damaged.
func (s *logReplicas) change(e *replicaExtent, meta logproto.Meta, filled int64, cause error) error {
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
	// Bytes may have become durable since meta was computed.
	meta.Started = meta.Started || e.x.Started
	if !meta.Sealed {
		meta.Start = e.x.Start
	}
	h := e.f.header.with(meta)
	checkWhole(meta, max(filled, e.x.Durable))
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

// checkWhole asserts that a replica has all bytes of the length that it is sealed with: it is read from then on as if it had (L4).
func checkWhole(meta logproto.Meta, durable int64) {
	invariant.Check(!meta.Sealed || durable >= meta.Length, "a replica of %d durable bytes is sealed with %d", durable, meta.Length)
}

// writeHeaderLocked is writeHeader for a file whose header is read under mu by other goroutines.
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

// CutLog cuts a replica to the length in the log's extent list; afterwards it can be read.
// *logproto.ShortError if it is shorter: use RefillLog. ErrMismatch if it was cut to another
// length. *CorruptError if it is damaged before that length.
func (s *logReplicas) CutLog(ctx context.Context, c LogCut) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.end()
	l, e, err := s.lockReplica(c.Log, c.Seq)
	if err != nil {
		return err
	}
	defer l.op.Unlock()
	if err := c.check(e.f.header.bytes); err != nil {
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
	return s.change(e, meta, 0, logproto.ErrExtentClosed)
}

// lockReplica returns a replica with its log's op held.
func (s *logReplicas) lockReplica(log ID, seq uint64) (*replicaLog, *replicaExtent, error) {
	l := s.log(log, false)
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

// check rejects a cut that a file of that many bytes cannot have.
func (c *LogCut) check(fileBytes int64) error {
	if c.Start < 0 || c.Length < 0 || c.Length > fileBytes-pageBytes || c.Length%pageBytes != 0 {
		return fmt.Errorf("cut extent %d of log %s to %d bytes from %d on: %w", c.Seq, c.Log, c.Length, c.Start, logproto.ErrMismatch)
	}
	return nil
}

// ReadLogReplica reads up to len(p) bytes of frames of a replica that was cut to the given start
// and length; otherwise logproto.ErrUncut. It does not verify the bytes: the decoder of the frames
// does.
func (s *logReplicas) ReadLogReplica(ctx context.Context, log ID, seq uint64, start, length int64, p []byte, off int64) (int, error) {
	if err := s.beginReadOnly(ctx); err != nil {
		return 0, err
	}
	defer s.end()
	l := s.log(log, false)
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
		return 0, asCorrupt(err)
	}
	defer file.Close()
	p = p[:min(int64(len(p)), length-off)]
	n, err := readFull(file, p, pageBytes+off)
	if err != nil {
		return n, readError(err, f.path(), pageBytes+off)
	}
	return n, nil
}

// DropLogReplica removes a replica, without regard to its epoch, fence or quarantine. A missing
// replica is not an error.
func (s *logReplicas) DropLogReplica(ctx context.Context, log ID, seq uint64) error {
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

// dropReplica removes a replica. The log's op must be held.
func (s *logReplicas) dropReplica(e *replicaExtent) error {
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
	return s.recycleFiles(e)
}

// ListLogReplicas returns up to max replicas, by log and extent, starting after the given one.
func (s *logReplicas) ListLogReplicas(log ID, seq uint64, max int) []LogReplicaInfo {
	all := s.LogReplicas()
	i, found := slices.BinarySearchFunc(all, seq, func(x LogReplicaInfo, seq uint64) int {
		return cmp.Or(cmp.Compare(string(x.Log[:]), string(log[:])), cmp.Compare(x.Seq, seq))
	})
	if found {
		i++
	}
	return all[i:min(i+max, len(all))]
}
