package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/raftmeta/api"
)

// watches are what a session watches: at the leader one watch a path, here any number
// of Watchers.
type watches struct {
	s *Session
	// mu guards the fields in it and in every Watcher. Never held across I/O.
	mu struct {
		sync.Mutex
		paths map[string]*watch
		all   map[*Watcher]struct{}
		// epoch counts resets; resetting is true while a goroutine sets watches again.
		epoch     uint64
		resetting bool
		err       error // why the session is over
	}
}

// watch is one path.
type watch struct {
	path  string
	kinds api.EventKind
	// number names the watch at the leader, of the last answer.
	number uint64
	// seen is the newest generation of the node that was told of; zero when none was.
	seen  uint64
	users []*Watcher // in the order in which they came
}

func (ws *watches) init(s *Session) {
	ws.s = s
	ws.mu.paths = make(map[string]*watch)
	ws.mu.all = make(map[*Watcher]struct{})
}

// Watcher is a queue of events of the paths that it watches, in the order of the
// changes, across all of them. It gets api.FailedOver, with no path, when events may
// have been missed: what is watched should then be read again.
type Watcher struct {
	ws    *watches
	ready chan struct{} // one token when queue or err is set

	// Guarded by watches.mu.
	paths  map[string]api.EventKind
	queue  []api.Event
	closed bool
}

// NewWatcher returns a Watcher of nothing.
func (s *Session) NewWatcher() *Watcher {
	w := &Watcher{ws: &s.watches, ready: make(chan struct{}, 1), paths: make(map[string]api.EventKind)}
	ws := &s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.mu.err == nil {
		ws.mu.all[w] = struct{}{}
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

// Add watches path, which need not exist, for events of those kinds, beside those that
// the Watcher watches there already. A generation that is not zero is the one that the
// caller has seen: if the node's is another one by now, ContentsChanged comes at once.
// After Add returned, no event is missed without FailedOver being told.
func (w *Watcher) Add(ctx context.Context, path string, kinds api.EventKind, gen uint64) error {
	ws := w.ws
	ws.mu.Lock()
	if err := w.errLocked(); err != nil {
		ws.mu.Unlock()
		return err
	}
	// Noted before the leader is asked: a reset meanwhile sets it too.
	k := ws.mu.paths[path]
	if k == nil {
		k = &watch{path: path}
		ws.mu.paths[path] = k
	}
	if !slices.Contains(k.users, w) {
		k.users = append(k.users, w)
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
		ws.unset(ending{path, number})
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

// ending is a watch that the leader is to end.
type ending struct {
	path   string
	number uint64
}

// removeLocked leaves the Watcher with kinds of a path. If nobody watches the path any
// more, the watch is returned that the leader is to end.
func (w *Watcher) removeLocked(path string, kinds api.EventKind) (last ending) {
	if kinds != 0 {
		w.paths[path] = kinds
		return last
	}
	delete(w.paths, path)
	k := w.ws.mu.paths[path]
	if k == nil {
		return last
	}
	k.users = slices.DeleteFunc(k.users, func(o *Watcher) bool { return o == w })
	if len(k.users) > 0 {
		return last
	}
	delete(w.ws.mu.paths, path)
	return ending{path, k.number}
}

// Remove stops watching path. Events of it that wait are still returned.
func (w *Watcher) Remove(path string) {
	w.ws.mu.Lock()
	last := w.removeLocked(path, 0)
	w.ws.mu.Unlock()
	w.ws.unset(last)
}

// unset tells the leader, once: events that come all the same are dropped here.
func (ws *watches) unset(all ...ending) {
	all = slices.DeleteFunc(all, func(o ending) bool { return o.number == 0 })
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

// Close stops watching everything. Next then returns ErrWatcherClosed.
func (w *Watcher) Close() {
	ws := w.ws
	ws.mu.Lock()
	var left []ending
	for path := range w.paths {
		left = append(left, w.removeLocked(path, 0))
	}
	w.closed, w.queue = true, nil
	delete(ws.mu.all, w)
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

// Next returns the next event. Errors: ErrWatcherClosed, ErrExpired or api.ErrClosed of
// the session when all events have been returned, ctx's.
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
			w.wake() // for others that wait
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

// pushLocked queues an event. A queue that is full is replaced by the word that events
// were missed.
func (w *Watcher) pushLocked(v api.Event) {
	if len(w.queue) >= w.ws.s.opts.QueueMax {
		w.queue = []api.Event{{Kind: api.FailedOver}}
	}
	if n := len(w.queue); v.Kind != api.FailedOver || n == 0 || w.queue[n-1].Kind != api.FailedOver {
		w.queue = append(w.queue, v)
	}
	w.wake()
}

// deliver hands an event to who watches for it.
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
	for _, w := range k.users {
		if w.paths[v.Path]&v.Kind != 0 {
			w.pushLocked(*v)
		}
	}
}

// reset sets all watches again, at a leader that has none of them, and then tells the
// Watchers that events may have been missed: what they read after that is watched.
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

// resettersMax is how many watches are set at once.
const resettersMax = 32

// resetter runs until all watches have been set since the last reset.
func (ws *watches) resetter() {
	for r := (retrier{}); ; {
		ws.mu.Lock()
		epoch := ws.mu.epoch
		todo := make([]watch, 0, len(ws.mu.paths))
		for _, k := range ws.mu.paths {
			todo = append(todo, *k)
		}
		ws.mu.Unlock()
		ok := ws.setAll(todo)
		ws.mu.Lock()
		over := ws.mu.err != nil
		if over || ok && epoch == ws.mu.epoch {
			for w := range ws.mu.all {
				w.pushLocked(api.Event{Kind: api.FailedOver})
			}
			ws.mu.resetting = false
			ws.mu.Unlock()
			return
		}
		ws.mu.Unlock()
		if !ok {
			sleep(ws.s.ctx, r.next())
		}
	}
}

// setAll sets watches; it returns false if one could not be set.
func (ws *watches) setAll(todo []watch) bool {
	var wg sync.WaitGroup
	ok := make(chan bool, resettersMax)
	next := make(chan watch)
	for range min(resettersMax, len(todo)) {
		wg.Go(func() {
			fine := true
			for k := range next {
				fine = ws.setAgain(k) && fine
			}
			ok <- fine
		})
	}
	for _, k := range todo {
		next <- k
	}
	close(next)
	wg.Wait()
	close(ok)
	for fine := range ok {
		if !fine {
			return false
		}
	}
	return true
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
	for w := range ws.mu.all {
		w.wake()
	}
	clear(ws.mu.all)
	clear(ws.mu.paths)
}
