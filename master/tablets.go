package master

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client/metadata"
)

// TabletServer is one instance of a tablet server that is alive: it holds the lock of its file. Each node
// has two, one of them for METADATA's tablets alone.
type TabletServer struct {
	Name     string // of the instance
	Node     string
	Addr     string
	Metadata bool // it has METADATA's tablets, and no others
	Leaving  bool // its node drains: it gets nothing, and what it has moves
	// Failing means that it loads no tablets: see loadRecord.
	Failing bool
	// Silent means that it did not say what it has. It may have anything.
	Silent bool
	Has    []Held
	// index has the keys of Has while a plan is made.
	index map[string]struct{}
}

// Held is a tablet that a server says it has.
type Held struct {
	Key   string  // of the tablet's row in METADATA
	Bytes int64   // of its files
	Load  float64 // operations a second
}

// Tablet is what METADATA says of a tablet.
type Tablet struct {
	Key        string // of the row; RootKey for the root tablet
	Table      string // the name of its table, for people; empty if that is not known
	Generation uint64
	Server     string // the instance that has it; none if it is to be given to one
	Recoveries []string
	// Damaged is why the row cannot be read, nil if it can. Nothing but the key is known of a damaged row.
	Damaged error
}

// RootKey stands for the root tablet, which has no row.
const RootKey = ""

// String says for people which tablet it is.
func (t *Tablet) String() string {
	if t.Key == RootKey {
		return "root tablet"
	}
	return metadata.Describe([]byte(t.Key), t.Table)
}

// Level is the tablet's in the hierarchy: 0 is the root tablet, 1 are METADATA's others, 2 all else.
func (t *Tablet) Level() int {
	if t.Key == RootKey {
		return 0
	}
	if strings.HasPrefix(t.Key, metadataPrefix) {
		return 1
	}
	return 2
}

// metadataPrefix begins the keys of METADATA's tablets, and no others.
var metadataPrefix = func() string {
	from, _ := metadata.TableRange(metadata.TableID)
	return string(from)
}()

// OfMetadata says whether it is one of METADATA's.
func (t *Tablet) OfMetadata() bool { return t.Level() < 2 }

// TabletState is what the master knows of tablets and servers.
type TabletState struct {
	Servers []TabletServer
	// Tablets are those that could be read of: all if Whole.
	Tablets []Tablet
	Whole   bool
	// Recovered are the dead servers whose logs are sorted; Logs are servers that have logs.
	Recovered map[string]bool
	Logs      []string
	// Unneeded are the dead servers that no tablet needed when all were read the last time before this.
	Unneeded []string
	// Busy are the orders that are being carried out.
	Busy []Order
	// Pins are the nodes where somebody wants tablets to be, by their keys, and Unions the neighbours
	// that are to be merged.
	Pins   map[string]string
	Unions []Union
	// Failed are the loads that failed the last time they were tried, by their keys.
	Failed map[string]FailedLoad
	// Suspended are the tablets that are not to be loaded now, by their keys, with why: see suspects.
	Suspended map[string]error
	// Cool is for how long tablets have been small and had little to do, by their keys.
	Cool map[string]time.Duration
}

// FailedLoad is a load that failed.
type FailedLoad struct {
	Server string // that could not
	// Lasting means that many have failed in a row: nothing else waits for the tablet.
	Lasting bool
}

// OrderKind says what is to be done.
type OrderKind uint8

// The orders.
const (
	// Load has a server load a tablet.
	Load OrderKind = iota + 1
	// Unload has a server let go of a tablet.
	Unload
	// Recover ends and sorts the logs of a dead server.
	Recover
	// Forget removes what is left of a dead server: its logs, sorted and not.
	Forget
	// Merge has a server make one tablet of two neighbours that it has.
	Merge
)

func (k OrderKind) String() string {
	names := [...]string{"?", "load", "unload", "recover", "forget", "merge"}
	return names[min(int(k), len(names)-1)]
}

// Order is one thing that the master has done.
type Order struct {
	Kind   OrderKind
	Tablet Tablet // of Load and Unload; the lower one of Merge
	Upper  Tablet // of Merge
	Server string // who loads, unloads or merges, or the dead
	// To is who then loads a tablet that is unloaded, if it is known.
	To string
	// Light tells of an Unload that the tablet has next to nothing and nothing to do.
	Light bool
	Why   string
}

// ofTablets says whether an order is about tablets and not about a dead server.
func (o *Order) ofTablets() bool { return o.Kind == Load || o.Kind == Unload || o.Kind == Merge }

// about says whether an order is about a tablet.
func (o *Order) about(key string) bool {
	return o.ofTablets() && (o.Tablet.Key == key || o.Kind == Merge && o.Upper.Key == key)
}

// subject names what an order is about.
func (o *Order) subject() string {
	if o.ofTablets() {
		return o.Kind.String() + " " + o.Tablet.Key
	}
	return o.Kind.String() + " " + o.Server
}

// same says whether two orders are about the same thing.
func (o *Order) same(p *Order) bool {
	if o.ofTablets() {
		return p.about(o.Tablet.Key) || o.Kind == Merge && p.about(o.Upper.Key)
	}
	return !p.ofTablets() && o.Server == p.Server
}

// share is how much of a move an Unload is.
func (o *Order) share() float64 {
	if o.Light {
		return 1.0 / lightMoves
	}
	return 1
}

// subjects are what an order is about: there is one order for each.
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
	// loadsMax bounds the loads that are planned for one server: they begin one after another, so that
	// not each needs another look at all tablets, and those that wait can be planned anew if the server dies.
	loadsMax = 256
	// movesMax bounds the moves under way: each has its tablet stand still for a moment. Of tablets that
	// have next to nothing as many are one move as lightMoves, or thousands would take hours.
	movesMax, lightMoves = 2, 64
	// lightWeight is the most that such a tablet weighs beyond one.
	lightWeight = 0.01
	// wantedMovesMax bounds them together with those that somebody wants.
	wantedMovesMax = 8
	// recoveriesMax bounds the dead servers whose logs are sorted at a time.
	recoveriesMax = 4
)

// PlanTablets says what is to be done now, the most urgent first (paper §5.2). It depends on nothing
// but its argument. An order that Busy has is not given again.
//
// Tablets come level by level: the root tablet, then METADATA's, then users', since each level is
// found and changed through the one above.
func PlanTablets(s *TabletState) []Order {
	p := planner{
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
	for _, o := range s.Busy {
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
	level := p.assign()
	if level < 2 {
		p.recoverUnread()
	} else if s.Whole { // METADATA is served
		p.unite()
		p.move()
	}
	if s.Whole && level > 2 {
		p.balance(true)
		p.balance(false)
		p.forget()
	}
	return p.orders
}

// weigh adds to what a server has.
func (p *planner) weigh(v *TabletServer, w float64) {
	p.weight[v.Name] += w
	p.nodeWeight[v.Node] += w
}

type planner struct {
	state      *TabletState
	alive      map[string]*TabletServer
	rows       map[string]*Tablet // by key
	weight     map[string]float64 // of what each server has and is about to get
	nodeWeight map[string]float64 // of what both of a node's have
	loads      map[string]int     // under way
	moves      float64
	recoveries int
	orders     []Order
	taken      map[string]bool   // subjects of orders
	byWeight   map[string][]Held // what servers have, the heaviest first
}

// weightOf is what a tablet counts in the balance: itself, its bytes and its load. A tablet of the
// usual size that splits at 1 GiB, and of 1000 operations a second, counts three. METADATA's count one each:
// they are small, and what is asked of them is over when clients know where tablets are.
func (v *TabletServer) weightOf(h Held) float64 {
	if v.Metadata {
		return 1
	}
	return 1 + float64(h.Bytes)/(1<<30) + h.Load/1000
}

// add gives an order, unless it is being carried out or was given.
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

// heaviestFirst returns what a server has.
func (p *planner) heaviestFirst(v *TabletServer) []Held {
	all, ok := p.byWeight[v.Name]
	if !ok {
		all = slices.SortedStableFunc(slices.Values(v.Has), func(a, b Held) int { return cmp.Compare(v.weightOf(b), v.weightOf(a)) })
		p.byWeight[v.Name] = all
	}
	return all
}

// assign finds servers for tablets that have none, and returns the first level that is not wholly
// served, or 3. A user's tablet that nobody can load is tried again, but keeps nobody from draining a node, nor from
// forgetting logs that no tablet needs.
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

// assignOne gives the order that a tablet needs, and says whether it needs none.
func (p *planner) assignOne(t *Tablet) bool {
	if t.Damaged != nil {
		return false
	}
	if v := p.alive[t.Server]; v != nil {
		if v.Silent || v.has(t.Key) {
			return true
		}
		// It took the tablet and did not come to serve it, or lost it since.
		if f := p.state.Failed[t.Key]; f.Lasting && f.Server == v.Name {
			if to := p.lightest(t.OfMetadata(), v.Name); to != "" && to != v.Name {
				p.add(Order{Kind: Unload, Tablet: *t, Server: v.Name, To: to, Why: "its server cannot load it"})
				return false
			}
		}
		p.load(t, v.Name, "its server does not have it")
		return false
	}
	if t.Server != "" && !p.state.Recovered[t.Server] {
		p.recover(t.Server)
		return false
	}
	if p.state.Suspended[t.Key] != nil {
		return false
	}
	why := "it is new, or was unloaded"
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

// recoverUnread has the logs of dead servers sorted while METADATA, which says who needs them, cannot be
// read whole: that takes longest, and it is rare that nobody does. What METADATA's tablets wait for was
// asked for before.
func (p *planner) recoverUnread() {
	for _, name := range p.state.Logs {
		if p.alive[name] == nil && !p.state.Recovered[name] {
			p.recover(name)
		}
	}
}

func (p *planner) recover(server string) {
	if p.recoveries < recoveriesMax && p.add(Order{Kind: Recover, Server: server, Why: "it is gone and tablets are needed"}) {
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

// metadataTogether is the weight of METADATA's tablets up to which one server gets them: the root tablet
// and the next, each of which would else have a commit log begun for it.
const metadataTogether = 2

// failingWeight is what a failing server weighs more: more than any server has.
const failingWeight = 1e12

// loadsMax bounds the loads that are planned for the server.
func (v *TabletServer) loadsMax() int {
	if v.Failing {
		return loadsAtOnce
	}
	return loadsMax
}

// lightest returns the server that has the least and can take more, or none, of those for METADATA's
// tablets or of the others. Of two that have as much it is the one whose node has less; but METADATA's first
// tablets go to the first node that there is, which expects them. The one named last is taken only if there is no other:
// it could not load the tablet, and has the least because it could not.
func (p *planner) lightest(metadata bool, last string) string {
	best, least, leastNode := "", math.Inf(1), 0.0
	for _, leaving := range []bool{false, true} {
		for _, v := range p.state.Servers {
			if v.Metadata != metadata || v.Leaving != leaving || v.Silent || p.loads[v.Name] >= v.loadsMax() {
				continue
			}
			w, node := p.weight[v.Name], p.nodeWeight[v.Node]
			if metadata {
				node = 0
				if w < metadataTogether {
					w = -w
				}
			}
			switch {
			case v.Name == last:
				w = math.MaxFloat64
			case v.Failing:
				w += failingWeight
			}
			if w < least || w == least && (node < leastNode || node == leastNode && v.Name < best) {
				best, least, leastNode = v.Name, w, node
			}
		}
		if best != "" || p.anyStays(metadata) {
			break // better to wait than to give it to one that leaves
		}
	}
	return best
}

func (p *planner) anyStays(metadata bool) bool {
	return slices.ContainsFunc(p.state.Servers, func(v TabletServer) bool { return v.Metadata == metadata && !v.Leaving && !v.Silent })
}

// balance moves a tablet from a server that leaves, or from the one that has most to the one that has least,
// if that makes them more alike: of METADATA's, or of the others.
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

// surplus returns a tablet that should be elsewhere, and who has it.
func (p *planner) surplus(metadata bool) (from *TabletServer, held Held, why string) {
	light := p.lightest(metadata, "")
	if light == "" || p.alive[light].Leaving || p.alive[light].Failing {
		return nil, held, ""
	}
	moving := func(h Held) bool { return p.taken[subjectTablet+h.Key] }
	for i := range p.state.Servers {
		v := &p.state.Servers[i]
		for _, h := range v.Has {
			if v.Metadata == metadata && v.Leaving && !moving(h) {
				return v, h, "its node drains"
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
		// A move must leave them clearly more alike, or tablets would go to and fro.
		if w := heavy.weightOf(h); w < gap*3/4 && !moving(h) && !p.wanted(h.Key) && h.Key != RootKey {
			return heavy, h, "its server has more than others"
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

// forget finds dead servers that nobody needs any more. The caller knows that METADATA was read whole.
//
// Rows are not read at one moment. A row that a split made after its place was passed may need what the row it
// came from, read later, needs no more. But such a row is neither split nor merged before it is written out, so
// who reads twice finds it.
func (p *planner) forget() {
	for _, name := range Unneeded(p.state) {
		if slices.Contains(p.state.Unneeded, name) {
			p.add(Order{Kind: Forget, Server: name, Why: "no tablet needs its logs"})
		}
	}
}

// Unneeded returns the dead servers that no tablet needs; none if a tablet may need any.
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
			needed[r] = true
		}
	}
	dead := slices.Concat(s.Logs, slices.Sorted(maps.Keys(s.Recovered)))
	return slices.DeleteFunc(dead, func(name string) bool { return needed[name] })
}
