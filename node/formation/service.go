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

// Service makes a node part of a cluster, and answers the calls of other nodes.
type Service struct {
	cfg  Config
	log  *slog.Logger
	keys [][]byte // fingerprints of the gossip keys, of which the first is sent; a nil one means no key
	join []string

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	file       peersFile
	rejections logLimiter // limits log lines about rejected nodes

	// mu guards the fields in it. It is held while the store writes, which happens a few times in a
	// node's life, so that no answer is sent before the state that it reports is durable.
	mu struct {
		sync.Mutex
		machine   *machine
		members   members
		cluster   string // empty while fresh
		raftEpoch uint64
		err       error           // why Run fails
		calling   map[string]bool // calls in progress
		// notAdmitted is the last error of a request to join.
		notAdmitted error
		foreign     map[string]error // why the node at an address to join is not of this cluster
		stopped     bool
		// join makes gossip contact a member; nil before SetGossip.
		join func(context.Context, Peer)
	}
	changed chan struct{} // holds a value after a change that Run waits for
}

// New returns a Service that makes no calls before Run.
func New(cfg Config) (*Service, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Service{cfg: cfg, log: cfg.Logger, changed: make(chan struct{}, 1)}
	for _, k := range cfg.Keys {
		f.keys = append(f.keys, fingerprint(k))
	}
	if len(f.keys) == 0 {
		f.keys = [][]byte{nil}
	}
	f.file.fs, f.file.path = cfg.FS, cfg.PeersFile
	for _, a := range cfg.Join {
		a, _ = WithPort(a) // validated
		if !slices.Contains(f.join, a) {
			f.join = append(f.join, a)
		}
	}
	f.mu.cluster, f.mu.raftEpoch = cfg.Cluster, cfg.RaftEpoch
	f.mu.calling, f.mu.foreign = map[string]bool{}, map[string]error{}
	remembered, err := f.file.read(cfg.Cluster)
	if err != nil { // they are optional
		f.log.Warn("remembered peers not read", "err", err)
	}
	f.mu.members = newMembers(cfg.Self, remembered, cfg.Removed)
	f.mu.machine = newMachine(cfg.Self, cfg.Expect, f.keys[0], cfg.Store.State(), cfg.newID)
	f.mu.machine.cluster = cfg.Cluster
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f, nil
}

// knowsKey reports whether a node with that key fingerprint may belong to the cluster.
func (f *Service) knowsKey(key []byte) bool {
	return f.cfg.Certified || slices.ContainsFunc(f.keys, func(own []byte) bool { return bytes.Equal(own, key) })
}

// newID returns the id of a cluster to be founded now.
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

// Run returns when the node belongs to a cluster, as recorded in the store. Errors:
// *OtherClusterError, *OtherKeyError, *PromisedError, *RefusedError, ctx's, those of the store.
// While it waits, it logs for what.
func (f *Service) Run(ctx context.Context) (Outcome, error) {
	if err := f.run(ctx); err != nil {
		return Outcome{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	o := Outcome{Cluster: f.mu.cluster, Founder: f.mu.machine.founder, RaftEpoch: f.mu.raftEpoch, Members: f.mu.members.known()}
	f.mu.machine.known = nil // fresh nodes call by themselves
	f.startLocked(f.findMembers)
	return o, nil
}

func (f *Service) run(ctx context.Context) error {
	fresh := f.cfg.Cluster == ""
	switch {
	case !fresh && (f.cfg.Voter || len(f.targets()) == 0):
		return nil
	case fresh && len(f.join) == 0 && f.cfg.Expect <= 1:
		return f.foundOfOne()
	}
	began, logged, wait := time.Now(), time.Now(), 20*time.Millisecond
	for {
		f.startRound(ctx)
		if done, err := f.finished(time.Since(began)); done || err != nil {
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
			return fmt.Errorf("wait for %s: %w", f.Waiting(), ctx.Err())
		case <-f.ctx.Done():
			timer.Stop()
			return errors.New("closed while waiting to join a cluster")
		}
		if pause := min(time.Since(began)/2, time.Minute); time.Since(logged) > max(pause, 5*time.Second) {
			logged = time.Now()
			f.log.Info("waiting to join a cluster", "reason", f.Waiting(), "took", time.Since(began).Round(time.Second))
		}
	}
}

// foundOfOne founds a cluster of one.
func (f *Service) foundOfOne() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.mu.machine.state.Promise; p != nil {
		return &PromisedError{Promise: *p}
	}
	f.mu.machine.cluster, f.mu.machine.founder = f.mu.machine.newID(), true
	f.applyLocked([]any{actFound{f.mu.machine.cluster}})
	return f.mu.err
}

// startRound starts the calls of one round.
func (f *Service) startRound(ctx context.Context) {
	seeds := resolve(ctx, f.join)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.machine.setSeeds(seeds)
	if f.mu.cluster == "" {
		f.applyLocked(f.mu.machine.tick())
		return
	}
	for _, addr := range f.mu.members.targets(seeds) {
		f.sendHelloLocked(addr)
	}
}

// otherWait is how long a node that only meets nodes of other clusters waits for one of its own.
const otherWait = 10 * time.Second

// finished reports whether Run is over.
func (f *Service) finished(waited time.Duration) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.mu.err != nil:
		return true, f.mu.err
	case f.mu.cluster != "" && (f.cfg.Cluster == "" || len(f.mu.members.discovered) > 0):
		return true, nil
	case len(f.mu.members.discovered) > 0 || f.mu.machine.seen != "":
		return false, nil
	}
	all := waited >= otherWait || !slices.ContainsFunc(f.mu.machine.seeds, func(addr string) bool {
		return f.mu.foreign[addr] == nil && f.mu.machine.answered[addr] != f.mu.members.self.ID
	})
	for _, addr := range f.mu.machine.seeds {
		if id := f.mu.machine.answered[addr]; id != "" && id != f.mu.members.self.ID {
			return false, nil // some may be ours
		}
	}
	for _, addr := range slices.Sorted(maps.Keys(f.mu.foreign)) {
		if all {
			return true, f.mu.foreign[addr]
		}
	}
	return false, nil
}

// applyLocked executes actions of the machine, in order.
func (f *Service) applyLocked(acts []any) {
	for _, a := range acts {
		if f.mu.err != nil {
			return
		}
		switch a := a.(type) {
		case actSave:
			f.mu.err = f.cfg.Store.Save(a.state)
			if p := a.state.Promise; p != nil && f.mu.err == nil {
				f.log.Info("promised to let another node found the cluster", "founder", p.Founder, "rpc", p.RPC)
			}
		case actFound:
			if f.mu.err = f.cfg.Store.Found(a.cluster); f.mu.err == nil {
				f.mu.cluster = a.cluster
				f.log.Info("cluster founded", "cluster", a.cluster, "nodes", len(f.mu.machine.granted)+1)
			}
		case actJoin:
			if f.mu.err = f.cfg.Store.Join(a.cluster); f.mu.err == nil {
				f.mu.cluster = a.cluster
				f.log.Info("joined cluster", "cluster", a.cluster)
			}
		case actHello:
			f.sendHelloLocked(a.to)
		case actPromise:
			f.callLocked(MethodPromise, a.to, func(ctx context.Context) { f.requestPromise(ctx, a) })
		case actAskJoin:
			f.callLocked(MethodJoin, a.to, func(ctx context.Context) { f.requestJoin(ctx, a) })
		}
	}
	if f.mu.err != nil || f.mu.cluster != "" {
		f.wake()
	}
}

func (f *Service) wake() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// callLocked runs a call in the background, one of a method to an address at a time.
func (f *Service) callLocked(method, addr string, call func(ctx context.Context)) {
	id := method + " " + addr
	if f.mu.calling[id] {
		return
	}
	f.mu.calling[id] = true
	started := f.startLocked(func() {
		ctx, cancel := context.WithTimeout(f.ctx, f.cfg.CallTimeout)
		defer cancel()
		call(ctx)
		f.mu.Lock()
		delete(f.mu.calling, id)
		f.mu.Unlock()
	})
	if !started {
		delete(f.mu.calling, id)
	}
}

// startLocked runs a goroutine that Close waits for. It returns false after Close.
func (f *Service) startLocked(run func()) bool {
	if f.mu.stopped {
		return false
	}
	f.tasks.Go(run)
	return true
}

// helloLocked returns this node's hello.
func (f *Service) helloLocked() hello {
	h := f.mu.machine.hello()
	h.Peer, h.cluster, h.version, h.raftEpoch = f.mu.members.self, f.mu.cluster, f.cfg.Version, f.mu.raftEpoch
	if f.mu.cluster != "" {
		h.fresh = nil
		h.members = sample(f.mu.members.known(), membersMax)
	}
	return h
}

// handleHelloLocked processes another node's hello. The error means that the node is not of this
// cluster.
func (f *Service) handleHelloLocked(addr string, h hello, answer bool) error {
	switch {
	case h.cluster != "" && f.mu.cluster != "" && h.cluster != f.mu.cluster:
		return &OtherClusterError{Address: addr, Node: nodeText(h.Peer), Ours: f.mu.cluster, Theirs: h.cluster}
	case !f.knowsKey(h.key):
		return &OtherKeyError{Address: addr, Node: nodeText(h.Peer)}
	case h.ID == f.mu.members.self.ID:
		if answer && f.seedLocked(addr) {
			f.mu.machine.answered[addr] = h.ID
		}
	case f.mu.cluster == "" && answer:
		f.applyLocked(f.mu.machine.helloAnswered(addr, h))
	case f.mu.cluster == "":
		f.applyLocked(f.mu.machine.onHello(h))
	case h.cluster == f.mu.cluster:
		f.discoverLocked(h)
	}
	return nil
}

// discoverLocked records a member of the cluster, and those that it names.
func (f *Service) discoverLocked(h hello) {
	if unknown := f.mu.members.discover(h.Peer, true); unknown && f.mu.join != nil {
		join := f.mu.join
		f.startLocked(func() { join(f.ctx, h.Peer) })
	}
	for _, p := range h.members {
		f.mu.members.discover(p, false)
	}
	f.mu.raftEpoch = max(f.mu.raftEpoch, h.raftEpoch)
	f.wake()
}

// Close stops the goroutines that Run left running.
func (f *Service) Close() error {
	f.mu.Lock()
	f.mu.stopped = true
	f.mu.Unlock()
	f.cancel()
	f.tasks.Wait()
	return nil
}

// textBytesMax bounds each string of a peer, in bytes.
const textBytesMax = 255

// valid reports whether a peer is complete and its strings are not too long.
func (p Peer) valid() bool {
	for _, s := range []string{p.ID, p.Name, p.RPC, p.Gossip} {
		if len(s) > textBytesMax {
			return false
		}
	}
	return p.ID != "" && p.RPC != ""
}
