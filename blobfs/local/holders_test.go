package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/steledb/stele/internal/vfs"
)

func exampleExtent(i int) ExtentID {
	id := exampleID
	id[15] = byte(i)
	id[14] = byte(i >> 8)
	return ExtentID{Blob: id, Index: i % 3}
}

func putExtent(t testing.TB, s *Store, id ExtentID, h Holders, data string) ExtentRef {
	t.Helper()
	w, err := s.CreateExtent(context.Background(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write([]byte(data)); err != nil {
		t.Fatal(err)
	}
	ref, err := w.Seal(context.Background(), true, h)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func holdersOf(t testing.TB, s *Store, id ExtentID) Holders {
	t.Helper()
	info, err := s.ExtentInfo(id)
	if err != nil {
		t.Fatal(err)
	}
	return info.Holders
}

func same(a, b Holders) bool { return a.Epoch == b.Epoch && slices.Equal(a.Nodes, b.Nodes) }

func TestGoldenHolders(t *testing.T) {
	fs, s := memStore(t)
	id := ExtentID{Blob: exampleID, Index: 1}
	putExtent(t, s, id, Holders{Epoch: 1, Nodes: []string{"n1", "n2", "n3"}}, "x")
	if err := s.SetHolders(context.Background(), id, Holders{Epoch: 2, Nodes: []string{"n1", "n4"}}); err != nil {
		t.Fatal(err)
	}
	compare(t, "holders", readFile(t, fs, "/d/holders"))
}

func TestHoldersRules(t *testing.T) {
	fs, s := memStore(t)
	ctx := context.Background()
	id := exampleExtent(0)
	h := Holders{Epoch: 5, Nodes: []string{"a", "b"}}
	if err := s.SetHolders(ctx, id, h); !errors.Is(err, ErrNoExtent) {
		t.Errorf("of no extent: %v", err)
	}
	putExtent(t, s, id, Holders{}, "x")
	if got := holdersOf(t, s, id); !same(got, Holders{}) {
		t.Errorf("no list set, got %v", got)
	}
	for _, set := range []struct {
		h   Holders
		err error
	}{
		{h, nil}, {h, nil}, {Holders{5, []string{"a"}}, ErrStaleHolders}, {Holders{4, []string{"a", "b"}}, ErrStaleHolders},
		{Holders{6, nil}, nil}, {h, ErrStaleHolders}, {Holders{0, []string{"a"}}, ErrStaleHolders}, {Holders{9, h.Nodes}, nil},
	} {
		if err := s.SetHolders(ctx, id, set.h); !errors.Is(err, set.err) || (err == nil) != (set.err == nil) {
			t.Errorf("%v: %v", set.h, err)
		}
	}
	for _, bad := range []Holders{{10, []string{"a", "a"}}, {10, []string{""}}, {10, make([]string, HoldersMax+1)}, {10, []string{strings.Repeat("x", 256)}}} {
		if s.SetHolders(ctx, id, bad) == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAgain(t, fs)
	if got := holdersOf(t, s, id); !same(got, Holders{9, h.Nodes}) {
		t.Errorf("after reopening %v", got)
	}
}

func openAgain(t testing.TB, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open(Config{Folders: []string{"/d"}, FS: fs, ExtentBytes: ChunkBytes, LogExtentsReady: -1, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// B9: every acknowledged list is found again after a power loss.
func TestHoldersSurviveCrashes(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		fs := vfs.NewMem(vfs.MemOptions{})
		cut := 1 + rng.Int64N(150)
		fs.SetHook(func(op vfs.Op) error {
			if op.N >= cut {
				return vfs.ErrPowerCut
			}
			return nil
		})
		s, err := Open(Config{Folders: []string{"/d"}, FS: fs, ExtentBytes: ChunkBytes, LogExtentsReady: -1, ReserveBytes: -1})
		acked := map[ExtentID]Holders{}
		var mu sync.Mutex
		if err == nil {
			var group sync.WaitGroup
			for g := range 3 {
				group.Go(func() {
					for i := range 12 {
						id := exampleExtent(100*g + i/3)
						h := Holders{Epoch: uint64(1 + i%3), Nodes: []string{fmt.Sprint(g), fmt.Sprint("n", i)}}
						if i%3 > 0 {
							err := s.SetHolders(context.Background(), id, h)
							mu.Lock()
							if err == nil {
								acked[id] = h
							}
							mu.Unlock()
							continue
						}
						w, err := s.CreateExtent(context.Background(), id, 0)
						if err == nil {
							_, err = w.Seal(context.Background(), true, h)
						}
						if err == nil {
							mu.Lock()
							acked[id] = h
							mu.Unlock()
						}
					}
				})
			}
			group.Wait()
		}
		after := fs.Crash(rng)
		s2 := openAgain(t, after)
		for id, want := range acked {
			if got := holdersOf(t, s2, id); got.Epoch < want.Epoch || got.Epoch == want.Epoch && !same(got, want) {
				t.Errorf("seed %d, cut at %d: %s has %v, acknowledged was %v", seed, cut, id, got, want)
			}
		}
		if err := s2.Verify(context.Background(), func(p Problem) { t.Errorf("seed %d, cut at %d: %v", seed, cut, p) }); err != nil {
			t.Error(err)
		}
		for id := range acked {
			if err := s2.SetHolders(context.Background(), id, Holders{Epoch: 50, Nodes: []string{"z"}}); err != nil {
				t.Errorf("seed %d: after the crash: %v", seed, err)
			}
		}
		if s != nil {
			s.Close()
		}
		s2.Close()
	}
}

// A corrupt frame is reported, and loses only the lists in it.
func TestHoldersDamage(t *testing.T) {
	fs, s := memStore(t)
	want := map[ExtentID]Holders{}
	for i := range 10 {
		id := exampleExtent(i)
		want[id] = Holders{Epoch: 3, Nodes: []string{"a", fmt.Sprint(i)}}
		putExtent(t, s, id, want[id], "x")
	}
	size := int64(len(readFile(t, fs, "/d/holders")))
	s.Close()
	file, err := fs.Open("/d/holders")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var b [1]byte
	for at := int64(0); at < size; at += 7 {
		flip := func() {
			if _, err := file.ReadAt(b[:], at); err != nil {
				t.Fatal(err)
			}
			b[0] ^= 0x10
			if _, err := file.WriteAt(b[:], at); err != nil {
				t.Fatal(err)
			}
		}
		flip()
		s, err := Open(Config{Folders: []string{"/d"}, FS: fs, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		lost, problems := 0, 0
		for id, h := range want {
			if got := holdersOf(t, s, id); got.Epoch == 0 {
				lost++
			} else if !same(got, h) {
				t.Errorf("byte %d: %v became %v", at, h, got)
			}
		}
		if err := s.Verify(context.Background(), func(Problem) { problems++ }); err != nil {
			t.Fatal(err)
		}
		inLast := at >= size-size/10
		if lost > 1 || problems == 0 && !inLast {
			t.Errorf("byte %d: %d lists lost, %d problems", at, lost, problems)
		}
		s.Close()
		flip()
	}
}

// A file that is mostly obsolete is rewritten without loss.
func TestHoldersRewrite(t *testing.T) {
	fs, s := memStore(t)
	keep, gone := exampleExtent(1), exampleExtent(2)
	putExtent(t, s, keep, Holders{Epoch: 1, Nodes: []string{"k"}}, "x")
	putExtent(t, s, gone, Holders{Epoch: 7, Nodes: []string{"g"}}, "x")
	if err := s.DropExtent(context.Background(), gone); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("n", 250)
	var last Holders
	largest := 0
	for i := range 700 {
		last = Holders{Epoch: uint64(i + 2)}
		for n := range 10 {
			last.Nodes = append(last.Nodes, fmt.Sprint(long, n))
		}
		if err := s.SetHolders(context.Background(), keep, last); err != nil {
			t.Fatal(err)
		}
		size, _, _ := fs.Stat("/d/holders")
		largest = max(largest, int(size))
	}
	if size, _, _ := fs.Stat("/d/holders"); size > 1<<20 || largest < 1<<20 || largest > 3<<20 {
		t.Errorf("%d bytes, and at most %d, of one list", size, largest)
	}
	s.Close()
	s = openAgain(t, fs.Crash(nil))
	if got := holdersOf(t, s, keep); !same(got, last) {
		t.Errorf("epoch %d is left", got.Epoch)
	}
	// A restored extent starts with the list that it is given.
	_ = s.DropExtent(context.Background(), gone) // its removal was not synced
	putExtent(t, s, gone, Holders{Epoch: 3, Nodes: []string{"new"}}, "x")
	if got := holdersOf(t, s, gone); got.Epoch != 3 {
		t.Errorf("an extent that came back has %v", got)
	}
}

// A full disk loses no acknowledged list, and freed space is used.
func TestHoldersDiskFull(t *testing.T) {
	fs, s := memStore(t)
	id := exampleExtent(1)
	putExtent(t, s, id, Holders{Epoch: 1, Nodes: []string{"a"}}, "x")
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && strings.Contains(op.Name, "holders") {
			return errors.Join(vfs.ErrTorn, syscall.ENOSPC)
		}
		return nil
	})
	if err := s.SetHolders(context.Background(), id, Holders{Epoch: 2, Nodes: []string{"b"}}); !errors.Is(err, ErrDiskFull) {
		t.Errorf("full: %v", err)
	}
	fs.SetHook(nil)
	if got := holdersOf(t, s, id); got.Epoch != 1 {
		t.Errorf("holders %v", got)
	}
	want := Holders{Epoch: 2, Nodes: []string{"c"}}
	if err := s.SetHolders(context.Background(), id, want); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if got := holdersOf(t, openAgain(t, fs.Crash(nil)), id); !same(got, want) {
		t.Errorf("holders %v", got)
	}
}

func FuzzHolders(f *testing.F) {
	frame := appendHolderRecord(make([]byte, holderFrameBytes), exampleExtent(1), Holders{Epoch: 3, Nodes: []string{"a", "bc"}})
	f.Add(append(holderHeader(), sealHolderFrame(frame, 1, 16)...))
	f.Fuzz(func(t *testing.T, content []byte) {
		end, _ := scanHolders(content, "/x", func(id ExtentID, h Holders) {
			if h.Validate() != nil || h.Epoch == 0 {
				t.Errorf("%v is accepted", h)
			}
			if back := newHolderList(h).list(); !same(back, h) {
				t.Errorf("%v became %v", h, back)
			}
		})
		if end < 16 || end > int64(max(len(content), 16)) {
			t.Errorf("end %d of %d", end, len(content))
		}
	})
}

// BenchmarkHolders loads the lists of many extents, as Open does.
func BenchmarkHolders(b *testing.B) {
	const extents = 200_000
	content := holderHeader()
	for at := 0; at < extents; {
		frame := make([]byte, holderFrameBytes)
		n := 0
		for ; n < 100; n++ {
			frame = appendHolderRecord(frame, exampleExtent(at), Holders{Epoch: 1, Nodes: []string{"n1", "n2", fmt.Sprint("m", at%50)}})
			at++
		}
		content = append(content, sealHolderFrame(frame, n, int64(len(content)))...)
	}
	b.Run("load-200000", func(b *testing.B) {
		b.SetBytes(int64(len(content)))
		for range b.N {
			n := 0
			scanHolders(content, "", func(id ExtentID, h Holders) { newHolderList(h); n++ })
			if n != extents {
				b.Fatal(n)
			}
		}
	})
}
