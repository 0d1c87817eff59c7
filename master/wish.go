package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// wish is what somebody wants of tablets: that one be on a node, or that two become one. It is
// kept in memory alone: with the mastership it ends, and who waits for it asks the next master.
type wish struct {
	key   string // of the tablet; of the upper one of a merge
	lower string // of a merge
	node  string // of a move
	why   string
	until time.Time // when it is given up, and forgotten

	failures int // orders for it that failed, in a row
	over     bool
	err      error
	ended    chan struct{} // closed when it is over
}

const (
	// moveRemembered is how long the balance leaves a tablet where somebody wanted it to be.
	moveRemembered = 10 * time.Minute
	// wishTimeout is how long a move or merge is tried that nobody waits for any more.
	wishTimeout = 5 * time.Minute
	// wishFailures is how often an order for it may fail before it is given up.
	wishFailures = 5
)

// ErrBusy means that a tablet is being moved or merged on another's word.
var ErrBusy = errors.New("the tablet is being moved or merged on another's word")

// ErrGone means that there is no such tablet any more: it was split, merged or dropped.
var ErrGone = errors.New("the tablet is gone: it was merged with another, or its table was dropped")

// ErrNotAlive means that a node can be given no tablet.
var ErrNotAlive = errors.New("the node has no tablet server that is alive and stays")

// ErrNotMaster means that the node is not the master, or not any more. What was begun may still come about.
var ErrNotMaster = errors.New("this node is not the master")

// MoveTablet has a tablet, named by the key of its row in METADATA, brought to a node, and returns when
// it is served there. The balance does not move it for a while. The move goes on when ctx ends. Errors: ErrBusy, ErrGone,
// ErrNotAlive, ErrNotMaster, ctx's, those of servers.
func (m *Master) MoveTablet(ctx context.Context, key, node string) error {
	return m.wish(ctx, &wish{key: key, node: node, why: "somebody wants it elsewhere"})
}

// MergeTablets has two neighbours made one, and returns when that is so: the lower one's row is gone. Errors: those of
// MoveTablet.
func (m *Master) MergeTablets(ctx context.Context, lower, upper string) error {
	return m.wish(ctx, &wish{lower: lower, key: upper, why: "somebody wants it merged"})
}

func (m *Master) wish(ctx context.Context, w *wish) error {
	a := m.assigner.Load()
	if a == nil || m.Epoch() == 0 {
		return ErrNotMaster
	}
	w, err := a.take(w)
	if err != nil {
		return err
	}
	a.changed()
	select {
	case <-w.ended:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// about says whether a wish is about a tablet.
func (w *wish) about(key string) bool { return w.key == key || w.lower != "" && w.lower == key }

// take takes a wish on, or returns the same one that there is already.
func (a *assigner) take(w *wish) (*wish, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed {
		return nil, ErrNotMaster
	}
	for _, o := range a.mu.wishes {
		switch {
		case !o.about(w.key) && (w.lower == "" || !o.about(w.lower)):
		case o.over: // a move that is remembered
			o.until = time.Time{}
		case o.key == w.key && o.lower == w.lower && o.node == w.node:
			return o, nil
		default:
			return nil, ErrBusy
		}
	}
	w.ended = make(chan struct{})
	w.until = time.Now().Add(wishTimeout)
	a.mu.wishes = append(a.mu.wishes, w)
	return w, nil
}

// end notes that a wish is over.
func (w *wish) end(err error) {
	if w.over {
		return
	}
	w.over, w.err = true, err
	close(w.ended)
}

// endWishes gives all wishes up: the mastership is over.
func (a *assigner) endWishes() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.closed = true
	for _, w := range a.mu.wishes {
		w.end(ErrNotMaster)
	}
	a.mu.wishes = nil
}

// settleWishes finds out which wishes are fulfilled or cannot be, of those that were there before s was
// read, and has s tell of the others.
func (a *assigner) settleWishes(s *TabletState, wishes []*wish) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Pins = map[string]string{}
	now := time.Now()
	for _, w := range wishes {
		a.settle(s, w)
		switch {
		case now.After(w.until):
			w.end(fmt.Errorf("given up after %v", wishTimeout))
		case w.over && w.err != nil:
			w.until = time.Time{}
		case w.lower == "":
			s.Pins[w.key] = w.node
		case !w.over:
			s.Unions = append(s.Unions, Union{Lower: w.lower, Upper: w.key, Why: w.why})
		}
	}
	a.mu.wishes = slices.DeleteFunc(a.mu.wishes, func(w *wish) bool { return w.over && (w.lower != "" || now.After(w.until)) })
}

func (a *assigner) settle(s *TabletState, w *wish) {
	find := func(key string) *Tablet {
		if i := slices.IndexFunc(s.Tablets, func(t Tablet) bool { return t.Key == key }); i >= 0 {
			return &s.Tablets[i]
		}
		return nil
	}
	t := find(w.key)
	switch {
	case t == nil && s.Whole:
		w.end(ErrGone)
	case t == nil:
	case w.lower != "":
		if s.Whole && find(w.lower) == nil {
			w.end(nil)
		}
	default:
		i := slices.IndexFunc(s.Servers, func(v TabletServer) bool { return v.Node == w.node && v.serves(w.key) && !v.Leaving })
		if i < 0 {
			w.end(ErrNotAlive)
			w.until = time.Time{}
			return
		}
		if v := &s.Servers[i]; v.Name == t.Server && v.has(t.Key) && !w.over {
			w.end(nil)
			w.until = time.Now().Add(moveRemembered)
		}
	}
}

// ordered notes how an order went that may be a wish's.
func (a *assigner) ordered(o *Order, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.mu.wishes {
		if w.over || !w.about(o.Tablet.Key) || o.Kind == Recover || o.Kind == Forget {
			continue
		}
		if err == nil {
			w.failures = 0
		} else if w.failures++; w.failures >= wishFailures {
			w.end(err)
		}
	}
}
