package formation

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/testseed"
)

// soak multiplies runs by STELE_SOAK.
func soak(tb testing.TB, runs int) int {
	if s := os.Getenv("STELE_SOAK"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			tb.Fatalf("STELE_SOAK: %v", err)
		}
		return runs * max(n, 1)
	}
	return runs
}

// world is a cluster of fresh nodes with the same flags. The network loses, repeats, reorders and
// delays messages; nodes die at any step and restart.
type world struct {
	rng     *rand.Rand
	nodes   []*simNode
	expect  int
	seeds   []string
	mail    []mail
	founded []string // clusters
	trace   []string
	err     error

	paused               map[string]bool // addresses of nodes that get neither ticks nor messages
	cruel                bool            // nodes die
	deaths               int             // one step in n; zero: none
	lost, twice, mailMax int             // percent of messages; messages in transit
}

type simNode struct {
	*machine // nil while it is down
	id, addr string
	seeds    []string // addresses to join
	disk     State
	cluster  string // on disk
}

// mail is a request or an answer in transit.
type mail struct {
	from, to string // addresses
	body     any
}

type (
	helloAnswer struct{ hello }
	joinAsked   struct{ cluster string }
)

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), expect: 0}
	pick := func(of ...int) int { return of[w.rng.IntN(len(of))] }
	w.deaths, w.lost, w.twice, w.mailMax = pick(0, 60, 60, 300), pick(0, 10, 20, 40), pick(0, 10, 30), pick(8, 30, 200)
	total := pick(1, 2, 3, 3, 3, 4, 4, 5, 6, 7)
	w.expect = 1 + w.rng.IntN(total)
	for i := range total {
		w.nodes = append(w.nodes, &simNode{addr: fmt.Sprintf("h%d:1", i)})
	}
	for i, k := range w.rng.Perm(total) {
		w.nodes[i].id = fmt.Sprintf("n%d", k)
	}
	listed := 1 + w.rng.IntN(total)
	for _, n := range w.nodes[:listed] {
		w.seeds = append(w.seeds, n.addr)
	}
	if listed > 2 && w.rng.IntN(4) == 0 {
		w.seeds = append(w.seeds, "nowhere:1")
	}
	if 2*w.expect > total && w.rng.IntN(4) == 0 { // nothing else can form a second cluster
		w.seeds = w.seeds[:1]
	}
	for _, n := range w.nodes { // the same nodes, some of them under several addresses
		n.seeds = slices.Clone(w.seeds)
		for w.rng.IntN(3) == 0 {
			if addr := n.seeds[w.rng.IntN(len(n.seeds))]; w.at(addr) != nil {
				n.seeds = append(n.seeds, aliasPrefix+addr)
			}
		}
	}
	return w
}

// aliasPrefix turns a node's first address into another one.
const aliasPrefix = "alias-"

func (w *world) at(addr string) *simNode {
	addr = strings.ReplaceAll(addr, aliasPrefix, "")
	for _, n := range w.nodes {
		if n.addr == addr {
			return n
		}
	}
	return nil
}

func (w *world) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) start(n *simNode) {
	newID := func() string { return fmt.Sprintf("c%d", w.rng.Uint64()) }
	n.machine = newMachine(Peer{ID: n.id, RPC: n.addr}, w.expect, nil, n.disk, newID)
	n.machine.cluster = n.cluster
	n.machine.setSeeds(n.seeds)
	w.logf("%s starts", n.id)
}

func (w *world) crash(n *simNode) {
	w.logf("%s dies", n.id)
	n.machine = nil
}

// crashes reports whether the node dies at this step.
func (w *world) crashes(n *simNode) bool {
	if w.cruel && w.deaths > 0 && w.rng.IntN(w.deaths) == 0 {
		w.crash(n)
		return true
	}
	return false
}

// take executes actions, and reports whether the node survived.
func (w *world) take(n *simNode, acts []any) bool {
	for _, a := range acts {
		if w.crashes(n) {
			return false
		}
		switch a := a.(type) {
		case actSave:
			n.disk = a.state
		case actFound:
			w.logf("%s founds %s", n.id, a.cluster)
			w.founded = append(w.founded, a.cluster)
			n.cluster = a.cluster
			if len(w.founded) > 1 {
				w.err = fmt.Errorf("clusters founded: %q", w.founded)
			}
		case actJoin:
			w.logf("%s joins %s", n.id, a.cluster)
			n.cluster = a.cluster
		case actHello:
			w.send(n.addr, a.to, n.machine.hello())
		case actPromise:
			w.send(n.addr, a.to, a.request)
		case actAskJoin:
			w.send(n.addr, a.to, joinAsked{a.cluster})
		}
	}
	return !w.crashes(n)
}

func (w *world) send(from, to string, body any) { w.mail = append(w.mail, mail{from, to, body}) }

// deliver delivers one message.
func (w *world) deliver(m mail) {
	n := w.at(m.to)
	if n == nil || n.machine == nil {
		return
	}
	w.logf("%s → %s: %T%+v", m.from, n.id, m.body, m.body)
	switch b := m.body.(type) {
	case hello:
		acts := n.onHello(b)
		if w.take(n, acts) {
			w.send(m.to, m.from, helloAnswer{n.machine.hello()})
		}
	case helloAnswer:
		w.take(n, n.helloAnswered(m.from, b.hello))
	case promiseRequest:
		a, acts := n.onPromise(b)
		if w.take(n, acts) {
			w.send(m.to, m.from, a)
		}
	case promiseAnswer:
		w.take(n, n.promiseAnswered(b))
	case joinAsked:
		if n.machine.cluster == b.cluster {
			w.send(m.to, m.from, joinAnswer{cluster: b.cluster})
		}
	case joinAnswer:
		w.take(n, n.joinAnswered(b))
	}
}

// step executes one random event.
func (w *world) step() {
	if w.rng.IntN(12) == 0 {
		w.paused = map[string]bool{}
		for _, n := range w.nodes {
			w.paused[n.addr] = w.rng.IntN(2) == 0
		}
	}
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if w.paused[n.addr] {
		return
	}
	switch k := w.rng.IntN(100); {
	case k < 3:
		if n.machine != nil && w.deaths > 0 {
			w.crash(n)
		}
	case k < 10:
		if n.machine == nil {
			w.start(n)
		}
	case k < 30 || len(w.mail) == 0:
		if n.machine != nil {
			w.take(n, n.tick())
		}
	default:
		i := w.rng.IntN(len(w.mail))
		m := w.mail[i]
		if w.paused[m.to] {
			break
		}
		if w.rng.IntN(100) >= w.twice { // otherwise it is delivered again
			w.drop(i)
		}
		if w.rng.IntN(100) >= w.lost {
			w.deliver(m)
		}
	}
	for tries := 0; len(w.mail) > w.mailMax; tries++ {
		i := w.rng.IntN(len(w.mail))
		switch w.mail[i].body.(type) {
		case promiseRequest, promiseAnswer: // rarer, and with more effect
			if tries < 100 && w.rng.IntN(10) > 0 {
				continue
			}
		}
		w.drop(i)
	}
}

func (w *world) drop(i int) {
	w.mail[i] = w.mail[len(w.mail)-1]
	w.mail = w.mail[:len(w.mail)-1]
}

// settle lets all nodes live and communicate for n rounds, or until all are members.
func (w *world) settle(rounds int) {
	w.cruel = false
	for range rounds {
		done := true
		for _, n := range w.nodes {
			if n.machine == nil {
				w.start(n)
			}
			done = done && n.cluster != ""
			w.take(n, n.tick())
		}
		if done {
			return
		}
		for len(w.mail) > 0 {
			m := w.mail[0]
			w.mail = w.mail[1:]
			w.deliver(m)
		}
	}
}

// TestExplore: at most one cluster is ever founded (F1). If all nodes live and communicate, one is,
// and all join it (F2).
func TestExplore(t *testing.T) {
	seed := testseed.New(t)
	runs := soak(t, 6000)
	if os.Getenv("STELE_SEED") != "" {
		runs = 1
	}
	late := 0
	for i := range uint64(runs) {
		w := newWorld(seed + i)
		w.cruel = true
		for range w.rng.IntN(600) {
			if w.step(); w.err != nil {
				break
			}
		}
		if w.err == nil {
			if len(w.founded) > 0 {
				late++
			}
			w.settle(60)
		}
		for _, n := range w.nodes {
			if w.err == nil && (len(w.founded) != 1 || n.cluster != w.founded[0]) {
				w.err = fmt.Errorf("node %s is in cluster %q, founded: %q", n.id, n.cluster, w.founded)
			}
		}
		if w.err != nil {
			for _, line := range w.trace[max(0, len(w.trace)-150):] {
				t.Log(line)
			}
			t.Fatalf("seed %d: %d nodes, %d expected, join %q: %v", seed+i, len(w.nodes), w.expect, w.seeds, w.err)
		}
	}
	t.Logf("%d schedules, %d founded in the storm", runs, late)
}

// TestOldRequestsAreIgnored: a request of an attempt before the promised one changes nothing.
func TestOldRequestsAreIgnored(t *testing.T) {
	founder := Peer{ID: "n1", RPC: "h1:1"}
	m := newMachine(Peer{ID: "n2", RPC: "h2:1"}, 2, nil, State{}, nil)
	request := func(attempt uint64) (promiseAnswer, []any) {
		return m.onPromise(promiseRequest{founder: founder, expect: 2, attempt: attempt})
	}
	if a, acts := request(2); !a.granted || len(acts) != 1 {
		t.Fatalf("got %+v, %v", a, acts)
	}
	if a, acts := request(2); !a.granted || len(acts) != 0 {
		t.Errorf("repeated: got %+v, %v", a, acts)
	}
	if a, acts := request(1); a.granted || len(acts) != 0 || m.state.Promise.Attempt != 2 {
		t.Errorf("request of an older attempt: got %+v, %v, %+v", a, acts, m.state.Promise)
	}
	m.onHello(hello{Peer: founder, expect: 2, attempt: 1})
	m.onHello(hello{Peer: founder, expect: 2, attempt: 2, active: true})
	if m.state.Promise == nil {
		t.Fatal("the promise is void, and its attempt was not given up")
	}
	if acts := m.onHello(hello{Peer: founder, expect: 2, attempt: 2}); m.state.Promise != nil || len(acts) != 1 {
		t.Errorf("the attempt was given up: got %+v, %v", m.state.Promise, acts)
	}
}
