package master

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// request is an operator's pending move or merge, or one of the master's own merges. It is held in
// memory and ends with the mastership; a waiting client repeats it at the next master.
type request struct {
	key   string // of the tablet to move; of the upper tablet of a merge
	lower string // of the lower tablet of a merge; empty for a move
	node  string // destination of a move
	why   string
	until time.Time // when it is given up; for a completed move, when its pin ends

	failures int // consecutive failed orders for it
	over     bool
	err      error
	ended    chan struct{} // closed when over is set
}

const (
	// pinDuration is how long a moved tablet stays pinned to its node.
	pinDuration = 10 * time.Minute
	// requestTimeout is how long a move or merge is attempted, whether or not a client waits for
	// it.
	requestTimeout = 5 * time.Minute
	// requestFailuresMax is the number of consecutive failed orders after which a request is given
	// up.
	requestFailuresMax = 5
)

// ErrBusy means that another move or merge of the tablet is pending.
var ErrBusy = errors.New("another move or merge of the tablet is pending")

// ErrGone means that the tablet no longer exists: it was merged or dropped.
var ErrGone = errors.New("the tablet no longer exists: it was merged, or its table was dropped")

// ErrNotAlive means that the node cannot be assigned tablets.
var ErrNotAlive = errors.New("the node has no live tablet server, or is draining")

// ErrNotMaster means that the node is not the master, or no longer. What was begun may still
// complete.
var ErrNotMaster = errors.New("this node is not the master")

// MoveTablet moves a tablet, named by the key of its METADATA row, to a node. It returns when the
// tablet is served there. The tablet is then pinned to the node for ten minutes. The move continues
// when ctx ends. Errors: ErrBusy, ErrGone, ErrNotAlive, ErrNotMaster, ctx's, those of servers.
func (m *Master) MoveTablet(ctx context.Context, key, node string) error {
	return m.submit(ctx, &request{key: key, node: node, why: "move requested"})
}

// MergeTablets merges two neighbours, and returns when the lower tablet's row is gone. Errors:
// those of MoveTablet.
func (m *Master) MergeTablets(ctx context.Context, lower, upper string) error {
	return m.submit(ctx, &request{lower: lower, key: upper, why: "merge requested"})
}

func (m *Master) submit(ctx context.Context, r *request) error {
	a := m.assigner.Load()
	if a == nil || m.Epoch() == 0 {
		return ErrNotMaster
	}
	r, err := a.admit(r)
	if err != nil {
		return err
	}
	a.changed()
	select {
	case <-r.ended:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// about reports whether the request concerns a tablet.
func (r *request) about(key string) bool { return r.key == key || r.lower != "" && r.lower == key }

// admit adds a request, or returns the equal one that is already pending. It removes the pins of
// the request's tablets.
func (a *assigner) admit(r *request) (*request, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed {
		return nil, ErrNotMaster
	}
	for _, o := range a.mu.requests {
		switch {
		case !o.about(r.key) && (r.lower == "" || !o.about(r.lower)):
		case o.over: // a pin
			o.until = time.Time{}
		case o.key == r.key && o.lower == r.lower && o.node == r.node:
			return o, nil
		default:
			return nil, ErrBusy
		}
	}
	r.ended = make(chan struct{})
	r.until = time.Now().Add(requestTimeout)
	a.mu.requests = append(a.mu.requests, r)
	return r, nil
}

// end completes a request; only the first call counts.
func (r *request) end(err error) {
	if r.over {
		return
	}
	r.over, r.err = true, err
	close(r.ended)
}

// endRequests ends all requests and pins, because the mastership is over.
func (a *assigner) endRequests() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.closed = true
	for _, r := range a.mu.requests {
		r.end(ErrNotMaster)
	}
	a.mu.requests = nil
}

// settleRequests ends the requests that are fulfilled or impossible according to s, and adds the
// others to s. The requests were listed before s was read.
func (a *assigner) settleRequests(s *TabletState, requests []*request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Pins = map[string]string{}
	now := time.Now()
	for _, r := range requests {
		a.settle(s, r)
		switch {
		case now.After(r.until):
			r.end(fmt.Errorf("given up after %v", requestTimeout))
		case r.over && r.err != nil:
			r.until = time.Time{}
		case r.lower == "":
			s.Pins[r.key] = r.node
		case !r.over:
			s.PendingMerges = append(s.PendingMerges, PendingMerge{Lower: r.lower, Upper: r.key, Why: r.why})
		}
	}
	a.mu.requests = slices.DeleteFunc(a.mu.requests, func(r *request) bool { return r.over && (r.lower != "" || now.After(r.until)) })
}

func (a *assigner) settle(s *TabletState, r *request) {
	find := func(key string) *Tablet {
		if i := slices.IndexFunc(s.Tablets, func(t Tablet) bool { return t.Key == key }); i >= 0 {
			return &s.Tablets[i]
		}
		return nil
	}
	t := find(r.key)
	switch {
	case t == nil && s.Whole:
		r.end(ErrGone)
	case t == nil:
	case r.lower != "":
		if s.Whole && find(r.lower) == nil {
			r.end(nil)
		}
	default:
		i := slices.IndexFunc(s.Servers, func(v TabletServer) bool { return v.Node == r.node && v.serves(r.key) && !v.Draining })
		if i < 0 {
			r.end(ErrNotAlive)
			r.until = time.Time{}
			return
		}
		if v := &s.Servers[i]; v.Name == t.Server && v.has(t.Key) && !r.over {
			r.end(nil)
			r.until = time.Now().Add(pinDuration)
		}
	}
}

// noteOrder counts the outcome of an order for the requests that concern its tablet.
func (a *assigner) noteOrder(o *Order, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.mu.requests {
		if r.over || !r.about(o.Tablet.Key) || o.Kind == Recover || o.Kind == RemoveLogs {
			continue
		}
		if err == nil {
			r.failures = 0
		} else if r.failures++; r.failures >= requestFailuresMax {
			r.end(err)
		}
	}
}
