package replog_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/clustertest"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/vfs"
)

// B2, B5 on several nodes: what was appended is read back on another node, over many extents and
// with payloads longer than one.
func TestLogRoundTrip(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c, l := clustertest.NewForLogs(t, n, replog.Config{})
			id := blobfs.NewID()
			w, err := c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id)
			clustertest.NoError(t, err)
			if _, err := c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id); !errors.Is(err, blobfs.ErrLogExists) {
				t.Errorf("create again: %v", err)
			}
			var want []clustertest.Record
			for i, size := range []int{0, 1, 100, 5000, 100_000, 300_000, 700_000, 4056, 20_000, 1} {
				p := blobtest.Bytes(uint64(i), size)
				given := bytes.Clone(p)
				pos, err := w.Append(t.Context(), given)
				clustertest.NoError(t, err)
				clear(given)
				want = append(want, clustertest.Record{P: p, Pos: pos})
			}
			got := clustertest.ReadLog(t, c.All[n-1].Store, "n1", id)
			clustertest.EqualRecords(t, got, want)
			if _, err := w.Append(t.Context(), []byte("late")); !errors.Is(err, blobfs.ErrFenced) {
				t.Errorf("append after recovery: %v", err)
			}
			clustertest.EqualRecords(t, clustertest.ReadLog(t, c.All[0].Store, "n1", id), want)
			list := l.LogList(t, "n1", id)
			if !list.Closed || len(list.Extents) < 4 || len(list.Extents[0].Replicas) != min(n, 3) {
				t.Errorf("list %+v", list)
			}
			ids, err := c.All[0].ReplicatedLogs().List(t.Context(), "n1")
			clustertest.NoError(t, err)
			if !slices.Equal(ids, []blobfs.ID{id}) {
				t.Errorf("logs %v", ids)
			}
			clustertest.NoError(t, c.All[0].ReplicatedLogs().Remove(t.Context(), "n1", id))
			if _, err := c.All[0].ReplicatedLogs().Open(t.Context(), "n1", id); !errors.Is(err, blobfs.ErrNoLog) {
				t.Errorf("open after removal: %v", err)
			}
		})
	}
}

// A sealed log is closed. Released extents are removed on all nodes, and others stay.
func TestLogSealRelease(t *testing.T) {
	c, l := clustertest.NewForLogs(t, 3, replog.Config{})
	id := blobfs.NewID()
	w, err := c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id)
	clustertest.NoError(t, err)
	var all []clustertest.Record
	for i := range 30 {
		p := blobtest.Bytes(uint64(i), 60_000)
		pos, err := w.Append(t.Context(), p)
		clustertest.NoError(t, err)
		all = append(all, clustertest.Record{P: p, Pos: pos})
	}
	w.Release(all[20].Pos)
	clustertest.Eventually(t, "released extents go", func() bool {
		list := l.LogList(t, "n1", id)
		return list.Start > 0 && list.Start <= all[20].Pos && len(c.All[2].LogReplicas()) <= len(list.Extents)
	})
	clustertest.NoError(t, w.Seal(t.Context()))
	clustertest.NoError(t, w.Seal(t.Context()))
	if _, err := w.Append(t.Context(), nil); !errors.Is(err, blobfs.ErrSealed) {
		t.Errorf("append to a sealed log: %v", err)
	}
	list := l.LogList(t, "n1", id)
	epoch := list.Epoch
	got := clustertest.ReadLog(t, c.All[1].Store, "n1", id)
	i := slices.IndexFunc(all, func(r clustertest.Record) bool { return r.Pos > list.Start })
	for len(got) > 0 && got[0].Pos < all[i].Pos {
		got = got[1:]
	}
	if len(got) < len(all)-21 {
		t.Fatalf("%d records are left", len(got))
	}
	clustertest.EqualRecords(t, got, all[len(all)-len(got):])
	if list = l.LogList(t, "n1", id); list.Epoch != epoch || !list.Closed {
		t.Errorf("a sealed log was taken over: %+v", list)
	}
	clustertest.NoError(t, c.All[0].ReplicatedLogs().Remove(t.Context(), "n1", id))
	clustertest.Eventually(t, "replicas go", func() bool {
		return len(c.All[0].LogReplicas())+len(c.All[1].LogReplicas())+len(c.All[2].LogReplicas()) == 0
	})
}

// A replica that dies costs a switch to the standby, which waits for no compare-and-set. The log
// has three replicas again when there are enough nodes.
func TestLogSwitchesToStandby(t *testing.T) {
	c, l := clustertest.NewForLogs(t, 5, replog.Config{Avoid: 300 * time.Millisecond, Retry: 50 * time.Millisecond})
	id := blobfs.NewID()
	w, err := c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id)
	clustertest.NoError(t, err)
	_, err = w.Append(t.Context(), []byte("one"))
	clustertest.NoError(t, err)
	clustertest.Eventually(t, "a standby is registered", func() bool { return len(l.LogList(t, "n1", id).Extents) == 2 })
	first := l.LogList(t, "n1", id).Extents[0].Replicas
	if standby := l.LogList(t, "n1", id).Extents[1].Replicas; slices.Contains(standby, first[1]) && slices.Contains(standby, first[2]) {
		t.Errorf("extents on %v and %v", first, standby)
	}
	l.Mu.Lock()
	l.Down = true
	l.Mu.Unlock()
	victim := first[1]
	c.Get(victim).Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = w.Append(ctx, []byte("two"))
	clustertest.NoError(t, err)
	l.Mu.Lock()
	l.Down = false
	l.Mu.Unlock()
	_, err = w.Append(ctx, []byte("three"))
	clustertest.NoError(t, err)
	clustertest.Eventually(t, "three replicas again", func() bool {
		x := l.LogList(t, "n1", id).Extents
		last := x[len(x)-1]
		return len(x) > 2 && len(last.Replicas) == 3 && !slices.Contains(last.Replicas, victim)
	})
	var text []string
	for _, r := range clustertest.ReadLog(t, c.All[0].Store, "n1", id) {
		text = append(text, string(r.P))
	}
	if strings.Join(text, " ") != "one two three" {
		t.Errorf("log is %q", text)
	}
}

// A full cluster rejects appends with a typed error, loses nothing, and continues when there is
// space, both if the nodes are full and if the lock service is.
func TestLogDiskFull(t *testing.T) {
	for name, full := range map[string]func(*clustertest.Cluster, *clustertest.Lists, bool){
		"extents": func(c *clustertest.Cluster, _ *clustertest.Lists, full bool) {
			room := int64(1 << 30)
			if full {
				room = 1 << 20
			}
			for _, dir := range []string{"/a", "/b"} {
				c.All[0].FS.SetCapacity(dir, room)
			}
		},
		"lists": func(_ *clustertest.Cluster, l *clustertest.Lists, full bool) {
			l.Mu.Lock()
			defer l.Mu.Unlock()
			l.Full = full
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, l := clustertest.NewForLogs(t, 1, replog.Config{Retry: 20 * time.Millisecond})
			n := c.All[0]
			id := blobfs.NewID()
			w, err := n.ReplicatedLogs().Create(t.Context(), "n1", id)
			clustertest.NoError(t, err)
			full(c, l, true)
			var want []clustertest.Record
			append1 := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				p := blobtest.Bytes(uint64(len(want)), 50_000)
				pos, err := w.Append(ctx, p)
				if err == nil {
					want = append(want, clustertest.Record{P: p, Pos: pos})
				}
				return err
			}
			for err == nil {
				err = append1()
			}
			if !errors.Is(err, blobfs.ErrDiskFull) {
				t.Fatalf("after %d appends: %v", len(want), err)
			}
			full(c, l, false)
			clustertest.Eventually(t, "appends go on", func() bool { return append1() == nil })
			clustertest.EqualRecords(t, clustertest.ReadLog(t, n.Store, "n1", id), want)
			clustertest.NoError(t, w.Close())
		})
	}
}

// A replica that recovery did not reach serves nothing before it is cut, and then the same as the
// others.
func TestLogLateReplica(t *testing.T) {
	c, l := clustertest.NewForLogs(t, 3, replog.Config{DeadlineMin: time.Second, Retry: 50 * time.Millisecond})
	id := blobfs.NewID()
	w, err := c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id)
	clustertest.NoError(t, err)
	var want []clustertest.Record
	for i := range 5 {
		p := blobtest.Bytes(uint64(i), 5000)
		pos, err := w.Append(t.Context(), p)
		clustertest.NoError(t, err)
		want = append(want, clustertest.Record{P: p, Pos: pos})
	}
	clustertest.NoError(t, w.Close())
	// n3 is cut off while n2 recovers.
	for _, to := range []string{"n1", "n2"} {
		c.Cut[[2]string{to, "n3"}].Store(true)
	}
	clustertest.EqualRecords(t, clustertest.ReadLog(t, c.All[1].Store, "n1", id), want)
	x := l.LogList(t, "n1", id).Extents[0]
	late := c.All[2]
	info, err := late.StatLogReplica(id, x.Seq)
	clustertest.NoError(t, err)
	if info.Sealed {
		t.Fatal("the replica that was cut off is cut")
	}
	if _, err := late.ReadLogReplica(t.Context(), id, x.Seq, 0, x.Length, make([]byte, 10), 0); !errors.Is(err, logproto.ErrUncut) {
		t.Errorf("late replica serves: %v", err)
	}
	// It is the only replica left, apart from the list.
	c.Get("n1").Kill()
	for _, to := range []string{"n1", "n2"} {
		c.Cut[[2]string{to, "n3"}].Store(false)
	}
	clustertest.EqualRecords(t, clustertest.ReadLog(t, late.Store, "n1", id), want)
}

// A replica whose last frame is corrupt looks after a restart as if a crash had torn it. No
// acknowledged data is lost while there is a good replica.
func TestLogCorruptEnd(t *testing.T) {
	for name, restarted := range map[string]int{"one was restarted": 1, "all were": 3} {
		t.Run(name, func(t *testing.T) {
			c, l := clustertest.NewForLogs(t, 3, replog.Config{})
			cfg := clustertest.Config{Cluster: clustertest.Quick, Extent: 256 << 10}
			cfg.Cluster.Lists = l
			id := blobfs.NewID()
			w, err := c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id)
			clustertest.NoError(t, err)
			var want []clustertest.Record
			for i := range 5 {
				p := blobtest.Bytes(uint64(i), 5000)
				pos, err := w.Append(t.Context(), p)
				clustertest.NoError(t, err)
				want = append(want, clustertest.Record{P: p, Pos: pos})
			}
			clustertest.NoError(t, w.Close())
			x := l.LogList(t, "n1", id).Extents[0]
			if len(x.Replicas) != 3 {
				t.Fatalf("replicas on %v", x.Replicas)
			}
			for i, n := range c.All[:restarted] {
				n.Restart(cfg, func() {
					if i == 0 {
						n.CorruptLog(t, id, x.Seq, want[4].Pos-4096)
					}
				})
			}
			clustertest.EqualRecords(t, clustertest.ReadLog(t, c.All[0].Store, "n1", id), want)
			for _, n := range c.All[1:] { // the corrupt replica was rebuilt
				n.Kill()
			}
			clustertest.EqualRecords(t, clustertest.ReadLog(t, c.All[0].Store, "n1", id), want)
		})
	}
}

// Random faults: nodes die, fall silent in one direction, and have disks that are full, slow or
// fail; the lock service loses its answers. Then the writer becomes a zombie, and two nodes recover
// the log concurrently. L1, L2, L5.
func TestLogFaults(t *testing.T) {
	seed, runs := testseed.New(t), 6
	if os.Getenv("STELE_SOAK") != "" {
		runs = 200
	}
	for i := range runs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			faultRun(t, rand.New(rand.NewPCG(seed, uint64(i))))
		})
	}
}

// ledger records what the appenders know.
type ledger struct {
	mu     sync.Mutex
	n      uint64
	acked  map[uint64]int64 // payload number to position
	asked  map[uint64]bool
	over   atomic.Bool // recovery has returned
	zombie []uint64    // acknowledged although submitted after that
}

func (b *ledger) appendSome(ctx context.Context, w *replog.Writer, rng *rand.Rand) {
	for ctx.Err() == nil {
		b.mu.Lock()
		b.n++
		n := b.n
		b.asked[n] = true
		b.mu.Unlock()
		size := 8 + rng.IntN(3000)
		if rng.IntN(20) == 0 {
			size = rng.IntN(400 << 10)
		}
		p := append(binary.LittleEndian.AppendUint64(nil, n), blobtest.Bytes(n, size)...)
		late := b.over.Load()
		pos, err := w.Append(ctx, p)
		if err != nil {
			if errors.Is(err, blobfs.ErrFenced) || errors.Is(err, blobfs.ErrLogFailed) || errors.Is(err, blobfs.ErrClosed) {
				return
			}
			time.Sleep(5 * time.Millisecond)
			continue
		}
		b.mu.Lock()
		b.acked[n] = pos
		if late {
			b.zombie = append(b.zombie, n)
		}
		b.mu.Unlock()
	}
}

func faultRun(t *testing.T, rng *rand.Rand) {
	c, l := clustertest.NewForLogs(t, 5, replog.Config{
		DeadlineMin: 50 * time.Millisecond, DeadlineMax: 300 * time.Millisecond,
		OpenTimeout: 500 * time.Millisecond, Retry: 30 * time.Millisecond, Avoid: 200 * time.Millisecond,
	})
	l.LossPercent = rng.IntN(30)
	id := blobfs.NewID()
	w, err := c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id)
	clustertest.NoError(t, err)
	b := &ledger{acked: map[uint64]int64{}, asked: map[uint64]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 4 {
		r := rand.New(rand.NewPCG(rng.Uint64(), 1))
		group.Go(func() { b.appendSome(ctx, w, r) })
	}
	clustertest.Eventually(t, "appends begin", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.acked) >= 10
	})
	lost := losses{}
	for range 8 {
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		faultOnce(c, rng, &lost)
	}
	// Two concurrent recoveries while the writer, cut off from some nodes, continues.
	for _, cut := range c.Cut {
		cut.Store(false)
	}
	var found [2][]clustertest.Record
	var readers sync.WaitGroup
	at := []*clustertest.Node{c.All[1], c.All[2]}
	if lost.killed == at[0].ID {
		at[0] = c.All[3]
	} else if lost.killed == at[1].ID {
		at[1] = c.All[4]
	}
	for i, n := range at {
		readers.Go(func() {
			found[i] = clustertest.ReadLog(t, n.Store, "n1", id)
			b.over.Store(true)
		})
	}
	readers.Wait()
	time.Sleep(100 * time.Millisecond)
	cancel()
	group.Wait()
	b.check(t, found[0])
	clustertest.EqualRecords(t, found[1], found[0])
	clustertest.EqualRecords(t, clustertest.ReadLog(t, c.All[0].Store, "n1", id), found[0])
	t.Logf("%d acknowledged of %d, %d in the log, %d saves, %+v", len(b.acked), len(b.asked), len(found[0]), l.Saves, w.Stats())
}

// check compares what was recovered with what was acknowledged.
func (b *ledger) check(t *testing.T, found []clustertest.Record) {
	t.Helper()
	at := map[uint64]int64{}
	for _, r := range found {
		n := binary.LittleEndian.Uint64(r.P)
		if _, twice := at[n]; twice {
			t.Errorf("payload %d is in the log twice", n)
		}
		if !b.asked[n] {
			t.Errorf("payload %d was never appended", n)
		}
		at[n] = r.Pos
	}
	for _, n := range slices.Sorted(maps.Keys(b.acked)) {
		if at[n] != b.acked[n] {
			t.Fatalf("payload %d, acknowledged at %d, is at %d", n, b.acked[n], at[n])
		}
	}
	if len(b.zombie) > 0 {
		t.Errorf("payloads %v were acknowledged to a zombie", b.zombie)
	}
}

// losses are nodes that have permanently lost their data: one is killed, another has a failed disk.
// One of three replicas is then left.
type losses struct{ killed, failed string }

// faultOnce injects a fault or repairs one.
func faultOnce(c *clustertest.Cluster, rng *rand.Rand, lost *losses) {
	n := c.All[1+rng.IntN(4)]
	switch rng.IntN(8) {
	case 0:
		if lost.killed == "" {
			n.Kill()
			lost.killed = n.ID
		}
	case 1:
		c.Cut[[2]string{"n1", n.ID}].Store(true)
	case 2:
		c.Cut[[2]string{n.ID, "n1"}].Store(true)
	case 3:
		for _, cut := range c.Cut {
			cut.Store(false)
		}
	case 4: // a disk is full for new extents
		n.FS.SetCapacity("/a", 1<<20)
	case 5: // a disk fails a sync
		n := c.All[rng.IntN(5)]
		if lost.failed != "" && lost.failed != n.ID {
			break
		}
		lost.failed = n.ID
		once := new(atomic.Bool)
		n.FS.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpSync && strings.HasPrefix(op.Name, "/b") && once.CompareAndSwap(false, true) {
				return errors.New("input/output error")
			}
			return nil
		})
	case 6: // a disk is slow for a while
		var left atomic.Int64
		left.Store(3)
		n.FS.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpSync && left.Add(-1) >= 0 {
				time.Sleep(120 * time.Millisecond)
			}
			return nil
		})
	}
}

func TestLogListGolden(t *testing.T) {
	l := logproto.List{Epoch: 3, Owner: 7, Start: 4096, Extents: []logproto.Extent{
		{Seq: 2, Length: 8192, Replicas: []string{"n1", "n2"}}, {Seq: 4, Length: logproto.Open, Replicas: []string{"n1"}},
	}}
	b := replog.EncodeList(&l)
	if got := hex.EncodeToString(b); got != "96010307c2cd1000929302cd200092a26e31a26e329304ff91a26e31" {
		t.Errorf("list is now %s", got)
	}
	if back, err := replog.DecodeList(b); err != nil || !back.Equal(&l) {
		t.Errorf("decodes to %+v, %v", back, err)
	}
}

func FuzzLogList(f *testing.F) {
	f.Add(replog.EncodeList(&logproto.List{Epoch: 1, Extents: []logproto.Extent{{Seq: 1, Length: -1, Replicas: []string{"a"}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := replog.DecodeList(b)
		if err != nil {
			return
		}
		if again, err := replog.DecodeList(replog.EncodeList(&l)); err != nil || !again.Equal(&l) {
			t.Fatalf("%+v becomes %+v, %v", l, again, err)
		}
	})
}

// A node that did not answer for a moment gets replicas again soon after it answers, without
// waiting for the time for which a failed node is excluded.
func TestLogNodeAnswersAgain(t *testing.T) {
	c, l := clustertest.NewForLogs(t, 3, replog.Config{Avoid: time.Hour})
	cfg := clustertest.Config{Cluster: clustertest.Quick, Extent: 256 << 10}
	cfg.Cluster.Lists = l
	id := blobfs.NewID()
	w, err := c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id)
	clustertest.NoError(t, err)
	replicas := func() int {
		x := l.LogList(t, "n1", id).Extents
		return len(x[len(x)-1].Replicas)
	}
	_, err = w.Append(t.Context(), []byte("one"))
	clustertest.NoError(t, err)
	clustertest.Eventually(t, "two extents of three replicas", func() bool { return replicas() == 3 })
	c.All[2].Restart(cfg, func() {
		clustertest.Eventually(t, "the log goes on without the node", func() bool {
			_, err := w.Append(t.Context(), []byte("more"))
			clustertest.NoError(t, err)
			return replicas() == 2
		})
	})
	clustertest.Eventually(t, "the node is back on the log", func() bool {
		_, err := w.Append(t.Context(), []byte("again"))
		clustertest.NoError(t, err)
		return replicas() == 3
	})
}

// A log of a draining node, which keeps no replica of it, is created once another node answers: the
// others may be starting too.
func TestLogCreatedWhenOthersAnswer(t *testing.T) {
	cfg := clustertest.Config{N: 3, Cluster: clustertest.Quick}
	cfg.Cluster.Lists = clustertest.NewLists()
	cfg.Cluster.Logs = replog.Config{Retry: 20 * time.Millisecond, Avoid: 100 * time.Millisecond}
	c := clustertest.New(t, cfg)
	c.Change("n1", func(m *blobfs.Member) { m.Draining = true })
	for _, n := range c.All[1:] {
		n.Kill()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	begun := make(chan error)
	go func() {
		w, err := c.All[0].ReplicatedLogs().Create(ctx, "n1", blobfs.NewID())
		if err == nil {
			_, err = w.Append(ctx, []byte("one"))
			err = errors.Join(err, w.Close())
		}
		begun <- err
	}()
	select {
	case err := <-begun:
		t.Fatalf("while no node answers: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	for _, n := range c.All[1:] {
		n.Reopen(cfg)
	}
	if err := <-begun; err != nil {
		t.Error(err)
	}
}
