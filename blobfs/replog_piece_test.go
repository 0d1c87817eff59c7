package blobfs_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/blobfs/replog"
)

// Every payload of a log is in exactly one of its pieces, for any sizes of payloads, extents and
// pieces, with one replica lost and another corrupt. Opening a piece fences nothing.
func TestLogPieces(t *testing.T) {
	seed, runs := runSeed(t), 8
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
	l := newLists()
	cfg := quick
	cfg.Lists = l
	cfg.Logs = replog.Config{
		DeadlineMin: 100 * time.Millisecond, OpenTimeout: 500 * time.Millisecond, Retry: 20 * time.Millisecond, Avoid: 50 * time.Millisecond,
		// Less than a long payload: the appender may give one up half way.
		WindowBytes: 160 << 10,
	}
	extent := int64(128<<10) << rng.IntN(3)
	c := newNodes(t, nodesConfig{n: 4, cluster: cfg, extent: extent})
	id := blobfs.NewID()
	w, err := c.all[0].ReplicatedLogs().Create(t.Context(), "n1", id)
	noError(t, err)
	fillLog(t, c, w, extent, rng)
	if _, err := c.all[1].ReplicatedLogs().OpenPiece(t.Context(), "n1", id, replog.Piece{End: 1}); !errors.Is(err, replog.ErrOpen) {
		t.Errorf("a piece of a log that goes on: %v", err)
	}
	whole := readLog(t, c.all[1].Store, "n1", id)
	size := rng.Int64N(4 * extent)
	pieces, err := c.all[2].ReplicatedLogs().End(t.Context(), "n1", id, size)
	noError(t, err)
	checkPieces(t, pieces, size, extent)
	list := l.list(t, "n1", id)
	sound := c.damageLog(t, id, list.Extents, rng)
	var got []logRecord
	for _, p := range pieces {
		r, err := sound[rng.IntN(len(sound))].ReplicatedLogs().OpenPiece(t.Context(), "n1", id, p)
		noError(t, err)
		got = append(got, readAll(t, r)...)
	}
	equalRecords(t, got, whole)
	if after := l.list(t, "n1", id); !after.Equal(&list) {
		t.Errorf("reading pieces made the list %+v, it was %+v", after, list)
	}
	t.Logf("extents of %d: %d payloads, %d extents, %d pieces of %d", extent, len(whole), len(list.Extents), len(pieces), size)
}

// damageLog kills a node and corrupts a replica such that each extent keeps a good replica. It
// returns the live nodes.
func (c *nodes) damageLog(t *testing.T, id blobfs.ID, extents []logproto.Extent, rng *rand.Rand) []*node {
	t.Helper()
	// sealed are the nodes that an extent can be read from, except one.
	sealed := func(x *logproto.Extent, but *node) (on []*node) {
		for _, name := range x.Replicas {
			n := c.get(name)
			if info, err := n.StatLogReplica(id, x.Seq); err == nil && info.Sealed && n != but {
				on = append(on, n)
			}
		}
		return on
	}
	lost := c.all[1+rng.IntN(3)]
	if slices.ContainsFunc(extents, func(x logproto.Extent) bool { return x.Length > 0 && len(sealed(&x, lost)) == 0 }) {
		lost = nil
	}
	x := &extents[rng.IntN(len(extents))]
	if on := sealed(x, lost); len(on) > 1 && x.Length > 0 {
		on[0].corruptLog(t, id, x.Seq, rng.Int64N(x.Length))
	}
	if lost != nil {
		lost.kill()
	}
	return slices.DeleteFunc(slices.Clone(c.all), func(n *node) bool { return n == lost })
}

// fillLog appends payloads of up to three extents, while replicas sometimes fail and disks are
// sometimes full.
func fillLog(t *testing.T, c *nodes, w *replog.Writer, extent int64, rng *rand.Rand) {
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
				// An append that failed may be in the log or not: reading the log tells.
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
		n := c.all[1+rng.IntN(3)]
		if rng.IntN(2) == 0 {
			cut := c.cut[[2]string{"n1", n.id}]
			cut.Store(!cut.Load())
			continue
		}
		room := int64(1 << 20)
		if rng.IntN(2) == 0 {
			room = 1 << 40
		}
		for _, n := range c.all {
			n.fs.SetCapacity("/a", room)
			n.fs.SetCapacity("/b", room)
		}
	}
	for _, n := range c.all {
		n.fs.SetCapacity("/a", 1<<40)
		n.fs.SetCapacity("/b", 1<<40)
	}
	for _, cut := range c.cut {
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

func readAll(t *testing.T, r *replog.Reader) []logRecord {
	t.Helper()
	defer r.Close()
	var all []logRecord
	for {
		p, pos, err := r.Next()
		if err == io.EOF {
			return all
		}
		noError(t, err)
		all = append(all, logRecord{bytes.Clone(p), pos})
	}
}

// corruptLog flips a byte in a node's replica of a log extent.
func (n *node) corruptLog(t *testing.T, id blobfs.ID, seq uint64, off int64) {
	t.Helper()
	for _, dir := range []string{"/a/logs", "/b/logs"} {
		names, err := n.fs.ReadDir(dir)
		noError(t, err)
		for _, name := range names {
			f, err := n.fs.Open(filepath.Join(dir, name))
			noError(t, err)
			defer f.Close()
			var head [4096]byte
			if _, err = f.ReadAt(head[:], 0); err != nil || !bytes.Equal(head[32:48], id[:]) || binary.LittleEndian.Uint64(head[48:]) != seq {
				continue
			}
			flip(t, f, 4096+off)
			return
		}
	}
	t.Fatalf("%s has no extent %d of log %s", n.id, seq, id)
}

// A piece that does not exist, or is invalid, is rejected.
func TestLogPieceUnknown(t *testing.T) {
	c, l := newLogNodes(t, 1, replog.Config{})
	id := blobfs.NewID()
	w, err := c.all[0].ReplicatedLogs().Create(t.Context(), "n1", id)
	noError(t, err)
	pos, err := w.Append(t.Context(), []byte("one"))
	noError(t, err)
	pieces, err := c.all[0].ReplicatedLogs().End(t.Context(), "n1", id, 1<<20)
	noError(t, err)
	if want := (replog.Piece{Start: 0, End: pos}); len(pieces) != 1 || pieces[0] != want {
		t.Fatalf("pieces %v, want %v", pieces, want)
	}
	saves := l.saves
	for _, p := range []replog.Piece{{}, {Start: 1, End: pos}, {Start: pos, End: pos}, {Start: pos, End: pos + 1}, {Start: 0, End: 0}, {Start: -1, End: pos}} {
		if r, err := c.all[0].ReplicatedLogs().OpenPiece(t.Context(), "n1", id, p); err == nil {
			t.Errorf("piece %v is opened, and has %d payloads", p, len(readAll(t, r)))
		}
	}
	if _, err := c.all[0].ReplicatedLogs().OpenPiece(t.Context(), "n1", blobfs.NewID(), pieces[0]); !errors.Is(err, blobfs.ErrNoLog) {
		t.Errorf("piece of an unknown log: %v", err)
	}
	// A log without appends has no pieces.
	empty := blobfs.NewID()
	_, err = c.all[0].ReplicatedLogs().Create(t.Context(), "n1", empty)
	noError(t, err)
	if pieces, err := c.all[0].ReplicatedLogs().End(t.Context(), "n1", empty, 1<<20); err != nil || len(pieces) != 0 {
		t.Errorf("pieces %v of an empty log, %v", pieces, err)
	}
	if l.saves == saves {
		t.Error("the list of the empty log was not closed")
	}
}

// A payload whose first frames were withdrawn, since all nodes were full, does not continue when
// there is space again: a log with half a payload could not be read.
func TestLogWithdrawnHalf(t *testing.T) {
	l := newLists()
	cfg := quick
	cfg.Lists, cfg.Logs = l, replog.Config{Retry: time.Millisecond, WindowBytes: 100 << 10}
	c := newNodes(t, nodesConfig{n: 1, cluster: cfg, extent: 128 << 10})
	n, id := c.all[0], blobfs.NewID()
	w, err := n.ReplicatedLogs().Create(t.Context(), "n1", id)
	noError(t, err)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for room := int64(1 << 20); ; room = 1<<40 - room {
			for _, dir := range []string{"/a", "/b"} {
				n.fs.SetCapacity(dir, room)
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
		n.fs.SetCapacity(dir, 1<<40)
	}
	t.Logf("%d appended, %d refused", len(acked), full)
	var got []int64
	for _, r := range readLog(t, n.Store, "n1", id) {
		got = append(got, r.pos)
	}
	if !slices.Equal(got, acked) {
		t.Errorf("payloads end at %v, acknowledged were %v", got, acked)
	}
}
