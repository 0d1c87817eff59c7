package master

import (
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client/metadata"
)

// TestNoteUnserved: for each unserved tablet the time, its start and what it waits for are
// recorded. A tablet whose server does not answer keeps its state, and a served one is no longer
// reported.
func TestNoteUnserved(t *testing.T) {
	key := func(end string) string { return string(metadata.Key(nil, 20, []byte(end))) }
	first := string(metadata.Key(nil, metadata.TableID, nil))
	s := &TabletState{
		Servers: []TabletServer{
			{Name: "m", Metadata: true, Has: []Held{{Key: RootKey}}},
			{Name: "a", Has: []Held{{Key: key("b")}}}, {Name: "s", Silent: true},
		},
		Tablets: []Tablet{
			{Key: RootKey, Server: "m"}, {Key: first, Server: "m"}, {Key: key("b"), Server: "a"}, {Key: key("c"), Server: "a"},
			{Key: key("d"), Server: "gone"}, {Key: key("e")}, {Key: key("f"), Server: "s"},
		},
	}
	a := newAssigner(Config{}, nil)
	a.whole = true
	a.noteUnserved(s)
	if reported := a.unserved(time.Now().Add(unservedAfter / 2)); len(reported) > 0 {
		t.Errorf("reported at once: %+v", reported)
	}
	later := time.Now().Add(unservedAfter + time.Second)
	want := []struct {
		key, start string
		err        error
	}{{first, string(metadata.RootEnd()), errNotTaken}, {key("c"), "b", errNotTaken}, {key("d"), "c", errNotSorted}, {key("e"), "d", errNotTaken}}
	check := func() {
		t.Helper()
		reported := a.unserved(later)
		if len(reported) != len(want) {
			t.Fatalf("%d reported: %+v", len(reported), reported)
		}
		for i, w := range want {
			if u := reported[i]; u.Key != w.key || string(u.Start) != w.start || !errors.Is(u.Err, w.err) {
				t.Errorf("%d: %s from %q: %v", i, &u, u.Start, u.Err)
			}
		}
	}
	check()
	// METADATA can no longer be read: the state of the others stays.
	all := s.Tablets
	a.whole, s.Tablets = false, all[:2]
	a.noteUnserved(s)
	check()
	// The only server that could hold them does not answer. Then it holds one, and the other keeps
	// its state.
	a.whole, s.Tablets = true, all
	s.Servers[1].Silent, s.Servers[1].Has = true, nil
	a.noteUnserved(s)
	want[3].err = errNoServer
	check()
	s.Servers[1].Silent, s.Servers[1].Has = false, []Held{{Key: key("b")}, {Key: key("c")}}
	a.noteUnserved(s)
	want = append(want[:1], want[2:]...)
	want[2].err = errNotTaken
	check()
}

// TestUnservedReasons: a tablet is reported after five seconds without service, with the last
// failure of its load, or of the recovery of its server. A reason that no order can change takes
// precedence.
func TestUnservedReasons(t *testing.T) {
	key := func(end string) string { return string(metadata.Key(nil, 20, []byte(end))) }
	failed, damaged, suspended := errors.New("a file is damaged"), errors.New("the row is damaged"), errors.New("it is tried again in 1m")
	s := &TabletState{
		Servers:   []TabletServer{{Name: "m", Metadata: true}, {Name: "a"}},
		Tablets:   []Tablet{{Key: key("b")}, {Key: key("c"), Server: "gone"}, {Key: key("d"), Damaged: damaged}, {Key: key("e")}, {Key: key("f"), Server: "a"}, {Key: key("g"), Server: "gone"}, {Key: string(metadata.Key(nil, 21, nil))}},
		Suspended: map[string]error{key("e"): suspended, key("f"): suspended},
	}
	a := newAssigner(Config{}, nil)
	a.whole = true
	a.noteUnserved(s)
	for _, i := range []int{0, 2, 3, 5} {
		a.failed(&Order{Kind: Load, Tablet: s.Tablets[i], Server: "a"}, failed)
	}
	unsorted := errors.New("a log is damaged")
	a.failed(&Order{Kind: Recover, Server: "gone"}, unsorted)
	a.failed(&Order{Kind: Recover, Server: "gone"}, unsorted)
	since := a.mu.unserved[key("b")].Since
	if reported := a.unserved(since.Add(unservedAfter - 1)); len(reported) > 0 {
		t.Errorf("reported too early: %+v", reported)
	}
	reported := a.unserved(since.Add(unservedAfter))
	want := []struct {
		start string
		tries int
		err   error
	}{{"", 1, failed}, {"b", 2, unsorted}, {"c", 0, damaged}, {"d", 0, suspended}, {"e", 0, errNotTaken}, {"f", 1, failed}, {"", 0, errNotTaken}}
	if len(reported) != len(want) {
		t.Fatalf("reported are %+v", reported)
	}
	for i, w := range want {
		if u := reported[i]; u.Key != s.Tablets[i].Key || string(u.Start) != w.start || u.Tries != w.tries || !errors.Is(u.Err, w.err) {
			t.Errorf("%d: %s from %q, %d tries, %v; want from %q, %d tries, %v", i, &u, u.Start, u.Tries, u.Err, w.start, w.tries, w.err)
		}
	}
}
