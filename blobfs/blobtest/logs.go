package blobtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/local"
)

// LogWriter appends to a log.
type LogWriter interface {
	ID() blobfs.ID
	Append(ctx context.Context, p []byte) (pos int64, err error)
	Release(pos int64)
	Seal(ctx context.Context) error
	Close() error
}

// LogReader reads a log.
type LogReader interface {
	Next() (payload []byte, pos int64, err error)
	Close() error
}

// LogStore is the interface of the log stores under test.
type LogStore interface {
	CreateLog(ctx context.Context, id blobfs.ID) (LogWriter, error)
	OpenLog(ctx context.Context, id blobfs.ID) (LogReader, error)
	RemoveLog(ctx context.Context, id blobfs.ID) error
	Logs() []blobfs.LogInfo
	Verify(ctx context.Context, report func(blobfs.Problem)) error
	Close() error
	// OneProcess reports whether the writer and the opener that fences it share a process. Then the
	// log has no payload whose Append failed, a reader can finish after the log is removed, and the
	// name of a removed log is free.
	OneProcess() bool
}

// LocalLogs adapts a store that keeps logs on its own disks.
type LocalLogs struct{ *local.Store }

// CreateLog implements LogStore.
func (s LocalLogs) CreateLog(ctx context.Context, id blobfs.ID) (LogWriter, error) {
	w, err := s.Store.CreateLog(ctx, id)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// OpenLog implements LogStore.
func (s LocalLogs) OpenLog(ctx context.Context, id blobfs.ID) (LogReader, error) {
	r, err := s.Store.OpenLog(ctx, id)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// OneProcess implements LogStore.
func (s LocalLogs) OneProcess() bool { return true }

// RunLogs runs the log part of the suite. open returns an empty store with extents of about 256
// KiB. The suite verifies and closes it.
func RunLogs(t *testing.T, open func(t *testing.T) LogStore) {
	tests := []struct {
		name string
		run  func(t *testing.T, s LogStore)
	}{
		{"LogRoundTrip", testLogRoundTrip},
		{"LogLargePayload", testLogLarge},
		{"LogUnsealed", testLogUnsealed},
		{"LogFencing", testLogFencing},
		{"LogFencingUnderLoad", testLogFencingUnderLoad},
		{"LogRelease", testLogRelease},
		{"LogRemove", testLogRemove},
		{"LogsInParallel", testParallelLogs},
		{"LogCancelled", testLogCancelled},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := open(t)
			test.run(t, s)
			finish(t, s)
			if _, err := s.CreateLog(t.Context(), blobfs.NewID()); !errors.Is(err, blobfs.ErrClosed) {
				t.Errorf("create in a closed store: %v", err)
			}
		})
	}
}

// record is a payload and the position after it.
type record struct {
	payload []byte
	pos     int64
}

func appendAll(t *testing.T, w LogWriter, payloads ...[]byte) []record {
	t.Helper()
	var records []record
	last := int64(-1)
	for _, p := range payloads {
		given := bytes.Clone(p)
		pos, err := w.Append(t.Context(), given)
		noError(t, err)
		clear(given) // the writer must not retain it
		if pos <= last {
			t.Fatalf("position %d after %d", pos, last)
		}
		last = pos
		records = append(records, record{p, pos})
	}
	return records
}

// readLog returns the log's records from its start.
func readLog(t *testing.T, s LogStore, id blobfs.ID) []record {
	t.Helper()
	r, err := s.OpenLog(t.Context(), id)
	noError(t, err)
	defer r.Close()
	var records []record
	for {
		p, pos, err := r.Next()
		if err == io.EOF {
			break
		}
		noError(t, err)
		records = append(records, record{bytes.Clone(p), pos})
	}
	if _, _, err := r.Next(); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
	return records
}

func same(t *testing.T, got, want []record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i].pos != want[i].pos || !bytes.Equal(got[i].payload, want[i].payload) {
			t.Fatalf("record %d of %d bytes at %d, want %d bytes at %d", i, len(got[i].payload), got[i].pos, len(want[i].payload), want[i].pos)
		}
	}
}

func testLogRoundTrip(t *testing.T, s LogStore) {
	id := blobfs.NewID()
	w, err := s.CreateLog(t.Context(), id)
	noError(t, err)
	if w.ID() != id {
		t.Errorf("writer's ID is %s", w.ID())
	}
	_, err = s.CreateLog(t.Context(), id)
	wantError(t, err, blobfs.ErrLogExists)
	rng := rand.New(rand.NewPCG(3, 3))
	var payloads [][]byte
	for i := range 120 {
		payloads = append(payloads, Bytes(uint64(i), rng.IntN(1<<rng.IntN(16))))
	}
	want := appendAll(t, w, payloads...)
	noError(t, w.Seal(t.Context()))
	noError(t, w.Seal(t.Context()))
	_, err = w.Append(t.Context(), []byte("x"))
	wantError(t, err, blobfs.ErrSealed)
	noError(t, w.Close())
	same(t, readLog(t, s, id), want)
	same(t, readLog(t, s, id), want)
	if infos := s.Logs(); len(infos) != 1 || infos[0].ID != id || infos[0].Start != 0 || infos[0].Writing || infos[0].Extents < 2 {
		t.Errorf("logs: %+v", infos)
	}
	_, err = s.CreateLog(t.Context(), id)
	wantError(t, err, blobfs.ErrLogExists)
	_, err = s.OpenLog(t.Context(), blobfs.NewID())
	wantError(t, err, blobfs.ErrNoLog)
}

// A payload may be larger than an extent, and then spans several.
func testLogLarge(t *testing.T, s LogStore) {
	id := blobfs.NewID()
	w, err := s.CreateLog(t.Context(), id)
	noError(t, err)
	want := appendAll(t, w, []byte("before"), Bytes(1, 3<<20+17), nil, Bytes(2, 1<<20), []byte("after"), Bytes(3, 2<<20))
	same(t, readLog(t, s, id), want)
	_, err = w.Append(t.Context(), []byte("late"))
	wantError(t, err, blobfs.ErrFenced)

	w, err = s.CreateLog(t.Context(), blobfs.NewID())
	noError(t, err)
	_, err = w.Append(t.Context(), make([]byte, blobfs.LogPayloadMax+1))
	var large *blobfs.TooLargeError
	if !errors.As(err, &large) || large.Limit != blobfs.LogPayloadMax || large.Got != large.Limit+1 {
		t.Errorf("too large: %v", err)
	}
	same(t, readLog(t, s, w.ID()), nil)
}

func testLogUnsealed(t *testing.T, s LogStore) {
	id := blobfs.NewID()
	w, err := s.CreateLog(t.Context(), id)
	noError(t, err)
	want := appendAll(t, w, []byte("one"), []byte("two"))
	noError(t, w.Close())
	_, err = w.Append(t.Context(), []byte("x"))
	wantError(t, err, blobfs.ErrClosed)
	same(t, readLog(t, s, id), want)
}

// I4: once a log was opened, its writer gets no acknowledgement.
func testLogFencing(t *testing.T, s LogStore) {
	id := blobfs.NewID()
	w, err := s.CreateLog(t.Context(), id)
	noError(t, err)
	want := appendAll(t, w, []byte("one"))
	if infos := s.Logs(); len(infos) != 1 || !infos[0].Writing {
		t.Errorf("logs: %+v", infos)
	}
	r, err := s.OpenLog(t.Context(), id)
	noError(t, err)
	_, err = w.Append(t.Context(), []byte("late"))
	wantError(t, err, blobfs.ErrFenced)
	wantError(t, w.Seal(t.Context()), blobfs.ErrFenced)
	w.Release(want[0].pos)
	noError(t, r.Close())
	if _, _, err := r.Next(); !errors.Is(err, blobfs.ErrClosed) {
		t.Errorf("next after close: %v", err)
	}
	same(t, readLog(t, s, id), want)
}

func testLogFencingUnderLoad(t *testing.T, s LogStore) {
	for range 10 {
		w, err := s.CreateLog(t.Context(), blobfs.NewID())
		noError(t, err)
		l := load{started: make(chan struct{})}
		var appender sync.WaitGroup
		appender.Go(func() { l.appendUntilFenced(t, w) })
		<-l.started
		got := readLog(t, s, w.ID())
		appender.Wait()
		if n := len(l.acknowledged); !s.OneProcess() && len(got) == n+1 {
			if !bytes.Equal(got[n].payload, l.failed) {
				t.Error("after what was acknowledged is something else than what failed")
			}
			got = got[:n]
		}
		same(t, got, l.acknowledged)
	}
}

// load is what an appender did until its log was fenced.
type load struct {
	started      chan struct{} // closed after some appends
	acknowledged []record
	failed       []byte // the payload that was not acknowledged
}

func (l *load) appendUntilFenced(t *testing.T, w LogWriter) {
	for i := 0; ; i++ {
		p := Bytes(uint64(i), i)
		pos, err := w.Append(t.Context(), p)
		if err != nil {
			wantError(t, err, blobfs.ErrFenced)
			l.failed = p
			return
		}
		l.acknowledged = append(l.acknowledged, record{p, pos})
		if i == 5 {
			close(l.started)
		}
	}
}

func testLogRelease(t *testing.T, s LogStore) {
	id := blobfs.NewID()
	w, err := s.CreateLog(t.Context(), id)
	noError(t, err)
	var all []record
	for i := range 40 {
		all = append(all, appendAll(t, w, Bytes(uint64(i), 40_000))...)
		if i%7 == 0 {
			w.Release(all[i/2].pos)
		}
	}
	released := all[19].pos // the last Release covers record 17
	w.Release(released)
	noError(t, w.Seal(t.Context()))
	got := readLog(t, s, id)
	if len(got) < 20 || len(got) > len(all) {
		t.Fatalf("%d records left of %d", len(got), len(all))
	}
	same(t, got, all[len(all)-len(got):])
	infos := s.Logs()
	if len(infos) != 1 || infos[0].Start > released || infos[0].Start > got[0].pos {
		t.Errorf("logs: %+v", infos)
	}
}

func testLogRemove(t *testing.T, s LogStore) {
	id := blobfs.NewID()
	w, err := s.CreateLog(t.Context(), id)
	noError(t, err)
	want := appendAll(t, w, Bytes(1, 200_000), Bytes(2, 200_000), Bytes(3, 200_000))
	r, err := s.OpenLog(t.Context(), id)
	noError(t, err)
	noError(t, s.RemoveLog(t.Context(), id))
	wantError(t, s.RemoveLog(t.Context(), id), blobfs.ErrNoLog)
	_, err = s.OpenLog(t.Context(), id)
	wantError(t, err, blobfs.ErrNoLog)
	if infos := s.Logs(); len(infos) != 0 {
		t.Errorf("logs: %+v", infos)
	}
	if !s.OneProcess() {
		noError(t, r.Close())
		return
	}
	readRemovedLog(t, s, r, want)
	w, err = s.CreateLog(t.Context(), id) // the name is free again
	noError(t, err)
	same(t, readLog(t, s, w.ID()), nil)
}

// readRemovedLog reads and closes r, whose log was removed: its files are not overwritten while a
// reader is open.
func readRemovedLog(t *testing.T, s LogStore, r LogReader, want []record) {
	t.Helper()
	other, err := s.CreateLog(t.Context(), blobfs.NewID())
	noError(t, err)
	appendAll(t, other, Bytes(4, 200_000), Bytes(5, 200_000), Bytes(6, 200_000))
	for i := range want {
		p, pos, err := r.Next()
		if err != nil || pos != want[i].pos || !bytes.Equal(p, want[i].payload) {
			t.Fatalf("record %d of a removed log: %v", i, err)
		}
	}
	noError(t, r.Close())
}

func testParallelLogs(t *testing.T, s LogStore) {
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			w, err := s.CreateLog(t.Context(), blobfs.NewID())
			if err != nil {
				t.Error(err)
				return
			}
			want := appendInParallel(t, w, g)
			r, err := s.OpenLog(t.Context(), w.ID())
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			for range 30 {
				p, pos, err := r.Next()
				if err != nil || !bytes.Equal(p, want[pos]) {
					t.Errorf("record at %d: %v", pos, err)
					return
				}
			}
		})
	}
	group.Wait()
}

// appendInParallel appends ten payloads on each of three goroutines and returns them by position.
// Appends of one log take turns.
func appendInParallel(t *testing.T, w LogWriter, seed int) map[int64][]byte {
	var mu sync.Mutex
	appended := map[int64][]byte{}
	var appenders sync.WaitGroup
	for a := range 3 {
		appenders.Go(func() {
			for i := range 10 {
				p := Bytes(uint64(seed*1000+a*100+i), 20_000)
				pos, err := w.Append(t.Context(), p)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				appended[pos] = p
				mu.Unlock()
			}
		})
	}
	appenders.Wait()
	return appended
}

func testLogCancelled(t *testing.T, s LogStore) {
	w, err := s.CreateLog(t.Context(), blobfs.NewID())
	noError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		for i, err := range []error{
			errOf(w.Append(ctx, []byte("x"))), w.Seal(ctx), s.RemoveLog(ctx, w.ID()),
			errOf(s.CreateLog(ctx, blobfs.NewID())), errOf(s.OpenLog(ctx, w.ID())),
		} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("call %d: %v", i, err)
			}
		}
	}
	want := appendAll(t, w, []byte("y"))
	same(t, readLog(t, s, w.ID()), want)
}
