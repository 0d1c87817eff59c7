package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/raftmeta/api"
)

// TestLogCheckAcceptsWhatBoltWrites runs the check over logs of many shapes.
func TestLogCheckAcceptsWhatBoltWrites(t *testing.T) {
	seed := testseed.New(t)
	for round := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, round))
		s, _ := newLogStore(t)
		first, next := uint64(1), uint64(1)
		var sizes []int32
		for range 1 + rng.IntN(40) {
			switch op := rng.IntN(10); {
			case op < 7:
				var batch []*raft.Log
				for range 1 + rng.IntN(60) {
					size := rng.IntN(300)
					if rng.IntN(50) == 0 {
						size = rng.IntN(fsm.CommandBytesMax)
					}
					l := entry(next, string(make([]byte, size)))
					batch = append(batch, l)
					sizes = append(sizes, int32(entryBytes(l)))
					next++
				}
				if err := s.StoreLogs(batch); err != nil {
					t.Fatal(err)
				}
			case op < 8 && next > first:
				n := 1 + rng.Uint64N(next-first)
				if err := s.DeleteRange(first, first+n-1); err != nil {
					t.Fatal(err)
				}
				first, sizes = first+n, sizes[n:]
				s.end.Store(&EntryID{first - 1, 1}) // compaction follows a snapshot
			case op < 9 && next > first:
				n := 1 + rng.Uint64N(next-first)
				if err := s.DeleteRange(next-n, next-1); err != nil {
					t.Fatal(err)
				}
				next, sizes = next-n, sizes[:len(sizes)-int(n)]
			default:
				if err := errors.Join(s.SetUint64([]byte("CurrentTerm"), rng.Uint64()), s.Set([]byte(stableVoteCand), []byte("n7"))); err != nil {
					t.Fatal(err)
				}
			}
			sum, problems := checkLog(t, s.opt.File)
			if len(problems) > 0 {
				t.Fatalf("round %d: %v", round, problems)
			}
			if len(sum.Sizes) != len(sizes) || len(sizes) > 0 && (sum.First != first || sum.Last != next-1) {
				t.Fatalf("round %d: found %d to %d, %d entries; want %d to %d", round, sum.First, sum.Last, len(sum.Sizes), first, next-1)
			}
			for i := range sizes {
				if sizes[i] != sum.Sizes[i] {
					t.Fatalf("round %d: entry %d counts for %d, not %d", round, i, sum.Sizes[i], sizes[i])
				}
			}
		}
	}
}

// smallLog writes a log with two levels of pages and returns its bytes.
func smallLog(tb testing.TB) []byte {
	tb.Helper()
	s, _ := newLogStore(tb)
	if err := s.SetUint64([]byte("CurrentTerm"), 3); err != nil {
		tb.Fatal(err)
	}
	for i := range uint64(60) {
		c := fsm.Command{Op: fsm.OpSet, Path: fmt.Sprintf("/f%d", i), Data: bytes.Repeat([]byte{byte(i)}, 150), Generation: api.AnyGeneration}
		l := &raft.Log{Index: i + 1, Term: 2, Type: raft.LogCommand, Data: c.Encode(), AppendedAt: time.Unix(1, 0)}
		if err := s.StoreLog(l); err != nil {
			tb.Fatal(err)
		}
	}
	if err := s.bolt.Close(); err != nil {
		tb.Fatal(err)
	}
	b, err := os.ReadFile(s.opt.File)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// contents reads all of a log through bbolt.
func contents(tb testing.TB, file string) string {
	tb.Helper()
	bolt, err := OpenBolt(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = bolt.Close() }()
	s := NewLog(bolt, LogOptions{File: file, StallTimeout: func() time.Duration { return time.Minute }, OnFail: func(err error) { tb.Error(err) }})
	var out bytes.Buffer
	first, _ := s.FirstIndex()
	last, _ := s.LastIndex()
	term, err := s.GetUint64([]byte("CurrentTerm"))
	fmt.Fprintln(&out, first, last, term, err)
	for i := first; i <= last; i++ {
		var l raft.Log
		err := s.GetLog(i, &l)
		fmt.Fprintln(&out, l.Index, l.Term, l.Type, l.Data, err)
	}
	return out.String()
}

// TestLogCheckEveryByteCounts changes bytes all over a log file. Each change is either found, with
// its offset, or harmless: bbolt then reads what was written. Most of the file is free pages, so
// many changes are harmless.
func TestLogCheckEveryByteCounts(t *testing.T) {
	seed := testseed.New(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	whole := smallLog(t)
	file := filepath.Join(t.TempDir(), LogName)
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	want := contents(t, file)
	found, harmless := 0, 0
	for i := 0; i < len(whole); i += 1 + rng.IntN(len(whole)/700) {
		bad := bytes.Clone(whole)
		bad[i] ^= byte(1 + rng.IntN(255))
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		_, problems := checkLog(t, file)
		if len(problems) > 0 {
			found++
			var c *CorruptError
			var v *fsm.VersionError
			if !errors.As(problems[0], &c) && !errors.As(problems[0], &v) || c != nil && c.File != file {
				t.Fatalf("byte %d: %v", i, problems[0])
			}
			continue
		}
		harmless++
		if got := contents(t, file); got != want {
			t.Fatalf("byte %d changed from %#x to %#x: not found, and the log reads differently", i, whole[i], bad[i])
		}
	}
	t.Logf("%d found, %d harmless, of %d bytes", found, harmless, len(whole))
	if found == 0 {
		t.Error("nothing was found")
	}
}

func TestLogCheckCutFile(t *testing.T) {
	whole := smallLog(t)
	file := filepath.Join(t.TempDir(), LogName)
	for n := 0; n < len(whole); n += 1024 {
		if err := os.WriteFile(file, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, problems := checkLog(t, file); len(problems) == 0 {
			// bbolt makes files larger than it needs.
			if contents(t, file) == "" {
				t.Errorf("cut at %d", n)
			}
		}
	}
	if _, _, err := CheckLog(vfs.OS(), file+"none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestLogCheckNewerCommand checks a log with a command of a newer program.
func TestLogCheckNewerCommand(t *testing.T) {
	s, _ := newLogStore(t)
	if err := s.SetUint64([]byte("CurrentTerm"), 3); err != nil {
		t.Fatal(err)
	}
	for i, data := range []string{"\x94\x01\x02\xa2/a\xc0", "\x92\x01\x63", "\x92\x06\x01", "nonsense"} {
		if err := s.StoreLog(&raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand, Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
	}
	_, problems := checkLog(t, s.opt.File)
	var v *fsm.VersionError
	if len(problems) != 3 || !errors.As(problems[0], &v) || v.File != s.opt.File || !errors.As(problems[1], &v) || !errors.Is(problems[2], ErrCorrupt) {
		t.Errorf("got %v", problems)
	}
}

// FuzzLogCheck checks that no file makes the check panic, or allocate more memory than the size of
// the file allows. A change is a pair of an offset and a value, so that the fuzzer gets past the
// meta pages.
func FuzzLogCheck(f *testing.F) {
	whole := smallLog(f)
	f.Add([]byte{0, 1, 2, 3})
	for i := 0; i+4 < len(whole); i += 4096 {
		f.Add([]byte{byte(i >> 16), byte(i >> 8), 8, 3, byte(i >> 16), byte(i >> 8), 16, 200})
	}
	f.Fuzz(func(t *testing.T, changes []byte) {
		b := bytes.Clone(whole)
		for ; len(changes) >= 4; changes = changes[4:] {
			at := int(changes[0])<<16 | int(changes[1])<<8 | int(changes[2])
			b[at%len(b)] = changes[3]
		}
		mem := vfs.NewMem(vfs.MemOptions{})
		writeAllNew(t, mem, "/log", b)
		if _, _, err := CheckLog(mem, "/log"); err != nil {
			t.Fatal(err)
		}
	})
}
