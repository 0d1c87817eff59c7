package logproto

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// effectText returns an effect in one line: its kind, and the fields that are used.
func effectText(e Effect) string {
	switch e.Kind {
	case EffectPlace:
		return fmt.Sprintf("place %d", e.Seq)
	case EffectOpen:
		return fmt.Sprintf("open %d %s epoch %d", e.Seq, e.Node, e.Epoch)
	case EffectAppend:
		return fmt.Sprintf("append %d %s %d-%d of %d epoch %d", e.Seq, e.Node, e.Pos, e.End, e.Start, e.Epoch)
	case EffectAcked:
		return fmt.Sprintf("acked %d", e.Pos)
	case EffectSave:
		return fmt.Sprintf("save %d: %s", e.Gen, listText(&e.List))
	case EffectLoad:
		return "load"
	case EffectFence:
		return fmt.Sprintf("fence %s epoch %d", e.Node, e.Epoch)
	case EffectCut:
		return fmt.Sprintf("cut %d %s from %d to length %d epoch %d", e.Seq, e.Node, e.Start, e.Length, e.Epoch)
	case EffectDrop:
		return fmt.Sprintf("drop %d %s", e.Seq, e.Node)
	case EffectListFull:
		return "list full"
	case EffectFailed:
		return "failed"
	case EffectDone:
		return "done"
	}
	return fmt.Sprintf("%+v", e)
}

// listText returns the epoch, owner and start of a list, then number, length and replicas of each
// extent.
func listText(l *List) string {
	s := fmt.Sprintf("epoch %d by %d from %d", l.Epoch, l.Owner, l.Start)
	for _, x := range l.Extents {
		length := fmt.Sprint(x.Length)
		if x.Length == Open {
			length = "open"
		}
		s += fmt.Sprintf(" %d:%s:%s", x.Seq, length, strings.Join(x.Replicas, ""))
	}
	if l.Closed {
		s += " closed"
	}
	return s
}

// machine is a Writer or a Recoverer under test.
type machine struct {
	t    *testing.T
	take func() []Effect
}

// expect compares the effects since the last call.
func (m machine) expect(what string, want ...string) {
	m.t.Helper()
	var got []string
	for _, e := range m.take() {
		got = append(got, effectText(e))
	}
	if !slices.Equal(got, want) {
		m.t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

type testWriter struct {
	machine
	*Writer
}

func startWriter(t *testing.T, l List, gen uint64) testWriter {
	w := NewWriter(l, gen)
	return testWriter{machine{t, w.Take}, w}
}

// emptyLog is the list of a log that starts at position 100 and has no extent.
var emptyLog = List{Epoch: 3, Owner: 7, Start: 100}

// openOn gives an extent its nodes, and opens all its replicas.
func (w testWriter) openOn(seq uint64, capacity int64, nodes ...string) {
	w.Place(seq, nodes)
	for _, n := range nodes {
		w.Opened(seq, n, capacity)
	}
}

// withStandby returns a Writer at generation 2 that appends to extent 1, on a and b, and has the
// standby 2, on b and c. Each takes 40 bytes.
func withStandby(t *testing.T) testWriter {
	t.Helper()
	w := startWriter(t, emptyLog, 0)
	w.openOn(1, 40, "a", "b")
	w.Saved(1)
	w.openOn(2, 40, "b", "c")
	w.Saved(2)
	w.Take()
	if seq, nodes := w.Current(); seq != 1 || !slices.Equal(nodes, []string{"a", "b"}) {
		t.Fatalf("the writer appends to extent %d on %v", seq, nodes)
	}
	if seq, nodes := w.Standby(); seq != 2 || !slices.Equal(nodes, []string{"b", "c"}) {
		t.Fatalf("the standby is extent %d on %v", seq, nodes)
	}
	return w
}

// durable reports length bytes of an extent as durable on each node.
func (w testWriter) durable(seq uint64, length int64, nodes ...string) {
	for _, n := range nodes {
		w.Durable(seq, n, length)
	}
}

// TestWriterFromFirstToLastExtent: a writer registers an extent before it appends to it, sends a
// frame to every replica, acknowledges it once all have it, switches to the standby when the extent
// is full, and cuts and drops what the list allows. L1, L3.
func TestWriterFromFirstToLastExtent(t *testing.T) {
	w := startWriter(t, emptyLog, 0)
	w.expect("new", "place 1")
	w.Place(1, []string{"a", "b"})
	w.expect("placed", "open 1 a epoch 3", "open 1 b epoch 3")
	w.Opened(1, "a", 50)
	w.expect("one replica open")
	w.Opened(1, "b", 40)
	w.expect("all replicas open", "save 0: epoch 3 by 7 from 100 1:open:ab")
	w.Saved(1)
	w.expect("registered", "place 2")
	w.openOn(2, 30, "b", "c")
	w.expect("standby open", "open 2 b epoch 3", "open 2 c epoch 3", "save 1: epoch 3 by 7 from 100 1:open:ab 2:open:bc")
	w.Saved(2)
	w.expect("standby registered")

	if pos := w.Submit(10); pos != 100 {
		t.Errorf("the first frame is at %d", pos)
	}
	w.expect("first frame", "append 1 a 100-110 of 100 epoch 3", "append 1 b 100-110 of 100 epoch 3")
	if pos := w.Submit(5); pos != 110 || w.End() != 115 {
		t.Errorf("the second frame is at %d, and the end at %d", pos, w.End())
	}
	w.expect("second frame", "append 1 a 110-115 of 100 epoch 3", "append 1 b 110-115 of 100 epoch 3")
	w.Durable(1, "a", 10)
	w.expect("durable on one replica")
	w.Durable(1, "b", 14)
	w.expect("the first frame and a part of the second are durable on both", "acked 110")
	w.durable(1, 15, "a", "b")
	w.expect("both frames are durable", "acked 115")
	w.durable(1, 3, "a", "b")
	w.expect("late answers")
	if w.Held() != 15 || w.Acked() != 115 {
		t.Errorf("%d bytes are held, acknowledged to %d", w.Held(), w.Acked())
	}

	w.Submit(25)
	w.expect("a frame that just fits", "append 1 a 115-140 of 100 epoch 3", "append 1 b 115-140 of 100 epoch 3")
	w.Submit(1)
	w.expect("a frame that does not fit")
	w.durable(1, 40, "a", "b")
	w.expect("the full extent is acknowledged", "acked 140", "append 2 b 140-141 of 140 epoch 3", "append 2 c 140-141 of 140 epoch 3", "place 3")
	w.openOn(3, 30, "a", "c")
	w.expect("another standby", "open 3 a epoch 3", "open 3 c epoch 3", "save 2: epoch 3 by 7 from 100 1:40:ab 2:open:bc 3:open:ac")
	w.Saved(3)
	w.expect("the first length is registered", "cut 1 a from 100 to length 40 epoch 3", "cut 1 b from 100 to length 40 epoch 3")

	w.Release(139)
	w.expect("one byte is needed")
	w.Release(140)
	w.expect("no byte is needed", "save 3: epoch 3 by 7 from 140 2:open:bc 3:open:ac")
	w.Saved(4)
	w.expect("released", "drop 1 a", "drop 1 b")
	w.Close()
	w.expect("closing with a frame under way")
	w.durable(2, 1, "b", "c")
	w.expect("the last frame is durable", "acked 141", "save 4: epoch 3 by 7 from 140 2:1:bc closed")
	if w.Held() != 1 {
		t.Errorf("%d bytes are held in the second extent", w.Held())
	}
	w.durable(2, 1, "b", "c")
	w.expect("late answers while the log is being closed")
	w.Saved(5)
	w.expect("closed", "cut 2 b from 140 to length 1 epoch 3", "cut 2 c from 140 to length 1 epoch 3", "drop 3 a", "drop 3 c", "done")
	if l, gen := w.List(); gen != 5 || listText(&l) != "epoch 3 by 7 from 140 2:1:bc closed" {
		t.Errorf("the list is %s, of generation %d", listText(&l), gen)
	}
	if seq, _ := w.Current(); seq != 0 || w.Held() != 0 {
		t.Errorf("a closed log has %d bytes in extent %d", w.Held(), seq)
	}
	w.Retry()
	w.Release(141)
	w.Close()
	w.expect("after the end")
}

// TestWriterTurnsToStandby: when a replica fails, unacknowledged frames are sent again to the
// standby at once, and nothing more is acknowledged in the failed extent. L1.
func TestWriterTurnsToStandby(t *testing.T) {
	w := withStandby(t)
	w.Submit(5)
	w.Take()
	w.Durable(1, "a", 5)
	w.Failed(1, "b", 0)
	w.expect("a replica failed", "append 2 b 100-105 of 100 epoch 3", "append 2 c 100-105 of 100 epoch 3", "place 3")
	if seq, nodes := w.Current(); seq != 2 || !slices.Equal(nodes, []string{"b", "c"}) {
		t.Errorf("the writer appends to extent %d on %v", seq, nodes)
	}
	if seq, nodes := w.Standby(); seq != 0 || nodes != nil {
		t.Errorf("the standby is extent %d on %v", seq, nodes)
	}
	w.Durable(1, "b", 5)
	w.expect("the failed replica has the frame")
	w.Submit(3)
	w.expect("the next frame", "append 2 b 105-108 of 100 epoch 3", "append 2 c 105-108 of 100 epoch 3")
	w.openOn(3, 40, "a", "c")
	w.expect("another standby", "open 3 a epoch 3", "open 3 c epoch 3", "save 2: epoch 3 by 7 from 100 1:0:ab 2:open:bc 3:open:ac")
	w.Durable(2, "b", 8)
	w.Durable(2, "c", 5)
	w.expect("durable while the list is being saved", "acked 105")
	w.Saved(3)
	w.expect("saved, and an extent without bytes is released", "cut 1 a from 100 to length 0 epoch 3", "cut 1 b from 100 to length 0 epoch 3",
		"save 3: epoch 3 by 7 from 100 2:open:bc 3:open:ac")
	w.Durable(2, "c", 8)
	w.expect("all is durable", "acked 108")
}

// TestWriterReplacesStandby: a failed standby leaves the list together with the registration of
// another, and its replicas are dropped only then.
func TestWriterReplacesStandby(t *testing.T) {
	w := withStandby(t)
	w.Failed(2, "c", 0)
	w.expect("the standby failed", "place 3")
	if seq, nodes := w.Standby(); seq != 0 || nodes != nil {
		t.Errorf("the standby is extent %d on %v", seq, nodes)
	}
	w.openOn(3, 40, "a", "c")
	w.expect("another is open", "open 3 a epoch 3", "open 3 c epoch 3", "save 2: epoch 3 by 7 from 100 1:open:ab 3:open:ac")
	w.Saved(3)
	w.expect("saved", "drop 2 b", "drop 2 c")
	if seq, _ := w.Standby(); seq != 3 {
		t.Errorf("the standby is extent %d", seq)
	}
	w.Submit(4)
	w.expect("a frame", "append 1 a 100-104 of 100 epoch 3", "append 1 b 100-104 of 100 epoch 3")
}

// TestWriterWithoutStandby: if extent and standby have failed, the length of the extent is recorded
// together with another extent. What is durable before that length is proposed is acknowledged, and
// nothing after it. L1, L3.
func TestWriterWithoutStandby(t *testing.T) {
	w := withStandby(t)
	w.Submit(5)
	w.Submit(2)
	w.Take()
	w.Failed(2, "b", 0)
	w.expect("the standby failed", "place 3")
	w.Failed(1, "a", 0)
	w.Submit(4)
	w.expect("the extent failed as well")
	w.durable(1, 5, "a", "b")
	w.expect("durable before a length is proposed", "acked 105")
	w.openOn(3, 40, "a", "c")
	w.expect("another is open", "open 3 a epoch 3", "open 3 c epoch 3", "save 2: epoch 3 by 7 from 100 1:5:ab 3:open:ac")
	w.durable(1, 7, "a", "b")
	w.expect("durable after a length is proposed")
	w.Saved(3)
	w.expect("saved", "cut 1 a from 100 to length 5 epoch 3", "cut 1 b from 100 to length 5 epoch 3", "drop 2 b", "drop 2 c",
		"append 3 a 105-111 of 105 epoch 3", "append 3 c 105-111 of 105 epoch 3", "place 4")
}

// TestWriterOpensAnother: replicas that cannot be opened are dropped and others are placed, after a
// pending save.
func TestWriterOpensAnother(t *testing.T) {
	w := startWriter(t, emptyLog, 0)
	w.Take()
	if !w.Opening(1) || w.Opening(2) {
		t.Errorf("extent 1 is opening %t, extent 2 %t", w.Opening(1), w.Opening(2))
	}
	w.Place(1, []string{"a", "b"})
	w.Take()
	w.Opened(1, "a", 40)
	w.Failed(1, "b", 0)
	w.expect("a replica cannot be opened", "drop 1 a", "drop 1 b", "place 2")
	if w.Opening(1) || !w.Opening(2) {
		t.Errorf("extent 1 is opening %t, extent 2 %t", w.Opening(1), w.Opening(2))
	}
	w.openOn(2, 40, "b", "c")
	w.expect("open", "open 2 b epoch 3", "open 2 c epoch 3", "save 0: epoch 3 by 7 from 100 2:open:bc")
	if !w.Opening(2) {
		t.Error("extent 2 is not opening while it is being registered")
	}
	w.Failed(2, "c", 0)
	w.expect("a replica fails while it is being registered")
	if w.Opening(2) {
		t.Error("extent 2 failed, and is opening")
	}
	w.Saved(1)
	w.expect("registered", "place 3")
	w.Submit(4)
	w.expect("a frame without an extent to append to")
	w.openOn(3, 40, "a", "c")
	w.expect("open", "open 3 a epoch 3", "open 3 c epoch 3", "save 1: epoch 3 by 7 from 100 3:open:ac")
	w.Saved(2)
	w.expect("registered", "drop 2 b", "drop 2 c", "append 3 a 100-104 of 100 epoch 3", "append 3 c 100-104 of 100 epoch 3", "place 4")
	if w.Opening(3) {
		t.Error("extent 3 is registered, and is opening")
	}
	w.Failed(3, "a", 4)
	if w.Opening(4) {
		t.Error("an extent is opening in a log that was taken over")
	}
}

// TestWriterIgnoresStrays: answers about other extents, by other nodes, or repeated ones change
// nothing, and a replica never counts as having more than it was sent.
func TestWriterIgnoresStrays(t *testing.T) {
	w := startWriter(t, emptyLog, 0)
	w.Take()
	w.Durable(1, "a", 1)
	w.Saved(9)
	w.Unsaved()
	w.Loaded(List{Epoch: 9}, 9)
	w.Renew()
	w.Place(9, []string{"a"})
	w.Opened(9, "a", 1)
	w.expect("before it is placed")
	w.Place(1, []string{"a", "b"})
	w.Take()
	w.Place(1, []string{"c"})
	w.Opened(1, "c", 1)
	w.Opened(9, "b", 1)
	w.Failed(1, "c", 0)
	w.Opened(1, "a", 40)
	w.Opened(1, "a", 40)
	w.expect("one replica open")
	w.Opened(1, "b", 40)
	w.expect("both open", "save 0: epoch 3 by 7 from 100 1:open:ab")

	w = withStandby(t)
	w.Submit(5)
	w.Take()
	w.durable(2, 5, "b", "c")
	w.durable(1, 5, "a", "c")
	w.Failed(1, "c", 0)
	w.Failed(9, "a", 0)
	w.expect("not by both replicas of the extent")
	w.durable(1, 99, "a", "b")
	w.expect("more than was sent", "acked 105")
	w.Submit(5)
	w.expect("the next frame", "append 1 a 105-110 of 100 epoch 3", "append 1 b 105-110 of 100 epoch 3")
}

// TestWriterLearnsOutcome: a save of unknown outcome is repeated if the list is unchanged, succeeds
// if the list is the one to be saved, and otherwise fails: the writer then acknowledges and does
// nothing more. L2, L3.
func TestWriterLearnsOutcome(t *testing.T) {
	saving := func() testWriter {
		w := startWriter(t, emptyLog, 0)
		w.openOn(1, 40, "a", "b")
		w.Take()
		w.Unsaved()
		w.expect("unknown", "load")
		return w
	}
	w := saving()
	w.Loaded(List{}, 0)
	w.expect("there is no list", "save 0: epoch 3 by 7 from 100 1:open:ab")
	w.Loaded(*w.pending, 1)
	w.expect("there is the list that was saved", "place 2")
	w.Unsaved()
	w.expect("nothing is being saved")
	w.openOn(2, 40, "b", "c")
	w.Take()
	before, gen := w.List()
	w.Loaded(before, gen)
	w.expect("the list is as it was", "save 1: epoch 3 by 7 from 100 1:open:ab 2:open:bc")
	taken := w.pending.Clone()
	taken.Owner = 8
	w.Loaded(taken, 2)
	w.expect("the same list by another owner", "failed")
	var fenced *FencedError
	if !errors.As(w.Err(), &fenced) || fenced.Epoch != 3 {
		t.Errorf("the error is %v", w.Err())
	}
	w.Submit(1)
	w.Retry()
	w.Failed(1, "a", 9)
	w.expect("after that")
	if !errors.As(w.Err(), &fenced) || fenced.Epoch != 3 {
		t.Errorf("the error is now %v", w.Err())
	}
	w = saving()
	w.Loaded(List{Epoch: 5}, 1)
	w.expect("another list", "failed")
	if !errors.As(w.Err(), &fenced) || fenced.Epoch != 5 {
		t.Errorf("the error is %v", w.Err())
	}
	w = saving()
	w.Saved(1)
	w.openOn(2, 40, "b", "c")
	w.Take()
	w.Loaded(List{}, 0)
	w.expect("the list is gone", "failed")
}

// TestWriterFenced: a writer stops at a fence of a higher epoch, of any extent, and not at one of
// its own. L2.
func TestWriterFenced(t *testing.T) {
	w := withStandby(t)
	w.Failed(9, "z", 4)
	w.expect("fenced at a higher epoch", "failed")
	var fenced *FencedError
	if !errors.As(w.Err(), &fenced) || fenced.Epoch != 4 {
		t.Errorf("the error is %v", w.Err())
	}
	w = withStandby(t)
	w.Failed(1, "a", 3)
	w.expect("fenced at its own epoch", "place 3")
	if seq, _ := w.Current(); w.Err() != nil || seq != 2 {
		t.Errorf("the writer appends to extent %d: %v", seq, w.Err())
	}
}

// TestWriterWithdraws: only frames that were sent to no replica are withdrawn.
func TestWriterWithdraws(t *testing.T) {
	w := startWriter(t, emptyLog, 0)
	w.Submit(5)
	w.Submit(6)
	if end := w.Withdraw(); end != 100 || w.End() != 100 {
		t.Errorf("without an extent the end is %d, then %d", end, w.End())
	}
	w.Take()
	w.openOn(1, 40, "a", "b")
	w.Saved(1)
	w.Take()
	w.Submit(10)
	w.Submit(20)
	w.Take()
	if end := w.Withdraw(); end != 130 {
		t.Errorf("after frames that were sent the end is %d", end)
	}
	w.Submit(20)
	w.Submit(7)
	w.expect("frames that do not fit")
	if end := w.Withdraw(); end != 130 || w.End() != 130 {
		t.Errorf("after frames that were not sent the end is %d, then %d", end, w.End())
	}
	w.durable(1, 30, "a", "b")
	w.expect("durable", "acked 130")
	if pos := w.Submit(3); pos != 130 {
		t.Errorf("the next frame is at %d", pos)
	}
	w.expect("the next frame", "append 1 a 130-133 of 100 epoch 3", "append 1 b 130-133 of 100 epoch 3")
}

// waits returns what the writer waits for.
func (w testWriter) waits() string {
	var all []string
	for _, c := range []struct {
		is   bool
		what string
	}{{w.Stuck(), "stuck"}, {w.Stranded(), "stranded"}, {w.Halted(), "halted"}, {w.Waiting(), "waiting"}} {
		if c.is {
			all = append(all, c.what)
		}
	}
	return strings.Join(all, " ")
}

// TestWriterWaits: a writer without a current extent is stuck if there are no nodes for another,
// halted while the list is being saved, stranded if it has sent unacknowledged frames, and waiting
// while another extent is opened for frames.
func TestWriterWaits(t *testing.T) {
	w := startWriter(t, emptyLog, 0)
	expect := func(what, want string) {
		t.Helper()
		if got := w.waits(); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	expect("new", "")
	w.Submit(5)
	expect("a frame", "waiting")
	w.Place(1, nil)
	expect("no nodes", "stuck")
	w.Retry()
	expect("another attempt", "waiting")
	w.openOn(2, 40, "a", "b")
	expect("being registered", "halted waiting")
	w.Saved(1)
	expect("registered", "")
	w.Place(3, nil)
	expect("no nodes for a standby", "")
	w.Failed(2, "a", 0)
	expect("failed without a standby", "stuck stranded")
	w.Retry()
	expect("another attempt", "stranded waiting")
	w.openOn(4, 40, "b", "c")
	expect("being registered", "stranded halted waiting")
	w.Saved(2)
	expect("registered", "")
	w.openOn(5, 40, "a", "b")
	expect("the standby is being registered", "")
	w.Saved(3) // the failed extent is released: it has no bytes
	w.Saved(4)
	w.Failed(4, "b", 0)
	expect("failed with a standby", "")

	w = withStandby(t)
	w.Failed(2, "b", 0)
	w.Place(3, nil)
	w.Submit(5)
	expect("the standby failed, and no nodes", "")
	w.Failed(1, "a", 0)
	expect("the extent failed as well", "stuck stranded")
	w.Retry()
	expect("another attempt", "stranded waiting")
	w.openOn(4, 40, "b", "c")
	expect("being registered", "stranded halted waiting")
	w.durable(1, 5, "a", "b")
	expect("durable after a length is proposed", "stranded halted waiting")
}

// TestWriterRenews: a writer switches to its standby on request, if there is one that has not
// failed.
func TestWriterRenews(t *testing.T) {
	w := withStandby(t)
	w.Submit(5)
	w.durable(1, 5, "a", "b")
	w.Take()
	w.Renew()
	w.expect("with a standby", "place 3")
	w.Renew()
	w.Submit(2)
	w.expect("without a standby", "append 2 b 105-107 of 105 epoch 3", "append 2 c 105-107 of 105 epoch 3")
	w = withStandby(t)
	w.Failed(2, "b", 0)
	w.Take()
	w.Renew()
	w.Submit(2)
	w.expect("with a standby that failed", "append 1 a 100-102 of 100 epoch 3", "append 1 b 100-102 of 100 epoch 3")
}

// sealedLog has three extents, to position 130.
func sealedLog() List {
	return List{Epoch: 3, Owner: 7, Start: 100, Extents: []Extent{{4, 10, []string{"a"}}, {6, 0, []string{"b"}}, {9, 20, []string{"c"}}}}
}

// TestWriterReleases: extents leave the list when their last byte is released, and only those:
// unacknowledged data is not released, and a release is never undone.
func TestWriterReleases(t *testing.T) {
	w := startWriter(t, sealedLog(), 5)
	w.expect("new", "place 10")
	if w.Acked() != 130 || w.End() != 130 {
		t.Errorf("acknowledged to %d of %d", w.Acked(), w.End())
	}
	w.Release(109)
	w.expect("to the last byte of the first")
	w.Release(110)
	w.expect("to the end of the first", "save 5: epoch 3 by 7 from 110 9:20:c")
	w.Saved(6)
	w.expect("saved", "drop 4 a", "drop 6 b")
	w.Release(100)
	w.expect("what is released already")
	w.Release(999)
	w.expect("all", "save 6: epoch 3 by 7 from 130")
	w.Saved(7)
	w.expect("saved", "drop 9 c")
	w.openOn(10, 40, "a", "b")
	w.Take()
	w.Saved(8)
	w.Submit(5)
	w.durable(10, 5, "a", "b")
	w.Take()
	w.Failed(10, "a", 0)
	w.openOn(11, 40, "b", "c")
	w.expect("the extent that follows", "open 11 b epoch 3", "open 11 c epoch 3", "save 8: epoch 3 by 7 from 130 10:5:ab 11:open:bc")
	w.Saved(9)
	w.expect("saved", "cut 10 a from 130 to length 5 epoch 3", "cut 10 b from 130 to length 5 epoch 3", "place 12")
	w.Release(135)
	w.expect("what was not acknowledged when it was released", "save 9: epoch 3 by 7 from 135 11:open:bc")
}

// TestWriterTurnsWhileReleasing: a save that releases extents records no length of an extent that
// the writer leaves meanwhile or cannot replace: the next save does. Replicas are cut once. L3.
func TestWriterTurnsWhileReleasing(t *testing.T) {
	list := List{Epoch: 3, Owner: 7, Start: 100, Extents: []Extent{{4, 10, []string{"a"}}}}
	w := startWriter(t, list, 5)
	w.openOn(5, 40, "a", "b")
	w.Saved(6)
	w.openOn(6, 40, "b", "c")
	w.Saved(7)
	w.Submit(3)
	w.durable(5, 3, "a", "b")
	w.Take()
	w.Release(110)
	w.expect("releasing", "save 7: epoch 3 by 7 from 110 5:open:ab 6:open:bc")
	if w.Halted() {
		t.Error("a writer with an extent is halted")
	}
	w.Submit(2)
	w.Take()
	w.Failed(5, "a", 0)
	w.expect("failed meanwhile", "append 6 b 113-115 of 113 epoch 3", "append 6 c 113-115 of 113 epoch 3")
	w.Saved(8)
	w.expect("released", "drop 4 a", "place 7")
	w.openOn(7, 40, "a", "b")
	w.expect("another standby", "open 7 a epoch 3", "open 7 b epoch 3", "save 8: epoch 3 by 7 from 110 5:3:ab 6:open:bc 7:open:ab")
	w.Saved(9)
	w.expect("saved", "cut 5 a from 110 to length 3 epoch 3", "cut 5 b from 110 to length 3 epoch 3")
	w.durable(6, 2, "b", "c")
	w.Close()
	w.expect("closing", "acked 115", "save 9: epoch 3 by 7 from 110 5:3:ab 6:2:bc closed")
	w.Saved(10)
	w.expect("closed", "cut 6 b from 113 to length 2 epoch 3", "cut 6 c from 113 to length 2 epoch 3", "drop 7 a", "drop 7 b", "done")

	w = startWriter(t, list, 5)
	w.openOn(5, 40, "a", "b")
	w.Saved(6)
	w.Place(6, nil)
	w.Take()
	w.Failed(5, "a", 0)
	w.Release(110)
	w.expect("releasing, with no extent to go on in", "save 6: epoch 3 by 7 from 110 5:open:ab")
	w.Retry()
	w.expect("no nodes are requested while the list is being saved")
	w.Saved(7)
	w.expect("released", "drop 4 a", "place 7")
	w.openOn(7, 40, "b", "c")
	w.expect("an extent to go on in", "open 7 b epoch 3", "open 7 c epoch 3", "save 7: epoch 3 by 7 from 110 5:0:ab 7:open:bc")
}

// TestWriterClosesWhileOpening: an extent that is being opened when the log is closed is not added
// to the list, and is dropped.
func TestWriterClosesWhileOpening(t *testing.T) {
	w := startWriter(t, sealedLog(), 5)
	w.openOn(10, 40, "a", "b")
	w.Saved(6)
	w.Place(11, []string{"b", "c"})
	w.Take()
	w.Release(110)
	w.expect("releasing", "save 6: epoch 3 by 7 from 110 9:20:c 10:open:ab")
	w.Opened(11, "b", 40)
	w.Opened(11, "c", 40)
	w.Close()
	w.expect("open and closing meanwhile")
	w.Saved(7)
	w.expect("released", "drop 4 a", "drop 6 b", "save 7: epoch 3 by 7 from 110 9:20:c 10:0:ab closed")
	w.Saved(8)
	w.expect("closed", "cut 10 a from 130 to length 0 epoch 3", "cut 10 b from 130 to length 0 epoch 3", "drop 11 b", "drop 11 c", "done")
	if w.Opening(11) {
		t.Error("an extent is opening in a log that is closed")
	}
}

// TestWriterListFull: when the list has no space for another extent and its standby, a writer goes on in those that it has, and then withdraws
// the frames that were sent to no replica, until extents are released.
func TestWriterListFull(t *testing.T) {
	for n, full := range map[int]bool{ExtentsMax - openMax - listReserve - 1: false, ExtentsMax - openMax - listReserve: true} {
		w := startWriter(t, listOf(n), 1)
		if !full {
			w.expect("not full", fmt.Sprintf("place %d", n+1))
			continue
		}
		w.expect("full")
		w.Submit(5)
		w.expect("a frame that no extent can take", "list full")
		if !w.Stuck() || w.Withdraw() != int64(n) {
			t.Errorf("a writer with a full list is stuck %v, and its log ends at %d", w.Stuck(), w.End())
		}
		w.Release(1)
		w.Take()
		w.Saved(2)
		w.expect("an extent was released", "drop 1 a", fmt.Sprintf("place %d", n+1))
		if w.Stuck() || w.Err() != nil {
			t.Errorf("stuck %v with space in the list: %v", w.Stuck(), w.Err())
		}
	}
}

// TestWriterListReserve: if the list is full otherwise, frames that were sent are acknowledged in extents that nothing else may use. When these
// are used up as well, the frames wait until extents are released.
func TestWriterListReserve(t *testing.T) {
	seq := uint64(ExtentsMax - openMax - listReserve)
	w := startWriter(t, listOf(int(seq)-1), 1)
	w.openOn(seq, 40, "a", "b")
	w.Saved(2)
	lost := 0
	for ; !w.Stranded(); lost++ {
		if !w.list.Full(w.Stranded()) {
			t.Fatalf("the list is not full with %d extents", len(w.list.Extents))
		}
		end := w.Submit(5) + 5
		w.Take()
		if w.Failed(seq, "a", 0); w.Stranded() && !w.list.Full(w.Stranded()) {
			seq++
			w.expect("frames need another extent", fmt.Sprintf("place %d", seq))
			w.openOn(seq, 40, "a", "b")
			w.Saved(uint64(lost + 3))
			w.durable(seq, 5, "a", "b")
			if w.Acked() != end {
				t.Fatalf("%d are acknowledged, want %d", w.Acked(), end)
			}
		}
	}
	if lost != listReserve+1 {
		t.Errorf("frames were stranded when replicas had failed %d times", lost)
	}
	w.Take()
	w.Release(1)
	w.Take()
	w.Saved(uint64(lost + 3))
	w.expect("an extent was released", "drop 1 a", fmt.Sprintf("place %d", seq+1))
}

// listOf returns the list of a log with n extents of one byte.
func listOf(n int) List {
	l := List{Epoch: 3}
	for i := range n {
		l.Extents = append(l.Extents, Extent{uint64(i + 1), 1, []string{"a"}})
	}
	return l
}

// TestWriterNeedsRecoveredLog: a writer does not start in a log that has an open extent or is
// closed.
func TestWriterNeedsRecoveredLog(t *testing.T) {
	for what, l := range map[string]List{
		"an open extent": {Epoch: 3, Extents: []Extent{{1, Open, []string{"a"}}}},
		"a closed log":   {Epoch: 3, Closed: true, Extents: []Extent{{1, 5, []string{"a"}}}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a writer begins in %s", what)
				}
			}()
			NewWriter(l, 1)
		}()
	}
}
