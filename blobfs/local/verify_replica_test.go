package local

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/internal/vfs"
)

// appendReplica adds a payload to a replica of the example's log and returns its end.
func appendReplica(t *testing.T, s *Store, seq uint64, pos int64, payload []byte) int64 {
	t.Helper()
	b := make([]byte, LogFrameBytes(len(payload)))
	EncodeLogFrame(b, payload, 0, 1, len(payload)+1, 7, pos, 0)
	a := LogAppend{Log: exampleID, Seq: seq, Epoch: 1, Pos: pos, Frames: b}
	if s.QueueLog(a, func(_ int64, err error) {
		if err != nil {
			t.Error(err)
		}
	}) {
		s.FlushLog(exampleID, seq)
	}
	return pos + int64(len(b))
}

func flipByte(t *testing.T, fs vfs.FS, name string, off int64) {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b[:], off); err != nil {
		t.Fatal(err)
	}
}

// B3: a wrong byte anywhere in a replica is found, with file and offset, whether the replica is
// being written, cut, or was found by Open. A torn tail is not a problem.
func TestVerifyLogReplica(t *testing.T) {
	ctx := context.Background()
	for _, state := range []string{"written", "cut", "found", "written, encrypted", "cut, encrypted", "found, encrypted"} {
		state, _, encrypted := strings.Cut(state, ", ")
		var keys []MasterKey
		stored := func(off int64) int64 { return off } // where a byte of the plaintext is in the file
		if encrypted {
			keys = []MasterKey{{1}}
			stored = func(off int64) int64 {
				if off < pageBytes {
					return pageBytes + off
				}
				return off + pageBytes + 12 + (off-pageBytes)/pageBytes*28
			}
		}
		fs := vfs.NewMem(vfs.MemOptions{})
		cfg := Config{Folders: []string{"/d"}, FS: fs, ExtentBytes: ChunkBytes, LogExtentsReady: -1, ReserveBytes: -1, MasterKeys: keys}
		s, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { s.Close() }()
		if _, err := s.OpenLogReplica(ctx, LogOpen{Log: exampleID, Server: "n1", Seq: 1, Epoch: 1, Salt: 7}); err != nil {
			t.Fatal(err)
		}
		end := int64(0)
		for i := range 4 {
			end = appendReplica(t, s, 1, end, make([]byte, 3000*i))
		}
		frames := []int64{0, 4096, 8192, 16384, end} // where they begin
		name := s.replica(exampleID, 1).f.path()
		switch state {
		case "cut":
			c := LogCut{Log: exampleID, CutRequest: logproto.CutRequest{Seq: 1, Epoch: 2, Length: end}}
			if err := s.CutLog(ctx, c); err != nil {
				t.Fatal(err)
			}
		case "found":
			s.Close()
			if s, err = Open(cfg); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.VerifyLogReplica(ctx, exampleID, 1); err != nil {
			t.Errorf("%s: %v", state, err)
		}
		for off := int64(0); off < pageBytes+end+8192; off += 97 {
			flipByte(t, fs, name, stored(off))
			var want int64 = -1
			for _, at := range frames[:4] {
				if off >= pageBytes+at {
					want = pageBytes + at
				}
			}
			switch {
			case off >= pageBytes+end:
				want = -1 // behind the end nothing counts
			case off >= pageBytes+frames[3] && state == "found":
				want = -1 // might be torn
			case off < pageBytes:
				want = 0
			}
			all := 0
			err := errors.Join(s.VerifyLogReplica(ctx, exampleID, 1), s.Verify(ctx, func(p Problem) {
				if all++; p.File != name || want > 0 && p.Offset != want {
					t.Errorf("%s, byte %d: problem %v", state, off, p)
				}
			}))
			var bad *CorruptError
			if want < 0 && (err != nil || all > 0) {
				t.Errorf("%s, byte %d: %v and %d problems", state, off, err, all)
			}
			if want >= 0 && (!errors.As(err, &bad) || bad.File != name || want > 0 && bad.Offset != want || all != 1) {
				t.Errorf("%s, byte %d: %v and %d problems, want offset %d", state, off, err, all, want)
			}
			flipByte(t, fs, name, stored(off))
		}
		for _, off := range []int64{100, logHeaderCopy + 100} {
			flipByte(t, fs, name, stored(off))
		}
		var bad *CorruptError
		if err := s.VerifyLogReplica(ctx, exampleID, 1); !errors.As(err, &bad) {
			t.Errorf("%s: without a header: %v", state, err)
		}
		if err := s.VerifyLogReplica(ctx, exampleID, 2); !errors.Is(err, logproto.ErrNoExtent) {
			t.Errorf("no extent: %v", err)
		}
	}
}

// Concurrent appends, cuts, drops and reuse of the file for another log are not damage.
func TestVerifyDuringAppends(t *testing.T) {
	for _, keys := range [][]MasterKey{nil, {{1}}} {
		s := openKeyed(t, vfs.NewMem(vfs.MemOptions{}), keys...)
		verifyBesideAppends(t, s)
		s.Close()
	}
}

func verifyBesideAppends(t *testing.T, s *Store) {
	ctx := context.Background()
	var group sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.Verify(ctx, func(p Problem) { t.Error(p) }); err != nil {
					t.Error(err)
				}
				for seq := range uint64(8) {
					if err := s.VerifyLogReplica(ctx, exampleID, seq); err != nil && !errors.Is(err, logproto.ErrNoExtent) {
						t.Error(err)
					}
				}
			}
		})
	}
	pos := int64(0)
	for i := range uint64(60) {
		seq := i%8 + 1
		if _, err := s.OpenLogReplica(ctx, LogOpen{Log: exampleID, Server: "n1", Seq: seq, Epoch: 1, Salt: 7}); err != nil {
			t.Fatal(err)
		}
		pos = 0
		for n := range 6 {
			pos = appendReplica(t, s, seq, pos, []byte(fmt.Sprint(i, n)))
		}
		if i%2 == 0 {
			if err := s.CutLog(ctx, LogCut{Log: exampleID, CutRequest: logproto.CutRequest{Seq: seq, Epoch: 1, Length: 4096}}); err != nil {
				t.Fatal(err)
			}
		}
		if i >= 3 {
			if err := s.DropLogReplica(ctx, exampleID, (i-3)%8+1); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	group.Wait()
}
