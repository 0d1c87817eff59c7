package replog_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/clustertest"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/testseed"
)

// Every payload of a log is in exactly one of its pieces, for any sizes of payloads, extents and
// pieces, with one replica lost and another corrupt. Opening a piece fences nothing.
func TestLogPieces(t *testing.T) {
	seed, runs := testseed.New(t), 8
	if os.Getenv("STELE_SOAK") != "" {
		runs = 200
	}
	for i := range runs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			pieceRun(t, rand.New(rand.NewPCG(seed, uint64(i))))
		})
	}
}

func pieceRun(t *testing.T, rng *rand.Rand) {
	l := clustertest.NewLists()
	cfg := clustertest.Quick
	cfg.Lists = l
	cfg.Logs = replog.Config{
		DeadlineMin: 100 * time.Millisecond, OpenTimeout: 500 * time.Millisecond, Retry: 20 * time.Millisecond, Avoid: 50 * time.Millisecond,
		// Less than a long payload: the appender may give one up half way.
		WindowBytes: 160 << 10,
	}
	extent := int64(128<<10) << rng.IntN(3)
	c := clustertest.New(t, clustertest.Config{N: 4, Cluster: cfg, Extent: extent})
	id := blobfs.NewID()
	w, err := c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id)
	clustertest.NoError(t, err)
	fillLog(t, c, w, extent, rng)
	if _, err := c.All[1].ReplicatedLogs().OpenPiece(t.Context(), "n1", id, replog.Piece{End: 1}); !errors.Is(err, replog.ErrOpen) {
		t.Errorf("a piece of a log that goes on: %v", err)
	}
	whole := clustertest.ReadLog(t, c.All[1].Store, "n1", id)
	size := rng.Int64N(4 * extent)
	pieces, err := c.All[2].ReplicatedLogs().End(t.Context(), "n1", id, size)
	clustertest.NoError(t, err)
	checkPieces(t, pieces, size, extent)
	list := l.LogList(t, "n1", id)
	sound := c.DamageLog(t, id, list.Extents, rng)
	var got []clustertest.Record
	for _, p := range pieces {
		r, err := sound[rng.IntN(len(sound))].ReplicatedLogs().OpenPiece(t.Context(), "n1", id, p)
		clustertest.NoError(t, err)
		got = append(got, readAll(t, r)...)
	}
	clustertest.EqualRecords(t, got, whole)
	if after := l.LogList(t, "n1", id); !after.Equal(&list) {
		t.Errorf("reading pieces made the list %+v, it was %+v", after, list)
	}
	t.Logf("extents of %d: %d payloads, %d extents, %d pieces of %d", extent, len(whole), len(list.Extents), len(pieces), size)
}

// fillLog appends payloads of up to three extents, while replicas sometimes fail and disks are
// sometimes full.
func fillLog(t *testing.T, c *clustertest.Cluster, w *replog.Writer, extent int64, rng *rand.Rand) {
	var group sync.WaitGroup
	for range 3 {
		r := rand.New(rand.NewPCG(rng.Uint64(), 1))
		group.Go(func() {
			for i := range 16 {
				size := r.IntN(5000)
				if r.IntN(4) == 0 {
					size = r.IntN(int(3 * extent))
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(10+r.IntN(200))*time.Millisecond)
				// An append that failed may be in the log or not: reading the log shows which.
				_, err := w.Append(ctx, append(binary.LittleEndian.AppendUint64(nil, uint64(i)), blobtest.Bytes(r.Uint64(), size)...))
				cancel()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, blobfs.ErrDiskFull) {
					t.Errorf("append of %d bytes: %v", size, err)
				}
			}
		})
	}
	for range 8 {
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		n := c.All[1+rng.IntN(3)]
		if rng.IntN(2) == 0 {
			cut := c.Cut[[2]string{"n1", n.ID}]
			cut.Store(!cut.Load())
			continue
		}
		room := int64(1 << 20)
		if rng.IntN(2) == 0 {
			room = 1 << 40
		}
		for _, n := range c.All {
			n.FS.SetCapacity("/a", room)
			n.FS.SetCapacity("/b", room)
		}
	}
	for _, n := range c.All {
		n.FS.SetCapacity("/a", 1<<40)
		n.FS.SetCapacity("/b", 1<<40)
	}
	for _, cut := range c.Cut {
		cut.Store(false)
	}
	group.Wait()
}

func checkPieces(t *testing.T, pieces []replog.Piece, size, extent int64) {
	t.Helper()
	for i, p := range pieces {
		if p.End <= p.Start || p.End-p.Start > max(size, extent) {
			t.Errorf("piece %d is %+v; pieces are of %d bytes, extents of %d", i, p, size, extent)
		}
		if i > 0 && p.Start != pieces[i-1].End {
			t.Errorf("piece %d begins at %d, the one before ends at %d", i, p.Start, pieces[i-1].End)
		}
	}
}

func readAll(t *testing.T, r *replog.Reader) []clustertest.Record {
	t.Helper()
	defer r.Close()
	var all []clustertest.Record
	for {
		p, pos, err := r.Next()
		if err == io.EOF {
			return all
		}
		clustertest.NoError(t, err)
		all = append(all, clustertest.Record{P: bytes.Clone(p), Pos: pos})
	}
}

// A piece that does not exist, or is invalid, is rejected.
func TestLogPieceUnknown(t *testing.T) {
	c, l := clustertest.NewForLogs(t, 1, replog.Config{})
	id := blobfs.NewID()
	w, err := c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id)
	clustertest.NoError(t, err)
	pos, err := w.Append(t.Context(), []byte("one"))
	clustertest.NoError(t, err)
	pieces, err := c.All[0].ReplicatedLogs().End(t.Context(), "n1", id, 1<<20)
	clustertest.NoError(t, err)
	if want := (replog.Piece{Start: 0, End: pos}); len(pieces) != 1 || pieces[0] != want {
		t.Fatalf("pieces %v, want %v", pieces, want)
	}
	saves := l.Saves
	for _, p := range []replog.Piece{{}, {Start: 1, End: pos}, {Start: pos, End: pos}, {Start: pos, End: pos + 1}, {Start: 0, End: 0}, {Start: -1, End: pos}} {
		if r, err := c.All[0].ReplicatedLogs().OpenPiece(t.Context(), "n1", id, p); err == nil {
			t.Errorf("piece %v is opened, and has %d payloads", p, len(readAll(t, r)))
		}
	}
	if _, err := c.All[0].ReplicatedLogs().OpenPiece(t.Context(), "n1", blobfs.NewID(), pieces[0]); !errors.Is(err, blobfs.ErrNoLog) {
		t.Errorf("piece of an unknown log: %v", err)
	}
	// A log without appends has no pieces.
	empty := blobfs.NewID()
	_, err = c.All[0].ReplicatedLogs().Create(t.Context(), "n1", empty)
	clustertest.NoError(t, err)
	if pieces, err := c.All[0].ReplicatedLogs().End(t.Context(), "n1", empty, 1<<20); err != nil || len(pieces) != 0 {
		t.Errorf("pieces %v of an empty log, %v", pieces, err)
	}
	if l.Saves == saves {
		t.Error("the list of the empty log was not closed")
	}
}

// A payload whose first frames were withdrawn, since all nodes were full, does not continue when
// there is space again: a log with half a payload could not be read.
func TestLogWithdrawnHalf(t *testing.T) {
	l := clustertest.NewLists()
	cfg := clustertest.Quick
	cfg.Lists, cfg.Logs = l, replog.Config{Retry: time.Millisecond, WindowBytes: 100 << 10}
	c := clustertest.New(t, clustertest.Config{N: 1, Cluster: cfg, Extent: 128 << 10})
	n, id := c.All[0], blobfs.NewID()
	w, err := n.ReplicatedLogs().Create(t.Context(), "n1", id)
	clustertest.NoError(t, err)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for room := int64(1 << 20); ; room = 1<<40 - room {
			for _, dir := range []string{"/a", "/b"} {
				n.FS.SetCapacity(dir, room)
			}
			select {
			case <-stop:
				return
			case <-time.After(15 * time.Millisecond):
			}
		}
	}()
	var acked []int64
	full := 0
	for i := range 150 {
		pos, err := w.Append(t.Context(), blobtest.Bytes(uint64(i), 300_000))
		switch {
		case err == nil:
			acked = append(acked, pos)
		case errors.Is(err, blobfs.ErrDiskFull):
			full++
			time.Sleep(time.Millisecond)
		default:
			t.Fatal(err)
		}
	}
	close(stop)
	<-stopped
	for _, dir := range []string{"/a", "/b"} {
		n.FS.SetCapacity(dir, 1<<40)
	}
	t.Logf("%d appended, %d refused", len(acked), full)
	var got []int64
	for _, r := range clustertest.ReadLog(t, n.Store, "n1", id) {
		got = append(got, r.Pos)
	}
	if !slices.Equal(got, acked) {
		t.Errorf("payloads end at %v, acknowledged were %v", got, acked)
	}
}
