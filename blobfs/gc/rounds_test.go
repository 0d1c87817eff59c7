package gc_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/gc"
	"github.com/steledb/stele/blobfs/local"
)

// inGCWorld runs a test in virtual time with blobs that are all named except the last, which is
// garbage.
func inGCWorld(t *testing.T, test func(t *testing.T, w *gcWorld, blobs []*gcBlob)) {
	inGCWorldOf(t, gcTimes, false, test)
}

func inGCWorldOf(t *testing.T, times gc.Config, keep bool, test func(t *testing.T, w *gcWorld, blobs []*gcBlob)) {
	synctest.Test(t, func(t *testing.T) {
		w := newGCWorld(t, 1, times, keep)
		for i := range 9 {
			n := w.c.All[i%5]
			b := &gcBlob{data: blobtest.Bytes(uint64(i), 100_000), named: i < 8}
			b.h = clustertest.Put(t, n.Store, b.data)
			w.catalog.name(b.h.ID, b.named)
			n.Release(b.h.ID)
			w.blobs = append(w.blobs, b)
		}
		test(t, w, w.blobs)
	})
}

func (w *gcWorld) round(s *gc.Sweeper) gc.Report {
	w.t.Helper()
	r, err := s.Round(w.t.Context())
	clustertest.NoError(w.t, err)
	time.Sleep(gcTimes.Every)
	return r
}

func (w *gcWorld) quarantined() (ids []blobfs.ID) {
	for _, n := range w.c.All {
		for _, x := range n.Quarantined(blobfs.ExtentID{Index: -1}, 1000) {
			ids = append(ids, x.ID.Blob)
		}
	}
	return ids
}

// R13: garbage is warned of, quarantined by the next round, and removed after the grace period. All
// replicas of the blob are treated alike.
func TestGCStages(t *testing.T) {
	inGCWorld(t, func(t *testing.T, w *gcWorld, blobs []*gcBlob) {
		s := w.c.All[2].GC().NewSweeper(w.catalog)
		if r := w.round(s); r.Round != 1 || r.Listed != 9*2*3 || r.Garbage != 6 || r.Warned != 6 || r.Quarantined != 0 || r.Nodes != 5 || r.Passes < 2 {
			t.Errorf("first round: %+v", r)
		}
		if r := w.round(s); r.Quarantined != 6 || r.Warned != 0 || r.Removed != 0 {
			t.Errorf("second round: %+v", r)
		}
		for i := range 24 {
			if r := w.round(s); r.Garbage != 6 || r.Quarantined+r.Warned+r.Revived != 0 || r.Removed != 6*(i/23) {
				t.Errorf("round %d: %+v", r.Round, r)
			}
		}
		if r := w.round(s); r.Listed != 8*2*3 || r.Garbage != 0 {
			t.Errorf("in the end: %+v", r)
		} else if st := w.c.All[2].GC().Status(); st.Rounds != 27 || st.Failed != 0 || st.Last.Round != r.Round || st.Quarantined != 6 || st.Removed != 6 || st.Err+st.Halted != "" || st.At.IsZero() {
			t.Errorf("status in the end: %+v", st)
		}
		w.check()
		if _, err := w.c.All[0].OpenBlob(t.Context(), blobs[8].h); !errors.Is(err, blobfs.ErrNoBlob) {
			t.Errorf("open garbage: %v", err)
		}
	})
}

// Roots that miss a needed blob do no harm within the grace period: each node serves it, and
// nothing more is removed on any node, restarted or not, before an operator resumes.
func TestGCRootsMissBlob(t *testing.T) {
	inGCWorld(t, func(t *testing.T, w *gcWorld, blobs []*gcBlob) {
		s := w.c.All[2].GC().NewSweeper(w.catalog)
		missed := blobs[3]
		w.catalog.omits[missed.h.ID] = true
		w.round(s)
		w.round(s)
		if ids := w.quarantined(); len(ids) != 12 || !slices.Contains(ids, missed.h.ID) {
			t.Fatalf("in quarantine: %v", ids)
		}
		for range 20 {
			w.round(s)
		}
		for _, n := range w.c.All {
			clustertest.Get(t, n.Store, missed.h, missed.data)
		}
		alarms := 0
		for _, n := range w.c.All {
			if alarm := n.Alarm(); alarm != "" && strings.Contains(alarm, missed.h.ID.String()) {
				alarms++
			}
		}
		if alarms == 0 {
			t.Error("no node has raised the alarm")
		}
		for i := range 3 {
			if _, err := s.Round(t.Context()); !errors.Is(err, gc.ErrHalted) {
				t.Errorf("round after the alarm: %v", err)
			}
			time.Sleep(48 * time.Hour)
			if i == 1 {
				for _, n := range w.c.All[1:] {
					w.restart(n)
				}
				s = w.c.All[1].GC().NewSweeper(w.catalog)
			}
		}
		if st := w.c.All[1].GC().Status(); st.Halted == "" || st.Failed == 0 || st.Err == "" {
			t.Errorf("status after the alarm: %+v", st)
		}
		why, err := w.c.All[4].GC().Halted(t.Context())
		if err != nil || !strings.Contains(why, missed.h.ID.String()) {
			t.Errorf("halted: %q, %v", why, err)
		}
		// The rest of its extents in quarantine are named again, which raises an alarm too.
		delete(w.catalog.omits, missed.h.ID)
		left := slices.Contains(w.quarantined(), missed.h.ID)
		clustertest.NoError(t, w.c.All[4].GC().Resume(t.Context()))
		if st := w.c.All[1].GC().Status(); st.Halted != "" {
			t.Errorf("halted on the sweeper's node after another node resumed: %s", st.Halted)
		}
		if _, err := s.Round(t.Context()); left != errors.Is(err, gc.ErrHalted) {
			t.Errorf("round with some left in quarantine (%v): %v", left, err)
		}
		if slices.Contains(w.quarantined(), missed.h.ID) {
			t.Error("it is still in quarantine")
		}
		clustertest.NoError(t, w.c.All[4].GC().Resume(t.Context()))
		for range 3 {
			w.round(s)
		}
		if len(w.quarantined()) != 0 {
			t.Errorf("garbage is not removed: %v", w.quarantined())
		}
		w.check()
	})
}

// An operator takes a blob out of quarantine.
func TestGCRevive(t *testing.T) {
	inGCWorld(t, func(t *testing.T, w *gcWorld, blobs []*gcBlob) {
		s := w.c.All[0].GC().NewSweeper(w.catalog)
		w.round(s)
		w.round(s)
		b := blobs[8]
		if n, err := w.c.All[3].GC().Revive(t.Context(), b.h.ID); err != nil || n != 6 {
			t.Errorf("revived %d: %v", n, err)
		}
		if _, err := w.c.All[3].GC().Revive(t.Context(), b.h.ID); !errors.Is(err, blobfs.ErrNoBlob) {
			t.Errorf("revived twice: %v", err)
		}
		w.c.All[3].Pin(b.h.ID)
		for range 50 {
			w.round(s)
		}
		clustertest.Get(t, w.c.All[1].Store, b.h, b.data)
		w.c.All[3].Unpin(b.h.ID)
		for range 50 {
			w.round(s)
		}
		if _, err := w.c.All[0].OpenBlob(t.Context(), b.h); !errors.Is(err, blobfs.ErrNoBlob) {
			t.Errorf("open garbage: %v", err)
		}
		w.check()
	})
}

// There is no round without all nodes, until one is down for so long that it uses nothing any more.
// What it brings back is found then.
func TestGCNodeDown(t *testing.T) {
	inGCWorld(t, func(t *testing.T, w *gcWorld, blobs []*gcBlob) {
		away := w.c.Get(blobs[8].h.Extents[0].Replicas[2])
		s := w.c.Get(blobs[8].h.Extents[0].Replicas[0]).GC().NewSweeper(w.catalog)
		w.cut(away, true)
		start := time.Now()
		for time.Since(start) < gcTimes.Away {
			if r, err := s.Round(t.Context()); !errors.Is(err, api.ErrUnreachable) || !slices.Equal(r.Without, []string{away.ID}) {
				t.Fatalf("round without %s: %+v, %v", away.ID, r, err)
			}
			time.Sleep(time.Hour)
		}
		for range 30 {
			if r := w.round(s); r.Nodes != 4 {
				t.Fatalf("round without %s: %+v", away.ID, r)
			}
		}
		if len(w.quarantined()) != 0 {
			t.Errorf("in quarantine: %v", w.quarantined())
		}
		w.cut(away, false)
		for range 30 {
			w.round(s)
		}
		if x := away.ListExtents(blobfs.ExtentID{Blob: blobs[8].h.ID, Index: -1}, 1); len(x) > 0 && x[0].ID.Blob == blobs[8].h.ID {
			t.Error("what came back is not removed")
		}
		w.check()
	})
}

// A node rejects judgments that are not of the current round, or about extents that it did not
// list, and applies nothing of a round that did not judge everything.
func TestGCRejects(t *testing.T) {
	inGCWorld(t, func(t *testing.T, w *gcWorld, blobs []*gcBlob) {
		ctx := t.Context()
		p, err := clustertest.Membership{N: w.c.All[0]}.Peer(ctx, "n2")
		clustertest.NoError(t, err)
		stale := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, api.ErrStaleRound) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err = p.SweepExtents(ctx, 3, 10)
		stale("a round that was not begun", err)
		_, err = p.BeginSweep(ctx, 3)
		clustertest.NoError(t, err)
		_, err = p.BeginSweep(ctx, 3)
		stale("a round begun twice", err)
		page, err := p.SweepExtents(ctx, 3, 4)
		if err != nil || len(page) != 4 {
			t.Fatalf("page %v, %v", page, err)
		}
		_, err = p.JudgeExtents(ctx, 3, page[1], page[:3])
		stale("garbage beyond what is judged", err)
		_, err = p.JudgeExtents(ctx, 3, blobfs.ExtentID{Blob: blobfs.NewID()}, nil)
		stale("what was not listed", err)
		_, err = p.JudgeExtents(ctx, 3, page[1], page[:2])
		clustertest.NoError(t, err)
		_, err = p.JudgeExtents(ctx, 3, page[3], nil)
		stale("what is to be listed again", err)
		_, err = p.EndSweep(ctx, 3)
		stale("the end before all was judged", err)
		_, err = p.BeginSweep(ctx, 4)
		clustertest.NoError(t, err)
		_, err = p.SweepPins(ctx, 3, blobfs.ID{}, 10)
		stale("an earlier round", err)
		again, err := p.SweepExtents(ctx, 4, 4)
		if err != nil || !slices.Equal(again, page) {
			t.Errorf("page %v, %v", again, err)
		}
		w.c.Get("n2").Pin(blobs[0].h.ID)
		if pins, err := p.SweepPins(ctx, 4, blobfs.ID{}, 10); err != nil || !slices.Equal(pins, []blobfs.ID{blobs[0].h.ID}) {
			t.Errorf("pins %v, %v", pins, err)
		}
		// Two concurrent sweepers: one of them continues.
		a, b := w.c.All[0].GC().NewSweeper(w.catalog), w.c.All[1].GC().NewSweeper(w.catalog)
		w.catalog.pause = time.Minute
		failed := make(chan error)
		go func() {
			_, err := a.Round(ctx)
			failed <- err
		}()
		time.Sleep(30 * time.Second)
		for {
			if _, err := b.Round(ctx); err == nil {
				break // the first ones are lower than what n2 has seen
			}
		}
		stale("the first of two sweepers", <-failed)
	})
}

// A blob that is named while the roots are read, and then released, was in use when the nodes were
// asked for pins before that.
func TestGCReadsPinsBeforeRoots(t *testing.T) {
	onePass := gcTimes
	onePass.Marks = 1000
	inGCWorldOf(t, onePass, false, func(t *testing.T, w *gcWorld, _ []*gcBlob) {
		n := w.c.All[1]
		h := clustertest.Put(t, n.Store, blobtest.Bytes(1, 1000))
		s := w.c.All[0].GC().NewSweeper(w.catalog)
		w.catalog.midst = func() {
			w.catalog.name(h.ID, true)
			n.Release(h.ID)
		}
		if r := w.round(s); r.Garbage != 6 {
			t.Errorf("round: %+v", r)
		}
		// An extent created after the round began is not judged, although nothing needs it.
		w.catalog.midst = func() { n.Release(clustertest.Put(t, n.Store, blobtest.Bytes(2, 1000)).ID) }
		if r := w.round(s); r.Garbage != 6 {
			t.Errorf("round: %+v", r)
		}
		if r := w.round(s); r.Garbage != 9 {
			t.Errorf("round: %+v", r)
		}
	})
}

// A node with an alarm quarantines and removes nothing, whatever a sweeper that does not know of
// the alarm requests.
func TestGCAlarmOnNode(t *testing.T) {
	inGCWorld(t, func(t *testing.T, w *gcWorld, _ []*gcBlob) {
		ctx := t.Context()
		n := w.c.Get("n2")
		p, err := clustertest.Membership{N: w.c.All[0]}.Peer(ctx, "n2")
		clustertest.NoError(t, err)
		all := n.Extents()
		for round := uint64(1); round <= 4; round++ {
			_, err = p.BeginSweep(ctx, round)
			clustertest.NoError(t, err)
			for {
				page, err := p.SweepExtents(ctx, round, 100)
				clustertest.NoError(t, err)
				if len(page) == 0 {
					break
				}
				_, err = p.JudgeExtents(ctx, round, page[len(page)-1], page)
				clustertest.NoError(t, err)
			}
			_, err = p.SweepReplicas(ctx, round, 100)
			clustertest.NoError(t, err)
			if round == 2 || round == 4 {
				n.RaiseAlarm("something is wrong")
			}
			time.Sleep(time.Hour)
			swept, err := p.EndSweep(ctx, round)
			clustertest.NoError(t, err)
			want := map[uint64]int{3: all}[round]
			if swept.Quarantined != want || swept.Removed != 0 || (swept.Alarm != "") != (round%2 == 0) || swept.More {
				t.Errorf("round %d: %+v", round, swept)
			}
			if round == 3 {
				time.Sleep(2 * gcTimes.Grace)
			}
			if round == 2 {
				clustertest.NoError(t, p.ClearAlarm(ctx))
			}
		}
		if got := len(n.Quarantined(blobfs.ExtentID{Index: -1}, 1000)); got != all {
			t.Errorf("%d extents in quarantine, want %d", got, all)
		}
	})
}

// Neither a copy to or from a node, nor a check, takes an extent out of quarantine; only a reader or an
// operator does. Deleting a blob removes it from quarantine too.
func TestQuarantineIsNotCopiedTo(t *testing.T) {
	c := clustertest.New(t, clustertest.Config{N: 3, Cluster: clustertest.Quick})
	h := clustertest.Put(t, c.All[0].Store, []byte("something"))
	from, to := c.All[0], c.All[1]
	x := blobfs.ExtentID{Blob: h.ID}
	st, err := from.StatExtent(t.Context(), x)
	clustertest.NoError(t, err)
	clustertest.NoError(t, to.QuarantineExtent(t.Context(), x, 1))
	ask := api.Copy{Ref: api.Ref{Extent: x, CRC: st.CRC}, From: []string{from.ID}, Holders: st.Holders}
	if err := to.Peer().Copy(t.Context(), ask); !errors.Is(err, local.ErrExtentExists) {
		t.Errorf("copy to where it is in quarantine: %v", err)
	}
	if !to.InQuarantine(x) {
		t.Error("the copy took it out of quarantine")
	}
	ref, p := api.Ref{Extent: x, CRC: st.CRC}, make([]byte, st.Length)
	for what, err := range map[string]error{
		"read to copy": to.Peer().ReadToCopy(t.Context(), ref, p, 0),
		"check":        to.Peer().Verify(t.Context(), ref),
	} {
		if !errors.Is(err, local.ErrNoExtent) || !to.InQuarantine(x) || to.Alarm() != "" {
			t.Errorf("%s of what is in quarantine: %v; in quarantine after it: %t, alarm %q", what, err, to.InQuarantine(x), to.Alarm())
		}
	}
	clustertest.NoError(t, from.Peer().ReadToCopy(t.Context(), ref, p, 0))
	if string(p) != "something" {
		t.Errorf("read to copy: %q", p)
	}
	clustertest.NoError(t, from.Delete(t.Context(), h.ID))
	if to.InQuarantine(x) {
		t.Error("it is in quarantine after the blob was deleted")
	}
}

// An abandoned blob is deleted soon after garbage collection has found that nothing needs it, and
// not before. Other garbage stays for the grace period.
func TestGCOfAbandoned(t *testing.T) {
	inGCWorldOf(t, gcTimes, true, func(t *testing.T, w *gcWorld, blobs []*gcBlob) {
		s := w.c.All[2].GC().NewSweeper(w.catalog)
		left, shared, read, lost := blobs[0], blobs[1], blobs[2], blobs[3]
		for _, b := range []*gcBlob{left, read, lost} {
			w.catalog.name(b.h.ID, false)
			b.named = false
		}
		reader, err := w.c.All[4].OpenBlob(t.Context(), read.h)
		clustertest.NoError(t, err)
		for _, b := range []*gcBlob{left, shared, read} {
			w.c.All[0].Abandon(b.h)
			w.c.All[1].Abandon(b.h) // as has its other owner
		}
		has := func(b *gcBlob) (replicas int) {
			for _, n := range w.c.All {
				for i := range b.h.Extents {
					if _, err := n.ExtentInfo(blobfs.ExtentID{Blob: b.h.ID, Index: i}); err == nil {
						replicas++
					}
				}
			}
			return replicas
		}
		in := func(b *gcBlob) (n int) {
			for _, id := range w.quarantined() {
				if id == b.h.ID {
					n++
				}
			}
			return n
		}
		w.round(s)
		if has(left) != 6 {
			t.Errorf("before it is garbage %d of 6 replicas are there", has(left))
		}
		r, err := s.Round(t.Context())
		clustertest.NoError(t, err)
		if in(left) != 6 || in(lost) != 6 || r.Quarantined != 18 {
			t.Fatalf("in quarantine: %d and %d; %+v", in(left), in(lost), r)
		}
		time.Sleep(25 * time.Minute)
		if in(left) != 6 {
			t.Errorf("after 25 minutes %d of 6 replicas are there", in(left))
		}
		time.Sleep(10 * time.Minute)
		if has(left)+in(left) != 0 {
			t.Errorf("after 35 minutes %d replicas are there, %d of them in quarantine", has(left)+in(left), in(left))
		}
		if has(shared) != 6 || has(read) != 6 || in(lost) != 6 {
			t.Errorf("shared blob: %d replicas, open blob: %d, lost blob: %d", has(shared), has(read), in(lost))
		}
		clustertest.Get(t, w.c.All[3].Store, shared.h, shared.data)
		clustertest.NoError(t, reader.Close())
		for range 3 {
			w.round(s)
		}
		if has(read)+in(read) != 0 {
			t.Errorf("once it is read no more %d replicas are there", has(read)+in(read))
		}
		w.check()
	})
}

// An abandoned blob that another node reads is not deleted although the roots miss it: the reader
// takes it out of quarantine.
func TestGCOfAbandonedThatIsNeeded(t *testing.T) {
	inGCWorldOf(t, gcTimes, true, func(t *testing.T, w *gcWorld, blobs []*gcBlob) {
		s := w.c.All[2].GC().NewSweeper(w.catalog)
		needed := blobs[3]
		w.catalog.omits[needed.h.ID] = true
		w.c.All[0].Abandon(needed.h)
		w.round(s)
		_, err := s.Round(t.Context())
		clustertest.NoError(t, err)
		if ids := w.quarantined(); !slices.Contains(ids, needed.h.ID) {
			t.Fatalf("in quarantine: %v", ids)
		}
		time.Sleep(20 * time.Minute)
		clustertest.Get(t, w.c.All[3].Store, needed.h, needed.data)
		time.Sleep(5 * time.Hour)
		for _, n := range w.c.All {
			clustertest.Get(t, n.Store, needed.h, needed.data)
		}
		if _, err := s.Round(t.Context()); !errors.Is(err, gc.ErrHalted) {
			t.Errorf("a round after it: %v", err)
		}
	})
}

// Garbage of blobs and logs is left in place until a node has known of it for gc.Config.Warn,
// however many rounds find it meanwhile: a reader that got a blob's name shortly before the roots
// dropped it may open it for that long.
func TestGCMarksLongEnough(t *testing.T) {
	inGCWorld(t, func(t *testing.T, w *gcWorld, _ []*gcBlob) {
		id := blobfs.NewID()
		l, err := w.c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id)
		clustertest.NoError(t, err)
		_, err = l.Append(t.Context(), []byte("something"))
		clustertest.NoError(t, err)
		clustertest.NoError(t, l.Close())
		w.lists.Mu.Lock()
		delete(w.lists.Files, "/logs/n1/"+id.String())
		w.lists.Mu.Unlock()
		synctest.Wait() // the writer's requests for replicas of the next extent have been answered by now
		replicas := 0
		for _, n := range w.c.All {
			replicas += len(n.LogReplicas())
		}

		s := w.c.All[2].GC().NewSweeper(w.catalog)
		first, err := s.Round(t.Context())
		clustertest.NoError(t, err)
		if first.Warned != 6+replicas || replicas < 3 {
			t.Errorf("first round: %+v, with %d replicas of a log", first, replicas)
		}
		known := time.Now()
		const step = 10 * time.Second
		for _, after := range []time.Duration{step, gcTimes.Warn / 2, gcTimes.Warn - step} {
			time.Sleep(after - time.Since(known))
			if r, err := s.Round(t.Context()); err != nil || r.Quarantined > 0 || r.Warned > 0 {
				t.Errorf("%v after the warning: %+v, %v", time.Since(known), r, err)
			}
		}
		time.Sleep(gcTimes.Warn + step - time.Since(known))
		if r, err := s.Round(t.Context()); err != nil || r.Quarantined != 6+replicas {
			t.Errorf("%v after the warning: %+v, %v", time.Since(known), r, err)
		}
	})
}
