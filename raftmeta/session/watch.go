package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/raftmeta/api"
)

// watches are the watches of a session: one per path at the leader, and any number of Watchers
// here.
type watches struct {
	s *Session
	// mu guards the fields in it and in every Watcher. It is never held across I/O.
	mu struct {
		sync.Mutex
		paths map[string]*watch
		all   map[uint64]*Watcher // by number
		made  uint64              // the number of the last Watcher
		// epoch counts resets. resetting is set while a goroutine sets watches again.
		epoch     uint64
		resetting bool
		err       error // why the session has ended
	}
}

// watch is the watch of one path.
type watch struct {
	path  string
	kinds api.EventKind
	// number identifies the watch at the leader, as returned last.
	number uint64
	// seen is the newest known generation of the node; zero if unknown.
	seen     uint64
	watchers []*Watcher // in the order of registration
}

func (ws *watches) init(s *Session) {
	ws.s = s
	ws.mu.paths = make(map[string]*watch)
	ws.mu.all = make(map[uint64]*Watcher)
}

// Watcher is a queue of events of the paths that it watches, in the order of the changes across all
// of them. It receives api.FailedOver, without a path, if events may have been missed; the
// application should then read the watched paths again.
type Watcher struct {
	ws    *watches
	ready chan struct{} // receives when queue or err is set; capacity one

	// Guarded by watches.mu.
	number uint64
	paths  map[string]api.EventKind
	queue  []api.Event
	closed bool
}

// NewWatcher returns a Watcher without paths.
func (s *Session) NewWatcher() *Watcher {
	w := &Watcher{ws: &s.watches, ready: make(chan struct{}, 1), paths: make(map[string]api.EventKind)}
	ws := &s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.mu.err == nil {
		ws.mu.made++
		w.number = ws.mu.made
		ws.mu.all[w.number] = w
	}
	return w
}

// Watch returns a Watcher of one path.
func (s *Session) Watch(ctx context.Context, path string, kinds api.EventKind) (*Watcher, error) {
	w := s.NewWatcher()
	if err := w.Add(ctx, path, kinds, 0); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Add watches path, which need not exist, for events of those kinds, in addition to the kinds that
// the Watcher watches there already. gen, if not zero, is the generation that the caller has read:
// if the node has a different one, ContentsChanged is queued at once. After Add has returned, no
// event is missed without a FailedOver.
func (w *Watcher) Add(ctx context.Context, path string, kinds api.EventKind, gen uint64) error {
	ws := w.ws
	ws.mu.Lock()
	if err := w.errLocked(); err != nil {
		ws.mu.Unlock()
		return err
	}
	// Registered before the call, so that a concurrent reset sets the watch too.
	k := ws.mu.paths[path]
	if k == nil {
		k = &watch{path: path}
		ws.mu.paths[path] = k
	}
	if !slices.Contains(k.watchers, w) {
		k.watchers = append(k.watchers, w)
	}
	k.kinds |= kinds
	old := w.paths[path]
	w.paths[path] |= kinds
	all := k.kinds
	ws.mu.Unlock()
	number, err := ws.set(ctx, path, all, gen)
	ws.mu.Lock()
	if err != nil {
		w.removeLocked(path, old)
		ws.mu.Unlock()
		return err
	}
	k.number, k.seen = max(k.number, number), max(k.seen, gen)
	removed := ws.mu.paths[path] != k // meanwhile
	ws.mu.Unlock()
	if removed {
		ws.unset(leaderWatch{path, number})
	}
	return nil
}

func (w *Watcher) errLocked() error {
	if w.ws.mu.err != nil {
		return w.ws.mu.err
	}
	if w.closed {
		return ErrWatcherClosed
	}
	return nil
}

// set sets a watch at the leader.
func (ws *watches) set(ctx context.Context, path string, kinds api.EventKind, gen uint64) (number uint64, err error) {
	_, err = ws.s.do(ctx, true, func(ctx context.Context, service api.Service) (err error) {
		number, err = service.Watch(ctx, ws.s.id, path, kinds, gen)
		return err
	})
	return number, err
}

// leaderWatch is a watch to end at the leader.
type leaderWatch struct {
	path   string
	number uint64
}

// removeLocked reduces what the Watcher watches at path to kinds. If no Watcher watches the path
// any more, it returns the watch to end at the leader.
func (w *Watcher) removeLocked(path string, kinds api.EventKind) (last leaderWatch) {
	if kinds != 0 {
		w.paths[path] = kinds
		return last
	}
	delete(w.paths, path)
	k := w.ws.mu.paths[path]
	if k == nil {
		return last
	}
	k.watchers = slices.DeleteFunc(k.watchers, func(o *Watcher) bool { return o == w })
	if len(k.watchers) > 0 {
		return last
	}
	delete(w.ws.mu.paths, path)
	return leaderWatch{path, k.number}
}

// Remove stops watching path. Its queued events are still returned.
func (w *Watcher) Remove(path string) {
	w.ws.mu.Lock()
	last := w.removeLocked(path, 0)
	w.ws.mu.Unlock()
	w.ws.unset(last)
}

// unset ends watches at the leader, with one attempt: further events are dropped here anyway.
func (ws *watches) unset(all ...leaderWatch) {
	all = slices.DeleteFunc(all, func(o leaderWatch) bool { return o.number == 0 })
	s := ws.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.err != nil || len(all) == 0 {
		return
	}
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
		defer cancel()
		for _, o := range all {
			if p, err := s.client.leaders.get(ctx); err == nil {
				_ = p.Service.Unwatch(ctx, s.id, o.path, o.number)
			}
		}
	})
}

// Close stops watching all paths. Next then returns ErrWatcherClosed.
func (w *Watcher) Close() {
	ws := w.ws
	ws.mu.Lock()
	var left []leaderWatch
	for path := range w.paths {
		left = append(left, w.removeLocked(path, 0))
	}
	w.closed, w.queue = true, nil
	delete(ws.mu.all, w.number)
	w.wake()
	ws.mu.Unlock()
	ws.unset(left...)
}

func (w *Watcher) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// Next returns the next event, and waits for one if necessary. The error is ErrWatcherClosed,
// ctx's, or after the last event ErrExpired or api.ErrClosed of the session.
func (w *Watcher) Next(ctx context.Context) (api.Event, error) {
	for {
		w.ws.mu.Lock()
		if len(w.queue) > 0 {
			v := w.queue[0]
			w.queue = w.queue[1:]
			if len(w.queue) > 0 {
				w.wake()
			}
			w.ws.mu.Unlock()
			return v, nil
		}
		if err := w.errLocked(); err != nil {
			w.wake() // wakes further waiters
			w.ws.mu.Unlock()
			return api.Event{}, err
		}
		w.ws.mu.Unlock()
		select {
		case <-w.ready:
		case <-ctx.Done():
			return api.Event{}, ctx.Err()
		}
	}
}

// pushLocked queues an event. FailedOver replaces the queue if it is full.
func (w *Watcher) pushLocked(v api.Event) {
	if len(w.queue) >= w.ws.s.opts.QueueMax {
		w.queue = []api.Event{{Kind: api.FailedOver}}
	}
	if n := len(w.queue); v.Kind != api.FailedOver || n == 0 || w.queue[n-1].Kind != api.FailedOver {
		w.queue = append(w.queue, v)
	}
	w.wake()
}

// deliver queues an event in the Watchers of its path.
func (ws *watches) deliver(v *api.Event) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	k := ws.mu.paths[v.Path]
	if k == nil {
		return
	}
	if v.Kind&(api.ContentsChanged|api.ChildAdded|api.ChildRemoved) != 0 {
		k.seen = max(k.seen, v.Index)
	}
	for _, w := range k.watchers {
		if w.paths[v.Path]&v.Kind != 0 {
			w.pushLocked(*v)
		}
	}
}

// reset sets all watches again at a leader that has none of them. Each Watcher gets FailedOver when
// all of its own are set, so that what it reads afterwards is watched.
func (ws *watches) reset() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.mu.err != nil {
		return
	}
	ws.mu.epoch++
	if !ws.mu.resetting {
		ws.mu.resetting = true
		ws.s.wg.Go(ws.resetter)
	}
}

// resettersMax bounds the watches that are set in parallel.
const resettersMax = 32

// resetter runs until all watches have been set since the last reset.
func (ws *watches) resetter() {
	p := resetPass{}
	for r := (retrier{}); ; {
		todo := ws.unsetWatches(&p)
		p.left = ws.setAll(todo)
		if ws.endPass(&p) {
			return
		}
		if len(p.left) > 0 {
			timing.Sleep(ws.s.ctx, r.next())
		}
	}
}

// resetPass is what a resetter has done since a reset.
type resetPass struct {
	epoch uint64          // of the reset
	left  map[string]bool // the paths that could not be watched again
	sent  map[uint64]bool // the Watchers that got FailedOver, by number
}

// unsetWatches returns the watches to be set: all of them after another reset.
func (ws *watches) unsetWatches(p *resetPass) []watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	again := p.epoch == ws.mu.epoch
	if !again {
		p.epoch, p.sent = ws.mu.epoch, map[uint64]bool{}
	}
	todo := make([]watch, 0, len(ws.mu.paths))
	for path, k := range ws.mu.paths {
		if !again || p.left[path] {
			todo = append(todo, *k)
		}
	}
	return todo
}

// endPass sends FailedOver to the Watchers whose watches are all set, and reports whether there is
// nothing more to do.
func (ws *watches) endPass(p *resetPass) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	done := ws.mu.err != nil
	if !done && p.epoch == ws.mu.epoch {
		for number, w := range ws.mu.all {
			if p.sent[number] || w.watchesAny(p.left) {
				continue
			}
			p.sent[number] = true
			w.pushLocked(api.Event{Kind: api.FailedOver})
		}
		done = len(p.left) == 0
	}
	if done {
		ws.mu.resetting = false
	}
	return done
}

// watchesAny reports whether the Watcher watches one of the paths. The lock is held.
func (w *Watcher) watchesAny(paths map[string]bool) bool {
	for path := range w.paths {
		if paths[path] {
			return true
		}
	}
	return false
}

// setAll sets watches. It returns the paths of those that could not be set.
func (ws *watches) setAll(todo []watch) map[string]bool {
	var wg sync.WaitGroup
	var mu sync.Mutex // guards failed
	failed := map[string]bool{}
	next := make(chan watch)
	for range min(resettersMax, len(todo)) {
		wg.Go(func() {
			for k := range next {
				if !ws.setAgain(k) {
					mu.Lock()
					failed[k.path] = true
					mu.Unlock()
				}
			}
		})
	}
	for _, k := range todo {
		next <- k
	}
	close(next)
	wg.Wait()
	return failed
}

func (ws *watches) setAgain(k watch) bool {
	number, err := ws.set(ws.s.ctx, k.path, k.kinds, k.seen)
	if err != nil {
		return false
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if now := ws.mu.paths[k.path]; now != nil {
		now.number = number
	}
	return true
}

// close ends all Watchers.
func (ws *watches) close(err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.mu.err = err
	for _, w := range ws.mu.all {
		w.wake()
	}
	clear(ws.mu.all)
	clear(ws.mu.paths)
}
