package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/vfs"
)

// frames encodes payloads as frames. sure is the position up to which all is acknowledged.
func frames(salt uint64, pos, sure int64, payloads ...[]byte) []byte {
	var out []byte
	for _, p := range payloads {
		parts, each := local.LogFrameParts(len(p), 16<<10)
		for i := range parts {
			b := make([]byte, local.LogFrameBytes(min(each, len(p)-i*each)))
			local.EncodeLogFrame(b, p, i, parts, each, salt, pos, pos-sure)
			out = append(out, b...)
			pos += int64(len(b))
		}
	}
	return out
}

// replicaModel is the requests to a replica and its acknowledged state.
type replicaModel struct {
	o        local.LogOpen
	start    int64
	content  []byte // queued
	durable  int64
	fence    uint64
	cut      int64 // -1 if not
	cutAsked bool
	opened   bool
	dropped  bool // asked
}

// replicaWorld is a random run of replicas of one log, on one node.
type replicaWorld struct {
	rng   *rand.Rand
	fs    *vfs.Mem
	store *local.Store
	log   local.ID
	all   []*replicaModel
	n     uint64
	keys  []local.MasterKey
}

func newReplicaWorld(seed uint64, keys []local.MasterKey) *replicaWorld {
	return &replicaWorld{keys: keys, rng: rand.New(rand.NewPCG(seed, 5)), fs: vfs.NewMem(vfs.MemOptions{}), log: local.ID{1, byte(seed)}}
}

func (w *replicaWorld) run(steps int) error {
	var err error
	if w.store, err = local.Open(withKeys(crashConfig(w.fs, 2), w.keys)); err != nil {
		return err
	}
	for range steps {
		if err := w.step(); err != nil {
			return err
		}
	}
	return nil
}

func (w *replicaWorld) step() error {
	k := w.rng.IntN(20)
	if len(w.all) == 0 || k == 0 {
		return w.open()
	}
	m := w.all[len(w.all)-1]
	switch {
	case k < 14:
		return w.append(m)
	case k == 14:
		return w.fence()
	case k < 17:
		return w.cutOne(w.all[w.rng.IntN(len(w.all))])
	case k == 17:
		return w.refill(w.all[w.rng.IntN(len(w.all))])
	case k == 18 && len(w.all) > 2:
		m := w.all[w.rng.IntN(len(w.all))]
		m.dropped = true
		return w.store.DropLogReplica(ctx, w.log, m.o.Seq)
	}
	return nil
}

func (w *replicaWorld) open() error {
	n := uint64(len(w.all) + 1)
	m := &replicaModel{o: local.LogOpen{Log: w.log, Server: "s1", Seq: n, Epoch: n, Salt: w.rng.Uint64()}, cut: -1, start: int64(n) << 20}
	w.all = append(w.all, m)
	_, err := w.store.OpenLogReplica(ctx, m.o)
	m.opened = err == nil
	return err
}

// append queues one to three times and then flushes, so that batches have several frames.
func (w *replicaWorld) append(m *replicaModel) error {
	if m.cutAsked || m.fence > 0 || m.dropped || len(m.content) > 40<<10 {
		return nil
	}
	var failed error
	flush := false
	for range 1 + w.rng.IntN(3) {
		w.n++
		pos := m.start + int64(len(m.content))
		f := frames(m.o.Salt, pos, m.start+m.durable, blobtest.Bytes(w.n, w.rng.IntN(9<<10)))
		if len(m.content)+len(f) > 60<<10 {
			break
		}
		m.content = append(m.content, f...)
		end := int64(len(m.content))
		a := local.LogAppend{Log: w.log, Seq: m.o.Seq, Epoch: m.o.Epoch, Start: m.start, Pos: pos, Frames: f}
		if w.store.QueueLog(a, func(n int64, err error) {
			if err != nil {
				failed = err
			} else if n < end {
				failed = fmt.Errorf("%d bytes durable after an append of up to %d", n, end)
			} else {
				m.durable = max(m.durable, n)
			}
		}) {
			flush = true
		}
	}
	if flush {
		w.store.FlushLog(w.log, m.o.Seq)
	}
	return failed
}

func (w *replicaWorld) fence() error {
	epoch := uint64(len(w.all) + 1)
	for _, m := range w.all {
		if m.fence == 0 {
			m.fence = 1 // asked
		}
	}
	states, err := w.store.FenceLog(ctx, w.log, epoch)
	if err != nil {
		return err
	}
	for _, st := range states {
		m := w.all[st.Seq-1]
		m.fence = epoch
		if m.cut < 0 && !m.cutAsked && st.Length != m.durable {
			return fmt.Errorf("fenced replica %d has %d bytes instead of %d", st.Seq, st.Length, m.durable)
		}
	}
	return w.open()
}

func (w *replicaWorld) cutRequest(m *replicaModel, length int64) local.LogCut {
	return local.LogCut{Log: w.log, CutRequest: logproto.CutRequest{Seq: m.o.Seq, Epoch: m.o.Epoch, Start: m.start, Length: length}}
}

func (w *replicaWorld) cutOne(m *replicaModel) error {
	if m.dropped || m.cutAsked || m.fence == 0 {
		return nil
	}
	m.cutAsked = true
	m.cut = boundary(m.content, w.rng.Int64N(m.durable+1))
	return w.store.CutLog(ctx, w.cutRequest(m, m.cut))
}

// boundary rounds down to the end of a frame.
func boundary(content []byte, n int64) int64 {
	at := int64(0)
	for at < int64(len(content)) {
		size := local.LogFrameBytes(int(uint32(content[at+8]) | uint32(content[at+9])<<8))
		if at+size > n {
			break
		}
		at += size
	}
	return at
}

// refill gives a replica all frames that were ever sent, acknowledged or not.
func (w *replicaWorld) refill(m *replicaModel) error {
	if m.dropped || m.cutAsked {
		return nil
	}
	m.cutAsked = true
	m.cut = int64(len(m.content))
	return w.store.RefillLog(ctx, w.cutRequest(m, m.cut), m.source())
}

func (m *replicaModel) source() local.LogSource {
	return local.LogSource{Server: "s1", Epoch: m.o.Epoch, Salt: m.o.Salt, Read: func(_ context.Context, p []byte, off int64) (int, error) {
		return copy(p, m.content[off:]), nil
	}}
}

// check compares a store after a crash with the model and returns the lengths.
func (w *replicaWorld) check(fs *vfs.Mem) (lengths []int64, err error) {
	s, err := local.Open(withKeys(crashConfig(fs, 2), w.keys))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for _, m := range w.all {
		st, err := s.StatLogReplica(w.log, m.o.Seq)
		if err == nil && m.fence > 1 && st.Fence < m.fence && !st.Sealed && m.o.Epoch < m.fence {
			return nil, fmt.Errorf("replica %d was fenced at %d, now at %d", m.o.Seq, m.fence, st.Fence)
		}
		a := local.LogAppend{Log: w.log, Seq: m.o.Seq, Epoch: m.o.Epoch, Start: m.start, Pos: m.start + m.durable, Frames: frames(m.o.Salt, m.start+m.durable, 0, []byte("late"))}
		if s.QueueLog(a, func(_ int64, e error) { err = e }); err == nil {
			return nil, fmt.Errorf("replica %d takes an append after a restart", m.o.Seq)
		}
	}
	states, err := s.FenceLog(ctx, w.log, 1000)
	if err != nil {
		return nil, err
	}
	bySeq := map[uint64]logproto.State{}
	for _, st := range states {
		bySeq[st.Seq] = st
	}
	for _, m := range w.all {
		st, there := bySeq[m.o.Seq]
		if !there {
			if m.opened && !m.dropped {
				return nil, fmt.Errorf("replica %d is gone", m.o.Seq)
			}
			lengths = append(lengths, -1)
			continue
		}
		low, high := m.durable, int64(len(m.content))
		if m.cutAsked {
			low, high = min(low, m.cut), max(m.cut, high)
		}
		if st.Length < low || st.Length > high {
			return nil, fmt.Errorf("replica %d has %d bytes, want %d to %d", m.o.Seq, st.Length, low, high)
		}
		// A replica that was cut must be cut to the same length.
		c := w.cutRequest(m, st.Length)
		c.Epoch = 1000
		if err := s.CutLog(ctx, c); err != nil {
			return nil, fmt.Errorf("cut replica %d to %d: %w", m.o.Seq, st.Length, err)
		}
		got := make([]byte, st.Length)
		if n, err := s.ReadLogReplica(ctx, w.log, m.o.Seq, m.start, st.Length, got, 0); err != nil || int64(n) != st.Length {
			return nil, fmt.Errorf("read replica %d: %d bytes, %w", m.o.Seq, n, err)
		}
		if !bytes.Equal(got, m.content[:st.Length]) {
			return nil, fmt.Errorf("replica %d reads otherwise", m.o.Seq)
		}
		lengths = append(lengths, st.Length)
	}
	return lengths, nil
}

// An acknowledged replica survives a power loss at any operation, with every acknowledged byte,
// fence and cut. What recovery finds does not change later.
func TestReplicaPowerLoss(t *testing.T) {
	for kind, keys := range encrypted {
		t.Run(kind, func(t *testing.T) { testReplicaPowerLoss(t, keys) })
	}
}

func testReplicaPowerLoss(t *testing.T, keys []local.MasterKey) {
	points := 0
	for seed := uint64(1); seed <= 2**crashSeeds; seed++ {
		w := newReplicaWorld(seed, keys)
		if err := w.run(80); err != nil {
			t.Fatalf("seed %d without a fault: %v", seed, err)
		}
		for at := 1 + int64(seed)%*crashEvery; at <= w.fs.Ops(); at += 2 * *crashEvery {
			points++
			for _, killed := range []bool{false, true} {
				if err := replicaCrash(seed, keys, at, killed); err != nil {
					t.Fatalf("seed %d, operation %d, killed %t: %v", seed, at, killed, err)
				}
			}
		}
	}
	t.Logf("%d fault points", points)
}

func replicaCrash(seed uint64, keys []local.MasterKey, at int64, killed bool) error {
	w := newReplicaWorld(seed, keys)
	w.fs.SetHook(func(op vfs.Op) error {
		if op.N == at && op.Kind == vfs.OpSync && killed {
			return errors.New("input/output error")
		}
		return cutPowerAt(at)(op)
	})
	_ = w.run(80)
	w.fs.SetHook(nil)
	w.fs.ReleaseLocks()
	rng := rand.New(rand.NewPCG(seed, uint64(at)))
	fs := w.fs
	if !killed {
		fs = fs.Crash(rng)
		fs.SetHook(cutPowerAt(rng.Int64N(30)))
		first, err := w.check(fs)
		if err == nil && len(first) == 0 && len(w.all) > 0 {
			return errors.New("nothing checked")
		}
		fs = fs.Crash(rng)
	}
	first, err := w.check(fs)
	if err != nil {
		return err
	}
	second, err := w.check(fs.Crash(rng))
	if err != nil {
		return fmt.Errorf("second look: %w", err)
	}
	for i := range first {
		if first[i] != second[i] && !w.all[i].dropped && w.all[i].opened {
			return fmt.Errorf("replica %d has %d bytes, and after one more crash %d", i+1, first[i], second[i])
		}
	}
	return nil
}

func replicaStore(t *testing.T) (*vfs.Mem, *local.Store, *replicaModel) {
	t.Helper()
	fs := vfs.NewMem(vfs.MemOptions{})
	s := mustOpen(t, crashConfig(fs, 1))
	m := &replicaModel{o: local.LogOpen{Log: local.ID{7}, Server: "s1", Seq: 3, Epoch: 2, Salt: 99}, start: 8192}
	_, err := s.OpenLogReplica(ctx, m.o)
	noError(t, err)
	return fs, s, m
}

// add appends one payload and returns the result.
func (m *replicaModel) add(s *local.Store, epoch uint64, n int) (length int64, err error) {
	pos := m.start + int64(len(m.content))
	f := frames(m.o.Salt, pos, pos, blobtest.Bytes(uint64(pos), n))
	a := local.LogAppend{Log: m.o.Log, Seq: m.o.Seq, Epoch: epoch, Start: m.start, Pos: pos, Frames: f}
	if s.QueueLog(a, func(n int64, e error) { length, err = n, e }) {
		s.FlushLog(m.o.Log, m.o.Seq)
	}
	if err == nil {
		m.content = append(m.content, f...)
	}
	return length, err
}

// A result that is known at once is returned without a callback, because the caller may hold locks
// that a callback needs.
func TestEnqueueLogReturnsKnownResult(t *testing.T) {
	_, s, m := replicaStore(t)
	f := frames(m.o.Salt, m.start, m.start, blobtest.Bytes(1, 100))
	a := local.LogAppend{Log: m.o.Log, Seq: m.o.Seq, Epoch: 2, Start: m.start, Pos: m.start, Frames: f}
	called := 0
	done := func(int64, error) { called++ }
	if flush, known := s.EnqueueLog(a, done); !flush || known != nil || called != 0 {
		t.Fatalf("an append that waits for the disk: flush %v, known %v, called %d times", flush, known, called)
	}
	s.FlushLog(m.o.Log, m.o.Seq)
	if called != 1 {
		t.Fatalf("called %d times when it is durable", called)
	}
	if flush, known := s.EnqueueLog(a, done); flush || known == nil || *known != (local.AppendResult{Length: 4096}) || called != 1 {
		t.Errorf("the same again: flush %v, known %v, called %d times", flush, known, called)
	}
	a.Epoch = 1
	var fenced *logproto.FencedError
	if flush, known := s.EnqueueLog(a, done); flush || known == nil || !errors.As(known.Err, &fenced) || called != 1 {
		t.Errorf("of a lower epoch: flush %v, known %v, called %d times", flush, known, called)
	}
}

// A replica accepts what the protocol allows, and nothing else.
func TestReplicaRefuses(t *testing.T) {
	_, s, m := replicaStore(t)
	if n, err := m.add(s, 2, 100); n != 4096 || err != nil {
		t.Fatal(n, err)
	}
	var fenced *logproto.FencedError
	if _, err := m.add(s, 1, 100); !errors.As(err, &fenced) || fenced.Epoch != 2 {
		t.Errorf("append of a lower epoch: %v", err)
	}
	if _, err := m.add(s, 3, 100); !errors.Is(err, logproto.ErrNoExtent) {
		t.Errorf("append of a higher epoch: %v", err)
	}
	bad := frames(1, m.start+4096, 0, []byte("x"))
	s.QueueLog(local.LogAppend{Log: m.o.Log, Seq: 3, Epoch: 2, Start: m.start, Pos: m.start + 4096, Frames: bad}, func(_ int64, err error) {
		var corrupt *local.CorruptError
		if !errors.As(err, &corrupt) {
			t.Errorf("frames of another extent: %v", err)
		}
	})
	if _, err := s.ReadLogReplica(ctx, m.o.Log, 3, m.start, 4096, make([]byte, 10), 0); !errors.Is(err, logproto.ErrUncut) {
		t.Errorf("read before a cut: %v", err)
	}
	states, err := s.FenceLog(ctx, m.o.Log, 5)
	if err != nil || len(states) != 1 || states[0] != (logproto.State{Seq: 3, Started: true, Start: 8192, Length: 4096}) {
		t.Fatal(states, err)
	}
	if _, err := m.add(s, 2, 100); !errors.As(err, &fenced) || fenced.Epoch != 5 {
		t.Errorf("append when fenced: %v", err)
	}
	if _, err := s.FenceLog(ctx, m.o.Log, 4); !errors.As(err, &fenced) {
		t.Errorf("fence that is over: %v", err)
	}
	o := m.o
	o.Seq = 4
	if _, err := s.OpenLogReplica(ctx, o); !errors.As(err, &fenced) {
		t.Errorf("open when fenced: %v", err)
	}
	var short *logproto.ShortError
	cut := local.LogCut{Log: m.o.Log, CutRequest: logproto.CutRequest{Seq: 3, Epoch: 5, Start: 8192, Length: 8192}}
	if err := s.CutLog(ctx, cut); !errors.As(err, &short) || short.Length != 4096 {
		t.Errorf("cut to more than it has: %v", err)
	}
	m.content = append(m.content, frames(99, m.start+4096, 0, []byte("more"))...)
	noError(t, s.RefillLog(ctx, cut, m.source()))
	got := make([]byte, 8192)
	_, err = s.ReadLogReplica(ctx, m.o.Log, 3, 8192, 8192, got, 0)
	noError(t, err)
	if !bytes.Equal(got, m.content) {
		t.Error("reads otherwise")
	}
	cut.Length = 4096
	if err := s.CutLog(ctx, cut); !errors.Is(err, logproto.ErrMismatch) {
		t.Errorf("cut once more: %v", err)
	}
}

// Corruption in acknowledged bytes is not a torn tail: the state of such a replica is unknown until
// it is refilled.
func TestReplicaCorruption(t *testing.T) {
	fs, s, m := replicaStore(t)
	for range 3 {
		_, err := m.add(s, 2, 100)
		noError(t, err)
	}
	noError(t, s.Close())
	names, _ := fs.ReadDir("/disk0/data/logs")
	f, err := fs.Open("/disk0/data/logs/" + names[0])
	noError(t, err)
	_, err = f.WriteAt([]byte{1}, 4096+4096+100)
	noError(t, err)
	noError(t, f.Sync())
	s = mustOpen(t, crashConfig(fs, 1))
	states, err := s.FenceLog(ctx, m.o.Log, 3)
	noError(t, err)
	if len(states) != 0 {
		t.Errorf("corrupt replica returns %+v", states)
	}
	cut := local.LogCut{Log: m.o.Log, CutRequest: logproto.CutRequest{Seq: 3, Epoch: 3, Start: 8192, Length: 3 * 4096}}
	var corrupt *local.CorruptError
	if err := s.CutLog(ctx, cut); !errors.As(err, &corrupt) {
		t.Errorf("cut: %v", err)
	}
	noError(t, s.RefillLog(ctx, cut, m.source()))
	got := make([]byte, 3*4096)
	_, err = s.ReadLogReplica(ctx, m.o.Log, 3, 8192, 3*4096, got, 0)
	noError(t, err)
	if !bytes.Equal(got, m.content) {
		t.Error("reads otherwise")
	}
}

// damagedReplica returns a reopened store with a replica of three frames, of which the second is
// corrupt, and the request that cuts it.
func damagedReplica(t *testing.T) (*vfs.Mem, *local.Store, *replicaModel, local.LogCut) {
	t.Helper()
	fs, s, m := replicaStore(t)
	for range 3 {
		_, err := m.add(s, 2, 100)
		noError(t, err)
	}
	noError(t, s.Close())
	f, err := fs.Open(logPaths(t, fs)[0])
	noError(t, err)
	_, err = f.WriteAt([]byte{1}, 4096+4096+100)
	noError(t, err)
	noError(t, f.Sync())
	s = mustOpen(t, crashConfig(fs, 1))
	cut := local.LogCut{Log: m.o.Log, CutRequest: logproto.CutRequest{Seq: 3, Epoch: 3, Start: m.start, Length: 3 * 4096}}
	var corrupt *local.CorruptError
	if err := s.CutLog(ctx, cut); !errors.As(err, &corrupt) {
		t.Fatalf("cut of a damaged replica: %v", err)
	}
	return fs, s, m, cut
}

func logPaths(t *testing.T, fs *vfs.Mem) (paths []string) {
	t.Helper()
	const dir = "/disk0/data/logs"
	names, err := fs.ReadDir(dir)
	noError(t, err)
	for _, name := range names {
		paths = append(paths, dir+"/"+name)
	}
	return paths
}

// readsAll fails the test unless a replica that was cut has the model's frames.
func (m *replicaModel) readsAll(t *testing.T, s *local.Store) {
	t.Helper()
	got := make([]byte, len(m.content))
	_, err := s.ReadLogReplica(ctx, m.o.Log, m.o.Seq, m.start, int64(len(got)), got, 0)
	noError(t, err)
	if !bytes.Equal(got, m.content) {
		t.Error("reads otherwise")
	}
}

var errSource = errors.New("the source failed")

// R10, for logs: a damaged replica stays until a good one replaces it, and its good frames count. Its
// third frame may be the only one in the cluster.
func TestRefillKeepsFramesOfDamaged(t *testing.T) {
	fs, s, m, cut := damagedReplica(t)
	src := m.source()
	sourceHas := int64(4096)
	src.Read = func(_ context.Context, p []byte, off int64) (int, error) {
		if off >= sourceHas {
			return 0, errSource
		}
		return copy(p, m.content[off:sourceHas]), nil
	}
	if err := s.RefillLog(ctx, cut, src); !errors.Is(err, errSource) {
		t.Errorf("refill from a source without the second frame: %v", err)
	}
	if st, err := s.StatLogReplica(m.o.Log, 3); err != nil || !st.Started || st.Damage == nil {
		t.Errorf("the damaged replica is now %+v, %v", st, err)
	}
	sourceHas = 2 * 4096
	noError(t, s.RefillLog(ctx, cut, src))
	m.readsAll(t, s)
	for _, power := range []bool{false, true} {
		noError(t, s.Close())
		if power {
			fs = fs.Crash(rand.New(rand.NewPCG(1, 1)))
		}
		s = mustOpen(t, crashConfig(fs, 1))
		m.readsAll(t, s)
	}
}

// The refill of a damaged replica replaces a file of equal size, so it may use half of the reserve. If
// there is no space at all, the damaged replica stays.
func TestRefillOnFullDisk(t *testing.T) {
	fs, s, m, cut := damagedReplica(t)
	noError(t, s.Close())
	used := int64(0)
	for _, path := range logPaths(t, fs) {
		size, _, err := fs.Stat(path)
		noError(t, err)
		used += size
	}
	cfg := crashConfig(fs, 1)
	cfg.LogExtentsReady, cfg.ReserveBytes = -1, 4*cfg.ExtentBytes
	fs.SetCapacity("/disk0", used+2*cfg.ExtentBytes)
	s = mustOpen(t, cfg)
	if err := s.RefillLog(ctx, cut, m.source()); !errors.Is(err, local.ErrDiskFull) {
		t.Errorf("refill without space: %v", err)
	}
	if st, err := s.StatLogReplica(m.o.Log, 3); err != nil || !st.Started || st.Damage == nil {
		t.Errorf("the damaged replica is now %+v, %v", st, err)
	}
	fs.SetCapacity("/disk0", used+4*cfg.ExtentBytes)
	other := m.o
	other.Seq = 4
	if _, err := s.OpenLogReplica(ctx, other); !errors.Is(err, local.ErrDiskFull) {
		t.Errorf("another replica in the reserve: %v", err)
	}
	noError(t, s.RefillLog(ctx, cut, m.source()))
	m.readsAll(t, s)
}

// A crash before the damaged file is recycled leaves two files of one replica. They are removed with
// it.
func TestDropReplicaOfTwoFiles(t *testing.T) {
	fs, s, m, cut := damagedReplica(t)
	before := logPaths(t, fs)[0]
	damaged, err := fs.OpenRead(before)
	noError(t, err)
	b := make([]byte, 5*4096)
	_, err = damaged.ReadAt(b, 0)
	noError(t, err)
	size, err := damaged.Size()
	noError(t, err)
	noError(t, s.RefillLog(ctx, cut, m.source()))
	noError(t, s.Close())
	for _, name := range []string{"0000000000000000.log", "ffffffffffffffff.log"} {
		f, err := fs.Create("/disk0/data/logs/" + name)
		noError(t, err)
		noError(t, f.Preallocate(size))
		_, err = f.WriteAt(make([]byte, size-int64(len(b))), int64(len(b)))
		noError(t, err)
		_, err = f.WriteAt(b, 0)
		noError(t, err)
	}
	s = mustOpen(t, crashConfig(fs, 1))
	m.readsAll(t, s)
	noError(t, s.DropLogReplica(ctx, m.o.Log, 3))
	noError(t, s.Close())
	s = mustOpen(t, crashConfig(fs, 1))
	if st, err := s.StatLogReplica(m.o.Log, 3); !errors.Is(err, logproto.ErrNoExtent) {
		t.Errorf("after a removal: %+v, %v", st, err)
	}
}
