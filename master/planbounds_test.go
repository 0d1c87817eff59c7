package master

import (
	"fmt"
	"strings"
	"testing"

	"github.com/steledb/stele/client/metadata"
)

func userKey(i int) string { return string(metadata.Key(nil, 16, fmt.Appendf(nil, "%04d", i))) }

// holding returns a server of user tablets on a node of the same name.
func holding(name string, tablets ...Held) TabletServer {
	return TabletServer{Name: name, Node: name, Has: tablets}
}

// heldFrom returns n tablets from the i-th on, of the given size.
func heldFrom(i, n int, bytes int64) (all []Held) {
	for j := range n {
		all = append(all, Held{Key: userKey(i + j), Bytes: bytes})
	}
	return all
}

// servedState is the state in which all tablets are served: METADATA's by server m, users' as
// given.
func servedState(users ...TabletServer) *TabletState {
	first := string(metadata.Key(nil, metadata.TableID, nil))
	s := &TabletState{
		Whole: true, Recovered: map[string]bool{}, Pins: map[string]string{}, Failed: map[string]FailedLoad{},
		Servers: append([]TabletServer{{Name: "m", Node: "m", Metadata: true, Has: []Held{{Key: RootKey}, {Key: first}}}}, users...),
		Tablets: []Tablet{{Key: RootKey, Server: "m", Generation: 1}, {Key: first, Server: "m", Generation: 1}},
	}
	for _, v := range users {
		for _, h := range v.Has {
			s.Tablets = append(s.Tablets, Tablet{Key: h.Key, Server: v.Name, Generation: 1})
		}
	}
	return s
}

// unassigned adds n tablets without a server, from the i-th on.
func (s *TabletState) unassigned(i, n int) *TabletState {
	for j := range n {
		s.Tablets = append(s.Tablets, Tablet{Key: userKey(i + j), Generation: 1})
	}
	return s
}

// ordersOf returns the orders of one kind, each as "key server to", with the number of a user
// tablet as key.
func ordersOf(s *TabletState, kind OrderKind) (all []string) {
	numbers := map[string]int{}
	for i := range 1000 {
		numbers[userKey(i)] = i
	}
	for _, o := range PlanTablets(s) {
		if o.Kind != kind {
			continue
		}
		what := fmt.Sprint(numbers[o.Tablet.Key])
		if _, user := numbers[o.Tablet.Key]; !user {
			what = "-"
		}
		all = append(all, fmt.Sprintf("%s %s %s", what, o.Server, o.To))
	}
	return all
}

// TestOrderNames: each kind of order has a name.
func TestOrderNames(t *testing.T) {
	for kind, want := range map[OrderKind]string{Load: "load", Unload: "unload", Recover: "recover", RemoveLogs: "remove logs", Merge: "merge"} {
		if got := kind.String(); got != want {
			t.Errorf("order %d is called %q, want %q", kind, got, want)
		}
	}
}

// TestPlanBounds: planned orders and those in progress are bounded together.
func TestPlanBounds(t *testing.T) {
	loads := func(server string, i, n int) (all []Order) {
		for j := range n {
			all = append(all, Order{Kind: Load, Server: server, Tablet: Tablet{Key: userKey(i + j)}})
		}
		return all
	}
	unloads := func(n int, light bool) (all []Order) {
		for i := range n {
			all = append(all, Order{Kind: Unload, Server: "a", To: "b", Tablet: Tablet{Key: userKey(i)}, Light: light})
		}
		return all
	}
	busy := func(s *TabletState, orders []Order) *TabletState {
		s.Busy = orders
		return s
	}
	failing := func(s *TabletState) *TabletState {
		s.Servers[1].Failing = true
		return s
	}
	pinned := func(s *TabletState, n int) *TabletState {
		for i := range n {
			s.Pins[userKey(i)] = "b"
		}
		return s
	}
	united := func(s *TabletState, n int) *TabletState {
		for i := range n {
			s.PendingMerges = append(s.PendingMerges, PendingMerge{Lower: userKey(i), Upper: userKey(100 + i)})
		}
		return s
	}
	dead := func(n int) *TabletState {
		s := servedState(holding("a"))
		for i := range n {
			s.Tablets = append(s.Tablets, Tablet{Key: userKey(i), Server: fmt.Sprintf("dead%d", i)})
		}
		return s
	}
	const gib = 1 << 30
	light, heavy := func() *TabletState { return servedState(holding("a", heldFrom(0, 400, 0)...), holding("b")) },
		func() *TabletState { return servedState(holding("a", heldFrom(0, 100, gib)...), holding("b")) }
	for name, c := range map[string]struct {
		s    *TabletState
		kind OrderKind
		want int
	}{
		"loads of one server":                   {servedState(holding("a")).unassigned(0, 300), Load, loadsMax},
		"loads beside others":                   {busy(servedState(holding("a")).unassigned(0, 300), loads("a", 0, 250)), Load, loadsMax - 250},
		"loads of a failing server":             {failing(servedState(holding("a")).unassigned(0, 300)), Load, loadsAtOnce},
		"loads of two servers":                  {servedState(holding("a"), holding("b")).unassigned(0, 600), Load, 2 * loadsMax},
		"recoveries":                            {dead(6), Recover, recoveriesMax},
		"recoveries beside another":             {busy(dead(6), []Order{{Kind: Recover, Server: "dead0"}}), Recover, recoveriesMax - 1},
		"moves of large tablets":                {heavy(), Unload, movesMax},
		"moves beside another":                  {busy(heavy(), unloads(1, false)), Unload, movesMax - 1},
		"moves beside a light one":              {busy(heavy(), unloads(1, true)), Unload, movesMax},
		"moves beside as many":                  {busy(heavy(), unloads(movesMax, false)), Unload, 0},
		"moves of tablets with next to nothing": {light(), Unload, movesMax * lightMoves},
		"requested moves":                       {pinned(heavy(), 20), Unload, requestedMovesMax},
		"requested moves beside others":         {pinned(busy(heavy(), unloads(3, false)), 20), Unload, requestedMovesMax - 3},
		"moves for merges":                      {united(servedState(holding("a", heldFrom(0, 50, 0)...), holding("b", heldFrom(100, 50, 0)...)), 20), Unload, requestedMovesMax},
		"merges":                                {united(servedState(holding("a", append(heldFrom(0, 50, 0), heldFrom(100, 50, 0)...)...)), 20), Merge, 20},
	} {
		if got := ordersOf(c.s, c.kind); len(got) != c.want {
			t.Errorf("%s: %d orders, want %d", name, len(got), c.want)
		}
	}
}

// TestPlanBalance: a tablet moves if that clearly evens two servers out; the heaviest such tablet
// goes first.
func TestPlanBalance(t *testing.T) {
	const gib = 1 << 30
	with := func(s *TabletState, change func(s *TabletState)) *TabletState {
		change(s)
		return s
	}
	four := func() *TabletState { return servedState(holding("a", heldFrom(0, 4, 0)...), holding("b")) }
	for name, c := range map[string]struct {
		s    *TabletState
		want []string
	}{
		"two and none":       {servedState(holding("a", heldFrom(0, 2, 0)...), holding("b")), nil},
		"three and none":     {servedState(holding("a", heldFrom(0, 3, 0)...), holding("b")), []string{"0 a b"}},
		"one, by its bytes":  {servedState(holding("a", Held{Key: userKey(0), Bytes: 2 * gib}), holding("b")), nil},
		"the lighter of two": {servedState(holding("a", Held{Key: userKey(0), Bytes: 2 * gib}, Held{Key: userKey(1)}), holding("b")), []string{"1 a b"}},
		"the heavier of two": {servedState(holding("a", Held{Key: userKey(0), Load: 1999}, Held{Key: userKey(1)}), holding("b")), []string{"0 a b"}},
		"by its load":        {servedState(holding("a", Held{Key: userKey(0)}, Held{Key: userKey(1), Load: 1100}), holding("b")), []string{"1 a b"}},
		"not what is moving": {with(four(), func(s *TabletState) {
			s.Busy = []Order{{Kind: Unload, Server: "a", To: "b", Tablet: Tablet{Key: userKey(0)}}}
		}), nil},
		"to a server on its way":   {with(four(), func(s *TabletState) { s.Busy = []Order{{Kind: Unload, Server: "c", To: "b", Tablet: Tablet{Key: "x"}}} }), []string{"0 a b"}},
		"not a requested one":      {with(four(), func(s *TabletState) { s.Pins[userKey(0)] = "a" }), []string{"1 a b"}},
		"not one of a merge":       {with(four(), func(s *TabletState) { s.PendingMerges = []PendingMerge{{Lower: userKey(0), Upper: userKey(9)}} }), []string{"1 a b"}},
		"not to a failing one":     {with(four(), func(s *TabletState) { s.Servers[2].Failing = true }), nil},
		"not to a silent one":      {with(four(), func(s *TabletState) { s.Servers[2].Silent = true }), nil},
		"not to a draining one":    {with(four(), func(s *TabletState) { s.Servers[2].Draining = true }), nil},
		"not if all are draining":  {with(four(), func(s *TabletState) { s.Servers[1].Draining, s.Servers[2].Draining = true, true }), nil},
		"not if all are failing":   {with(four(), func(s *TabletState) { s.Servers[1].Failing, s.Servers[2].Failing = true, true }), nil},
		"not what has no row":      {with(four(), func(s *TabletState) { s.Tablets = s.Tablets[:2] }), nil},
		"not if rows are unread":   {with(four(), func(s *TabletState) { s.Whole = false }), nil},
		"all of a draining server": {with(servedState(holding("a", heldFrom(0, 2, 0)...), holding("b", heldFrom(5, 9, 0)...)), func(s *TabletState) { s.Servers[1].Draining = true }), []string{"0 a b", "1 a b"}},
	} {
		if got := ordersOf(c.s, Unload); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %q is ordered, want %q", name, got, c.want)
		}
	}
}

// TestLightMoves: only the move of a nearly empty user tablet is light.
func TestLightMoves(t *testing.T) {
	for name, c := range map[string]struct {
		h    Held
		want bool
	}{
		"empty": {Held{}, true}, "10 operations a second": {Held{Load: 10}, true}, "11 operations a second": {Held{Load: 11}, false},
		"10 MiB": {Held{Bytes: 10 << 20}, true}, "11 MiB": {Held{Bytes: 11 << 20}, false},
	} {
		c.h.Key = userKey(0)
		s := servedState(holding("a", c.h), holding("b"))
		s.Servers[1].Draining = true
		if orders := PlanTablets(s); len(orders) != 1 || orders[0].Kind != Unload || orders[0].Light != c.want {
			t.Errorf("%s: ordered is %+v, want one move, light %v", name, orders, c.want)
		}
	}
	s := servedState()
	s.Servers[0].Draining = true
	s.Servers = append(s.Servers, TabletServer{Name: "m2", Node: "m2", Metadata: true})
	orders := PlanTablets(s)
	if len(orders) == 0 {
		t.Error("METADATA's tablets stay on a server that drains")
	}
	for _, o := range orders {
		if o.Light {
			t.Errorf("a tablet of METADATA is a light move: %+v", o)
		}
	}
}

// TestLoadPlacement: an unassigned tablet goes to the lightest server, counting orders in progress.
func TestLoadPlacement(t *testing.T) {
	with := func(s *TabletState, change func(s *TabletState)) *TabletState {
		change(s)
		return s.unassigned(50, 1)
	}
	two := func() *TabletState { return servedState(holding("b"), holding("a")) }
	for name, c := range map[string]struct {
		s    *TabletState
		want string
	}{
		"of two alike the first by name": {with(two(), func(*TabletState) {}), "[50 a ]"},
		"the node with less":             {with(two(), func(s *TabletState) { s.Servers[2].Node = "m" }), "[50 b ]"},
		"beside a load":                  {with(two(), func(s *TabletState) { s.Busy = []Order{{Kind: Load, Server: "a", Tablet: Tablet{Key: userKey(9)}}} }), "[50 b ]"},
		"beside a move to it": {with(two(), func(s *TabletState) {
			s.Busy = []Order{{Kind: Unload, Server: "c", To: "a", Tablet: Tablet{Key: userKey(9)}}}
		}), "[50 b ]"},
		"beside a move from it": {with(servedState(holding("b", heldFrom(0, 2, 0)...), holding("a", heldFrom(5, 3, 0)...)), func(s *TabletState) {
			s.Busy = []Order{{Kind: Unload, Server: "a", To: "b", Tablet: Tablet{Key: userKey(5)}}}
		}), "[50 a ]"},
		"not a failing one":            {with(servedState(holding("b", heldFrom(0, 9, 0)...), holding("a")), func(s *TabletState) { s.Servers[2].Failing = true }), "[50 b ]"},
		"a failing one before none":    {with(servedState(holding("a")), func(s *TabletState) { s.Servers[1].Failing = true }), "[50 a ]"},
		"not the one that failed":      {with(two(), func(s *TabletState) { s.Failed[userKey(50)] = FailedLoad{Server: "a"} }), "[50 b ]"},
		"a failing one before that":    {with(two(), func(s *TabletState) { s.Failed[userKey(50)], s.Servers[1].Failing = FailedLoad{Server: "a"}, true }), "[50 b ]"},
		"the one that failed if alone": {with(servedState(holding("a")), func(s *TabletState) { s.Failed[userKey(50)] = FailedLoad{Server: "a"} }), "[50 a ]"},
		"not a silent one":             {with(two(), func(s *TabletState) { s.Servers[2].Silent = true }), "[50 b ]"},
		"not a draining one":           {with(servedState(holding("b", heldFrom(0, 9, 0)...), holding("a")), func(s *TabletState) { s.Servers[2].Draining = true }), "[50 b ]"},
		"a draining one before none":   {with(servedState(holding("a")), func(s *TabletState) { s.Servers[1].Draining = true }), "[50 a ]"},
		"rather wait than drain again": {with(two(), func(s *TabletState) {
			s.Servers[2].Draining = true
			for i := range loadsMax {
				s.Busy = append(s.Busy, Order{Kind: Load, Server: "b", Tablet: Tablet{Key: userKey(500 + i)}})
			}
		}), "[]"},
		"a draining one beside a silent one": {with(two(), func(s *TabletState) { s.Servers[1].Silent, s.Servers[2].Draining = true, true }), "[50 a ]"},
		"where an operator moves it":         {with(two(), func(s *TabletState) { s.Pins[userKey(50)] = "b" }), "[50 b ]"},
		"not where none can take it":         {with(two(), func(s *TabletState) { s.Pins[userKey(50)], s.Servers[1].Draining = "b", true }), "[50 a ]"},
		"to its neighbour above": {with(servedState(holding("b", heldFrom(51, 9, 0)...), holding("a")), func(s *TabletState) {
			s.PendingMerges = []PendingMerge{{Lower: userKey(50), Upper: userKey(51)}}
		}), "[50 b ]"},
		"to its neighbour below": {with(servedState(holding("b", heldFrom(40, 10, 0)...), holding("a")), func(s *TabletState) {
			s.PendingMerges = []PendingMerge{{Lower: userKey(49), Upper: userKey(50)}}
		}), "[50 b ]"},
		"to no neighbour of others": {with(servedState(holding("b", heldFrom(40, 9, 0)...), holding("a")), func(s *TabletState) {
			s.PendingMerges = []PendingMerge{{Lower: userKey(40), Upper: userKey(41)}}
		}), "[50 a ]"},
		"not to a neighbour that drains": {with(servedState(holding("b", heldFrom(51, 9, 0)...), holding("a")), func(s *TabletState) {
			s.PendingMerges, s.Servers[1].Draining = []PendingMerge{{Lower: userKey(50), Upper: userKey(51)}}, true
		}), "[50 a ]"},
	} {
		if got := fmt.Sprint(ordersOf(c.s, Load)); got != c.want {
			t.Errorf("%s: %s is ordered, want %s", name, got, c.want)
		}
	}
}

// TestMetadataPlacement: the second METADATA tablet goes to the server of the first, and the third
// to another one, whatever else their nodes serve.
func TestMetadataPlacement(t *testing.T) {
	first, second := string(metadata.Key(nil, metadata.TableID, []byte("m"))), string(metadata.Key(nil, metadata.TableID, nil))
	for want, has := range map[string][]Held{"m2": {{Key: RootKey}}, "m1": {{Key: RootKey}, {Key: first}}} {
		s := &TabletState{Servers: []TabletServer{
			{Name: "m1", Node: "n1", Metadata: true}, {Name: "m2", Node: "n2", Metadata: true, Has: has}, {Name: "u1", Node: "n1", Has: heldFrom(0, 9, 0)}, {Name: "u2", Node: "n2"}, {Name: "m3", Node: "n3", Metadata: true},
		}}
		for _, h := range has {
			s.Tablets = append(s.Tablets, Tablet{Key: h.Key, Server: "m2"})
		}
		s.Tablets = append(s.Tablets, Tablet{Key: second})
		if orders := PlanTablets(s); len(orders) != 1 || orders[0].Kind != Load || orders[0].Server != want {
			t.Errorf("beside %d tablets: %+v, want a load on %s", len(has), orders, want)
		}
	}
}

// TestPlanMerges: neighbours on one server are merged. Of two others the smaller one moves, unless
// the larger one's server is draining.
func TestPlanMerges(t *testing.T) {
	apart := func(lower, upper int64) *TabletState {
		s := servedState(holding("a", Held{Key: userKey(0), Bytes: lower}), holding("b", Held{Key: userKey(1), Bytes: upper}))
		s.PendingMerges = []PendingMerge{{Lower: userKey(0), Upper: userKey(1)}}
		return s
	}
	with := func(s *TabletState, change func(a, b *TabletServer)) *TabletState {
		change(&s.Servers[1], &s.Servers[2])
		return s
	}
	for name, c := range map[string]struct {
		s     *TabletState
		moves string
	}{
		"the lower is smaller":          {apart(10, 20), "[0 a b]"},
		"the upper is smaller":          {apart(20, 10), "[1 b a]"},
		"both alike":                    {apart(10, 10), "[0 a b]"},
		"the smaller one's drains":      {with(apart(10, 20), func(a, _ *TabletServer) { a.Draining = true }), "[0 a b]"},
		"the larger one's drains":       {with(apart(10, 20), func(_, b *TabletServer) { b.Draining = true }), "[1 b a]"},
		"the larger lower one's drains": {with(apart(20, 10), func(a, _ *TabletServer) { a.Draining = true }), "[0 a b]"},
		"both drain":                    {with(apart(10, 20), func(a, b *TabletServer) { a.Draining, b.Draining = true, true }), "[]"},
		"the one to move to is silent":  {with(apart(10, 20), func(_, b *TabletServer) { b.Silent = true }), "[]"},
		"the lower is not there":        {with(apart(10, 20), func(a, _ *TabletServer) { a.Has = nil }), "[]"},
		"the upper is not there":        {with(apart(10, 20), func(_, b *TabletServer) { b.Has = nil }), "[]"},
	} {
		if got := fmt.Sprint(ordersOf(c.s, Unload)); got != c.moves {
			t.Errorf("%s: moves are %s, want %s", name, got, c.moves)
		}
		if got := ordersOf(c.s, Merge); len(got) > 0 {
			t.Errorf("%s: merged are %q, which are on two servers", name, got)
		}
	}
	s := servedState(holding("a", heldFrom(0, 2, 0)...), holding("b"))
	s.PendingMerges = []PendingMerge{{Lower: userKey(0), Upper: userKey(1)}}
	if got := fmt.Sprint(ordersOf(s, Merge)); got != "[0 a ]" {
		t.Errorf("of two on one server merged are %s", got)
	}
	s.PendingMerges = []PendingMerge{{Lower: userKey(0), Upper: userKey(7)}, {Lower: userKey(8), Upper: userKey(1)}, {Lower: userKey(0), Upper: userKey(1)}}
	if got := fmt.Sprint(ordersOf(s, Merge)); got != "[0 a ]" {
		t.Errorf("after two that cannot be done merged are %s", got)
	}
	s.Tablets = s.Tablets[:3]
	if got := ordersOf(s, Merge); len(got) > 0 {
		t.Errorf("merged are %q, of which one is gone", got)
	}
}

// TestPlanRequests: a tablet moves to its requested node if it is served elsewhere, that node can
// accept it, and no merge of it is pending. A tablet that cannot move does not block other moves.
func TestPlanRequests(t *testing.T) {
	s := servedState(holding("a", heldFrom(0, 6, 0)...), holding("b", heldFrom(10, 6, 0)...), holding("c", heldFrom(20, 6, 0)...))
	s.Servers[3].Draining = true
	s.Pins = map[string]string{userKey(0): "a", userKey(1): "z", userKey(2): "c", userKey(3): "m", userKey(4): "b", userKey(5): "b", userKey(12): "a"}
	s.PendingMerges = []PendingMerge{{Lower: userKey(4), Upper: userKey(9)}}
	var got []string
	for _, o := range ordersOf(s, Unload) {
		if !strings.Contains(o, " c ") { // which is draining
			got = append(got, o)
		}
	}
	if want := "[5 a b 12 b a]"; fmt.Sprint(got) != want {
		t.Errorf("moves are %v, want %s", got, want)
	}
}
