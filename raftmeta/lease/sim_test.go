package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/raftmeta/api"
)

// rules are deliberate violations in a simulation, to show that its checks find them.
type rules struct {
	leaseFromAnswer bool // clients count the lease from the arrival of the answer
	noWait          bool // servers consider events acknowledged when they send them
	noGrace         bool // a new leader does not restart leases
	noVerify        bool // a leader assumes that it still leads
	keepCache       bool // clients keep their cache when their lease ends
}

// simClock is a clock with its own rate.
type simClock struct {
	start  time.Time
	offset time.Duration
	rate   float64
}

func newSimClock(rng *rand.Rand) *simClock {
	rate := 1 + api.ClockDrift*(2*rng.Float64()-1)
	if rng.IntN(2) == 0 { // the largest allowed drift
		rate = 1 + api.ClockDrift*float64(2*rng.IntN(2)-1)
	}
	return &simClock{start: time.Now(), offset: time.Duration(rng.Int64N(int64(time.Hour))), rate: rate}
}

func (c *simClock) Now() time.Duration {
	return c.offset + time.Duration(float64(time.Since(c.start))*c.rate)
}

func (c *simClock) NewTimer(d time.Duration) *time.Timer {
	return time.NewTimer(time.Duration(float64(d)/c.rate) + 1)
}

// sim is a group of servers over a log that cannot fail but whose leader may change at any time.
// Servers learn with delays that they lead or have led.
type sim struct {
	broken rules
	ctx    context.Context
	rng    *simRand

	// mu guards the fields in it, and truth.
	mu struct {
		sync.Mutex
		term    uint64
		leader  *simServer
		log     []fsm.Entry
		pending []*simProposal
		// truth has applied every committed command at the moment of its commit.
		truth *fsm.Machine
	}
	propose chan struct{}
	servers []*simServer
	clients []simUser
	checks  *simChecks
	// elections counts changes of leader, each when the old leadership ends.
	elections atomic.Int64
	wg        sync.WaitGroup
}

type simProposal struct {
	data   []byte
	answer chan simOutcome
}

// simRand is a source of randomness for all goroutines.
type simRand struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (r *simRand) IntN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(n)
}

// delay returns a delay that is usually short and sometimes long.
func (r *simRand) delay(longest time.Duration) time.Duration {
	n := longest
	if r.IntN(10) > 0 {
		n = longest / 20
	}
	return time.Duration(r.IntN(int(n) + 1))
}

// simOutcome is the outcome of a proposal.
type simOutcome struct {
	result fsm.Result
	err    error
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func newSim(ctx context.Context, seed uint64, broken rules, client func(*sim, int, *rand.Rand) simUser) *sim {
	v := &sim{broken: broken, ctx: ctx, propose: make(chan struct{}, 1)}
	rng := rand.New(rand.NewPCG(seed, 1))
	v.rng = &simRand{rng: rand.New(rand.NewPCG(seed, 2))}
	v.checks = newSimChecks(v)
	v.mu.truth = fsm.NewMachine(func(err error) { v.checks.fail("truth: %v", err) })
	v.mu.truth.Observe(v.checks.observe)
	for i := range 3 {
		s := &simServer{sim: v, id: fmt.Sprint("n", i), clock: newSimClock(rng), duties: make(chan func(), 100)}
		s.machine = fsm.NewMachine(func(err error) { v.checks.fail("%s: %v", s.id, err) })
		s.service = NewService(s, s.machine, s.clock, nil)
		v.servers = append(v.servers, s)
		v.wg.Go(s.loop)
	}
	for i := range 4 {
		v.clients = append(v.clients, client(v, i, rand.New(rand.NewPCG(seed, uint64(10+i)))))
	}
	v.wg.Go(v.commitLoop)
	v.wg.Go(func() { v.electLoop(rand.New(rand.NewPCG(seed, 3))) })
	for _, c := range v.clients {
		v.wg.Go(c.run)
	}
	v.wg.Go(v.checks.loop)
	return v
}

// commitLoop commits what the leader has stored, in order.
func (v *sim) commitLoop() {
	for {
		select {
		case <-v.propose:
		case <-v.ctx.Done():
			return
		}
		for {
			v.mu.Lock()
			n, term := len(v.mu.pending), v.mu.term
			v.mu.Unlock()
			if n == 0 || !sleep(v.ctx, v.rng.delay(60*time.Millisecond)) {
				break
			}
			v.mu.Lock()
			if v.mu.term == term {
				leader := v.mu.leader
				for _, p := range v.mu.pending[:n] {
					v.commitLocked(p.data)
					r := leader.applyLocked()
					p.answer <- simOutcome{result: r}
				}
				v.mu.pending = v.mu.pending[n:]
			}
			v.mu.Unlock()
		}
	}
}

// commitLocked commits a command.
func (v *sim) commitLocked(data []byte) {
	l := fsm.Entry{Index: uint64(len(v.mu.log) + 1), Term: v.mu.term, Command: data}
	v.mu.log = append(v.mu.log, l)
	v.mu.truth.Apply(l)
}

// electLoop changes the leader from time to time. The new leader's log has a random prefix of what
// the old one has stored and not committed.
func (v *sim) electLoop(rng *rand.Rand) {
	for pause := time.Duration(0); sleep(v.ctx, pause); pause = time.Duration(rng.Int64N(int64(8 * time.Second))) {
		next := v.servers[rng.IntN(len(v.servers))]
		v.elections.Add(1)
		v.mu.Lock()
		old := v.mu.leader
		if len(v.mu.pending) > 0 {
			adopted := rng.IntN(len(v.mu.pending) + 1)
			for i, p := range v.mu.pending {
				if i < adopted {
					v.commitLocked(p.data)
				}
				p.answer <- simOutcome{err: api.ErrOutcomeUnknown}
			}
			v.mu.pending = nil
		}
		v.mu.term++
		v.mu.leader = next
		term := v.mu.term
		v.mu.Unlock()
		if old != nil && old != next {
			learns := v.rng.delay(6 * time.Second)
			v.wg.Go(func() {
				if sleep(v.ctx, learns) {
					old.duties <- func() { old.deposed(term - 1) }
				}
			})
		}
		catchUp := v.rng.delay(time.Second)
		next.duties <- func() { next.elected(term, catchUp) }
	}
}

// simServer is one server: the machine, the service, and its own view of leadership.
type simServer struct {
	sim     *sim
	id      string
	clock   *simClock
	machine *fsm.Machine
	service *Service
	// duties are changes of leadership, of which the server learns one by one.
	duties chan func()
	// led is the term in which the server believes that it leads.
	led     atomic.Uint64
	applied int // guarded by sim.mu
}

func (s *simServer) loop() {
	defer s.service.Follow()
	for {
		select {
		case f := <-s.duties:
			f()
		case <-s.sim.ctx.Done():
			return
		}
	}
}

func (s *simServer) deposed(term uint64) {
	if s.led.CompareAndSwap(term, 0) {
		s.service.Follow()
	}
}

func (s *simServer) elected(term uint64, catchUp time.Duration) {
	s.led.Store(0)
	s.service.Follow()
	if !sleep(s.sim.ctx, catchUp) {
		return
	}
	s.sim.mu.Lock()
	still := s.sim.mu.term == term
	if still {
		s.applyLocked()
	}
	s.sim.mu.Unlock()
	if !still {
		return
	}
	s.led.Store(term)
	s.service.Lead(term)
	if s.sim.broken.noGrace {
		k := s.service.setManager(nil)
		s.service.setManager(k)
		k.mu.Lock()
		for _, t := range k.mu.sessions {
			t.end = k.clock.Now()
			k.mu.timers.schedule(t)
		}
		k.mu.Unlock()
	}
}

// applyLocked applies the committed log, and returns the last result.
func (s *simServer) applyLocked() (r fsm.Result) {
	for ; s.applied < len(s.sim.mu.log); s.applied++ {
		r = s.machine.Apply(s.sim.mu.log[s.applied])
	}
	return r
}

func (s *simServer) Usable() error     { return s.sim.ctx.Err() }
func (s *simServer) Leading() uint64   { return s.led.Load() }
func (s *simServer) NotLeading() error { return &api.NotLeaderError{} }
func (s *simServer) CheckDisk() error  { return nil }

func (s *simServer) Verify(ctx context.Context) (uint64, error) {
	term := s.led.Load()
	if term == 0 {
		return 0, s.NotLeading()
	}
	if !sleep(ctx, s.sim.rng.delay(100*time.Millisecond)) {
		return 0, ctx.Err()
	}
	s.sim.mu.Lock()
	leads := s.sim.mu.term == term
	s.sim.mu.Unlock()
	if !leads && !s.sim.broken.noVerify {
		return 0, s.NotLeading()
	}
	// The answer may be delayed.
	if !sleep(ctx, s.sim.rng.delay(time.Second)) {
		return 0, ctx.Err()
	}
	return term, nil
}

func (s *simServer) Propose(ctx context.Context, c fsm.Command) (fsm.Result, error) {
	// On its way to the log it may be overtaken, also by a change of leader.
	if !sleep(ctx, s.sim.rng.delay(300*time.Millisecond)) {
		return fsm.Result{}, ctx.Err()
	}
	p := &simProposal{data: c.Encode(), answer: make(chan simOutcome, 1)}
	s.sim.mu.Lock()
	leads := s.sim.mu.leader == s
	if leads {
		s.sim.mu.pending = append(s.sim.mu.pending, p)
		signal(s.sim.propose)
	}
	s.sim.mu.Unlock()
	if !leads {
		// It is stored where it will never be committed.
		if !sleep(ctx, s.sim.rng.delay(time.Second)) {
			return fsm.Result{}, fmt.Errorf("%w: %w", api.ErrOutcomeUnknown, ctx.Err())
		}
		return fsm.Result{}, api.ErrOutcomeUnknown
	}
	select {
	case a := <-p.answer:
		return a.result, a.err
	case <-ctx.Done():
		return fsm.Result{}, fmt.Errorf("%w: %w", api.ErrOutcomeUnknown, ctx.Err())
	}
}
