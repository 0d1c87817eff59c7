package fsm

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

	"github.com/steledb/stele/internal/testseed"
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

// guarded returns why a change with these options is rejected, or CodeDone.
func (m *plainMachine) guarded(c *Command) Code {
	if _, ok := m.sessions[c.Session]; c.Session != 0 && !ok || c.Ephemeral && c.Session == 0 {
		return CodeNoSession
	}
	if c.Guard.Path != "" && !m.valid(c.Guard) {
		return CodeStale
	}
	return CodeDone
}

func (m *plainMachine) belowFile(p string) bool {
	for d := path.Dir(p); d != "/"; d = path.Dir(d) {
		if n := m.nodes[d]; n != nil && !n.dir {
			return true
		}
	}
	return false
}

func (m *plainMachine) set(index uint64, c *Command) Code {
	if refused := m.guarded(c); refused != CodeDone {
		return refused
	}
	n := m.nodes[c.Path]
	if c.From != "" && (n == nil || !n.dir) {
		return m.rename(index, c)
	}
	switch {
	case n == nil && m.belowFile(c.Path):
		return CodeNotDirectory
	case n == nil && c.Generation != 0 && c.Generation != api.AnyGeneration:
		return CodeGeneration
	case n == nil:
		n = &plainNode{data: string(c.Data)}
		if c.Ephemeral {
			n.ephemeral = c.Session
		}
		m.add(c.Path, index, n)
		return CodeDone
	case n.dir:
		return CodeIsDirectory
	case c.Generation != api.AnyGeneration && c.Generation != n.gen:
		return CodeGeneration
	case c.Ephemeral && n.ephemeral != c.Session, !c.Ephemeral && n.ephemeral != 0:
		return CodeEphemeral
	}
	n.data, n.gen, n.cached = string(c.Data), index, 0
	m.tell("contents %s", c.Path)
	return CodeDone
}

func (m *plainMachine) rename(index uint64, c *Command) Code {
	from := m.nodes[c.From]
	switch {
	case c.From == c.Path:
		return CodeBadPath
	case m.nodes[c.Path] != nil || c.Generation != 0 && c.Generation != api.AnyGeneration || from == nil:
		return CodeGeneration
	case from.dir:
		return CodeIsDirectory
	case from.gen != c.FromGeneration:
		return CodeGeneration
	case from.ephemeral != 0 || c.Ephemeral:
		return CodeEphemeral
	case from.delay > 0 || len(from.holders) > 0:
		return CodeLocked
	}
	m.add(c.Path, index, &plainNode{data: string(c.Data)})
	m.drop(c.From, index)
	return CodeDone
}

func (m *plainMachine) remove(index uint64, c *Command) Code {
	if refused := m.guarded(c); refused != CodeDone {
		return refused
	}
	n := m.nodes[c.Path]
	_, own := map[api.SessionID]plainHold(nil)[0], false
	if n != nil {
		_, own = n.holders[c.Session]
	}
	switch {
	case n == nil && (c.Generation == 0 || c.Generation == api.AnyGeneration):
		return CodeNotFound
	case n == nil || c.Generation != api.AnyGeneration && c.Generation != n.gen:
		return CodeGeneration
	case m.hasChildren(c.Path):
		return CodeNotEmpty
	case n.delay > 0 || len(n.holders) > 1 || len(n.holders) == 1 && !own:
		return CodeLocked
	}
	if own {
		m.unlock(index, c.Path, c.Session, false)
	}
	m.drop(c.Path, index)
	return CodeDone
}

func (m *plainMachine) hasChildren(p string) bool {
	for q := range m.nodes {
		if q != "/" && path.Dir(q) == p {
			return true
		}
	}
	return false
}

func (m *plainMachine) acquire(index uint64, c *Command) Code {
	if _, ok := m.sessions[c.Session]; !ok {
		return CodeNoSession
	}
	n := m.nodes[c.Path]
	if n != nil && n.ephemeral != 0 {
		return CodeEphemeral
	}
	if n == nil {
		if m.belowFile(c.Path) {
			return CodeNotDirectory
		}
		n = &plainNode{}
		m.add(c.Path, index, n)
	}
	if h, ok := n.holders[c.Session]; ok {
		if n.mode != c.Mode {
			return CodeLocked
		}
		n.holders[c.Session] = plainHold{c.Duration, h.since}
		return CodeDone
	}
	if len(n.holders) > 0 && (n.mode == api.Exclusive || c.Mode == api.Exclusive) ||
		n.delay > 0 && (n.delayMode == api.Exclusive || c.Mode == api.Exclusive) {
		return CodeLocked
	}
	if n.holders == nil {
		n.holders = map[api.SessionID]plainHold{}
	}
	if len(n.holders) == 0 {
		n.lockGen, n.mode = index, c.Mode
		m.tell("acquired %s", c.Path)
	}
	n.holders[c.Session] = plainHold{c.Duration, index}
	return CodeDone
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

func (m *plainMachine) release(index uint64, c *Command) Code {
	if _, ok := m.sessions[c.Session]; !ok {
		return CodeNoSession
	}
	n := m.nodes[c.Path]
	if n == nil || n.holders[c.Session].since == 0 || c.Hold != 0 && c.Hold != n.holders[c.Session].since {
		return CodeNotHeld
	}
	m.unlock(index, c.Path, c.Session, false)
	return CodeDone
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

func (m *plainMachine) apply(index, term uint64, c *Command) Code {
	if c.Term != 0 && c.Term != term {
		return CodeTerm
	}
	n := m.nodes[c.Path]
	switch c.Op {
	case OpSet:
		return m.set(index, c)
	case OpDelete:
		return m.remove(index, c)
	case OpOpenSession:
		m.sessions[api.SessionID(index)] = c.Name
		m.tell("opened %d", index)
	case OpCloseSession:
		m.end(index, c.Session, false)
	case OpExpireSession:
		for _, s := range c.Sessions {
			m.end(index, s, true)
		}
	case OpAcquire:
		return m.acquire(index, c)
	case OpRelease:
		return m.release(index, c)
	case OpEndLockDelay:
		for _, d := range c.Delays {
			if n := m.nodes[d.Path]; n != nil && n.delay > 0 && n.delayIndex == d.Index {
				n.delay, n.delayMode, n.delayIndex = 0, 0, 0
				if len(n.holders) == 0 {
					m.tell("freed %s", d.Path)
				}
			}
		}
	case OpMarkCached:
		if n == nil || n.dir {
			return CodeNotFound
		}
		if n.gen != c.Generation {
			return CodeGeneration
		}
		if n.cached == 0 {
			n.cached = index
		}
	case OpSetACL:
		if refused := m.guarded(c); refused != CodeDone {
			return refused
		}
		if n == nil {
			return CodeNotFound
		}
		n.acl, n.aclGen, n.cached = c.Name, index, 0
		m.tell("acl %s", c.Path)
	}
	return CodeDone
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
func dump(ns *Namespace) string {
	var lines []string
	ns.nodes.Ascend(func(n *Node) bool {
		var l lockState
		var a aclState
		if n.lock != nil {
			l = *n.lock
		}
		if n.acl != nil {
			a = *n.acl
		}
		line := fmt.Sprintf("%s %v %q %d %d %d %d %q %d lock %d %d %v %d %d", n.Path, n.Dir, n.Data, n.instance, n.Generation,
			n.Ephemeral, n.Cached, a.name, a.generation, l.generation, l.mode, l.delay, l.delayMode, l.delayIndex)
		ns.holders.AscendGreaterOrEqual(holder{path: n.Path}, func(h holder) bool {
			if h.path == n.Path {
				held, _ := ns.holds.Get(hold{session: h.session, path: h.path})
				line += fmt.Sprintf(" [%d %v %d]", h.session, held.delay, held.since)
			}
			return h.path == n.Path
		})
		lines = append(lines, line)
		return true
	})
	slices.SortFunc(lines, func(a, b string) int {
		return strings.Compare(a[:strings.IndexByte(a, ' ')], b[:strings.IndexByte(b, ' ')])
	})
	ns.sessions.Ascend(func(s *Session) bool {
		lines = append(lines, fmt.Sprintf("session %d %s", s.ID, s.Name))
		return true
	})
	return strings.Join(lines, "\n") + "\n"
}

// changeText returns a change in the form of the model.
func changeText(c Change) string {
	return map[ChangeKind]string{
		ContentsChanged: "contents " + c.Path,
		ChildAdded:      fmt.Sprintf("added %s in %s", c.Name, c.Path),
		ChildRemoved:    fmt.Sprintf("removed %s in %s", c.Name, c.Path),
		ACLChanged:      "acl " + c.Path,
		LockAcquired:    "acquired " + c.Path,
		LockFreed:       "freed " + c.Path,
		LockDelayed:     fmt.Sprintf("delayed %s %v", c.Path, c.Duration),
		SessionOpened:   fmt.Sprintf("opened %d", c.Session),
		SessionEnded:    fmt.Sprintf("ended %d", c.Session),
	}[c.Kind]
}

// TestMachineModel applies random commands to the machine and to the model, and compares every
// result and every reported change. At random it compares the whole state, and passes it through a
// snapshot.
func TestMachineModel(t *testing.T) {
	t.Parallel()
	seed := testseed.New(t)
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
	for o := OpSet; o <= OpNewest; o++ {
		if seen[fmt.Sprint(o, CodeDone)] == 0 {
			t.Errorf("operation %d was never done", o)
		}
	}
	for _, c := range []Code{CodeDone, CodeGeneration, CodeIsDirectory, CodeEphemeral, CodeLocked, CodeStale} {
		if seen[fmt.Sprint("rename", c)] == 0 {
			t.Errorf("no rename came to %d", c)
		}
	}
	for c := CodeDone; c <= CodeNotHeld; c++ {
		n := 0
		for o := OpSet; o <= OpNewest; o++ {
			n += seen[fmt.Sprint(o, c)]
		}
		if n == 0 && c != CodeBadPath && c != CodeUnknown && c != CodeFileBytes && c != CodeBytes && c != CodeNodes {
			t.Errorf("no command came to %d", c)
		}
	}
}

func machineModelRun(t *testing.T, rng *rand.Rand, seen map[string]int) {
	m := NewMachine(func(err error) { t.Error(err) })
	var told []string
	m.Observe(func(changes []Change) {
		for _, c := range changes {
			told = append(told, changeText(c))
		}
	})
	plain := newPlainMachine()
	for i := range 300 {
		index := uint64(10 + i)
		c := randomCommand(rng, plain)
		told, plain.events = nil, nil
		got := m.Apply(Entry{index, 5, c.Encode()})
		want := plain.apply(index, 5, &c)
		seen[fmt.Sprint(c.Op, want)]++
		if c.From != "" {
			seen[fmt.Sprint("rename", want)]++
		}
		if got.Code != want || !sameChanges(told, plain.events) {
			t.Fatalf("entry %d, %+v: code %d, changes %q; want %d, %q", index, c, got.Code, told, want, plain.events)
		}
		if i%100 != 99 {
			continue
		}
		ns, applied := m.Observe(m.mu.observer)
		if got, want := dump(ns), plain.dump(); got != want {
			t.Fatalf("entry %d, %+v:\n%swant\n%s", index, c, got, want)
		}
		checkNamespace(t, ns)
		again, _, err := ReadSnapshot(bytes.NewReader(stream(t, ns, applied)))
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
		if err := m.Restore(bytes.NewReader(stream(t, again, applied))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestQuotarsLockDelay expires sharers of a lock one after the other: the longest of their
// lock-delays applies, in whatever order they expire.
func TestQuotarsLockDelay(t *testing.T) {
	for _, delays := range [][]time.Duration{{5, 1}, {1, 5}, {5, 0}, {0, 5}, {1, 5, 2}} {
		ns := NewNamespace()
		var told time.Duration
		ns.emit = func(c Change) {
			if c.Kind == LockDelayed {
				told = c.Duration
			}
		}
		for i, d := range delays {
			id := uint64(10 + i)
			ns.Apply(id, 1, &Command{Op: OpOpenSession, Name: "s", Duration: 2 * time.Second})
			ns.Apply(id+10, 1, &Command{Op: OpAcquire, Session: api.SessionID(id), Path: "/l", Mode: api.Shared, Duration: d * time.Second})
		}
		for i := range delays {
			ns.Apply(uint64(30+i), 1, &Command{Op: OpExpireSession, Sessions: []api.SessionID{api.SessionID(10 + i)}})
		}
		if l := ns.Get("/l").lock; l.holders != 0 || l.delay != 5*time.Second || l.delayMode != api.Shared || told != l.delay {
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
func randomCommand(rng *rand.Rand, m *plainMachine) Command {
	c := Command{Op: Op(1 + rng.IntN(int(OpNewest))), Term: 5, Path: randomPath(rng)}
	if rng.IntN(40) == 0 {
		c.Term = 4
	}
	ids := append(slices.Sorted(maps.Keys(m.sessions)), 3)
	c.Session = ids[rng.IntN(len(ids))]
	n := m.nodes[c.Path]
	c.Generation = api.AnyGeneration
	if n != nil && rng.IntN(2) == 0 {
		c.Generation = n.gen
	} else if rng.IntN(3) == 0 {
		c.Generation = 0
	}
	c.Mode = api.Mode(1 + rng.IntN(2))
	c.Duration = time.Duration(rng.IntN(3)) * time.Second
	switch c.Op {
	case OpSet:
		c.Data = []byte(fmt.Sprint(rng.IntN(1000)))
		c.Ephemeral = rng.IntN(3) == 0
		if rng.IntN(3) == 0 {
			c.From = strings.TrimSuffix(path.Dir(c.Path), "/") + []string{"/a", "/b", "/b-b", "/c0"}[rng.IntN(4)]
			c.Ephemeral = rng.IntN(9) == 0
			if from := m.nodes[c.From]; from != nil {
				c.FromGeneration = from.gen - uint64(rng.IntN(4)/3)
			}
		}
	case OpOpenSession:
		c.Name, c.Duration = fmt.Sprint("s", rng.IntN(100)), 2*time.Second
	case OpExpireSession:
		c.Sessions = []api.SessionID{c.Session, ids[rng.IntN(len(ids))]}
		if rng.IntN(3) > 0 {
			c.Sessions = nil // sessions live for a while
		}
	case OpSetACL:
		c.Name = fmt.Sprint("acl", rng.IntN(3))
	case OpMarkCached:
		if n != nil {
			c.Generation = n.gen
		}
	case OpRelease:
		if n != nil {
			c.Hold = n.holders[c.Session].since
		}
	}
	if !c.Ephemeral && rng.IntN(3) > 0 && c.Op != OpAcquire && c.Op != OpRelease && c.Op != OpCloseSession {
		c.Session = 0
	}
	if owner := []string{"", "ann", "bob"}[rng.IntN(3)]; owner != "" {
		c.Quota = &Quota{Owner: owner, Bytes: math.MaxInt64, AllBytes: math.MaxInt64, Sessions: math.MaxInt64, AllSessions: math.MaxInt64}
	}
	for _, p := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[p]
		if c.Op == OpEndLockDelay && n.delay > 0 {
			c.Delays = append(c.Delays, DelayRef{p, n.delayIndex})
		}
		if len(n.holders) > 0 && rng.IntN(8) == 0 {
			c.Guard = api.Sequencer{Path: p, Mode: n.mode, Instance: n.inst, LockGeneration: n.lockGen - uint64(rng.IntN(2))}
		}
	}
	return c
}

func randomPath(rng *rand.Rand) string {
	var b strings.Builder
	for range 1 + rng.IntN(4) {
		b.WriteString([]string{"/a", "/b", "/b-b", "/c0"}[rng.IntN(4)])
	}
	return b.String()
}
