package master

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/planted"
)

// TabletServer is a live instance of a tablet server: it holds the lock of its server file. Each
// node runs two, one of them for METADATA tablets alone.
type TabletServer struct {
	Name     string // of the instance
	Node     string
	Addr     string
	Metadata bool // it serves METADATA tablets and no others
	Draining bool // its node is draining: it gets no tablets, and its tablets move away
	// Failing reports that its recent loads have failed: see loadRecord.
	Failing bool
	// Silent reports that the server did not answer with its tablets. It may hold any.
	Silent bool
	Has    []Held
	// index holds the keys of Has while a plan is made.
	index map[string]struct{}
}

// Held is a tablet that a server reports to hold.
type Held struct {
	Key   string  // of the tablet's row in METADATA
	Bytes int64   // of its files
	Load  float64 // operations a second
}

// Tablet is the METADATA row of a tablet.
type Tablet struct {
	Key        string // of the row; RootKey for the root tablet
	Table      string // its table's name, for messages; empty if unknown
	Generation uint64
	Server     string // the server instance that holds it; empty if it is to be assigned
	Recoveries []string
	// Damaged is why the row cannot be decoded, nil if it can. Of a damaged row only the key is
	// known.
	Damaged error
}

// RootKey is the key of the root tablet, which has no row.
const RootKey = ""

// KeyOf returns the key of a tablet, by its table and its last row.
func KeyOf(tableID uint64, end []byte) string {
	if tableID == metadata.TableID && bytes.Equal(end, metadata.RootEnd()) {
		return RootKey
	}
	return string(metadata.Key(nil, tableID, end))
}

// String describes the tablet for messages.
func (t *Tablet) String() string {
	if t.Key == RootKey {
		return "root tablet"
	}
	return metadata.Describe([]byte(t.Key), t.Table)
}

// Level returns the tablet's level in the hierarchy: 0 for the root tablet, 1 for the other
// METADATA tablets, 2 for user tablets.
func (t *Tablet) Level() int {
	if t.Key == RootKey {
		return 0
	}
	if strings.HasPrefix(t.Key, metadataPrefix) {
		return 1
	}
	return 2
}

// metadataPrefix is the key prefix of METADATA tablets, and of no others.
var metadataPrefix = func() string {
	from, _ := metadata.TableRange(metadata.TableID)
	return string(from)
}()

// OfMetadata reports whether the tablet belongs to METADATA.
func (t *Tablet) OfMetadata() bool { return t.Level() < 2 }

// TabletState is the master's view of tablets and servers.
type TabletState struct {
	Servers []TabletServer
	// Tablets are the tablets whose rows could be read: all of them if Whole.
	Tablets []Tablet
	Whole   bool
	// Recovered are the dead servers whose logs are sorted. Logs are the servers that have logs.
	Recovered map[string]bool
	Logs      []string
	// Unneeded are the dead servers that no tablet needed at the previous complete read of
	// METADATA.
	Unneeded []string
	// Busy are the orders in progress.
	Busy []Order
	// Pins maps tablet keys to the nodes that operators moved them to. PendingMerges are the pending
	// merges.
	Pins          map[string]string
	PendingMerges []PendingMerge
	// Failed maps tablet keys to their loads that failed at the last attempt.
	Failed map[string]FailedLoad
	// Suspended maps the keys of tablets that must not be loaded now to the reason: see suspects.
	Suspended map[string]error
	// Cool maps tablet keys to how long the tablet has been small and idle.
	Cool map[string]time.Duration
}

// FailedLoad describes a failed load.
type FailedLoad struct {
	Server string // that failed to load it
	// Lasting reports that many loads failed in a row: nothing else waits for the tablet.
	Lasting bool
}

// OrderKind is the type of an order.
type OrderKind uint8

// The kinds of orders.
const (
	// Load has a server load a tablet.
	Load OrderKind = iota + 1
	// Unload has a server release a tablet.
	Unload
	// Recover closes and sorts the logs of a dead server.
	Recover
	// RemoveLogs removes the remains of a dead server: its logs, sorted and unsorted.
	RemoveLogs
	// Merge has a server merge two neighbours that it holds.
	Merge
)

func (k OrderKind) String() string {
	names := [...]string{"?", "load", "unload", "recover", "remove logs", "merge"}
	return names[min(int(k), len(names)-1)]
}

// Order is one action that the master has a server execute.
type Order struct {
	Kind   OrderKind
	Tablet Tablet // of Load and Unload; the lower tablet of Merge
	Upper  Tablet // the upper tablet of Merge
	Server string // the server that loads, unloads or merges, or the dead server
	// To is the server that loads the tablet after Unload; empty if not yet known.
	To string
	// Light reports that the tablet of an Unload is nearly empty and idle.
	Light bool
	Why   string
}

// ofTablets reports whether the order concerns tablets rather than a dead server.
func (o *Order) ofTablets() bool { return o.Kind == Load || o.Kind == Unload || o.Kind == Merge }

// about reports whether the order concerns a tablet.
func (o *Order) about(key string) bool {
	return o.ofTablets() && (o.Tablet.Key == key || o.Kind == Merge && o.Upper.Key == key)
}

// subject returns the key under which failures of the order are counted.
func (o *Order) subject() string {
	if o.ofTablets() {
		return o.Kind.String() + " " + o.Tablet.Key
	}
	return o.Kind.String() + " " + o.Server
}

// same reports whether two orders concern the same tablet or dead server.
func (o *Order) same(p *Order) bool {
	if o.ofTablets() {
		return p.about(o.Tablet.Key) || o.Kind == Merge && p.about(o.Upper.Key)
	}
	return !p.ofTablets() && o.Server == p.Server
}

// share returns the fraction of one move that an Unload counts for.
func (o *Order) share() float64 {
	if o.Light {
		return 1.0 / lightMoves
	}
	return 1
}

// subjects returns the tablets or the server that the order concerns. At most one order is in
// progress for each.
func (o *Order) subjects() []string {
	switch {
	case !o.ofTablets():
		return []string{subjectServer + o.Server}
	case o.Kind == Merge:
		return []string{subjectTablet + o.Tablet.Key, subjectTablet + o.Upper.Key}
	}
	return []string{subjectTablet + o.Tablet.Key}
}

const subjectTablet, subjectServer = "tablet ", "server "

const (
	// loadsMax bounds the loads planned for one server. They start one after another, so that not
	// every load needs another pass over all tablets. Loads still waiting are planned again if the
	// server dies.
	loadsMax = 256
	// movesMax bounds the moves in progress: each makes its tablet unavailable for a moment.
	// lightMoves moves of nearly empty tablets count as one, or thousands of them would take hours.
	movesMax, lightMoves = 2, 64
	// lightWeight is the weight beyond 1 up to which a tablet counts as nearly empty.
	lightWeight = 0.01
	// requestedMovesMax bounds all moves in progress, including those that operators requested.
	requestedMovesMax = 8
	// recoveriesMax bounds the dead servers whose logs are sorted at a time.
	recoveriesMax = 4
)

// PlanTablets returns the orders to execute now, the most urgent first (paper §5.2). It is a pure
// function of its argument. It returns no order that is already in Busy.
//
// Tablets are assigned level by level, the root tablet, METADATA tablets, then user tablets, since
// each level is located and changed through the one above.
func PlanTablets(s *TabletState) []Order {
	p := newPlanner(s)
	level := p.assign()
	if level < 2 {
		p.recoverUnread()
	} else if s.Whole { // all of METADATA is served
		p.planMerges()
		p.planMoves()
	}
	if s.Whole && level > 2 {
		p.balance(true)
		p.balance(false)
		p.removeLogs()
	}
	p.check()
	return p.orders
}

// newPlanner returns a planner with the load of the servers, including that of the orders in Busy.
func newPlanner(s *TabletState) *planner {
	p := &planner{
		state: s, alive: map[string]*TabletServer{}, loads: map[string]int{}, rows: map[string]*Tablet{},
		weight: map[string]float64{}, nodeWeight: map[string]float64{},
		taken: map[string]bool{}, byWeight: map[string][]Held{},
	}
	for i := range s.Tablets {
		p.rows[s.Tablets[i].Key] = &s.Tablets[i]
	}
	for i := range s.Servers {
		v := &s.Servers[i]
		p.alive[v.Name] = v
		v.index = make(map[string]struct{}, len(v.Has))
		for _, h := range v.Has {
			p.weigh(v, v.weightOf(h))
			v.index[h.Key] = struct{}{}
		}
	}
	for i := range s.Busy {
		p.noteBusy(&s.Busy[i])
	}
	p.rank()
	return p
}

// noteBusy counts an order that is being executed.
func (p *planner) noteBusy(o *Order) {
	for _, subject := range o.subjects() {
		p.taken[subject] = true
	}
	switch o.Kind {
	case Load:
		p.loads[o.Server]++
		if v := p.alive[o.Server]; v != nil {
			p.weigh(v, 1)
		}
	case Unload:
		p.moves += o.share()
		if to := p.alive[o.To]; to != nil {
			p.weigh(to, 1)
			if from := p.alive[o.Server]; from != nil {
				p.weigh(from, -1)
			}
		}
	case Recover:
		p.recoveries++
	}
}

// weigh adds to a server's weight.
func (p *planner) weigh(v *TabletServer, w float64) {
	p.weight[v.Name] += w
	p.nodeWeight[v.Node] += w
	p.reorder(v.Node)
}

type planner struct {
	state      *TabletState
	alive      map[string]*TabletServer
	rows       map[string]*Tablet // by tablet key
	weight     map[string]float64 // of each server's tablets, including those about to be loaded
	nodeWeight map[string]float64 // of both servers of a node
	loads      map[string]int     // in progress or planned, by server
	moves      float64
	recoveries int
	orders     []Order
	taken      map[string]bool      // subjects of orders
	byWeight   map[string][]Held    // tablets by server, heaviest first
	rankings   [4]ranking           // of the servers that can be given tablets: see ranking
	ranked     map[string][]*ranked // the same, by node; nil while the state is read
}

// weightOf returns a tablet's weight in the balance: 1, plus its bytes and its load. A tablet of 1
// GiB, the usual split size, with 1000 operations a second weighs 3. METADATA tablets weigh 1 each:
// they are small, and their load ends once clients have cached tablet locations.
func (v *TabletServer) weightOf(h Held) float64 {
	if v.Metadata {
		return 1
	}
	return 1 + float64(h.Bytes)/(1<<30) + h.Load/1000
}

// add appends an order, unless one for the same subject is in progress or planned. It reports
// whether it did.
func (p *planner) add(o Order) bool {
	subjects := o.subjects()
	for _, subject := range subjects {
		if p.taken[subject] {
			return false
		}
	}
	for _, subject := range subjects {
		p.taken[subject] = true
	}
	p.orders = append(p.orders, o)
	return true
}

// heaviestFirst returns a server's tablets by descending weight.
func (p *planner) heaviestFirst(v *TabletServer) []Held {
	all, ok := p.byWeight[v.Name]
	if !ok {
		all = slices.SortedStableFunc(slices.Values(v.Has), func(a, b Held) int { return cmp.Compare(v.weightOf(b), v.weightOf(a)) })
		p.byWeight[v.Name] = all
	}
	return all
}

// assign plans loads for unassigned tablets, and returns the first level that is not fully served,
// or 3. A user tablet that cannot be loaded is retried, but does not block draining a node or
// removing unneeded logs.
func (p *planner) assign() int {
	byLevel := [3][]*Tablet{}
	for i := range p.state.Tablets {
		t := &p.state.Tablets[i]
		byLevel[t.Level()] = append(byLevel[t.Level()], t)
	}
	for level, tablets := range byLevel {
		served := true
		for _, t := range tablets {
			lasting := level == 2 && (p.state.Failed[t.Key].Lasting || p.state.Suspended[t.Key] != nil || t.Damaged != nil)
			served = (p.assignOne(t) || lasting) && served
		}
		if !served {
			return level
		}
	}
	return len(byLevel)
}

// assignOne plans the order that a tablet needs, and reports whether it needs none.
func (p *planner) assignOne(t *Tablet) bool {
	if t.Damaged != nil {
		return false
	}
	if v := p.alive[t.Server]; v != nil {
		if v.Silent || v.has(t.Key) {
			return true
		}
		// The server acquired the tablet and did not serve it, or lost it since.
		if f := p.state.Failed[t.Key]; f.Lasting && f.Server == v.Name && !planted.On(planted.LogIDKept) {
			if to := p.lightest(t.OfMetadata(), v.Name); to != "" && to != v.Name {
				p.add(Order{Kind: Unload, Tablet: *t, Server: v.Name, To: to, Why: "its server fails to load it"})
				return false
			}
		}
		p.load(t, v.Name, "its server does not have it")
		return false
	}
	if t.Server != "" && !p.state.Recovered[t.Server] && !planted.On(planted.LoadBeforeSorted) {
		p.recover(t.Server)
		return false
	}
	if p.state.Suspended[t.Key] != nil {
		return false
	}
	why := "it is new or was unloaded"
	if t.Server != "" {
		why = "its server " + t.Server + " is gone"
	}
	to := p.destination(t)
	if to == "" {
		to = p.lightest(t.OfMetadata(), p.state.Failed[t.Key].Server)
	}
	p.load(t, to, why)
	return false
}

// recoverUnread plans the sorting of dead servers' logs before METADATA can be read completely.
// Sorting takes longest, and a dead server rarely has no tablet that needs its logs. Logs that
// METADATA tablets need were planned before.
func (p *planner) recoverUnread() {
	for _, name := range p.state.Logs {
		if p.alive[name] == nil && !p.state.Recovered[name] {
			p.recover(name)
		}
	}
}

func (p *planner) recover(server string) {
	if p.recoveries < recoveriesMax && p.add(Order{Kind: Recover, Server: server, Why: "it is gone and tablets need its logs"}) {
		p.recoveries++
	}
}

func (p *planner) load(t *Tablet, server, why string) {
	if server == "" || p.loads[server] >= p.alive[server].loadsMax() {
		return
	}
	if p.add(Order{Kind: Load, Tablet: *t, Server: server, Why: why}) {
		p.loads[server]++
		p.weigh(p.alive[server], 1)
	}
}

// metadataTogether is the weight of METADATA tablets up to which they go to one server: the root
// tablet and the next one. Elsewhere each would need a commit log of its own.
const metadataTogether = 2

// failingWeight is added to a failing server's weight: more than any server has.
const failingWeight = 1e12

// loadsMax returns the bound on loads planned for the server.
func (v *TabletServer) loadsMax() int {
	if v.Failing {
		return loadsAtOnce
	}
	return loadsMax
}

func (p *planner) anyStays(metadata bool) bool {
	return slices.ContainsFunc(p.state.Servers, func(v TabletServer) bool { return v.Metadata == metadata && !v.Draining && !v.Silent })
}

// balance plans moves from draining servers, and from the heaviest server to the lightest if that
// evens them out: of METADATA servers, or of the others.
func (p *planner) balance(metadata bool) {
	for p.moves < movesMax {
		from, held, why := p.surplus(metadata)
		if from == nil {
			return
		}
		t, to, w := p.row(held.Key), p.lightest(metadata, ""), from.weightOf(held)
		if t == nil || t.Server != from.Name {
			return
		}
		o := Order{Kind: Unload, Tablet: *t, Server: from.Name, To: to, Light: w <= 1+lightWeight && t.Level() == 2, Why: why}
		if !p.add(o) {
			return
		}
		p.moves += o.share()
		p.weigh(from, -w)
		p.weigh(p.alive[to], w)
	}
}

// surplus returns a tablet that should be on another server, and its present server.
func (p *planner) surplus(metadata bool) (from *TabletServer, held Held, why string) {
	light := p.lightest(metadata, "")
	if light == "" || p.alive[light].Draining || p.alive[light].Failing {
		return nil, held, ""
	}
	moving := func(h Held) bool { return p.taken[subjectTablet+h.Key] }
	for i := range p.state.Servers {
		v := &p.state.Servers[i]
		for _, h := range v.Has {
			if v.Metadata == metadata && v.Draining && !moving(h) {
				return v, h, "its node is draining"
			}
		}
	}
	heavy := p.heaviest(metadata)
	if heavy == nil {
		return nil, held, ""
	}
	gap := p.weight[heavy.Name] - p.weight[light]
	if gap <= 2 {
		return nil, held, ""
	}
	for _, h := range p.heaviestFirst(heavy) {
		// A move must reduce the gap clearly, or tablets would move back and forth.
		if w := heavy.weightOf(h); w < gap*3/4 && !moving(h) && !p.pending(h.Key) && h.Key != RootKey {
			return heavy, h, "its server has more load than others"
		}
	}
	return nil, held, ""
}

func (p *planner) heaviest(metadata bool) (heavy *TabletServer) {
	for i := range p.state.Servers {
		v := &p.state.Servers[i]
		if v.Metadata == metadata && !v.Silent && (heavy == nil || p.weight[v.Name] > p.weight[heavy.Name]) {
			heavy = v
		}
	}
	return heavy
}

// removeLogs plans the removal of dead servers that no tablet needs. The caller has checked that
// METADATA was read completely.
//
// Rows are not read at one moment. A row that a split created behind the reader may still need a
// log that its parent row, read later, no longer needs. Such a row is neither split nor merged
// before the tablet is written out, so a second read finds it.
func (p *planner) removeLogs() {
	for _, name := range Unneeded(p.state) {
		if slices.Contains(p.state.Unneeded, name) {
			p.add(Order{Kind: RemoveLogs, Server: name, Why: "no tablet needs its logs"})
		}
	}
}

// Unneeded returns the dead servers that no tablet needs. It returns nil if a damaged row may need
// any.
func Unneeded(s *TabletState) []string {
	needed := map[string]bool{}
	for _, v := range s.Servers {
		needed[v.Name] = true
	}
	for _, t := range s.Tablets {
		if t.Damaged != nil {
			return nil
		}
		needed[t.Server] = true
		for _, r := range t.Recoveries {
			needed[r] = !planted.On(planted.LogsRemovedEarly)
		}
	}
	dead := slices.Concat(s.Logs, slices.Sorted(maps.Keys(s.Recovered)))
	return slices.DeleteFunc(dead, func(name string) bool { return needed[name] })
}
