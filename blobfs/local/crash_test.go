package local_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/vfs"
)

var (
	crashSeed  = flag.Uint64("crash.seed", 0, "run only this seed of the crash tests")
	crashAt    = flag.Int64("crash.at", 0, "with -crash.seed, fail at this operation only")
	crashSeeds = flag.Uint64("crash.seeds", 3, "seeds of the crash tests")
	crashEvery = flag.Int64("crash.every", 3, "fail at each so many-th operation")
)

// world is a random run of a store and a model of what the store acknowledged. It depends only on
// its seed: the store makes log extents on demand, and nothing runs concurrently.
type world struct {
	rng     *rand.Rand
	fs      *vfs.Mem
	store   *local.Store
	folders int
	keys    []local.MasterKey // none: nothing is encrypted
	blobs   []*modelBlob
	logs    []*modelLog
	n       uint64 // payloads so far
}

type modelBlob struct {
	handle  local.Handle
	data    []byte
	deleted bool // Delete was called
}

type modelLog struct {
	id       local.ID
	w        *local.LogWriter
	records  []modelRecord
	released int64
	created  bool // acknowledged
	removed  bool // RemoveLog was called
}

type modelRecord struct {
	payload []byte
	pos     int64 // 0 if not acknowledged
}

func crashConfig(fs vfs.FS, folders int) local.Config {
	cfg := local.Config{FS: fs, ExtentBytes: 64 << 10, ReserveBytes: -1, LogExtentsReady: -1}
	for i := range folders {
		cfg.Folders = append(cfg.Folders, fmt.Sprintf("/disk%d/data", i))
	}
	return cfg
}

// encrypted has the storage modes of a world.
var encrypted = map[string][]local.MasterKey{"plain": nil, "encrypted": {{1}}}

func newWorld(seed uint64, folders int, keys []local.MasterKey) *world {
	return &world{rng: rand.New(rand.NewPCG(seed, 77)), fs: vfs.NewMem(vfs.MemOptions{}), folders: folders, keys: keys}
}

func (w *world) config(fs vfs.FS) local.Config { return withKeys(crashConfig(fs, w.folders), w.keys) }

func withKeys(cfg local.Config, keys []local.MasterKey) local.Config {
	cfg.MasterKeys = keys
	return cfg
}

// run performs random operations. When the power is cut, errors end it; others are recorded in the
// model as not acknowledged and passed to what.
func (w *world) run(steps int, what func(error)) {
	s, err := local.Open(w.config(w.fs))
	if err != nil {
		what(err)
		return
	}
	w.store = s
	for range steps {
		if err := w.step(); err != nil {
			what(err)
			if errors.Is(err, vfs.ErrPowerCut) {
				return
			}
		}
	}
}

func (w *world) step() error {
	switch k := w.rng.IntN(20); {
	case k < 4:
		return w.putBlob()
	case k < 5:
		return w.deleteBlob()
	case k < 6:
		return w.createLog()
	case k < 17:
		return w.appendLog()
	case k < 18:
		return w.releaseLog()
	case k < 19:
		return w.reopenLog()
	default:
		return w.removeLog()
	}
}

func (w *world) payload(max int) []byte {
	w.n++
	return blobtest.Bytes(w.n, w.rng.IntN(max))
}

func (w *world) putBlob() error {
	data := w.payload(200 << 10)
	abort := w.rng.IntN(6) == 0
	bw, err := w.store.Create(ctx)
	if err != nil {
		return err
	}
	if _, err := bw.Write(data); err != nil {
		return err
	}
	if abort {
		bw.Abort()
		return nil
	}
	h, err := bw.Seal(ctx)
	if err == nil {
		w.blobs = append(w.blobs, &modelBlob{handle: h, data: data})
	}
	return err
}

func (w *world) deleteBlob() error {
	if len(w.blobs) == 0 {
		return nil
	}
	b := w.blobs[w.rng.IntN(len(w.blobs))]
	if b.deleted {
		return nil
	}
	b.deleted = true
	return w.store.Delete(ctx, b.handle.ID)
}

func (w *world) createLog() error {
	if len(w.logs) == 4 {
		return nil
	}
	l := &modelLog{}
	for i := range l.id {
		l.id[i] = byte(w.rng.Uint32())
	}
	w.logs = append(w.logs, l)
	var err error
	l.w, err = w.store.CreateLog(ctx, l.id)
	l.created = err == nil
	return err
}

// pick returns a log that can be written to.
func (w *world) pick() *modelLog {
	for range 4 {
		if len(w.logs) == 0 {
			return nil
		}
		if l := w.logs[w.rng.IntN(len(w.logs))]; l.w != nil && !l.removed {
			return l
		}
	}
	return nil
}

func (w *world) appendLog() error {
	l := w.pick()
	if l == nil {
		return nil
	}
	max := 9000
	if w.rng.IntN(12) == 0 {
		max = 200 << 10
	}
	l.records = append(l.records, modelRecord{payload: w.payload(max)})
	pos, err := l.w.Append(ctx, l.records[len(l.records)-1].payload)
	if err == nil {
		l.records[len(l.records)-1].pos = pos
	}
	return err
}

func (w *world) releaseLog() error {
	l := w.pick()
	if l == nil || len(l.records) == 0 {
		return nil
	}
	pos := l.records[w.rng.IntN(len(l.records))].pos
	l.released = max(l.released, pos)
	l.w.Release(pos)
	return nil
}

// reopenLog ends a log as its writer or as a recovery would.
func (w *world) reopenLog() error {
	l := w.pick()
	if l == nil || w.rng.IntN(2) == 0 {
		return nil
	}
	if w.rng.IntN(2) == 0 {
		err := l.w.Seal(ctx)
		if err == nil {
			l.w = nil
		}
		return err
	}
	l.w = nil
	r, err := w.store.OpenLog(ctx, l.id)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = checkLog(r, l)
	return err
}

func (w *world) removeLog() error {
	if len(w.logs) == 0 {
		return nil
	}
	l := w.logs[w.rng.IntN(len(w.logs))]
	if l.removed || !l.created {
		return nil
	}
	l.removed = true
	return w.store.RemoveLog(ctx, l.id)
}

// checkLog compares a reader's records with the model: every record that was acknowledged and not
// released, only records that were sent, in order. It returns the payloads.
func checkLog(r *local.LogReader, l *modelLog) ([][]byte, error) {
	if r.Start() > l.released {
		return nil, fmt.Errorf("log starts at %d, only %d is released", r.Start(), l.released)
	}
	var got [][]byte
	next, last := 0, r.Start()
	for {
		p, pos, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if pos <= last {
			return nil, fmt.Errorf("position %d after %d", pos, last)
		}
		last = pos
		// Skip records that were released or never acknowledged.
		for ; ; next++ {
			if next == len(l.records) {
				return nil, fmt.Errorf("record of %d bytes at %d was never appended", len(p), pos)
			}
			sent := l.records[next]
			if bytes.Equal(sent.payload, p) && (sent.pos == pos || sent.pos == 0) {
				break
			}
			if sent.pos != 0 && sent.pos > l.released {
				return nil, fmt.Errorf("acknowledged record %d at %d is lost", next, sent.pos)
			}
		}
		next++
		got = append(got, bytes.Clone(p))
	}
	for ; next < len(l.records); next++ {
		if sent := l.records[next]; sent.pos > l.released {
			return nil, fmt.Errorf("acknowledged record %d at %d is lost from the end", next, sent.pos)
		}
	}
	return got, nil
}

// check opens the store after a crash and compares it with the model.
func (w *world) check(fs *vfs.Mem) (logs [][][]byte, err error) {
	s, err := local.Open(w.config(fs))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for _, b := range w.blobs {
		if err := checkBlob(s, b); err != nil {
			return nil, err
		}
	}
	for i, l := range w.logs {
		r, err := s.OpenLog(ctx, l.id)
		if errors.Is(err, local.ErrNoLog) && (l.removed || !l.created) {
			logs = append(logs, nil)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("log %d: %w", i, err)
		}
		got, err := checkLog(r, l)
		r.Close()
		if err != nil && !l.removed {
			return nil, fmt.Errorf("log %d: %w", i, err)
		}
		logs = append(logs, got)
	}
	var problems []error
	err = s.Verify(ctx, func(p local.Problem) { problems = append(problems, errors.New(p.String())) })
	return logs, errors.Join(append(problems, err)...)
}

func checkBlob(s *local.Store, b *modelBlob) error {
	r, err := s.OpenBlob(ctx, b.handle)
	if err != nil {
		if b.deleted {
			return nil
		}
		return err
	}
	defer r.Close()
	got := make([]byte, r.Size())
	if _, err := r.ReadAt(got, 0); err != nil {
		return err
	}
	if !bytes.Equal(got, b.data) {
		return fmt.Errorf("blob %s reads otherwise", b.handle.ID)
	}
	return nil
}

// forEachFault calls f with every seed and operation number to fail at.
func forEachFault(t *testing.T, steps, folders int, f func(t *testing.T, w *world, seed uint64, at int64) error) {
	for kind, keys := range encrypted {
		t.Run(kind, func(t *testing.T) { forEachFaultWith(t, keys, steps, folders, f) })
	}
}

func forEachFaultWith(t *testing.T, keys []local.MasterKey, steps, folders int, f func(t *testing.T, w *world, seed uint64, at int64) error) {
	points := 0
	for seed := uint64(1); seed <= *crashSeeds; seed++ {
		if *crashSeed != 0 {
			seed = *crashSeed
		}
		w := newWorld(seed, folders, keys)
		w.run(steps, func(err error) { t.Fatalf("seed %d without a fault: %v", seed, err) })
		for at := 1 + int64(seed)%*crashEvery; at <= w.fs.Ops(); at += *crashEvery {
			if *crashAt != 0 {
				at = *crashAt
			}
			points++
			if err := f(t, newWorld(seed, folders, keys), seed, at); err != nil {
				t.Fatalf("%v\nreplay: go test ./blobfs/local -run '^%s$' -crash.seed=%d -crash.at=%d", err, t.Name(), seed, at)
			}
			if *crashAt != 0 {
				return
			}
		}
		if *crashSeed != 0 {
			break
		}
	}
	t.Logf("%d fault points", points)
}

// I1: after a power loss at any operation, every sealed blob is complete and every acknowledged
// record is there, plus at most the record in flight. A power loss during recovery changes nothing,
// and a log that was opened reads the same from then on.
func TestPowerLoss(t *testing.T) {
	const steps = 60
	forEachFault(t, steps, 2, func(t *testing.T, w *world, seed uint64, at int64) error {
		w.fs.SetHook(cutPowerAt(at))
		w.run(steps, func(error) {})
		rng := rand.New(rand.NewPCG(seed, uint64(at)))
		fs := w.fs.Crash(rng)

		again := rng.Int64N(40) // crash in the middle of recovery, too
		fs.SetHook(cutPowerAt(again))
		_, _ = w.check(fs)
		fs = fs.Crash(rng)

		first, err := w.check(fs)
		if err != nil {
			return err
		}
		second, err := w.check(fs.Crash(rng))
		if err != nil {
			return fmt.Errorf("second look: %w", err)
		}
		for i := range first {
			if !equal(first[i], second[i]) {
				return fmt.Errorf("log %d has %d records, after one more crash %d", i, len(first[i]), len(second[i]))
			}
		}
		return nil
	})
}

// B6: a killed process leaves its writes in the page cache, synced or not, even those that a failed
// sync will never write. What the next process reads from a log must survive a power loss.
func TestKillThenPowerLoss(t *testing.T) {
	const steps = 60
	forEachFault(t, steps, 2, func(t *testing.T, w *world, seed uint64, at int64) error {
		for _, kind := range []string{"killed", "sync failed, killed"} {
			w := newWorld(seed, 2, w.keys)
			w.fs.SetHook(func(op vfs.Op) error {
				if op.N == at && op.Kind == vfs.OpSync && kind != "killed" {
					return errors.New("input/output error")
				}
				return cutPowerAt(at)(op)
			})
			w.run(steps, func(error) {})
			w.fs.SetHook(nil)
			w.fs.ReleaseLocks()
			first, err := w.check(w.fs)
			if err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			second, err := w.check(w.fs.Crash(rand.New(rand.NewPCG(seed, uint64(at)))))
			if err != nil {
				return fmt.Errorf("%s, then power loss: %w", kind, err)
			}
			for i := range first {
				if !equal(first[i], second[i]) {
					return fmt.Errorf("%s: log %d has %d records, after a power loss %d", kind, i, len(first[i]), len(second[i]))
				}
			}
		}
		return nil
	})
}

func equal(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// cutPowerAt fails the given operation, a write half way, and all later ones.
func cutPowerAt(at int64) func(vfs.Op) error {
	return func(op vfs.Op) error {
		switch {
		case op.N < at:
			return nil
		case op.N == at && op.Kind == vfs.OpWrite:
			return errors.Join(vfs.ErrTorn, vfs.ErrPowerCut)
		default:
			return vfs.ErrPowerCut
		}
	}
}

// A folder whose disk fails one operation is retired and not touched again, and work continues in
// the other one. Then the power fails too, at once or later. Not even an fsync that failed once may
// be trusted afterwards.
func TestDiskFailureThenPowerLoss(t *testing.T) {
	const steps = 60
	forEachFault(t, steps, 2, func(t *testing.T, w *world, seed uint64, at int64) error {
		rng := rand.New(rand.NewPCG(seed, uint64(at)))
		w.fs.SetHook(failDiskAt(t, at, at+1+rng.Int64N(250)))
		w.run(steps, func(err error) {
			// Deleting from a retired folder is rejected; everything else continues.
			if errors.Is(err, vfs.ErrPowerCut) || (errors.Is(err, local.ErrFolderRetired) && !errors.Is(err, local.ErrLogFailed)) {
				return
			}
			t.Errorf("unexpected: %v", err)
		})
		if _, err := w.check(w.fs.Crash(rng)); err != nil {
			return err
		}
		if t.Failed() {
			return errors.New("see above")
		}
		return nil
	})
}

// failDiskAt fails one operation, half way if it is a write, and cuts the power at a later one.
func failDiskAt(t *testing.T, at, cut int64) func(vfs.Op) error {
	eio := errors.New("input/output error")
	var failed vfs.Op
	return func(op vfs.Op) error {
		switch {
		case op.N >= cut:
			return cutPowerAt(cut)(op)
		case op.N == at:
			failed = op
			if op.Kind == vfs.OpWrite {
				return errors.Join(vfs.ErrTorn, eio)
			}
			return eio
		case op.N > at && len(failed.Name) > 6 && strings.HasPrefix(op.Name, failed.Name[:6]):
			t.Errorf("%v after %v failed", op, failed)
		}
		return nil
	}
}
