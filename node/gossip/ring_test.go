package gossip_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/node/gossip"
)

// lines is a log that tests read.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

var keys = [][]byte{[]byte(strings.Repeat("k", 32))}

func config(id string, log *lines) gossip.Config {
	c := gossip.Config{
		Self: gossip.Meta{ID: id, Name: "name-" + id, RPC: "127.0.0.1:1", Zone: "z"}, Cluster: "c1", Keys: keys, Bind: "127.0.0.1:0",
	}
	if log != nil {
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	return c
}

func start(t testing.TB, c gossip.Config) *gossip.Ring {
	t.Helper()
	r, err := gossip.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// within waits until r sees the condition.
func within(t testing.TB, d time.Duration, r *gossip.Ring, what string, holds func() bool) time.Duration {
	t.Helper()
	began, timeout := time.Now(), time.After(d)
	for {
		changed := r.Changed()
		if holds() {
			return time.Since(began)
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("after %v: %s; members: %+v", d, what, r.Members())
		}
	}
}

// sees reports whether r sees the node in that state.
func sees(r *gossip.Ring, id string, state gossip.State) func() bool {
	return func() bool {
		m, ok := r.Member(id)
		return ok && m.State == state
	}
}

func join(t testing.TB, r, to *gossip.Ring) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.Join(ctx, []string{to.Address()}); err != nil {
		t.Fatal(err)
	}
}

func TestMembersComeAndGo(t *testing.T) {
	log := &lines{}
	a, b, c := start(t, config("a", log)), start(t, config("b", nil)), start(t, config("c", nil))
	join(t, b, a)
	join(t, c, b)
	for _, r := range []*gossip.Ring{a, b, c} {
		for _, id := range []string{"a", "b", "c"} {
			within(t, 5*time.Second, r, id+" is not there", sees(r, id, gossip.Alive))
		}
	}
	m, _ := a.Member("c")
	if m.Zone != "z" || m.Name != "name-c" || m.Gossip != c.Address() || m.Self || time.Since(m.Since) > time.Minute {
		t.Errorf("a sees %+v", m)
	}
	if m, _ := a.Member("a"); !m.Self || m.State != gossip.Alive {
		t.Errorf("a sees itself as %+v", m)
	}
	if err := c.UpdateMeta(func(m *gossip.Meta) { m.ID, m.FreeBytes, m.Voter = "x", 42, true }); err != nil {
		t.Fatal(err)
	}
	within(t, 5*time.Second, a, "c's news did not come", func() bool {
		m, _ := a.Member("c")
		return m.FreeBytes == 42 && m.Voter
	})
	if err := c.Leave(5*time.Second, "sync /data1/x: input/output error"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	within(t, 5*time.Second, a, "c has not left", sees(a, "c", gossip.Left))
	if m, _ := a.Member("c"); m.Reason != "sync /data1/x: input/output error" {
		t.Errorf("c left with the reason %q", m.Reason)
	}
	b.Close() // as if killed
	took := within(t, 10*time.Second, a, "b is not dead", sees(a, "b", gossip.Dead))
	t.Logf("death noticed in %v", took)
	for deadline := time.Now().Add(5 * time.Second); log.count("member dead") == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	for what, n := range map[string]int{"member joined": 2, "member left": 1, "member dead": 1, "memberlist": 0} {
		if got := log.count(what); got != n {
			t.Errorf("the log says %d times %q:\n%s", got, what, log)
		}
	}
	if err := a.Leave(5*time.Second, ""); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if got := log.count("node=name-a"); got != 0 {
		t.Errorf("a logs its own leaving %d times:\n%s", got, log)
	}
}

// TestMoves: a node that restarts at another address is alive at once, though others believe that
// it is still at the old one.
func TestMoves(t *testing.T) {
	a := start(t, config("a", nil))
	for i := range 4 {
		c := config("b", nil)
		c.Self.Start = uint64(i + 1)
		b := start(t, c)
		join(t, b, a)
		took := within(t, time.Second, a, "b is not at its new place", func() bool {
			m, _ := a.Member("b")
			return m.State == gossip.Alive && m.Gossip == b.Address()
		})
		t.Logf("seen in %v", took)
		if n := len(a.Members()); n != 2 {
			t.Errorf("%d members", n)
		}
		b.Close()
	}
	within(t, 10*time.Second, a, "b is not dead", sees(a, "b", gossip.Dead))
}

func TestForget(t *testing.T) {
	a, b, c := start(t, config("a", nil)), start(t, config("b", nil)), start(t, config("c", nil))
	join(t, b, a)
	join(t, c, a)
	within(t, 5*time.Second, b, "c is not there", sees(b, "c", gossip.Alive))
	a.Forget("c")
	gone := func(r *gossip.Ring) func() bool {
		return func() bool { _, ok := r.Member("c"); return !ok }
	}
	within(t, 5*time.Second, a, "c is still there", gone(a))
	within(t, 5*time.Second, b, "c is still there", gone(b))
	d := start(t, config("d", nil))
	join(t, d, b)
	within(t, 5*time.Second, d, "b is not there", sees(d, "b", gossip.Alive))
	within(t, 5*time.Second, d, "c is there", gone(d))
	c.Close()
	cfg := config("c", nil)
	cfg.Self.Start = uint64(time.Now().Add(time.Hour).UnixMilli())
	again := start(t, cfg)
	join(t, again, a)
	// All packets to b may be lost. Then the lists that it exchanges each 10 s inform it.
	took := within(t, 25*time.Second, b, "c is not there again", sees(b, "c", gossip.Alive))
	t.Logf("c is there again after %v", took)
}

// TestRemovedIsNotListed: a removed node is not listed, even if it continues and has restarted
// after its removal.
func TestRemovedIsNotListed(t *testing.T) {
	var gone atomic.Bool
	c := config("a", nil)
	c.Removed = func(id string) bool { return id == "c" && gone.Load() }
	a, b := start(t, c), start(t, config("b", nil))
	join(t, b, a)
	first := config("c", nil)
	first.Self.Start = 1
	left := start(t, first)
	join(t, left, a)
	within(t, 5*time.Second, a, "c is not there", sees(a, "c", gossip.Alive))
	gone.Store(true)
	a.Forget("c")
	within(t, 5*time.Second, a, "c is still there", func() bool { _, ok := a.Member("c"); return !ok })
	second := config("c", nil)
	second.Self.Start = 2
	again := start(t, second)
	join(t, again, a) // an exchange of lists, both ways
	within(t, 5*time.Second, again, "a is not there", sees(again, "a", gossip.Alive))
	within(t, 25*time.Second, b, "the second run of c is not known to b, which has not been told", sees(b, "c", gossip.Alive))
	if m, ok := a.Member("c"); ok {
		t.Errorf("a lists the removed node: %+v", m)
	}
}

// TestOthersAreRejected: messages of another cluster or key are dropped, and each side logs it
// once.
func TestOthersAreRejected(t *testing.T) {
	log := &lines{}
	a := start(t, config("a", log))
	cluster, otherKey, noKey := config("x", nil), config("y", nil), config("z", nil)
	cluster.Cluster, otherKey.Keys, noKey.Keys = "c2", [][]byte{[]byte(strings.Repeat("x", 32))}, nil
	for what, c := range map[string]gossip.Config{"cluster": cluster, "key": otherKey, "no key": noKey} {
		r := start(t, c)
		for range 3 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := r.Join(ctx, []string{a.Address()})
			cancel()
			if err == nil || !strings.Contains(err.Error(), "another cluster") {
				t.Errorf("%s: join: %v", what, err)
			}
		}
		if len(r.Members()) != 1 || len(a.Members()) != 1 {
			t.Errorf("%s: %+v, %+v", what, r.Members(), a.Members())
		}
	}
	for _, reason := range []string{"label of cluster c2", "another gossip key, or none"} {
		for deadline := time.Now().Add(5 * time.Second); log.count(reason) == 0 && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		if log.count(reason) != 1 {
			t.Errorf("%q: the log is:\n%s", reason, log)
		}
	}
}

// TestKeysChange: nodes that have each other's keys accept each other's messages, whichever key
// encrypts.
func TestKeysChange(t *testing.T) {
	next := []byte(strings.Repeat("n", 32))
	old, both, late := config("old", nil), config("both", nil), config("late", nil)
	old.Keys = [][]byte{keys[0], next}
	both.Keys = [][]byte{next, keys[0]}
	late.Keys = [][]byte{next}
	a, b, c := start(t, old), start(t, both), start(t, late)
	join(t, b, a)
	within(t, 5*time.Second, a, "the one with the next key is not there", sees(a, "both", gossip.Alive))
	within(t, 5*time.Second, b, "the one with the old key is not there", sees(b, "old", gossip.Alive))
	join(t, c, b)
	within(t, 5*time.Second, b, "the one without the old key is not there", sees(b, "late", gossip.Alive))
}

// TestSeeds: nodes find each other through seeds alone, later, without Join.
func TestSeeds(t *testing.T) {
	a := start(t, config("a", nil))
	c := config("b", nil)
	c.Seeds = func() []string { return []string{"127.0.0.1:1", a.Address()} }
	start(t, c)
	within(t, 10*time.Second, a, "b is not there", sees(a, "b", gossip.Alive))
}

func TestConfigRefused(t *testing.T) {
	for text, edit := range map[string]func(*gossip.Config){
		"id or RPC":            func(c *gossip.Config) { c.Self.ID = "" },
		"cluster id":           func(c *gossip.Config) { c.Cluster = "" },
		"gossip key":           func(c *gossip.Config) { c.Keys = [][]byte{[]byte("short")} },
		"gossip stream memory": func(c *gossip.Config) { c.StreamMemory = 1 << 20 },
		"no address":           func(c *gossip.Config) { c.Bind = "" },
		"shorten":              func(c *gossip.Config) { c.Self.Zone = strings.Repeat("z", 600) },
		"listen":               func(c *gossip.Config) { c.Bind = "127.0.0.1" },
		"cannot reach":         func(c *gossip.Config) { c.Advertise = "0.0.0.0" },
		"look up":              func(c *gossip.Config) { c.Advertise = "no.such.host.invalid" },
		"missing port":         func(c *gossip.Config) { c.Bind = "localhost" },
		"invalid syntax":       func(c *gossip.Config) { c.Bind = "127.0.0.1:http" },
	} {
		c := config("a", nil)
		edit(&c)
		r, err := gossip.Start(c)
		if err == nil {
			r.Close()
		}
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q, got %v", text, err)
		}
	}
	r := start(t, config("a", nil))
	if err := r.UpdateMeta(func(m *gossip.Meta) { m.Zone = strings.Repeat("z", 600) }); err == nil {
		t.Error("a meta over the limit was taken")
	}
	if m, _ := r.Member("a"); m.Zone != "z" {
		t.Errorf("zone is now %q", m.Zone)
	}
}

// TestAdvertise: the advertised address differs from that of the socket.
func TestAdvertise(t *testing.T) {
	c := config("a", nil)
	c.Bind = "0.0.0.0:0"
	a := start(t, c)
	if host, port, err := net.SplitHostPort(a.Address()); err != nil || net.ParseIP(host).IsUnspecified() || port == "0" {
		t.Errorf("address is %q", a.Address())
	}
	c = config("b", nil)
	c.Bind, c.Advertise = "localhost:0", "localhost"
	b := start(t, c)
	if host, _, _ := net.SplitHostPort(b.Address()); net.ParseIP(host) == nil {
		t.Errorf("address is %q", b.Address())
	}
	join(t, b, a)
}

// startCluster starts n members that know each other, with all times multiplied, and returns how long
// that took.
func startCluster(t testing.TB, n, slower int) ([]*gossip.Ring, time.Duration) {
	t.Helper()
	var rings []*gossip.Ring
	began := time.Now()
	for i := range n {
		c := config(fmt.Sprintf("n%03d", i), nil)
		c.Slower(slower)
		r := start(t, c)
		if i > 0 {
			join(t, r, rings[i/2])
		}
		rings = append(rings, r)
	}
	t.Cleanup(func() { // all at once: the last ones would look for the others
		var wg sync.WaitGroup
		for _, r := range rings {
			wg.Go(func() { r.Close() })
		}
		wg.Wait()
	})
	all(t, rings, func(r *gossip.Ring) bool { return alive(r) == n })
	return rings, time.Since(began)
}

func alive(r *gossip.Ring) int {
	n := 0
	for _, m := range r.Members() {
		if m.State == gossip.Alive {
			n++
		}
	}
	return n
}

// all waits until the condition holds for each ring, and returns the sorted times.
func all(t testing.TB, rings []*gossip.Ring, holds func(*gossip.Ring) bool) []time.Duration {
	t.Helper()
	began, took := time.Now(), make([]time.Duration, len(rings))
	var wg sync.WaitGroup
	for i, r := range rings {
		wg.Go(func() {
			for !holds(r) {
				if time.Since(began) > 2*time.Minute {
					t.Errorf("member %d: it did not come; %d alive", i, alive(r))
					return
				}
				time.Sleep(10 * time.Millisecond) // a check at each change would be most of the work
			}
			took[i] = time.Since(began)
		})
	}
	wg.Wait()
	slices.SortFunc(took, func(a, b time.Duration) int { return cmp.Compare(a, b) })
	return took
}
