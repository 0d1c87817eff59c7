package master_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/master"
)

// world is a cluster as seen by the plan: servers that live and die, and METADATA.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	servers []*master.TabletServer
	tablets []*master.Tablet
	// unflushed maps tablets to the servers whose logs hold entries of the tablet that are in no
	// file.
	unflushed map[string]map[string]bool
	logs      map[string]bool // servers that have logs
	sorted    map[string]bool
	busy      []master.Order
	started   int
	moves     int
	unneeded  []string
	pending   []master.PendingMerge
	merges    int
	pins      map[string]string
	unread    bool // METADATA cannot always be read completely
}

func newWorld(t *testing.T, rng *rand.Rand, tablets int) *world {
	w := &world{t: t, rng: rng, unflushed: map[string]map[string]bool{}, logs: map[string]bool{}, sorted: map[string]bool{}, pins: map[string]string{}}
	keys := []string{master.RootKey, string(metadata.Key(nil, metadata.TableID, []byte("m"))), string(metadata.Key(nil, metadata.TableID, nil))}
	for i := range tablets {
		keys = append(keys, string(metadata.Key(nil, metadata.FirstID, fmt.Appendf(nil, "%04d", i))))
	}
	for _, k := range keys {
		w.tablets = append(w.tablets, &master.Tablet{Key: k})
		w.unflushed[k] = map[string]bool{}
	}
	return w
}

func (w *world) start() {
	w.started++
	node := fmt.Sprintf("s%d", w.started)
	for _, name := range []string{node, node + ".metadata"} {
		w.servers = append(w.servers, &master.TabletServer{Name: name, Node: node, Metadata: name != node})
		w.logs[name] = true
	}
}

func (w *world) server(name string) *master.TabletServer {
	for _, v := range w.servers {
		if v.Name == name {
			return v
		}
	}
	return nil
}

func has(v *master.TabletServer, key string) bool {
	return slices.ContainsFunc(v.Has, func(h master.Held) bool { return h.Key == key })
}

// state is what the master reads, level by level: an unserved METADATA tablet cannot be read.
func (w *world) state() *master.TabletState {
	s := &master.TabletState{Recovered: map[string]bool{}, Busy: slices.Clone(w.busy), Whole: true, PendingMerges: w.pending, Pins: w.pins}
	for name := range w.logs {
		s.Logs = append(s.Logs, name)
	}
	slices.Sort(s.Logs)
	for name := range w.sorted {
		s.Recovered[name] = true
	}
	for _, v := range w.servers {
		c := *v
		if c.Has = slices.Clone(v.Has); v.Silent {
			c.Has = nil
		}
		s.Servers = append(s.Servers, c)
	}
	for level := range 3 {
		served := true
		for _, t := range w.tablets {
			if t.Level() == level {
				c := *t
				c.Recoveries = slices.Clone(t.Recoveries)
				s.Tablets = append(s.Tablets, c)
				v := w.server(t.Server)
				served = served && v != nil && has(v, t.Key)
			}
		}
		if !served && level < 2 {
			s.Whole = false
			break
		}
	}
	return s
}

func (w *world) plan() {
	s := w.state()
	if s.Whole && w.unread && w.rng.IntN(3) == 0 { // a METADATA tablet did not answer: its rows of user tablets are missing
		s.Whole = false
		users := slices.IndexFunc(s.Tablets, func(t master.Tablet) bool { return t.Level() == 2 })
		if users >= 0 {
			s.Tablets = s.Tablets[:users+w.rng.IntN(len(s.Tablets)-users+1)]
		}
	}
	s.Unneeded = w.unneeded
	if s.Whole {
		w.unneeded = master.Unneeded(s)
	}
	orders := master.PlanTablets(s)
	for _, o := range orders {
		w.judge(s, &o)
		if o.Kind == master.Unload {
			w.moves++
		}
		w.busy = append(w.busy, o)
	}
}

// tabletsOf returns the keys of the tablets that an order concerns.
func tabletsOf(o *master.Order) []string {
	switch o.Kind {
	case master.Load, master.Unload:
		return []string{o.Tablet.Key}
	case master.Merge:
		return []string{o.Tablet.Key, o.Upper.Key}
	}
	return nil
}

// judge fails the test if an order is wrong in a state. The test's servers reject what the
// compare-and-set on the row rejects, as real servers do; a plan must be right without that.
func (w *world) judge(s *master.TabletState, o *master.Order) {
	w.t.Helper()
	wrong := func(format string, args ...any) {
		w.t.Helper()
		w.t.Fatalf("%v %s on %q (%s) must not be ordered: %s", o.Kind, &o.Tablet, o.Server, o.Why, fmt.Sprintf(format, args...))
	}
	server := func(name string) *master.TabletServer {
		for i := range s.Servers {
			if s.Servers[i].Name == name {
				return &s.Servers[i]
			}
		}
		return nil
	}
	for i := range w.busy {
		b := &w.busy[i]
		if len(tabletsOf(o)) == 0 && len(tabletsOf(b)) == 0 && o.Server == b.Server {
			wrong("%v of it is under way", b.Kind)
		}
		for _, key := range tabletsOf(o) {
			if slices.Contains(tabletsOf(b), key) {
				wrong("%v of tablet %q is under way", b.Kind, key)
			}
		}
	}
	v := server(o.Server)
	for _, key := range tabletsOf(o) {
		i := slices.IndexFunc(s.Tablets, func(t master.Tablet) bool { return t.Key == key })
		if i < 0 {
			wrong("nothing is known of tablet %q", key)
		}
		t := &s.Tablets[i]
		owner := server(t.Server)
		switch {
		case v == nil:
			wrong("the server does not live")
		case v.Metadata != t.OfMetadata():
			wrong("that server is for other tablets")
		case v.Silent:
			wrong("it is not known what the server has")
		case o.Kind == master.Load && owner != nil && (owner != v || owner.Silent || has(owner, key)):
			wrong("%s has it, or may have (I4)", owner.Name)
		case o.Kind == master.Load && owner == nil && t.Server != "" && !s.Recovered[t.Server]:
			wrong("the logs of %s are not sorted (I1)", t.Server)
		case o.Kind == master.Unload && (o.To == o.Server || o.To != "" && server(o.To) == nil):
			wrong("%q can then not load it", o.To)
		case o.Kind != master.Load && (owner != v || !has(v, key)):
			wrong("the server does not have it")
		}
		for j := range s.Tablets {
			above := &s.Tablets[j]
			if a := server(above.Server); above.Level() < t.Level() && (a == nil || !a.Silent && !has(a, above.Key)) {
				wrong("%s, by which it is found, is not served", above)
			}
		}
	}
	if len(tabletsOf(o)) > 0 {
		return
	}
	if v != nil {
		wrong("it lives")
	}
	if o.Kind == master.RemoveLogs && !slices.Contains(s.Unneeded, o.Server) {
		wrong("the look before this one did not find it unneeded")
	}
	if o.Kind == master.RemoveLogs && !s.Whole {
		wrong("not all rows were read")
	}
}

// finish executes one of the orders in progress, or fails it.
func (w *world) finish(mayFail bool) {
	if len(w.busy) == 0 {
		return
	}
	i := w.rng.IntN(len(w.busy))
	o := w.busy[i]
	w.busy = slices.Delete(w.busy, i, i+1)
	if mayFail && w.rng.IntN(5) == 0 {
		return
	}
	switch o.Kind {
	case master.Load:
		w.load(o)
	case master.Unload:
		v, t := w.server(o.Server), w.tablet(o.Tablet.Key)
		if v == nil || t.Server != v.Name || !has(v, t.Key) {
			return
		}
		v.Has = slices.DeleteFunc(v.Has, func(h master.Held) bool { return h.Key == t.Key })
		w.flush(t)
		t.Server = ""
		t.Generation++
	case master.Merge:
		w.merge(o)
	case master.Recover:
		if w.server(o.Server) != nil {
			w.t.Fatalf("the logs of %s are ended, and it lives", o.Server)
		}
		w.sorted[o.Server] = true
	case master.RemoveLogs:
		if w.server(o.Server) != nil {
			w.t.Fatalf("%s is forgotten, and it lives", o.Server)
		}
		for key, needs := range w.unflushed {
			if needs[o.Server] {
				w.t.Fatalf("%s is forgotten, and tablet %q needs its logs (I1)", o.Server, key)
			}
		}
		delete(w.sorted, o.Server)
		delete(w.logs, o.Server)
	}
}

func (w *world) tablet(key string) *master.Tablet {
	i := slices.IndexFunc(w.tablets, func(t *master.Tablet) bool { return t.Key == key })
	return w.tablets[i]
}

// load acts as a server: it acquires the tablet by compare-and-set on its row.
func (w *world) load(o master.Order) {
	v, t := w.server(o.Server), w.tablet(o.Tablet.Key)
	if v == nil || t.Generation != o.Tablet.Generation {
		return
	}
	if v.Metadata != t.OfMetadata() {
		w.t.Fatalf("tablet %q is loaded on %s", t.Key, v.Name)
	}
	if owner := w.server(t.Server); owner != nil && owner != v && has(owner, t.Key) {
		w.t.Fatalf("tablet %q is loaded on %s while %s has it (I4)", t.Key, v.Name, t.Server)
	}
	if t.Server != "" && t.Server != v.Name {
		if !w.sorted[t.Server] {
			w.t.Fatalf("tablet %q is loaded before the logs of %s are sorted (I1)", t.Key, t.Server)
		}
		t.Recoveries = append(t.Recoveries, t.Server)
	}
	t.Server = v.Name
	t.Generation++
	if !has(v, t.Key) {
		v.Has = append(v.Has, master.Held{Key: t.Key, Bytes: w.rng.Int64N(1 << 30)})
	}
	w.unflushed[t.Key][v.Name] = true // it is written to
}

// merge acts as a server that holds two neighbours: the upper one gets the rows of both, written
// out.
func (w *world) merge(o master.Order) {
	v, lower, upper := w.server(o.Server), w.tablet(o.Tablet.Key), w.tablet(o.Upper.Key)
	if v == nil || lower.Generation != o.Tablet.Generation || upper.Generation != o.Upper.Generation {
		return
	}
	v.Has = slices.DeleteFunc(v.Has, func(h master.Held) bool { return h.Key == lower.Key })
	w.tablets = slices.DeleteFunc(w.tablets, func(t *master.Tablet) bool { return t == lower })
	delete(w.unflushed, lower.Key)
	w.flush(upper)
	w.pending = slices.DeleteFunc(w.pending, func(u master.PendingMerge) bool { return u.Lower == lower.Key || u.Upper == lower.Key })
	w.merges++
}

// requestMerge adds a pending merge of two neighbours.
func (w *world) requestMerge() {
	i := 3 + w.rng.IntN(max(1, len(w.tablets)-3))
	if i+1 >= len(w.tablets) {
		return
	}
	u := master.PendingMerge{Lower: w.tablets[i].Key, Upper: w.tablets[i+1].Key, Why: "merge requested"}
	taken := func(o master.PendingMerge) bool {
		return o.Lower == u.Upper || o.Upper == u.Lower || o.Lower == u.Lower
	}
	if !slices.ContainsFunc(w.pending, taken) {
		w.pending = append(w.pending, u)
	}
}

// flush writes a tablet out: afterwards no log is needed for it.
func (w *world) flush(t *master.Tablet) {
	t.Recoveries = nil
	t.Generation++
	clear(w.unflushed[t.Key])
}

func (w *world) kill() {
	if len(w.servers) < 4 {
		return
	}
	node := w.servers[w.rng.IntN(len(w.servers))].Node
	w.servers = slices.DeleteFunc(w.servers, func(v *master.TabletServer) bool { return v.Node == node })
}

func (w *world) settle() {
	w.t.Helper()
	for quiet, i := 0, 0; i < 10_000; i++ {
		w.plan()
		switch {
		case len(w.busy) > 0:
			w.finish(false)
			quiet = 0
		case quiet > 0: // some orders take two reads
			return
		default:
			quiet++
		}
	}
	w.t.Fatalf("orders do not end: %+v", w.busy)
}

func (w *world) checkServed() {
	w.t.Helper()
	for _, t := range w.tablets {
		if v := w.server(t.Server); v == nil || !has(v, t.Key) {
			w.t.Fatalf("tablet %q is not served: its server is %q", t.Key, t.Server)
		}
	}
}

// TestTabletPlan: whatever dies, and whichever orders fail, all tablets are served in the end, none
// by two servers, none without its log, and unneeded logs are removed (I1, I4, I6).
func TestTabletPlan(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 1))
	merges := 0
	for range 100 {
		w := newWorld(t, rng, rng.IntN(40))
		w.unread = true
		for range 1 + rng.IntN(5) {
			w.start()
		}
		for range 300 {
			switch rng.IntN(14) {
			case 13:
				w.pins = map[string]string{}
				for range rng.IntN(4) {
					w.pins[w.tablets[rng.IntN(len(w.tablets))].Key] = w.servers[rng.IntN(len(w.servers))].Node
				}
			case 12:
				w.requestMerge()
			case 0:
				w.kill()
			case 1:
				w.start()
			case 2:
				x := w.tablets[rng.IntN(len(w.tablets))]
				if v := w.server(x.Server); v != nil && has(v, x.Key) {
					w.flush(x)
					w.unflushed[x.Key][v.Name] = rng.IntN(2) == 0
				}
			case 3:
				w.servers[rng.IntN(len(w.servers))].Silent = rng.IntN(3) == 0
			case 4:
				node, draining := w.servers[rng.IntN(len(w.servers))].Node, rng.IntN(2) == 0
				for _, v := range w.servers {
					if v.Node == node {
						v.Draining = draining
					}
				}
			case 5, 6, 7:
				w.finish(true)
			default:
				w.plan()
			}
		}
		w.unread, w.pins = false, map[string]string{}
		for _, v := range w.servers {
			v.Silent = false
		}
		w.settle()
		w.checkServed()
		for _, x := range w.tablets {
			w.flush(x)
		}
		w.settle()
		for name := range w.logs {
			if w.server(name) == nil {
				t.Fatalf("the logs of %s are still there", name)
			}
		}
		stays := slices.ContainsFunc(w.servers, func(v *master.TabletServer) bool { return !v.Draining })
		for _, v := range w.servers {
			if v.Draining && stays && len(v.Has) > 0 {
				t.Fatalf("%s drains and has %d tablets", v.Name, len(v.Has))
			}
		}
		if len(w.pending) > 0 && stays {
			t.Fatalf("neighbours that are to be merged are not: %v", w.pending)
		}
		merges += w.merges
	}
	if merges < 100 {
		t.Fatalf("only %d merges were tried", merges)
	}
}

// TestForgetTakesTwoReads: a log that one read of the rows finds unneeded may have been passed on
// behind the reader, from one row to an earlier one.
func TestForgetTakesTwoReads(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(1, 1)), 2)
	w.start()
	w.settle()
	s := w.state()
	s.Logs = append(s.Logs, "dead")
	if orders := master.PlanTablets(s); len(orders) != 0 {
		t.Fatalf("at the first look: %v", orders)
	}
	s.Unneeded = master.Unneeded(s)
	if orders := master.PlanTablets(s); len(orders) != 1 || orders[0].Kind != master.RemoveLogs || orders[0].Server != "dead" {
		t.Fatalf("at the second look: %v", orders)
	}
	s.Tablets[len(s.Tablets)-1].Recoveries = []string{"dead"}
	if orders := master.PlanTablets(s); len(orders) != 0 {
		t.Fatalf("when it is needed: %v", orders)
	}
}

// TestTabletBalance: a new server gets its share by few moves, and then no more moves are planned.
func TestTabletBalance(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 1))
	w := newWorld(t, rng, 90)
	w.start()
	w.start()
	w.settle()
	w.moves = 0
	w.start()
	w.settle()
	for _, v := range w.servers {
		if n := len(v.Has); !v.Metadata && (n < 20 || n > 42) {
			t.Errorf("%s has %d of 90 tablets", v.Name, n)
		}
	}
	if w.moves > 45 {
		t.Errorf("%d moves for a third of 90 tablets", w.moves)
	}
	w.moves = 0
	for range 10 {
		w.settle()
	}
	if w.moves > 0 {
		t.Errorf("%d moves when all is balanced", w.moves)
	}
}

// TestMetadataFirst: when all servers have died, METADATA's logs are sorted first and its tablets
// wait for those alone, while the others are sorted, too.
func TestMetadataFirst(t *testing.T) {
	key := func(table uint64) string { return string(metadata.Key(nil, table, nil)) }
	s := &master.TabletState{
		Servers: []master.TabletServer{{Name: "b", Node: "b"}, {Name: "b.metadata", Node: "b", Metadata: true}},
		Logs:    []string{"a", "a.metadata", "b"},
		Tablets: []master.Tablet{{Key: master.RootKey, Server: "a.metadata"}},
	}
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for _, o := range master.PlanTablets(s) {
			got = append(got, fmt.Sprintf("%v %q %s", o.Kind, o.Tablet.Key, o.Server))
			s.Busy = append(s.Busy, o)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("orders %q, want %q", got, want)
		}
	}
	expect(`recover "" a.metadata`, `recover "" a`)
	s.Busy = s.Busy[1:]
	s.Recovered = map[string]bool{"a.metadata": true}
	expect(`load "" b.metadata`)
	s.Busy = s.Busy[:1]
	s.Servers[1].Has = []master.Held{{Key: master.RootKey}}
	s.Tablets = []master.Tablet{{Key: master.RootKey, Server: "b.metadata"}, {Key: key(metadata.TableID), Server: "a.metadata"}}
	expect(fmt.Sprintf("load %q b.metadata", key(metadata.TableID)))
	s.Busy = s.Busy[:1]
	s.Servers[1].Has = append(s.Servers[1].Has, master.Held{Key: key(metadata.TableID)})
	s.Tablets[1].Server = "b.metadata"
	s.Tablets = append(s.Tablets, master.Tablet{Key: key(metadata.FirstID), Server: "a"})
	s.Whole = true
	expect()
	s.Busy, s.Recovered["a"] = nil, true
	expect(fmt.Sprintf("load %q b", key(metadata.FirstID)))
}

// TestMetadataStays: the first two METADATA tablets stay on one server under any load. Further ones
// are distributed, and then no more moves are planned.
func TestMetadataStays(t *testing.T) {
	w := newWorld(t, rand.New(rand.NewPCG(testseed.New(t), 1)), 0)
	w.tablets = []*master.Tablet{w.tablets[0], w.tablets[2]}
	for range 3 {
		w.start()
	}
	busy := func() {
		w.settle()
		for _, v := range w.servers {
			for i := range v.Has {
				v.Has[i].Load, v.Has[i].Bytes = 1e5, 1<<30
			}
		}
		w.settle()
	}
	busy()
	if n := len(w.server("s1.metadata").Has); n != 2 || w.moves > 0 {
		t.Fatalf("the first server has %d of METADATA's tablets after %d moves", n, w.moves)
	}
	first := w.server("s1.metadata")
	for i := range 10 { // they split
		k := string(metadata.Key(nil, metadata.TableID, fmt.Appendf(metadata.Key(nil, metadata.FirstID, nil), "%d", i)))
		w.tablets = append(w.tablets, &master.Tablet{Key: k, Server: first.Name})
		w.unflushed[k] = map[string]bool{}
		first.Has = append(first.Has, master.Held{Key: k})
	}
	busy()
	for _, v := range w.servers {
		if n := len(v.Has); v.Metadata && (n < 3 || n > 5) {
			t.Errorf("%s has %d of 12 tablets of METADATA", v.Name, n)
		}
	}
	if w.moves > 8 {
		t.Errorf("%d moves", w.moves)
	}
}
