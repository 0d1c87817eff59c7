package master

import (
	"slices"
	"testing"
	"time"
)

// grow adds nodes to the world, and names those that cannot start voting or never catch up.
func (w *world) grow(ids []string, unable, stuck string) {
	w.change(func() {
		for _, id := range ids {
			w.servers = append(w.servers, Server{ID: id, Alive: true, Since: time.Hour, HasLog: true})
		}
		w.unable, w.stuck = map[string]bool{unable: true}, map[string]bool{stuck: true}
		w.leads = true
	})
}

// voting returns the nodes with a vote, in order.
func (w *world) voting() (ids []string) {
	for _, v := range w.Voters() {
		if !v.Staged {
			ids = append(ids, v.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// TestUnableNodeDoesNotStopTheOthers: one of five nodes fails each attempt to start voting, and
// three others vote.
func TestUnableNodeDoesNotStopTheOthers(t *testing.T) {
	run(t, func(w *world, m *Master) {
		w.grow([]string{"d", "e"}, "b", "")
		time.Sleep(2 * stable)
		if got := w.voting(); !slices.Equal(got, []string{"a", "c", "d"}) {
			t.Errorf("voters %v, want a, c and d", got)
		}
		time.Sleep(time.Hour)
		w.mu.Lock()
		attempts := w.attempts["b"]
		w.mu.Unlock()
		if attempts < 3 || attempts > 30 {
			t.Errorf("the node got %d StartVoting commands in an hour, want a few", attempts)
		}
		if started := len(w.started); started > 3 {
			t.Errorf("nodes started to vote %d times (%v), want each once", started, w.started)
		}
		w.change(func() { w.unable = nil })
		time.Sleep(time.Hour)
		if got := w.voting(); len(got) != 5 {
			t.Errorf("voters %v after the node has recovered, want all five", got)
		}
	})
}

// TestStuckNodeDoesNotStopTheOthers: one node starts voting but never catches up with the log.
func TestStuckNodeDoesNotStopTheOthers(t *testing.T) {
	run(t, func(w *world, m *Master) {
		w.grow([]string{"d", "e"}, "", "b")
		time.Sleep(3 * stable)
		if got := w.voting(); !slices.Equal(got, []string{"a", "c", "d"}) {
			t.Errorf("voters %v, want a, c and d", got)
		}
	})
}

// TestDeadVoterIsReplacedBesideAnUnableNode: the node with the lowest id cannot vote, and another
// one replaces the dead voter.
func TestDeadVoterIsReplacedBesideAnUnableNode(t *testing.T) {
	run(t, func(w *world, m *Master) {
		w.grow([]string{"aa", "d"}, "aa", "")
		w.change(func() {
			w.group = []Voter{{ID: "a", Leader: true, CaughtUp: true}, {ID: "b", CaughtUp: true}, {ID: "c", Silent: time.Hour}}
			w.servers[2] = Server{ID: "c", Since: time.Hour}
		})
		time.Sleep(2 * stable)
		if got := w.voting(); !slices.Equal(got, []string{"a", "b", "d"}) {
			t.Errorf("voters %v, want a, b and d", got)
		}
	})
}
