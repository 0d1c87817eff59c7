package formation

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Former brings a node into a cluster, and tells others of it afterwards.
type Former struct {
	cfg  Config
	log  *slog.Logger
	keys [][]byte // fingerprints of the gossip keys; the first is told. One that is nil is of none
	join []string

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	file     peersFile
	refusals quiet // lines about nodes that were refused

	// mu guards the fields in it. It is held while the store writes, so that no answer
	// overtakes what it says; that is a few times in a node's life.
	mu struct {
		sync.Mutex
		machine   *machine
		self      Peer
		cluster   string // empty while fresh
		raftEpoch uint64
		err       error            // why the node cannot go on
		members   []Peer           // by SetMembers
		heard     map[string]Peer  // by id, members that spoke themselves
		kept      []Peer           // remembered from the last run, not yet seen
		asking    map[string]bool  // questions under way
		wrong     map[string]error // address to join: why the node there is none of ours
		stopped   bool
		// join has gossip know a member; nil before SetGossip.
		join func(context.Context, Peer)
	}
	changed chan struct{} // holds a value after a change that Run waits for
}

// New returns a Former. It talks to nobody before Run.
func New(cfg Config) (*Former, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Former{cfg: cfg, log: cfg.Logger, changed: make(chan struct{}, 1)}
	for _, k := range cfg.Keys {
		f.keys = append(f.keys, fingerprint(k))
	}
	if len(f.keys) == 0 {
		f.keys = [][]byte{nil}
	}
	f.file.path = cfg.PeersFile
	for _, a := range cfg.Join {
		a, _ = WithPort(a) // validated
		if !slices.Contains(f.join, a) {
			f.join = append(f.join, a)
		}
	}
	f.mu.self, f.mu.cluster, f.mu.raftEpoch = cfg.Self, cfg.Cluster, cfg.RaftEpoch
	f.mu.heard, f.mu.asking, f.mu.wrong = map[string]Peer{}, map[string]bool{}, map[string]error{}
	f.mu.kept, err = readPeers(cfg.PeersFile, cfg.Cluster)
	if err != nil { // they are a help, not needed
		f.log.Warn("remembered peers cannot be read", "error", err)
	}
	f.mu.kept = slices.DeleteFunc(f.mu.kept, func(p Peer) bool { return cfg.Removed(p.ID) })
	f.mu.machine = newMachine(cfg.Self, cfg.Expect, f.keys[0], cfg.Store.State(), cfg.newID)
	f.mu.machine.cluster = cfg.Cluster
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f, nil
}

// knowsKey reports whether a node with that fingerprint of its gossip key may be one of the cluster.
func (f *Former) knowsKey(key []byte) bool {
	return f.cfg.Certified || slices.ContainsFunc(f.keys, func(own []byte) bool { return bytes.Equal(own, key) })
}

// newID returns the id of a cluster that is founded now.
func (c *Config) newID() string {
	if c.Found != "" {
		return c.Found
	}
	return randomHex(8)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// Run returns when the node belongs to a cluster, which the store then says, or
// cannot: *OtherClusterError, *OtherKeyError, *PromisedError, *RefusedError, ctx's
// error, or one of the store. A node that waits says for what in its log.
func (f *Former) Run(ctx context.Context) (Outcome, error) {
	if err := f.run(ctx); err != nil {
		return Outcome{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	o := Outcome{Cluster: f.mu.cluster, Founder: f.mu.machine.founder, RaftEpoch: f.mu.raftEpoch, Members: f.knownLocked()}
	f.mu.machine.known = nil // fresh nodes ask by themselves
	f.startLocked(f.keepGreeting)
	return o, nil
}

func (f *Former) run(ctx context.Context) error {
	fresh := f.cfg.Cluster == ""
	switch {
	case !fresh && (f.cfg.Voter || len(f.targets()) == 0):
		return nil
	case fresh && len(f.join) == 0 && f.cfg.Expect <= 1:
		return f.foundAlone()
	}
	began, told, wait := time.Now(), time.Now(), 20*time.Millisecond
	for {
		f.ask(ctx)
		if done, err := f.settled(time.Since(began)); done || err != nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			wait = min(2*wait, f.cfg.Round)
		case <-f.changed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w while the node waits: %s", ctx.Err(), f.Waiting())
		case <-f.ctx.Done():
			timer.Stop()
			return errors.New("closed while the node waits to be part of a cluster")
		}
		if pause := min(time.Since(began)/2, time.Minute); time.Since(told) > max(pause, 5*time.Second) {
			told = time.Now()
			f.log.Info("waits to be part of a cluster", "for", f.Waiting(), "since", time.Since(began).Round(time.Second))
		}
	}
}

// foundAlone makes a cluster of one.
func (f *Former) foundAlone() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.mu.machine.state.Promise; p != nil {
		return &PromisedError{Promise: *p}
	}
	f.mu.machine.cluster, f.mu.machine.founder = f.mu.machine.newID(), true
	f.takeLocked([]any{actFound{f.mu.machine.cluster}})
	return f.mu.err
}

// ask sends the questions of one round.
func (f *Former) ask(ctx context.Context) {
	seeds := resolve(ctx, f.join)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.machine.setSeeds(seeds)
	if f.mu.cluster == "" {
		f.takeLocked(f.mu.machine.tick())
		return
	}
	for _, addr := range f.targetsLocked(seeds) {
		f.greetLocked(addr)
	}
}

// otherWait is how long a node that only meets others which are none of its own
// waits for some of its own.
const otherWait = 10 * time.Second

// settled tells whether Run is over.
func (f *Former) settled(waited time.Duration) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.mu.err != nil:
		return true, f.mu.err
	case f.mu.cluster != "" && (f.cfg.Cluster == "" || len(f.mu.heard) > 0):
		return true, nil
	case len(f.mu.heard) > 0 || f.mu.machine.seen != "":
		return false, nil
	}
	all := waited >= otherWait || !slices.ContainsFunc(f.mu.machine.seeds, func(addr string) bool {
		return f.mu.wrong[addr] == nil && f.mu.machine.answered[addr] != f.mu.self.ID
	})
	for _, addr := range f.mu.machine.seeds {
		if id := f.mu.machine.answered[addr]; id != "" && id != f.mu.self.ID {
			return false, nil // some are ours
		}
	}
	for _, addr := range slices.Sorted(maps.Keys(f.mu.wrong)) {
		if all {
			return true, f.mu.wrong[addr]
		}
	}
	return false, nil
}

// takeLocked carries actions of the machine out, in order.
func (f *Former) takeLocked(acts []any) {
	for _, a := range acts {
		if f.mu.err != nil {
			return
		}
		switch a := a.(type) {
		case actSave:
			f.mu.err = f.cfg.Store.Save(a.state)
			if p := a.state.Promise; p != nil && f.mu.err == nil {
				f.log.Info("promised another node that it may found the cluster", "founder", p.Founder, "rpc", p.RPC)
			}
		case actFound:
			if f.mu.err = f.cfg.Store.Found(a.cluster); f.mu.err == nil {
				f.mu.cluster = a.cluster
				f.log.Info("founds the cluster", "cluster", a.cluster, "with", len(f.mu.machine.granted)+1)
			}
		case actJoin:
			if f.mu.err = f.cfg.Store.Join(a.cluster); f.mu.err == nil {
				f.mu.cluster = a.cluster
				f.log.Info("joined the cluster", "cluster", a.cluster)
			}
		case actHello:
			f.greetLocked(a.to)
		case actPromise:
			f.questionLocked(MethodPromise, a.to, func(ctx context.Context) { f.askPromise(ctx, a) })
		case actAskJoin:
			f.questionLocked(MethodJoin, a.to, func(ctx context.Context) { f.askJoin(ctx, a) })
		}
	}
	if f.mu.err != nil || f.mu.cluster != "" {
		f.wake()
	}
}

func (f *Former) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// questionLocked asks in the background, one question of a kind to an address at a
// time.
func (f *Former) questionLocked(method, addr string, ask func(ctx context.Context)) {
	id := method + " " + addr
	if f.mu.asking[id] {
		return
	}
	f.mu.asking[id] = true
	started := f.startLocked(func() {
		ctx, cancel := context.WithTimeout(f.ctx, f.cfg.CallTimeout)
		defer cancel()
		ask(ctx)
		f.mu.Lock()
		delete(f.mu.asking, id)
		f.mu.Unlock()
	})
	if !started {
		delete(f.mu.asking, id)
	}
}

// startLocked is the one place where goroutines begin; Close joins them.
func (f *Former) startLocked(run func()) bool {
	if f.mu.stopped {
		return false
	}
	f.tasks.Go(run)
	return true
}

// helloLocked returns what the node tells of itself.
func (f *Former) helloLocked() hello {
	h := f.mu.machine.hello()
	h.Peer, h.cluster, h.version, h.raftEpoch = f.mu.self, f.mu.cluster, f.cfg.Version, f.mu.raftEpoch
	if f.mu.cluster != "" {
		h.fresh = nil
		h.members = some(f.knownLocked(), membersMax)
	}
	return h
}

// takeHelloLocked takes in what another node says of itself. The error is for one
// that is none of ours.
func (f *Former) takeHelloLocked(addr string, h hello, answer bool) error {
	switch {
	case h.cluster != "" && f.mu.cluster != "" && h.cluster != f.mu.cluster:
		return &OtherClusterError{Address: addr, Node: nodeText(h.Peer), Ours: f.mu.cluster, Theirs: h.cluster}
	case !f.knowsKey(h.key):
		return &OtherKeyError{Address: addr, Node: nodeText(h.Peer)}
	case h.ID == f.mu.self.ID:
		if answer && f.seedLocked(addr) {
			f.mu.machine.answered[addr] = h.ID
		}
	case f.mu.cluster == "" && answer:
		f.takeLocked(f.mu.machine.helloAnswered(addr, h))
	case f.mu.cluster == "":
		f.takeLocked(f.mu.machine.onHello(h))
	case h.cluster == f.mu.cluster:
		f.meetLocked(h)
	}
	return nil
}

// meetLocked notes a member of the cluster.
func (f *Former) meetLocked(h hello) {
	hear := func(p Peer, news bool) {
		_, known := f.mu.heard[p.ID]
		room := known && news || !known && len(f.mu.heard) < peersMax
		if !room || p.ID == f.mu.self.ID || !p.sane() || f.cfg.Removed(p.ID) {
			return
		}
		met := f.metLocked(p)
		f.mu.heard[p.ID] = p
		if join := f.mu.join; !met && news && join != nil {
			f.startLocked(func() { join(f.ctx, p) })
		}
	}
	hear(h.Peer, true)
	for _, p := range h.members {
		hear(p, false)
	}
	f.mu.raftEpoch = max(f.mu.raftEpoch, h.raftEpoch)
	f.wake()
}

// metLocked tells whether a member is known with this address.
func (f *Former) metLocked(p Peer) bool {
	same := func(m Peer) bool { return m.ID == p.ID && m.Gossip == p.Gossip }
	return p.Gossip == "" || same(f.mu.heard[p.ID]) || slices.ContainsFunc(f.mu.members, same)
}

// Close ends what Run left running.
func (f *Former) Close() error {
	f.mu.Lock()
	f.mu.stopped = true
	f.mu.Unlock()
	f.cancel()
	f.tasks.Wait()
	return nil
}

// textBytesMax bounds each word that a node says of itself.
const textBytesMax = 255

// sane tells whether a peer's words are of a size worth remembering.
func (p Peer) sane() bool {
	for _, s := range []string{p.ID, p.Name, p.RPC, p.Gossip} {
		if len(s) > textBytesMax {
			return false
		}
	}
	return p.ID != "" && p.RPC != ""
}
