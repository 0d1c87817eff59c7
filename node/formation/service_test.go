package formation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testport"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/rpc"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memStore is a store in memory.
type memStore struct {
	state   State
	cluster string
	founder bool
}

func (s *memStore) State() State         { return s.state }
func (s *memStore) Save(st State) error  { s.state = st; return nil }
func (s *memStore) Join(c string) error  { s.cluster = c; return nil }
func (s *memStore) Found(c string) error { s.cluster, s.founder = c, true; return nil }

// host is one node's server, at a fixed address, and its disk.
type host struct {
	id, addr string
	store    *memStore
	peers    string // file
	server   *rpc.Server
	service  *Service
	log      *lines
	done     chan struct{}
	outcome  Outcome
	err      error
}

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

func newHost(t *testing.T, id string) *host {
	t.Helper()
	addr, err := testport.New()
	if err != nil {
		t.Fatal(err)
	}
	return &host{id: id, addr: addr, store: &memStore{}, peers: filepath.Join(t.TempDir(), "peers"), log: &lines{}}
}

// move changes the host's address.
func (h *host) move(t *testing.T) { h.addr = newHost(t, "").addr }

// start starts the node, which joins its cluster in the background.
func (h *host) start(t *testing.T, edit func(*Config)) {
	t.Helper()
	cfg := Config{
		Self:  Peer{ID: h.id, Name: "name-" + h.id, RPC: h.addr, Gossip: "g" + h.addr},
		Store: h.store, Cluster: h.store.cluster, Voter: h.store.founder, PeersFile: h.peers,
		Round: 50 * time.Millisecond, CallTimeout: time.Second,
		Logger: slog.New(slog.NewTextHandler(h.log, nil)),
	}
	if edit != nil {
		edit(&cfg)
	}
	var err error
	if h.service, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if h.server, err = rpc.NewServer(rpc.ServerConfig{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	h.service.Handle(h.server)
	l, err := net.Listen("tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	h.done = done
	go h.server.Serve(l)
	go func() {
		defer close(done)
		h.outcome, h.err = h.service.Run(t.Context())
	}()
	t.Cleanup(h.stop)
}

func (h *host) stop() {
	if h.server == nil {
		return
	}
	h.service.Close()
	h.server.Close()
	<-h.done
	h.server = nil
}

// wait returns when the node belongs to a cluster.
func (h *host) wait(t *testing.T) Outcome {
	t.Helper()
	select {
	case <-h.done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s waits for %s", h.id, h.service.Waiting())
	}
	if h.err != nil {
		t.Fatalf("%s: %v", h.id, h.err)
	}
	return h.outcome
}

func joining(addrs ...string) func(*Config) {
	return func(c *Config) { c.Join = addrs }
}

func expecting(n int, addrs ...string) func(*Config) {
	return func(c *Config) { c.Expect, c.Join = n, addrs }
}

func TestAloneAndJoined(t *testing.T) {
	a, b, c := newHost(t, "a"), newHost(t, "b"), newHost(t, "c")
	c.start(t, joining("127.0.0.1:1", b.addr)) // b is not running yet
	b.start(t, joining(a.addr))
	time.Sleep(100 * time.Millisecond)
	select {
	case <-b.done:
		t.Fatalf("b is in %+v, %v without a", b.outcome, b.err)
	default:
	}
	a.start(t, nil)
	o := a.wait(t)
	if !o.Founder || o.Cluster == "" || a.store.cluster != o.Cluster {
		t.Fatalf("a: %+v", o)
	}
	for _, h := range []*host{b, c} {
		if got := h.wait(t); got.Cluster != o.Cluster || got.Founder || len(got.Members) == 0 || h.store.cluster != o.Cluster {
			t.Errorf("%s: %+v", h.id, got)
		}
	}
	if seeds := b.service.Seeds(); !slices.Contains(seeds, "g"+a.addr) {
		t.Errorf("b would gossip with %q", seeds)
	}
}

// TestExpect: fresh nodes form one cluster, though some start late and all restart now and then.
func TestExpect(t *testing.T) {
	const n = 5
	var all []*host
	var addrs []string
	for i := range n {
		all = append(all, newHost(t, fmt.Sprintf("n%d", (i*3)%n)))
		addrs = append(addrs, all[i].addr)
	}
	flags := expecting(n, addrs[:3]...)
	for i, h := range all[1:] {
		h.start(t, flags)
		if i%2 == 1 {
			time.Sleep(150 * time.Millisecond)
			h.stop()
			h.start(t, flags)
		}
	}
	time.Sleep(300 * time.Millisecond)
	for _, h := range all[1:] {
		if h.store.cluster != "" {
			t.Fatalf("%s is in cluster %s without the last node", h.id, h.store.cluster)
		}
	}
	all[0].start(t, flags)
	founders := 0
	for _, h := range all {
		o := h.wait(t)
		if o.Cluster != all[0].wait(t).Cluster {
			t.Errorf("%s is in cluster %s", h.id, o.Cluster)
		}
		if o.Founder {
			founders++
		}
	}
	if founders != 1 {
		t.Errorf("%d founders", founders)
	}
	late := newHost(t, "n9")
	late.start(t, flags)
	if o := late.wait(t); o.Cluster != all[0].outcome.Cluster || o.Founder {
		t.Errorf("a late node: %+v", o)
	}
}

// TestClusterRestart: without flags, from the remembered peers; with all addresses changed, from
// one address.
func TestClusterRestart(t *testing.T) {
	a, b, c := newHost(t, "a"), newHost(t, "b"), newHost(t, "c")
	a.start(t, nil)
	b.start(t, joining(a.addr))
	c.start(t, joining(a.addr))
	all := []*host{a, b, c}
	var peers []Peer
	for _, h := range all {
		h.wait(t)
		peers = append(peers, Peer{ID: h.id, RPC: h.addr, Gossip: "g" + h.addr})
	}
	stop := func() {
		for _, h := range all {
			if err := h.service.SetMembers(peers, 0); err != nil {
				t.Fatal(err)
			}
			h.stop()
		}
	}
	stop()
	b.start(t, nil)
	time.Sleep(100 * time.Millisecond)
	a.start(t, nil) // the voter does not wait
	if o := a.wait(t); len(o.Members) != 2 || o.Founder {
		t.Errorf("a: %+v", o)
	}
	b.wait(t)
	c.start(t, nil)
	c.wait(t)
	stop()
	for _, h := range all {
		h.move(t)
	}
	b.start(t, nil)
	c.start(t, joining(b.addr)) // c names itself to b
	b.wait(t)
	c.wait(t)
	a.start(t, joining(c.addr))
	a.wait(t)
	for deadline := time.Now().Add(10 * time.Second); !slices.Contains(a.service.Seeds(), "g"+c.addr); {
		if time.Now().After(deadline) {
			t.Fatalf("a would gossip with %q", a.service.Seeds())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestLateSeed restarts two voters at new addresses, the one that knows the other first. It retries
// soon, and both inform gossip of the other.
func TestLateSeed(t *testing.T) {
	a, b := newHost(t, "a"), newHost(t, "b")
	a.start(t, nil)
	o := a.wait(t)
	a.stop()
	a.move(t)
	b.store.cluster, b.store.founder = o.Cluster, true
	joined := make(chan string, 10)
	gossips := func(h *host) {
		h.service.SetGossip("g"+h.addr, func(_ context.Context, p Peer) { joined <- h.id + " " + p.Gossip })
	}
	b.start(t, joining(a.addr))
	b.wait(t)
	gossips(b)
	time.Sleep(300 * time.Millisecond)
	start := time.Now()
	a.start(t, nil)
	a.wait(t)
	gossips(a)
	want := map[string]bool{"a g" + b.addr: true, "b g" + a.addr: true}
	for len(want) > 0 {
		select {
		case got := <-joined:
			if !want[got] {
				t.Errorf("%q is joined, want %v", got, want)
			}
			delete(want, got)
		case <-time.After(findEvery / 3):
			t.Fatalf("%v are not joined after %v", want, time.Since(start))
		}
	}
}

func TestOthersAreRefused(t *testing.T) {
	a, b := newHost(t, "a"), newHost(t, "b")
	key := func(c *Config) { c.Keys = [][]byte{[]byte(strings.Repeat("k", 32))} }
	a.start(t, key)
	b.start(t, nil)
	a.wait(t)
	b.wait(t)

	keyless := newHost(t, "keyless")
	keyless.start(t, joining(a.addr))
	<-keyless.done
	var otherKey *OtherKeyError
	if !errors.As(keyless.err, &otherKey) || otherKey.Node != "name-a" {
		t.Errorf("without the key: %v", keyless.err)
	}
	keyless.stop()
	keyless.start(t, joining(a.addr, b.addr)) // b is another address to try
	if o := keyless.wait(t); o.Cluster != b.outcome.Cluster {
		t.Errorf("joined %+v", o)
	}
	keyless.stop()
	keyless.start(t, func(c *Config) { key(c); c.Join = []string{a.addr} })
	<-keyless.done
	var otherCluster *OtherClusterError
	if !errors.As(keyless.err, &otherCluster) || otherCluster.Theirs != a.outcome.Cluster || otherCluster.Ours != b.outcome.Cluster {
		t.Errorf("with another cluster's data: %v", keyless.err)
	}
	for _, h := range []*host{a, keyless} {
		logged := func() int { return h.log.count("this node to cluster") }
		for end := time.Now().Add(5 * time.Second); logged() == 0 && time.Now().Before(end); { // the end may be known before it is reported
			time.Sleep(time.Millisecond)
		}
		if h.log.count("node rejected") == 0 || logged() != 1 {
			t.Errorf("log of %s:\n%s", h.id, h.log.text.String())
		}
	}
	for first, keys := range map[string][]string{"new": {"n", "k"}, "old": {"k", "n"}} {
		changing := newHost(t, first)
		changing.start(t, func(c *Config) {
			for _, k := range keys {
				c.Keys = append(c.Keys, []byte(strings.Repeat(k, 32)))
			}
			c.Join = []string{a.addr}
		})
		if first == "old" { // a knows only the key that it sends
			changing.wait(t)
		} else if <-changing.done; !errors.As(changing.err, &otherKey) {
			t.Errorf("one that encrypts with a key that is not known: %v", changing.err)
		}
		changing.stop()
	}
	a.stop()
	a.start(t, func(c *Config) { c.Keys = [][]byte{[]byte(strings.Repeat("k", 32)), []byte(strings.Repeat("n", 32))} })
	a.wait(t)
	changed := newHost(t, "changed")
	changed.start(t, func(c *Config) {
		c.Keys, c.Join = [][]byte{[]byte(strings.Repeat("n", 32)), []byte(strings.Repeat("k", 32))}, []string{a.addr}
	})
	changed.wait(t)
	banned := newHost(t, "banned")
	a.stop()
	a.start(t, func(c *Config) {
		key(c)
		c.Admit = func(_ context.Context, p Peer) error {
			return &RefusedError{Reason: fmt.Sprintf("node %s was removed", p.ID)}
		}
	})
	banned.start(t, func(c *Config) { key(c); c.Join = []string{a.addr} })
	<-banned.done
	var refused *RefusedError
	if !errors.As(banned.err, &refused) || !strings.Contains(banned.err.Error(), "node banned was removed") {
		t.Errorf("a node that is not admitted: %v", banned.err)
	}
}

// TestNodeWithoutCertificate: a fresh node without a certificate does not wait for a cluster that requires one.
func TestNodeWithoutCertificate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with l
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte{0x15, 3, 3, 0, 2, 2, 40}) // the alert of TLS for a handshake that failed
			c.Close()
		}
	}()
	h := newHost(t, "a")
	h.start(t, joining(l.Addr().String()))
	<-h.done
	var without *NoCertificateError
	if !errors.As(h.err, &without) || without.Address != l.Addr().String() {
		t.Errorf("%v", h.err)
	}
}

// TestOnlyRefusalEndsJoin (F8): a node whose contact cannot admit it now asks again until it can.
func TestOnlyRefusalEndsJoin(t *testing.T) {
	a, b := newHost(t, "a"), newHost(t, "b")
	trouble := make(chan error, 3)
	trouble <- errors.New("the lock service has no leader")
	trouble <- fmt.Errorf("read the mark: %w", context.DeadlineExceeded)
	trouble <- &rpc.Error{Code: rpc.CodeOverloaded, Message: "too many requests"}
	a.start(t, func(c *Config) {
		c.Admit = func(context.Context, Peer) error {
			select {
			case err := <-trouble:
				return err
			default:
				return nil
			}
		}
	})
	a.wait(t)
	b.start(t, joining(a.addr))
	if o := b.wait(t); o.Cluster != a.outcome.Cluster {
		t.Errorf("joined %+v", o)
	}
	if len(trouble) > 0 || b.log.count("not admitted yet; retrying") != 1 {
		t.Errorf("%d errors were not returned; log:\n%s", len(trouble), b.log.text.String())
	}
}

// TestPromiseHoldsAlone: a node that has promised founds no cluster when started without flags.
func TestPromiseHoldsAlone(t *testing.T) {
	a := newHost(t, "a")
	a.store.state.Promise = &Promise{Founder: "n1", Attempt: 1, RPC: "h:1"}
	a.start(t, nil)
	<-a.done
	var promised *PromisedError
	if !errors.As(a.err, &promised) || a.store.cluster != "" {
		t.Errorf("got %v, cluster %q", a.err, a.store.cluster)
	}
}

// TestStoreFails: a node that cannot store a promise gives none.
func TestStoreFails(t *testing.T) {
	a, b := newHost(t, "a"), newHost(t, "b")
	flags := expecting(2, a.addr, b.addr)
	broken := errors.New("disk on fire")
	a.start(t, flags)
	b.start(t, func(c *Config) { flags(c); c.Store = &failingStore{memStore: b.store, err: broken} })
	<-b.done
	if !errors.Is(b.err, broken) {
		t.Errorf("got %v", b.err)
	}
	time.Sleep(200 * time.Millisecond)
	if a.store.cluster != "" {
		t.Errorf("founded with a promise that was not kept")
	}
	b.stop()
	b.start(t, flags)
	if a.wait(t).Cluster != b.wait(t).Cluster {
		t.Error("two clusters")
	}
}

type failingStore struct {
	*memStore
	err error
}

func (s *failingStore) Save(State) error { return s.err }

// TestRemovedStaysForgotten (F6): a removed member is not read from the file of peers, from a hello
// of a node that still knows it, or from gossip. A known one goes with ForgetRemoved.
func TestRemovedStaysForgotten(t *testing.T) {
	var gone sync.Map
	removed := func(id string) bool { _, ok := gone.Load(id); return ok }
	a := newHost(t, "a")
	a.store.cluster, a.store.founder = "c1", true
	left, other := Peer{ID: "left", RPC: "127.0.0.1:1", Gossip: "127.0.0.1:2"}, Peer{ID: "other", RPC: "127.0.0.1:3", Gossip: "127.0.0.1:4"}
	if err := (&peersFile{fs: vfs.OS(), path: a.peers}).write("c1", []Peer{left, other}); err != nil {
		t.Fatal(err)
	}
	a.start(t, func(c *Config) { c.Removed = removed })
	<-a.done
	knows := func(what string, want bool) {
		t.Helper()
		if got := a.service.Knows("left"); got != want || !a.service.Knows("other") {
			t.Errorf("%s: the removed node is known: %v, the other: %v", what, got, a.service.Knows("other"))
		}
		if got := slices.Contains(a.service.Seeds(), left.Gossip); got != want {
			t.Errorf("%s: the removed node is a seed: %v", what, got)
		}
	}
	knows("before it is removed", true)
	gone.Store("left", true)
	if err := a.service.ForgetRemoved(); err != nil {
		t.Fatal(err)
	}
	knows("removed", false)
	if kept, err := (&peersFile{fs: vfs.OS(), path: a.peers}).read("c1"); err != nil || len(kept) != 1 || kept[0].ID != "other" {
		t.Errorf("the file of peers has %v, %v", kept, err)
	}
	said := hello{Peer: other, cluster: "c1", members: []Peer{left}}
	receive := func(h hello) {
		t.Helper()
		a.service.mu.Lock()
		defer a.service.mu.Unlock()
		if err := a.service.handleHelloLocked("", h, false); err != nil {
			t.Fatal(err)
		}
	}
	receive(said)
	knows("named by another node", false)
	said.Peer, said.members = left, []Peer{other}
	receive(said)
	knows("says hello itself", false)
	if err := a.service.SetMembers([]Peer{left, other}, 0); err != nil {
		t.Fatal(err)
	}
	knows("listed by gossip", false)
	a.stop()
	if err := (&peersFile{fs: vfs.OS(), path: a.peers}).write("c1", []Peer{left, other}); err != nil {
		t.Fatal(err)
	}
	a.start(t, func(c *Config) { c.Removed = removed })
	<-a.done
	knows("in the file of a node that starts", false)
}
