package acl

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/steledb/stele/table"
)

// lockService models the real one: a write of a cached file completes only when no session caches
// it.
type lockService struct {
	mu       sync.Mutex
	files    map[string][]byte
	epoch    uint64
	sessions []*session
}

// session is the session of one node. It implements Files.
type session struct {
	service *lockService
	cached  atomic.Uint64 // the epoch, or 0
	broken  atomic.Bool   // the lease is lost
	reads   atomic.Int64
	slow    func()
	fail    error
}

func newLockService() *lockService {
	return &lockService{files: map[string][]byte{}, epoch: 1}
}

func (l *lockService) open() *session {
	s := &session{service: l, slow: func() {}}
	l.sessions = append(l.sessions, s)
	return s
}

// put writes a file without changing the epoch.
func (l *lockService) put(path string, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if data == nil {
		delete(l.files, path)
		return
	}
	l.files[path] = data
}

// change changes a right.
func (l *lockService) change(path string, data []byte) {
	l.put(path, data)
	runtime.Gosched()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		s.cached.Store(0)
	}
	l.epoch++
}

func (s *session) Epoch(context.Context) (uint64, error) {
	if s.fail != nil {
		return 0, s.fail
	}
	s.service.mu.Lock()
	defer s.service.mu.Unlock()
	s.cached.Store(s.service.epoch)
	return s.service.epoch, nil
}

func (s *session) Holds(epoch uint64) bool { return !s.broken.Load() && s.cached.Load() == epoch }

func (s *session) Get(_ context.Context, path string) ([]byte, error) {
	s.reads.Add(1)
	s.slow()
	defer s.slow()
	if s.fail != nil {
		return nil, s.fail
	}
	s.service.mu.Lock()
	defer s.service.mu.Unlock()
	return s.service.files[path], nil
}

func encoded(p *Policy, gs ...Grant) []byte {
	for _, g := range gs {
		var err error
		if p, err = p.Grant(g); err != nil {
			panic(err)
		}
	}
	return p.Encode()
}

// span is the time of a check, or the time during which a right was granted or not, on the test's
// clock.
type span struct {
	from, to int64
	allowed  bool
}

// TestRevocations: AC3. Servers check rights through every method while rights are granted and
// revoked.
func TestRevocations(t *testing.T) {
	rng := random(t)
	s := schemaOf(t, 16, "a", "b")
	on := map[string][]byte{
		TableFile(16):        encoded(&Policy{Table: 16}, Grant{"ann", 1, Read}),
		ClusterFile:          encoded(&Policy{}, Grant{"*", 0, Read}),
		PrincipalFile("ann"): (&Principal{Name: "ann", Generation: 5}).Encode(),
	}
	off := map[string][][]byte{
		TableFile(16):        {nil, encoded(&Policy{Table: 16}), encoded(&Policy{Table: 16}, Grant{"bob", 0, Admin})},
		ClusterFile:          {nil, encoded(&Policy{}, Grant{"bob", 0, Read})},
		PrincipalFile("ann"): {nil, (&Principal{Name: "ann", Disabled: true}).Encode(), (&Principal{Name: "ann", Generation: 6}).Encode()},
	}
	for path, offs := range off {
		service := newLockService()
		service.put(PrincipalFile("ann"), on[PrincipalFile("ann")])
		if path == PrincipalFile("ann") {
			service.put(TableFile(16), on[TableFile(16)])
		}
		var clock, ended atomic.Int64
		var stop atomic.Bool
		var wg sync.WaitGroup
		const servers, checkers = 2, 2
		checks := make([][]span, servers*checkers)
		for i := range servers {
			files := service.open()
			files.slow = runtime.Gosched
			c := NewCache(files)
			for j := range checkers {
				wg.Go(func() {
					for !stop.Load() {
						ck := span{from: clock.Add(1)}
						var ticket Ticket
						var err error
						if path == ClusterFile && j == 0 {
							ticket, err = c.CheckCluster(context.Background(), "ann", 5, Read)
							ck.allowed = err == nil
						} else {
							var v *View
							v, ticket, err = c.View(context.Background(), "ann", 5, s)
							ck.allowed = err == nil && v.CheckRead() == nil
						}
						if holds := c.Holds(ticket); errors.Is(err, ErrUncertain) || ck.allowed && !holds {
							continue // refused because the epoch is not certain
						}
						ck.to = clock.Add(1)
						ended.Add(1)
						checks[i*checkers+j] = append(checks[i*checkers+j], ck)
						runtime.Gosched()
					}
				})
			}
		}
		var states []span // spans in which the right was granted, or not, throughout
		stay := func(allowed bool) {
			from := clock.Add(1)
			for until := ended.Load() + rng.Int64N(2*servers*checkers); ended.Load() < until; {
				runtime.Gosched()
			}
			states = append(states, span{from, clock.Add(1), allowed})
		}
		service.change(path, offs[0])
		for range soak(60) {
			stay(false)
			service.change(path, on[path])
			stay(true)
			service.change(path, offs[rng.IntN(len(offs))])
		}
		stop.Store(true)
		wg.Wait()
		verifyChecks(t, path, slices.Concat(checks...), states)
	}
}

// verifyChecks compares each check with the state of the right if that did not change during the
// check.
func verifyChecks(t *testing.T, path string, checks, states []span) {
	t.Helper()
	count := map[bool]int{}
	for _, ck := range checks {
		i, _ := slices.BinarySearchFunc(states, ck.from, func(s span, at int64) int { return int(s.to - at) })
		if i == len(states) || states[i].from > ck.from || states[i].to < ck.to {
			continue
		}
		count[ck.allowed]++
		if ck.allowed != states[i].allowed {
			t.Fatalf("%s: a check from %d to %d returned %v, but the right was constant from %d to %d: %v",
				path, ck.from, ck.to, ck.allowed, states[i].from, states[i].to, states[i].allowed)
		}
	}
	if count[true] < 20 || count[false] < 20 {
		t.Errorf("%s: only %d checks were allowed and %d refused", path, count[true], count[false])
	}
}

// TestChangeWhileRead: rights that change while they are read are read again. An outdated view is
// neither returned nor cached.
func TestChangeWhileRead(t *testing.T) {
	s := schemaOf(t, 16, "a")
	service := newLockService()
	service.put(PrincipalFile("ann"), (&Principal{Name: "ann"}).Encode())
	service.put(TableFile(16), encoded(&Policy{Table: 16}, Grant{"ann", 0, Read}))
	files := service.open()
	c := NewCache(files)
	reads := 0
	files.slow = func() {
		if reads++; reads == 6 { // after the last file was read
			service.change(TableFile(16), nil)
		}
	}
	if v, _, err := c.View(context.Background(), "ann", 0, s); err != nil || v.CheckRead() == nil {
		t.Errorf("a right that was revoked while it was read: %v", err)
	}
	files.slow = func() { service.change(TableFile(16), nil) }
	if _, _, err := c.View(context.Background(), "ann", 0, schemaOf(t, 17, "a")); !errors.Is(err, ErrUncertain) {
		t.Errorf("rights that change constantly: %v", err)
	}
}

// TestSlowReader: a slow reader does not replace newer cached rights by older ones.
func TestSlowReader(t *testing.T) {
	s := schemaOf(t, 16, "a")
	service := newLockService()
	service.put(PrincipalFile("ann"), (&Principal{Name: "ann"}).Encode())
	service.put(TableFile(16), encoded(&Policy{Table: 16}, Grant{"ann", 0, Read}))
	files := service.open()
	c := NewCache(files)
	ctx := context.Background()
	if v, ticket, err := c.View(ctx, "ann", 0, s); err != nil || v.CheckRead() != nil || !c.Holds(ticket) {
		t.Fatal(err)
	}
	old := NewView("ann", nil, &Policy{Table: 16, Grants: []Grant{{"ann", 0, Read}}}, s)
	service.change(TableFile(16), nil)
	if v, _, err := c.View(ctx, "ann", 0, s); err != nil || v.CheckRead() == nil {
		t.Fatal("the change is not seen", err)
	}
	c.insert(1, 1, func() { c.mu.views[viewKey{"ann", 16}] = old })
	if v, _, err := c.View(ctx, "ann", 0, s); err != nil || v.CheckRead() == nil {
		t.Error("an outdated view was cached", err)
	}
	service.put(ClusterFile, encoded(&Policy{}, Grant{"ann", 0, Read}))
	if p, err := c.grants(ctx, Cluster, 99); err != nil || len(p.Grants) != 1 {
		t.Error("outdated grants were used at a later epoch", err)
	}
}

// TestUnknownRightsAreDenied: AC4.
func TestUnknownRightsAreDenied(t *testing.T) {
	s := schemaOf(t, 16, "a")
	ctx := context.Background()
	service := newLockService()
	service.put(PrincipalFile("ann"), (&Principal{Name: "ann"}).Encode())
	service.put(ClusterFile, encoded(&Policy{}, Grant{"ann", 0, Admin}))
	files := service.open()
	c := NewCache(files)
	_, ticket, err := c.View(ctx, "ann", 0, s)
	if err != nil || !c.Holds(ticket) {
		t.Fatal(err)
	}
	if _, err := c.CheckCluster(ctx, "ann", 0, Admin); err != nil {
		t.Fatal(err)
	}

	both := func(what string, want error) {
		t.Helper()
		if _, _, err := c.View(ctx, "ann", 0, s); !errors.Is(err, want) {
			t.Errorf("%s: view: %v, want %v", what, err, want)
		}
		if _, err := c.CheckCluster(ctx, "ann", 0, Read); !errors.Is(err, want) {
			t.Errorf("%s: cluster: %v, want %v", what, err, want)
		}
	}
	files.broken.Store(true)
	if c.Holds(ticket) {
		t.Error("a ticket holds without a lease")
	}
	both("no lease", ErrUncertain)
	files.broken.Store(false)
	files.cached.Store(0)
	files.fail = errors.New("no leader")
	both("no leader", files.fail)
	files.fail = nil
	var bad *RecordError
	for path, record := range map[string][]byte{
		PrincipalFile("ann"): {0x95, 0x02}, ClusterFile: {0xc0}, TableFile(16): encoded(&Policy{Table: 17}, Grant{"ann", 0, Admin}),
	} {
		kept := service.files[path]
		service.change(path, record)
		if _, _, err := c.View(ctx, "ann", 0, s); !errors.As(err, &bad) {
			t.Errorf("damaged %s: %v", path, err)
		}
		service.change(path, kept)
	}
	service.change(PrincipalFile("ann"), (&Principal{Name: "bob"}).Encode())
	if _, _, err := c.View(ctx, "ann", 0, s); !errors.As(err, &bad) {
		t.Errorf("another's record: %v", err)
	}
	service.change(PrincipalFile("ann"), nil)
	both("no principal", ErrUnknownPrincipal)
	service.change(PrincipalFile("ann"), (&Principal{Name: "ann", Disabled: true}).Encode())
	both("disabled", ErrDisabled)
	service.change(PrincipalFile("ann"), (&Principal{Name: "ann", Generation: 1}).Encode())
	both("revoked", ErrRevoked)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := c.View(ended, "ann", 1, s); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: %v", err)
	}
}

// TestGenerationsInCache: a cached view is not returned for a revoked certificate.
func TestGenerationsInCache(t *testing.T) {
	s := schemaOf(t, 16, "a")
	service := newLockService()
	service.put(PrincipalFile("ann"), (&Principal{Name: "ann", Generation: 5}).Encode())
	c := NewCache(service.open())
	for range 2 {
		if _, _, err := c.View(context.Background(), "ann", 5, s); err != nil {
			t.Error(err)
		}
		if _, _, err := c.View(context.Background(), "ann", 4, s); !errors.Is(err, ErrRevoked) {
			t.Errorf("an older certificate: %v", err)
		}
	}
}

// TestCacheAvoidsReads: cached rights are not read again; changed rights are.
func TestCacheAvoidsReads(t *testing.T) {
	service := newLockService()
	service.put(PrincipalFile("ann"), (&Principal{Name: "ann"}).Encode())
	files := service.open()
	c := NewCache(files)
	ctx := context.Background()
	s := schemaOf(t, 16, "a")
	view := func(s *table.Schema, want int64) {
		t.Helper()
		before := files.reads.Load()
		v, _, err := c.View(ctx, "ann", 0, s)
		if err != nil || v.Schema() != s {
			t.Fatal(v, err)
		}
		if n := files.reads.Load() - before; n != want {
			t.Errorf("%d files were read, want %d", n, want)
		}
	}
	view(s, 3)
	for range 100 {
		view(s, 0)
	}
	if n := testing.AllocsPerRun(100, func() { _, _, _ = c.View(ctx, "ann", 0, s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	altered, err := s.AddFamily(table.Family{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	view(altered, 0) // the principal and the grants are cached
	service.change(ClusterFile, nil)
	view(altered, 3)
	before := files.reads.Load()
	for range 10 {
		if _, _, err := c.View(ctx, "nobody", 0, s); !errors.Is(err, ErrUnknownPrincipal) {
			t.Fatal(err)
		}
		if _, err := c.CheckCluster(ctx, "ann", 0, Read); !errors.Is(err, ErrDenied) {
			t.Fatal(err)
		}
	}
	if n := files.reads.Load() - before; n != 1 {
		t.Errorf("%d files were read for an unknown principal and for cached rights", n)
	}
	for i := range 2 * viewsMax {
		if _, _, err := c.View(ctx, "ann", 0, &table.Schema{Name: "x", ID: uint64(100 + i)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.mu.views) + len(c.mu.principals) + len(c.mu.policies); n > viewsMax || c.mu.weight < n {
		t.Errorf("%d views are cached, want at most %d", n, viewsMax)
	}
}

// TestClusterRightNow: a rejected principal is known from the cache, also if nothing else was read.
func TestClusterRightNow(t *testing.T) {
	service := newLockService()
	service.put(PrincipalFile("ann"), (&Principal{Name: "ann", Generation: 5}).Encode())
	service.put(PrincipalFile("bob"), (&Principal{Name: "bob", Disabled: true}).Encode())
	for name, want := range map[string]error{"ann": ErrRevoked, "bob": ErrDisabled, "nobody": ErrUnknownPrincipal} {
		files := service.open()
		c := NewCache(files)
		for range 2 {
			if err, known := c.CheckClusterNow(name, 4, Write); known {
				t.Errorf("%s is known without a read: %v", name, err)
			}
			if _, err := c.CheckCluster(t.Context(), name, 4, Write); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
			reads := files.reads.Load()
			if err, known := c.CheckClusterNow(name, 4, Write); !known || !errors.Is(err, want) || files.reads.Load() != reads {
				t.Errorf("%s, after a read: known %v, %v, want %v", name, known, err, want)
			}
			service.change(PrincipalFile("other"), nil)
		}
	}
}
