package storage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/steledb/stele/internal/vfs"
)

// newLogStore opens a log in its own directory. Failures go to the returned channel.
func newLogStore(tb testing.TB) (*Log, chan error) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), LogName)
	bolt, err := OpenBolt(file)
	if err != nil {
		tb.Fatal(err)
	}
	failures := make(chan error, 10)
	s := NewLog(bolt, LogOptions{File: file, StallTimeout: func() time.Duration { return 10 * time.Second }, OnFail: func(err error) { failures <- err }})
	tb.Cleanup(func() { _ = s.bolt.Close() })
	return s, failures
}

func entry(index uint64, data string) *raft.Log {
	return &raft.Log{Index: index, Term: 1 + index/100, Type: raft.LogNoop, Data: []byte(data), AppendedAt: time.Unix(1, 2)}
}

func storeEntries(tb testing.TB, s *Log, first, last uint64, size int) {
	tb.Helper()
	for first <= last {
		var batch []*raft.Log
		for ; first <= last && len(batch) < 200; first++ {
			batch = append(batch, entry(first, string(bytes.Repeat([]byte{byte(first)}, size))))
		}
		if err := s.StoreLogs(batch); err != nil {
			tb.Fatal(err)
		}
	}
}

func TestLogStoreRoundTrip(t *testing.T) {
	s, _ := newLogStore(t)
	for _, l := range []*raft.Log{
		entry(1, "hello"),
		entry(2, ""),
		{Index: 3, Term: 9, Type: raft.LogCommand},
		entry(4, string(bytes.Repeat([]byte("x"), fsm.CommandBytesMax))),
	} {
		if err := s.StoreLog(l); err != nil {
			t.Fatal(err)
		}
		if l.Extensions != nil {
			t.Error("the caller's entry was changed")
		}
		var got raft.Log
		if err := s.GetLog(l.Index, &got); err != nil {
			t.Fatal(err)
		}
		if got.Index != l.Index || got.Term != l.Term || got.Type != l.Type || !bytes.Equal(got.Data, l.Data) ||
			!got.AppendedAt.Equal(l.AppendedAt) || got.Extensions != nil {
			t.Errorf("got %+v, want %+v", got, l)
		}
	}
	if err := s.GetLog(5, new(raft.Log)); err != raft.ErrLogNotFound {
		t.Errorf("entry that is not there: %v", err)
	}
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	if first != 1 || last != 4 || err1 != nil || err2 != nil {
		t.Errorf("entries %d to %d, %v, %v", first, last, err1, err2)
	}
}

func TestStableStoreRoundTrip(t *testing.T) {
	s, failures := newLogStore(t)
	if _, err := s.GetUint64([]byte("CurrentTerm")); err != raftboltdb.ErrKeyNotFound {
		t.Errorf("value that is not there: %v", err)
	}
	if err := s.SetUint64([]byte("CurrentTerm"), 7); err != nil {
		t.Fatal(err)
	}
	if err := s.Set([]byte(stableVoteCand), []byte("n1")); err != nil {
		t.Fatal(err)
	}
	term, err1 := s.GetUint64([]byte("CurrentTerm"))
	cand, err2 := s.Get([]byte(stableVoteCand))
	if term != 7 || string(cand) != "n1" || err1 != nil || err2 != nil {
		t.Errorf("got %d, %q, %v, %v", term, cand, err1, err2)
	}
	// A value of another length, and one whose checksum is wrong.
	if _, err := s.GetUint64([]byte(stableVoteCand)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a number of two bytes: %v", err)
	}
	if err := s.bolt.Set([]byte("CurrentTerm"), []byte("\x00\x00\x00\x00\x00\x00\x00\x08\x01\x02\x03\x04")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.GetUint64([]byte("CurrentTerm")); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a wrong checksum: %v", err)
	}
	if err := <-failures; !errors.Is(err, ErrCorrupt) {
		t.Errorf("reported %v", err)
	}
}

// TestLogStoreFindsBadEntries stores entries directly in bbolt.
func TestLogStoreFindsBadEntries(t *testing.T) {
	for name, spoil := range map[string]func(l *raft.Log){
		"data":        func(l *raft.Log) { l.Data[0] ^= 1 },
		"term":        func(l *raft.Log) { l.Term++ },
		"type":        func(l *raft.Log) { l.Type = raft.LogCommand },
		"no checksum": func(l *raft.Log) { l.Extensions = nil },
		"version":     func(l *raft.Log) { l.Extensions[0]++ },
	} {
		s, failures := newLogStore(t)
		l := entry(1, "data")
		l.Extensions = append([]byte{sumVersion}, 0, 0, 0, 0)
		sum := sumEntry(l)
		copy(l.Extensions[1:], []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
		if err := s.bolt.StoreLog(l); err != nil {
			t.Fatal(err)
		}
		if err := s.GetLog(1, new(raft.Log)); err != nil {
			t.Fatalf("before: %v", err)
		}
		spoil(l)
		if err := s.bolt.StoreLog(l); err != nil {
			t.Fatal(err)
		}
		if err := s.GetLog(1, new(raft.Log)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if len(failures) != 1 {
			t.Errorf("%s: %d failures reported", name, len(failures))
		}
		// After the failure it writes nothing.
		if err := s.StoreLog(entry(2, "")); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: write afterwards: %v", name, err)
		}
	}
}

// TestLogStoreDeletesInPieces deletes more entries than one transaction does, from either end, and
// checks that no transaction leaves a gap.
func TestLogStoreDeletesInPieces(t *testing.T) {
	const n = 3*deleteChunk + 100
	for _, tc := range []struct{ first, last, wantFirst, wantLast uint64 }{
		{1, n - 10, n - 9, n},    // compaction
		{20, n, 1, 19},           // a follower's conflict
		{1, n, 0, 0},             // all of it
		{5, 4, 1, n},             // nothing
		{n - 5, n - 5 + 3, 1, n}, // unusual: the middle, in one piece
		{1, deleteChunk, deleteChunk + 1, n},
	} {
		t.Run(fmt.Sprintf("%d-%d", tc.first, tc.last), func(t *testing.T) {
			s, _ := newLogStore(t)
			storeEntries(t, s, 1, n, 10)
			spy := &deleteSpy{Backend: s.bolt}
			s.bolt = spy
			start := time.Now()
			if err := s.DeleteRange(tc.first, tc.last); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d transactions in %v", len(spy.ranges), time.Since(start))
			first, _ := s.FirstIndex()
			last, _ := s.LastIndex()
			if first != tc.wantFirst || last != tc.wantLast {
				t.Errorf("left %d to %d", first, last)
			}
			lo, hi := uint64(1), uint64(n)
			for _, r := range spy.ranges {
				if r[1]-r[0] >= deleteChunk {
					t.Errorf("%d entries in one transaction", r[1]-r[0]+1)
				}
				switch {
				case r[0] == lo:
					lo = r[1] + 1
				case r[1] == hi:
					hi = r[0] - 1
				case tc.last != n && tc.first != 1: // asked for a gap
				default:
					t.Errorf("entries %d to %d deleted while %d to %d stand", r[0], r[1], lo, hi)
				}
			}
		})
	}
}

type deleteSpy struct {
	Backend
	ranges [][2]uint64
}

func (d *deleteSpy) DeleteRange(first, last uint64) error {
	d.ranges = append(d.ranges, [2]uint64{first, last})
	return d.Backend.DeleteRange(first, last)
}

// slowBolt fails or delays writes.
type slowBolt struct {
	Backend
	err    error
	during func()
	writes atomic.Int64
}

func (b *slowBolt) StoreLogs(logs []*raft.Log) error {
	b.writes.Add(1)
	if b.during != nil {
		b.during()
	}
	if b.err != nil {
		return b.err
	}
	return b.Backend.StoreLogs(logs)
}

func TestLogStoreNeverTriesAgain(t *testing.T) {
	s, failures := newLogStore(t)
	broken := errors.New("input/output error")
	slow := &slowBolt{Backend: s.bolt, err: broken}
	s.bolt = slow
	for range 3 {
		err := s.StoreLog(entry(1, "x"))
		var d *DiskError
		if !errors.As(err, &d) || !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		slow.err = nil // the disk reports no further errors
	}
	if err := s.DeleteRange(1, 1); !errors.Is(err, broken) {
		t.Errorf("delete: %v", err)
	}
	if err := s.SetUint64([]byte("k"), 1); !errors.Is(err, broken) {
		t.Errorf("set: %v", err)
	}
	if slow.writes.Load() != 1 || len(failures) != 1 {
		t.Errorf("%d writes, %d reports", slow.writes.Load(), len(failures))
	}
}

// memStore stores nothing; virtual time cannot pass inside a real disk.
type memStore struct{ Backend }

func (memStore) StoreLogs([]*raft.Log) error { return nil }
func (memStore) LastIndex() (uint64, error)  { return 0, nil }

func TestLogStoreStall(t *testing.T) {
	for _, tc := range []struct {
		takes, stall time.Duration
		stalled      bool
	}{
		{0, time.Second, false},
		{900 * time.Millisecond, time.Second, false},
		{1100 * time.Millisecond, time.Second, true},
		{time.Hour, 10 * time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var reported time.Duration
			var reason error
			s := NewLog(nil, LogOptions{StallTimeout: func() time.Duration { return tc.stall }, OnFail: func(err error) { reported, reason = time.Since(start), err }})
			s.bolt = &slowBolt{Backend: memStore{}, during: func() { time.Sleep(tc.takes) }}
			err := s.StoreLog(entry(1, ""))
			if stalled := errors.Is(err, ErrStalled); stalled != tc.stalled || stalled != errors.Is(reason, ErrStalled) {
				t.Errorf("%v with a limit of %v: %v, reported %v", tc.takes, tc.stall, err, reason)
			}
			if tc.stalled && reported != tc.stall {
				t.Errorf("reported after %v", reported)
			}
		})
	}
}

// TestLogStoreSurvivesFaults truncates the file under bbolt's mapping, so that reading a page
// raises SIGBUS: the result is a failure of the disk.
func TestLogStoreSurvivesFaults(t *testing.T) {
	s, failures := newLogStore(t)
	storeEntries(t, s, 1, 2000, 100)
	if err := os.Truncate(s.opt.File, 8192); err != nil {
		t.Fatal(err)
	}
	var d *DiskError
	if err := s.GetLog(500, new(raft.Log)); !errors.As(err, &d) {
		t.Errorf("got %v", err)
	}
	if err := <-failures; !errors.As(err, &d) {
		t.Errorf("reported %v", err)
	}
}

// checkLog runs the check on a log of the operating system's file system.
func checkLog(tb testing.TB, file string) (LogSummary, []error) {
	tb.Helper()
	sum, problems, err := CheckLog(vfs.OS(), file)
	if err != nil {
		tb.Fatal(err)
	}
	return sum, problems
}

// TestLogStoreRejectsGaps stores entries that do not follow the end of the log.
func TestLogStoreRejectsGaps(t *testing.T) {
	s, failures := newLogStore(t)
	var gap *GapError
	if err := s.StoreLog(entry(2, "")); !errors.As(err, &gap) || *gap != (GapError{Index: 2, Want: 1}) {
		t.Errorf("first entry 2: %v", err)
	}
	storeEntries(t, s, 1, 5, 1)
	for _, logs := range [][]*raft.Log{{entry(7, "")}, {entry(5, "")}, {entry(6, ""), entry(8, "")}} {
		if err := s.StoreLogs(logs); !errors.As(err, &gap) {
			t.Errorf("entry %d after 5: %v", logs[0].Index, err)
		}
	}
	if err := s.DeleteRange(1, 5); err != nil {
		t.Fatal(err)
	}
	s.end.Store(&EntryID{20, 1})
	if err := s.StoreLog(entry(6, "")); !errors.As(err, &gap) || gap.Want != 21 {
		t.Errorf("entry 6 after a snapshot at 20: %v", err)
	}
	storeEntries(t, s, 21, 22, 1)
	if len(failures) != 0 {
		t.Errorf("told %v", <-failures)
	}
	if first, _ := s.FirstIndex(); first != 21 {
		t.Errorf("the log begins at %d", first)
	}
}

// TestLogStoreKnowsTheSnapshotsEnd reads the last entry of a snapshot.
func TestLogStoreKnowsTheSnapshotsEnd(t *testing.T) {
	s, _ := newLogStore(t)
	s.end.Store(&EntryID{20, 3})
	storeEntries(t, s, 21, 22, 1)
	var l raft.Log
	if err := s.GetLog(20, &l); err != nil || l.Index != 20 || l.Term != 3 {
		t.Errorf("entry 20: %+v, %v", l, err)
	}
	// Only its term is known: it must not be applied or sent.
	if l.Type <= raft.LogConfiguration {
		t.Errorf("entry 20 has type %v", l.Type)
	}
	for _, index := range []uint64{0, 19, 23} {
		if err := s.GetLog(index, &l); err != raft.ErrLogNotFound {
			t.Errorf("entry %d: %v", index, err)
		}
	}
}
