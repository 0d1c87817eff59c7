package logproto

import (
	"errors"
	"testing"
)

type testRecoverer struct {
	machine
	*Recoverer
}

// startRecoverer returns a recovery by owner 9.
func startRecoverer(t *testing.T, keep bool) testRecoverer {
	r := NewRecoverer(9, keep)
	m := testRecoverer{machine{t, r.Take}, r}
	m.expect("new", "load")
	return m
}

// openLog has a sealed extent from 100 to 140, an open one, and a standby.
func openLog() List {
	return List{Epoch: 4, Owner: 5, Start: 100, Extents: []Extent{{1, 40, []string{"a", "b"}}, {2, Open, []string{"b", "c"}}, {3, Open, []string{"a", "c"}}}}
}

// fencing returns a recovery of openLog that has claimed it at generation 7.
func fencing(t *testing.T, keep bool) testRecoverer {
	t.Helper()
	r := startRecoverer(t, keep)
	r.Loaded(openLog(), 6)
	r.expect("loaded", "save 6: epoch 5 by 9 from 100 1:40:ab 2:open:bc 3:open:ac")
	r.Saved(7)
	r.expect("claimed", "fence b epoch 5", "fence c epoch 5", "fence a epoch 5")
	return r
}

func started(seq uint64, start, length int64) State {
	return State{Seq: seq, Started: true, Start: start, Length: length}
}

func scanned(seq uint64, start, length int64) State {
	return State{Seq: seq, Started: true, Start: start, Length: length, Scanned: true}
}

// TestRecovererSealsLog: a recovery claims the log, fences each replica of the open extents once,
// records the lengths, and cuts only then. L1, L3.
func TestRecovererSealsLog(t *testing.T) {
	r := fencing(t, false)
	if r.Epoch() != 5 || r.Ready() || !r.Waiting() || r.Sure() {
		t.Errorf("epoch %d, ready %t, waiting %t, sure %t", r.Epoch(), r.Ready(), r.Waiting(), r.Sure())
	}
	r.Decide()
	r.expect("no node has answered")
	r.Fenced("b", []State{started(2, 140, 10)})
	if r.Ready() || r.Sure() {
		t.Error("ready without a replica of the standby")
	}
	r.Fenced("b", []State{started(2, 140, 3)})
	r.Fenced("a", []State{{Seq: 3}})
	if !r.Ready() || !r.Waiting() || !r.Sure() {
		t.Errorf("with a replica of each: ready %t, waiting %t, sure %t", r.Ready(), r.Waiting(), r.Sure())
	}
	r.Decide()
	r.expect("decided", "save 7: epoch 5 by 9 from 100 1:40:ab 2:10:bc 3:0:ac closed")
	if r.Ready() || r.Done() {
		t.Errorf("while the lengths are recorded: ready %t, done %t", r.Ready(), r.Done())
	}
	r.Fenced("c", []State{started(2, 140, 5)})
	r.Refused(9)
	r.Decide()
	r.expect("late answers")
	r.Saved(8)
	r.expect("recorded", "cut 1 a from 100 to length 40 epoch 5", "cut 1 b from 100 to length 40 epoch 5",
		"cut 2 b from 140 to length 10 epoch 5", "cut 2 c from 140 to length 10 epoch 5",
		"cut 3 a from 150 to length 0 epoch 5", "cut 3 c from 150 to length 0 epoch 5", "done")
	if l, gen := r.List(); !r.Done() || gen != 8 || listText(&l) != "epoch 5 by 9 from 100 1:40:ab 2:10:bc 3:0:ac closed" {
		t.Errorf("done %t with %s of generation %d", r.Done(), listText(&l), gen)
	}
	r.Saved(9)
	r.Unsaved()
	r.Refused(9)
	r.Loaded(openLog(), 9)
	r.expect("after the end")
	if _, gen := r.List(); gen != 8 || r.Err() != nil {
		t.Errorf("generation %d after the end: %v", gen, r.Err())
	}
}

// TestRecovererWaitsForReplicas: a recovery waits until a replica of each open extent has answered,
// whether or not it has the extent.
func TestRecovererWaitsForReplicas(t *testing.T) {
	r := fencing(t, false)
	for _, node := range []string{"a", "b", "c"} {
		if !r.Waiting() {
			t.Errorf("before %s was heard of, the recovery does not wait", node)
		}
		r.Fenced(node, nil)
	}
	if r.Waiting() || r.Ready() {
		t.Errorf("when all were heard of and none has an extent: waiting %t, ready %t", r.Waiting(), r.Ready())
	}
}

// TestRecovererLengths: an extent has the length of its shortest replica that was not restarted,
// unless the next one was started; then that one's start determines its end. Restarted replicas
// count only if there are no others, and then the longest does. L1.
func TestRecovererLengths(t *testing.T) {
	type heardOf map[string][]State
	for name, c := range map[string]struct {
		of   heardOf
		want string // lengths of the extents 2 and 3
		sure bool
	}{
		"the least":                         {heardOf{"b": {started(2, 140, 10)}, "c": {started(2, 140, 7), {Seq: 3}}}, "2:7:bc 3:0:ac", true},
		"the least, first":                  {heardOf{"b": {started(2, 140, 7)}, "c": {started(2, 140, 10), {Seq: 3}}}, "2:7:bc 3:0:ac", true},
		"one that was not started":          {heardOf{"b": {started(2, 140, 7)}, "c": {{Seq: 2}, {Seq: 3}}}, "2:0:bc 3:0:ac", true},
		"not started, but with bytes":       {heardOf{"b": {{Seq: 2, Length: 4}}, "c": {{Seq: 3}}}, "2:0:bc 3:0:ac", true},
		"scanned and less":                  {heardOf{"b": {scanned(2, 140, 3)}, "c": {started(2, 140, 7), {Seq: 3}}}, "2:7:bc 3:0:ac", true},
		"scanned and more":                  {heardOf{"b": {scanned(2, 140, 9)}, "c": {started(2, 140, 7), {Seq: 3}}}, "2:7:bc 3:0:ac", true},
		"scanned second":                    {heardOf{"b": {started(2, 140, 7)}, "c": {scanned(2, 140, 9), {Seq: 3}}}, "2:7:bc 3:0:ac", true},
		"scanned second and less":           {heardOf{"b": {started(2, 140, 7)}, "c": {scanned(2, 140, 3), {Seq: 3}}}, "2:7:bc 3:0:ac", true},
		"all scanned":                       {heardOf{"b": {scanned(2, 140, 9)}, "c": {scanned(2, 140, 12), {Seq: 3}}}, "2:12:bc 3:0:ac", false},
		"all scanned, the most first":       {heardOf{"b": {scanned(2, 140, 12)}, "c": {scanned(2, 140, 9), {Seq: 3}}}, "2:12:bc 3:0:ac", false},
		"scanned, one started":              {heardOf{"b": {scanned(2, 140, 5)}, "c": {{Seq: 2, Scanned: true}, {Seq: 3}}}, "2:5:bc 3:0:ac", false},
		"scanned standby":                   {heardOf{"b": {started(2, 140, 5)}, "c": {{Seq: 3, Scanned: true}}}, "2:5:bc 3:0:ac", false},
		"standby started":                   {heardOf{"b": {started(2, 140, 10)}, "c": {started(2, 140, 12), started(3, 145, 6)}}, "2:5:bc 3:6:ac", true},
		"standby started at once":           {heardOf{"b": {{Seq: 2}}, "c": {started(3, 140, 6)}}, "2:0:bc 3:6:ac", true},
		"standby not started on one":        {heardOf{"a": {{Seq: 3}}, "b": {started(2, 140, 10)}, "c": {started(3, 145, 6)}}, "2:10:bc 3:0:ac", true},
		"standby started before its extent": {heardOf{"b": {started(2, 140, 10)}, "c": {started(3, 139, 6)}}, "", true},
		"by a node without a replica":       {heardOf{"a": {started(2, 140, 1), {Seq: 3}}, "b": {started(2, 140, 10)}}, "2:10:bc 3:0:ac", true},
		"of another extent":                 {heardOf{"b": {started(1, 100, 2), started(2, 140, 10), started(7, 100, 2)}, "c": {{Seq: 3}}}, "2:10:bc 3:0:ac", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := fencing(t, true)
			for _, node := range []string{"a", "b", "c"} {
				if states, ok := c.of[node]; ok {
					r.Fenced(node, states)
				}
			}
			if sure := r.Sure(); sure != c.sure {
				t.Errorf("sure %t", sure)
			}
			r.Decide()
			if c.want == "" {
				r.expect("decided", "failed")
				if !errors.Is(r.Err(), ErrMismatch) || r.Done() {
					t.Errorf("the error is %v", r.Err())
				}
				return
			}
			r.expect("decided", "save 7: epoch 5 by 9 from 100 1:40:ab "+c.want)
		})
	}
}

// TestRecovererRefused: a fence of a higher epoch ends a recovery that is fencing, and no other
// answer does.
func TestRecovererRefused(t *testing.T) {
	r := startRecoverer(t, false)
	r.Refused(9)
	r.expect("before it fences")
	r = fencing(t, false)
	r.Refused(4)
	r.Refused(5)
	r.expect("at its own epoch")
	if r.Err() != nil {
		t.Errorf("at its own epoch: %v", r.Err())
	}
	r.Refused(6)
	r.expect("at a higher epoch", "failed")
	if !errors.Is(r.Err(), ErrLost) || r.Ready() {
		t.Errorf("at a higher epoch: %v", r.Err())
	}
	r.Loaded(openLog(), 9)
	r.expect("after that")
}

// TestRecovererLearnsOutcome: a save of unknown outcome is repeated if the list is unchanged,
// succeeds if the list is the one to be saved, and fails if another has changed it, unless the log
// is now closed. L3.
func TestRecovererLearnsOutcome(t *testing.T) {
	claiming := func(keep bool) testRecoverer {
		t.Helper()
		r := startRecoverer(t, keep)
		r.Unsaved()
		r.expect("nothing is being saved")
		r.Loaded(openLog(), 6)
		r.Take()
		r.Unsaved()
		r.expect("unknown", "load")
		return r
	}
	r := claiming(false)
	r.Loaded(openLog(), 6)
	r.expect("the list is as it was", "save 6: epoch 5 by 9 from 100 1:40:ab 2:open:bc 3:open:ac")
	r.Loaded(*r.pending, 7)
	r.expect("the list is what was saved", "fence b epoch 5", "fence c epoch 5", "fence a epoch 5")
	r.Loaded(openLog(), 8)
	r.Saved(8)
	r.expect("nothing is being saved")
	if r.gen != 7 {
		t.Errorf("the list is of generation %d", r.gen)
	}

	other := openLog()
	other.Epoch, other.Owner = 5, 8
	r = claiming(false)
	r.Loaded(other, 7)
	r.expect("another has claimed the epoch", "failed")
	if !errors.Is(r.Err(), ErrLost) {
		t.Errorf("the error is %v", r.Err())
	}

	closed := List{Epoch: 5, Owner: 8, Start: 100, Closed: true, Extents: []Extent{{1, 40, []string{"a"}}, {2, 5, []string{"b"}}}}
	r = claiming(false)
	r.Loaded(closed, 7)
	r.expect("another has closed the log", "cut 1 a from 100 to length 40 epoch 5", "cut 2 b from 140 to length 5 epoch 5", "done")
	if l, gen := r.List(); !r.Done() || gen != 7 || !l.Equal(&closed) {
		t.Errorf("done %t with %s of generation %d", r.Done(), listText(&l), gen)
	}
	r = claiming(true)
	r.Loaded(closed, 7)
	r.expect("another has closed a log that was to go on", "failed")
	if !errors.Is(r.Err(), ErrClosed) || r.Done() {
		t.Errorf("done %t: %v", r.Done(), r.Err())
	}
}

// TestRecovererOfSealedLog: a log without open extents needs no fence: it continues as soon as it
// is claimed, or is closed. L5.
func TestRecovererOfSealedLog(t *testing.T) {
	l := List{Epoch: 4, Owner: 5, Start: 100, Extents: []Extent{{1, 40, []string{"a"}}}}
	r := startRecoverer(t, true)
	r.Loaded(l, 6)
	r.expect("loaded", "save 6: epoch 5 by 9 from 100 1:40:a")
	r.Saved(7)
	r.expect("claimed", "cut 1 a from 100 to length 40 epoch 5", "done")
	r = startRecoverer(t, false)
	if r.Ready() {
		t.Error("ready before the list is loaded")
	}
	r.Loaded(l, 6)
	if r.Ready() {
		t.Error("ready before the log is claimed")
	}
	r.Take()
	r.Saved(7)
	r.expect("claimed")
	if !r.Ready() || r.Waiting() {
		t.Errorf("ready %t, waiting %t", r.Ready(), r.Waiting())
	}
	r.Decide()
	r.expect("decided", "save 7: epoch 5 by 9 from 100 1:40:a closed")
}
