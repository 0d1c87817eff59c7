package raftmeta

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/steledb/stele/raftmeta/api"
)

// plainNode and plainMachine are a simple model of the state machine: maps, and loops over all of
// them.
type plainNode struct {
	dir        bool
	data       string
	inst, gen  uint64
	ephemeral  api.SessionID
	cached     uint64
	acl        string
	aclGen     uint64
	lockGen    uint64
	mode       api.Mode
	holders    map[api.SessionID]plainHold
	delay      time.Duration
	delayMode  api.Mode
	delayIndex uint64
}

type plainHold struct {
	delay time.Duration
	since uint64
}

type plainMachine struct {
	nodes    map[string]*plainNode
	sessions map[api.SessionID]string
	events   []string
}

func newPlainMachine() *plainMachine {
	return &plainMachine{nodes: map[string]*plainNode{"/": {dir: true}}, sessions: map[api.SessionID]string{}}
}

func (m *plainMachine) tell(format string, args ...any) {
	m.events = append(m.events, fmt.Sprintf(format, args...))
}

func (m *plainMachine) add(p string, index uint64, n *plainNode) {
	parent := path.Dir(p)
	if m.nodes[parent] == nil {
		m.add(parent, index, &plainNode{dir: true})
	}
	n.inst, n.gen = index, index
	m.nodes[p] = n
	m.nodes[parent].gen = index
	if !n.dir {
		m.tell("contents %s", p)
	}
	m.tell("added %s in %s", path.Base(p), parent)
}

func (m *plainMachine) drop(p string, index uint64) {
	if !m.nodes[p].dir {
		m.tell("contents %s", p)
	}
	delete(m.nodes, p)
	m.nodes[path.Dir(p)].gen = index
	m.tell("removed %s in %s", path.Base(p), path.Dir(p))
}

func (m *plainMachine) valid(q api.Sequencer) bool {
	n := m.nodes[q.Path]
	return n != nil && n.inst == q.Instance && len(n.holders) > 0 && n.mode == q.Mode && n.lockGen == q.LockGeneration
}

// guarded returns why a change with these options is rejected, or codeDone.
func (m *plainMachine) guarded(c *command) code {
	if _, ok := m.sessions[c.session]; c.session != 0 && !ok || c.ephemeral && c.session == 0 {
		return codeNoSession
	}
	if c.guard.Path != "" && !m.valid(c.guard) {
		return codeStale
	}
	return codeDone
}

func (m *plainMachine) belowFile(p string) bool {
	for d := path.Dir(p); d != "/"; d = path.Dir(d) {
		if n := m.nodes[d]; n != nil && !n.dir {
			return true
		}
	}
	return false
}

func (m *plainMachine) set(index uint64, c *command) code {
	if refused := m.guarded(c); refused != codeDone {
		return refused
	}
	n := m.nodes[c.path]
	switch {
	case n == nil && m.belowFile(c.path):
		return codeNotDirectory
	case n == nil && c.generation != 0 && c.generation != AnyGeneration:
		return codeGeneration
	case n == nil:
		n = &plainNode{data: string(c.data)}
		if c.ephemeral {
			n.ephemeral = c.session
		}
		m.add(c.path, index, n)
		return codeDone
	case n.dir:
		return codeIsDirectory
	case c.generation != AnyGeneration && c.generation != n.gen:
		return codeGeneration
	case c.ephemeral && n.ephemeral != c.session, !c.ephemeral && n.ephemeral != 0:
		return codeEphemeral
	}
	n.data, n.gen, n.cached = string(c.data), index, 0
	m.tell("contents %s", c.path)
	return codeDone
}

func (m *plainMachine) remove(index uint64, c *command) code {
	if refused := m.guarded(c); refused != codeDone {
		return refused
	}
	n := m.nodes[c.path]
	_, own := map[api.SessionID]plainHold(nil)[0], false
	if n != nil {
		_, own = n.holders[c.session]
	}
	switch {
	case n == nil && (c.generation == 0 || c.generation == AnyGeneration):
		return codeNotFound
	case n == nil || c.generation != AnyGeneration && c.generation != n.gen:
		return codeGeneration
	case m.hasChildren(c.path):
		return codeNotEmpty
	case n.delay > 0 || len(n.holders) > 1 || len(n.holders) == 1 && !own:
		return codeLocked
	}
	if own {
		m.unlock(index, c.path, c.session, false)
	}
	m.drop(c.path, index)
	return codeDone
}

func (m *plainMachine) hasChildren(p string) bool {
	for q := range m.nodes {
		if q != "/" && path.Dir(q) == p {
			return true
		}
	}
	return false
}

func (m *plainMachine) acquire(index uint64, c *command) code {
	if _, ok := m.sessions[c.session]; !ok {
		return codeNoSession
	}
	n := m.nodes[c.path]
	if n != nil && n.ephemeral != 0 {
		return codeEphemeral
	}
	if n == nil {
		if m.belowFile(c.path) {
			return codeNotDirectory
		}
		n = &plainNode{}
		m.add(c.path, index, n)
	}
	if h, ok := n.holders[c.session]; ok {
		if n.mode != c.mode {
			return codeLocked
		}
		n.holders[c.session] = plainHold{c.duration, h.since}
		return codeDone
	}
	if len(n.holders) > 0 && (n.mode == api.Exclusive || c.mode == api.Exclusive) ||
		n.delay > 0 && (n.delayMode == api.Exclusive || c.mode == api.Exclusive) {
		return codeLocked
	}
	if n.holders == nil {
		n.holders = map[api.SessionID]plainHold{}
	}
	if len(n.holders) == 0 {
		n.lockGen, n.mode = index, c.mode
		m.tell("acquired %s", c.path)
	}
	n.holders[c.session] = plainHold{c.duration, index}
	return codeDone
}

func (m *plainMachine) unlock(index uint64, p string, s api.SessionID, expired bool) {
	n := m.nodes[p]
	delay := n.holders[s].delay
	delete(n.holders, s)
	if expired && delay > 0 {
		if n.delayMode != api.Exclusive {
			n.delayMode = n.mode
		}
		n.delay, n.delayIndex = max(n.delay, delay), index
		m.tell("delayed %s %v", p, n.delay)
	}
	if len(n.holders) == 0 {
		n.mode = 0
		if n.delay == 0 {
			m.tell("freed %s", p)
		}
	}
}

func (m *plainMachine) release(index uint64, c *command) code {
	if _, ok := m.sessions[c.session]; !ok {
		return codeNoSession
	}
	n := m.nodes[c.path]
	if n == nil || n.holders[c.session].since == 0 || c.hold != 0 && c.hold != n.holders[c.session].since {
		return codeNotHeld
	}
	m.unlock(index, c.path, c.session, false)
	return codeDone
}

func (m *plainMachine) end(index uint64, s api.SessionID, expired bool) {
	if _, ok := m.sessions[s]; !ok {
		return
	}
	for _, p := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[p]
		if n.ephemeral == s {
			m.drop(p, index)
		} else if _, ok := n.holders[s]; ok {
			m.unlock(index, p, s, expired)
		}
	}
	delete(m.sessions, s)
	m.tell("ended %d", s)
}

func (m *plainMachine) apply(index, term uint64, c *command) code {
	if c.term != 0 && c.term != term {
		return codeTerm
	}
	n := m.nodes[c.path]
	switch c.op {
	case opSet:
		return m.set(index, c)
	case opDelete:
		return m.remove(index, c)
	case opOpenSession:
		m.sessions[api.SessionID(index)] = c.name
		m.tell("opened %d", index)
	case opCloseSession:
		m.end(index, c.session, false)
	case opExpireSession:
		for _, s := range c.sessions {
			m.end(index, s, true)
		}
	case opAcquire:
		return m.acquire(index, c)
	case opRelease:
		return m.release(index, c)
	case opEndLockDelay:
		for _, d := range c.delays {
			if n := m.nodes[d.path]; n != nil && n.delay > 0 && n.delayIndex == d.index {
				n.delay, n.delayMode, n.delayIndex = 0, 0, 0
				if len(n.holders) == 0 {
					m.tell("freed %s", d.path)
				}
			}
		}
	case opMarkCached:
		if n == nil || n.dir {
			return codeNotFound
		}
		if n.gen != c.generation {
			return codeGeneration
		}
		if n.cached == 0 {
			n.cached = index
		}
	case opSetACL:
		if refused := m.guarded(c); refused != codeDone {
			return refused
		}
		if n == nil {
			return codeNotFound
		}
		n.acl, n.aclGen, n.cached = c.name, index, 0
		m.tell("acl %s", c.path)
	}
	return codeDone
}

// dump returns the state of the model, one line per node.
func (m *plainMachine) dump() string {
	var b strings.Builder
	for _, p := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[p]
		fmt.Fprintf(&b, "%s %v %q %d %d %d %d %q %d lock %d %d %v %d %d", p, n.dir, n.data, n.inst, n.gen,
			n.ephemeral, n.cached, n.acl, n.aclGen, n.lockGen, n.mode, n.delay, n.delayMode, n.delayIndex)
		for _, s := range slices.Sorted(maps.Keys(n.holders)) {
			fmt.Fprintf(&b, " [%d %v %d]", s, n.holders[s].delay, n.holders[s].since)
		}
		b.WriteByte('\n')
	}
	for _, s := range slices.Sorted(maps.Keys(m.sessions)) {
		fmt.Fprintf(&b, "session %d %s\n", s, m.sessions[s])
	}
	return b.String()
}

// dump returns the state of a namespace in the same form.
func dump(ns *namespace) string {
	var lines []string
	ns.nodes.Ascend(func(n *node) bool {
		var l lockState
		var a aclState
		if n.lock != nil {
			l = *n.lock
		}
		if n.acl != nil {
			a = *n.acl
		}
		line := fmt.Sprintf("%s %v %q %d %d %d %d %q %d lock %d %d %v %d %d", n.path, n.dir, n.data, n.instance, n.generation,
			n.ephemeral, n.cached, a.name, a.generation, l.generation, l.mode, l.delay, l.delayMode, l.delayIndex)
		ns.holders.AscendGreaterOrEqual(holder{path: n.path}, func(h holder) bool {
			if h.path == n.path {
				held, _ := ns.holds.Get(hold{session: h.session, path: h.path})
				line += fmt.Sprintf(" [%d %v %d]", h.session, held.delay, held.since)
			}
			return h.path == n.path
		})
		lines = append(lines, line)
		return true
	})
	slices.SortFunc(lines, func(a, b string) int {
		return strings.Compare(a[:strings.IndexByte(a, ' ')], b[:strings.IndexByte(b, ' ')])
	})
	ns.sessions.Ascend(func(s *sessionState) bool {
		lines = append(lines, fmt.Sprintf("session %d %s", s.id, s.name))
		return true
	})
	return strings.Join(lines, "\n") + "\n"
}

// changeText returns a change in the form of the model.
func changeText(c change) string {
	return map[changeKind]string{
		contentsChanged: "contents " + c.path,
		childAdded:      fmt.Sprintf("added %s in %s", c.name, c.path),
		childRemoved:    fmt.Sprintf("removed %s in %s", c.name, c.path),
		aclChanged:      "acl " + c.path,
		lockAcquired:    "acquired " + c.path,
		lockFreed:       "freed " + c.path,
		lockDelayed:     fmt.Sprintf("delayed %s %v", c.path, c.duration),
		sessionOpened:   fmt.Sprintf("opened %d", c.session),
		sessionEnded:    fmt.Sprintf("ended %d", c.session),
	}[c.kind]
}

// TestMachineModel applies random commands to the machine and to the model, and compares every
// result and every reported change. At random it compares the whole state, and passes it through a
// snapshot.
func TestMachineModel(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	runs := 1000
	if os.Getenv("STELE_SOAK") != "" {
		runs = 4000
	}
	seen := map[string]int{}
	for run := range runs {
		machineModelRun(t, rand.New(rand.NewPCG(seed, uint64(run))), seen)
		if t.Failed() {
			t.Fatalf("in run %d", run)
		}
	}
	for o := opSet; o <= opNewest; o++ {
		if seen[fmt.Sprint(o, codeDone)] == 0 {
			t.Errorf("operation %d was never done", o)
		}
	}
	for c := codeDone; c <= codeNotHeld; c++ {
		n := 0
		for o := opSet; o <= opNewest; o++ {
			n += seen[fmt.Sprint(o, c)]
		}
		if n == 0 && c != codeBadPath && c != codeUnknown && c != codeFileBytes && c != codeBytes && c != codeNodes {
			t.Errorf("no command came to %d", c)
		}
	}
}

func machineModelRun(t *testing.T, rng *rand.Rand, seen map[string]int) {
	m := newMachine(func(err error) { t.Error(err) })
	var told []string
	m.observe(func(changes []change) {
		for _, c := range changes {
			told = append(told, changeText(c))
		}
	})
	plain := newPlainMachine()
	for i := range 300 {
		index := uint64(10 + i)
		c := randomCommand(rng, plain)
		told, plain.events = nil, nil
		got := m.Apply(&raft.Log{Index: index, Term: 5, Type: raft.LogCommand, Data: c.encode()}).(result)
		want := plain.apply(index, 5, &c)
		seen[fmt.Sprint(c.op, want)]++
		if got.code != want || !sameChanges(told, plain.events) {
			t.Fatalf("entry %d, %+v: code %d, changes %q; want %d, %q", index, c, got.code, told, want, plain.events)
		}
		if i%100 != 99 {
			continue
		}
		ns, applied := m.observe(m.mu.observer)
		if got, want := dump(ns), plain.dump(); got != want {
			t.Fatalf("entry %d, %+v:\n%swant\n%s", index, c, got, want)
		}
		checkNamespace(t, ns)
		again, _, err := readSnapshot(bytes.NewReader(stream(t, ns, applied)))
		if err != nil {
			t.Fatal(err)
		}
		checkNamespace(t, again)
		if got, want := usages(again), usages(ns); got != want {
			t.Fatalf("entry %d, quotas from a snapshot: %s, want %s", index, got, want)
		}
		if got, want := dump(again), plain.dump(); got != want {
			t.Fatalf("entry %d, from a snapshot:\n%swant\n%s", index, got, want)
		}
		if err := m.Restore(readCloser{bytes.NewReader(stream(t, again, applied))}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestQuotarsLockDelay expires sharers of a lock one after the other: the longest of their
// lock-delays applies, in whatever order they expire.
func TestQuotarsLockDelay(t *testing.T) {
	for _, delays := range [][]time.Duration{{5, 1}, {1, 5}, {5, 0}, {0, 5}, {1, 5, 2}} {
		ns := newNamespace()
		var told time.Duration
		ns.emit = func(c change) {
			if c.kind == lockDelayed {
				told = c.duration
			}
		}
		for i, d := range delays {
			id := uint64(10 + i)
			ns.apply(id, 1, &command{op: opOpenSession, name: "s", duration: 2 * time.Second})
			ns.apply(id+10, 1, &command{op: opAcquire, session: api.SessionID(id), path: "/l", mode: api.Shared, duration: d * time.Second})
		}
		for i := range delays {
			ns.apply(uint64(30+i), 1, &command{op: opExpireSession, sessions: []api.SessionID{api.SessionID(10 + i)}})
		}
		if l := ns.get("/l").lock; l.holders != 0 || l.delay != 5*time.Second || l.delayMode != api.Shared || told != l.delay {
			t.Errorf("delays of %d s: %+v, told %v", delays, *l, told)
		}
	}
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// sameChanges compares the reported changes, ignoring the order of the directories of a new file.
func sameChanges(got, want []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}

// randomCommand returns a command that often matches the state of m.
func randomCommand(rng *rand.Rand, m *plainMachine) command {
	c := command{op: op(1 + rng.IntN(int(opNewest))), term: 5, path: randomPath(rng)}
	if rng.IntN(40) == 0 {
		c.term = 4
	}
	ids := append(slices.Sorted(maps.Keys(m.sessions)), 3)
	c.session = ids[rng.IntN(len(ids))]
	n := m.nodes[c.path]
	c.generation = AnyGeneration
	if n != nil && rng.IntN(2) == 0 {
		c.generation = n.gen
	} else if rng.IntN(3) == 0 {
		c.generation = 0
	}
	c.mode = api.Mode(1 + rng.IntN(2))
	c.duration = time.Duration(rng.IntN(3)) * time.Second
	switch c.op {
	case opSet:
		c.data = []byte(fmt.Sprint(rng.IntN(1000)))
		c.ephemeral = rng.IntN(3) == 0
	case opOpenSession:
		c.name, c.duration = fmt.Sprint("s", rng.IntN(100)), 2*time.Second
	case opExpireSession:
		c.sessions = []api.SessionID{c.session, ids[rng.IntN(len(ids))]}
		if rng.IntN(3) > 0 {
			c.sessions = nil // sessions live for a while
		}
	case opSetACL:
		c.name = fmt.Sprint("acl", rng.IntN(3))
	case opMarkCached:
		if n != nil {
			c.generation = n.gen
		}
	case opRelease:
		if n != nil {
			c.hold = n.holders[c.session].since
		}
	}
	if !c.ephemeral && rng.IntN(3) > 0 && c.op != opAcquire && c.op != opRelease && c.op != opCloseSession {
		c.session = 0
	}
	if owner := []string{"", "ann", "bob"}[rng.IntN(3)]; owner != "" {
		c.quota = &Quota{Owner: owner, Bytes: math.MaxInt64, AllBytes: math.MaxInt64, Sessions: math.MaxInt64, AllSessions: math.MaxInt64}
	}
	for _, p := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[p]
		if c.op == opEndLockDelay && n.delay > 0 {
			c.delays = append(c.delays, delayRef{p, n.delayIndex})
		}
		if len(n.holders) > 0 && rng.IntN(8) == 0 {
			c.guard = api.Sequencer{Path: p, Mode: n.mode, Instance: n.inst, LockGeneration: n.lockGen - uint64(rng.IntN(2))}
		}
	}
	return c
}
