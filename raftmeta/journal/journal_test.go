package journal_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/raftmeta/journal"
	"github.com/steledb/stele/raftmeta/storage"
)

const file = "/log"

// store is what both a journal and raft's store in memory are.
type store interface {
	raft.LogStore
	raft.StableStore
}

// contentOf returns everything in a store.
func contentOf(t *testing.T, s store) string {
	t.Helper()
	first, err := s.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	last, err := s.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(first, last)
	for i := first; i <= last && i > 0; i++ {
		var e raft.Log
		if err := s.GetLog(i, &e); err != nil {
			t.Fatal(i, err)
		}
		text += fmt.Sprintf(" %d.%d.%d.%d.%x.%x", e.Index, e.Term, e.Type, e.AppendedAt.UnixNano(), e.Data, e.Extensions)
	}
	for _, i := range []uint64{first - 1, last + 1} {
		if err := s.GetLog(i, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	for key := range 3 {
		v, err := s.Get([]byte{byte(key)})
		text += fmt.Sprintf(" %x %v", v, err)
	}
	return text
}

// change makes the same random change in each store, and returns their errors.
func change(rng *rand.Rand, stores ...store) (errs []error) {
	last, _ := stores[0].LastIndex()
	first, _ := stores[0].FirstIndex()
	bytes := make([]byte, rng.IntN(2000))
	for i := range bytes {
		bytes[i] = byte(rng.Uint32())
	}
	var do func(s store) error
	switch n := rng.IntN(10); {
	case n < 2:
		key := []byte{byte(rng.IntN(3))}
		do = func(s store) error { return s.Set(key, bytes) }
	case n == 2 && last > 0: // the oldest
		hi := first + rng.Uint64N(last-first+1)
		do = func(s store) error { return s.DeleteRange(first, hi) }
	case n == 3 && last > 0: // the newest
		lo := last - rng.Uint64N(min(last-first+1, 5))
		do = func(s store) error { return s.DeleteRange(lo, last) }
	default:
		var entries []*raft.Log
		for i := range 1 + rng.Uint64N(5) {
			entries = append(entries, &raft.Log{Index: last + 1 + i, Term: rng.Uint64N(9), Type: raft.LogType(rng.IntN(3)), Data: bytes, Extensions: bytes[:len(bytes)/9], AppendedAt: time.Unix(5, int64(i))})
		}
		do = func(s store) error { return s.StoreLogs(entries) }
	}
	for _, s := range stores {
		errs = append(errs, do(s))
	}
	return errs
}

// TestLikeMemory: after random changes, and another open, a journal has what raft's store in memory has.
func TestLikeMemory(t *testing.T) {
	seed := testseed.New(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	mem, want := vfs.NewMem(vfs.MemOptions{}), raft.NewInmemStore()
	l := open(t, mem)
	for range 5000 {
		for _, err := range change(rng, l, want) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(100) == 0 {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l = open(t, mem)
		}
		if rng.IntN(20) > 0 {
			continue
		}
		if got, want := contentOf(t, l), contentOf(t, want); got != want {
			t.Fatalf("got %.300s, want %.300s", got, want)
		}
	}
	if size, _, err := mem.Stat(file); err != nil || size > 4<<20 {
		t.Errorf("the file has %d bytes, %v", size, err)
	}
}

func open(t *testing.T, fsys vfs.FS) *journal.Log {
	t.Helper()
	l, err := journal.Open(fsys, file)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestPowerLoss: after a power loss during a call a journal has all or nothing of it, and all before it.
func TestPowerLoss(t *testing.T) {
	seed := testseed.New(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	mem, memory := vfs.NewMem(vfs.MemOptions{}), raft.NewInmemStore()
	l := open(t, mem)
	if err := mem.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		before := contentOf(t, memory)
		last := mem.Ops() + rng.Int64N(3)
		mem.SetHook(func(op vfs.Op) error {
			if op.N > last {
				return vfs.ErrPowerCut
			}
			return nil
		})
		failed := change(rng, l, memory)[0]
		mem = mem.Crash(rng)
		l = open(t, mem)
		got, after := contentOf(t, l), contentOf(t, memory)
		if got != after && (failed == nil || got != before) {
			t.Fatalf("step %d, the call returned %v: got %.300s, before %.300s, after %.300s", i, failed, got, before, after)
		}
		if got == before && got != after { // do the same in the model
			memory = copyOf(t, l)
		}
	}
}

// copyOf returns a store in memory with the content of a journal.
func copyOf(t *testing.T, l *journal.Log) *raft.InmemStore {
	t.Helper()
	to := raft.NewInmemStore()
	first, _ := l.FirstIndex()
	last, _ := l.LastIndex()
	for i := first; i <= last && i > 0; i++ {
		var e raft.Log
		if err := errors.Join(l.GetLog(i, &e), to.StoreLog(&e)); err != nil {
			t.Fatal(err)
		}
	}
	for key := range 3 {
		if v, err := l.Get([]byte{byte(key)}); err == nil {
			_ = to.Set([]byte{byte(key)}, v) // in memory
		}
	}
	return to
}

// TestEmptyValue: an empty value is not nil, which would mean that there is none, also after another open.
func TestEmptyValue(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{})
	l := open(t, mem)
	if err := l.Set([]byte("k"), nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if v, err := l.Get([]byte("k")); err != nil || v == nil || len(v) != 0 {
			t.Errorf("got %#v, %v", v, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = open(t, mem)
	}
}

// TestLogOnJournal: a storage.Log works on a journal.
func TestLogOnJournal(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{})
	b, err := journal.Opener(mem)(file)
	if err != nil {
		t.Fatal(err)
	}
	s := storage.NewLog(b, storage.LogOptions{File: file, StallTimeout: func() time.Duration { return time.Minute }, OnFail: func(err error) { t.Error(err) }})
	want := raft.Log{Index: 1, Term: 2, Data: []byte("x"), AppendedAt: time.Unix(1, 2).UTC()}
	if err := s.StoreLog(&want); err != nil {
		t.Fatal(err)
	}
	if err := s.SetUint64([]byte("CurrentTerm"), 7); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	s = storage.NewLog(open(t, mem), storage.LogOptions{File: file, StallTimeout: func() time.Duration { return time.Minute }, OnFail: func(err error) { t.Error(err) }})
	var got raft.Log
	if err := s.GetLog(1, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if term, err := s.GetUint64([]byte("CurrentTerm")); term != 7 || err != nil {
		t.Errorf("term %d, %v", term, err)
	}
}
