package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/steledb/stele/internal/wire"
)

// lifeSigns are the parts that were asked for a sign of life and have not given it.
type lifeSigns struct {
	// mu guards the fields in it. Never held while a part is asked.
	mu struct {
		sync.Mutex
		asked map[string]bool
	}
}

// Alive asks the node for signs of life: an answer by its own port, and of each part what
// takes the locks of that part. What waits for a disk, for other nodes or for a lease is
// not asked, and neither is whether there is room or memory: a process that is started
// again would wait for the same. The error names the parts that have not answered when ctx
// ends, or why the node has failed. It is for a node that was started and is not closed.
func (n *Node) Alive(ctx context.Context) error {
	if err := n.Err(); err != nil {
		return err
	}
	type answer struct {
		part string
		err  error
	}
	parts := n.parts()
	answers, silent, wait := make(chan answer, len(parts)), map[string]bool{}, 0
	for _, part := range parts {
		silent[part.name] = true
		if !n.signs.begin(part.name) {
			continue // it was asked before, and still does not answer
		}
		wait++
		n.background.Go(func() {
			defer n.signs.end(part.name)
			answers <- answer{part.name, part.ask(ctx)}
		})
	}
	var errs []error
	for ended := false; wait > 0 && !ended; {
		select {
		case a := <-answers:
			delete(silent, a.part)
			errs = append(errs, a.err)
			wait--
		case <-ctx.Done():
			ended = true
		}
	}
	if len(silent) > 0 {
		errs = append(errs, fmt.Errorf("no sign of life from %s", strings.Join(slices.Sorted(maps.Keys(silent)), ", ")))
	}
	return errors.Join(errs...)
}

// Health says why the node does not serve as it should; empty if it does.
func (n *Node) Health() string { return n.unready() }

// lifePart is a part that can be asked whether it lives.
type lifePart struct {
	name string
	ask  func(context.Context) error
}

func (n *Node) parts() []lifePart {
	told := func(look func()) func(context.Context) error {
		return func(context.Context) error { look(); return nil }
	}
	parts := []lifePart{
		{"the port for clients and nodes", n.askSelf},
		{"the tablet server", told(func() { n.tablets().Stats(); n.tablets().Loaded() })},
		{"the block store", told(func() { n.store.Load().Keeping() })},
		{"the lock service", told(func() { n.voter.group(); n.leader() })},
		{"the catalog", told(func() { n.servedTables() })},
	}
	if n.ring != nil {
		parts = append(parts, lifePart{"gossip", told(func() { n.ring.Members() })})
	}
	return parts
}

// askSelf has the node answer a request through its port, over a connection that stays:
// when all connections are taken, new ones are refused, and the node lives.
func (n *Node) askSelf(ctx context.Context) error {
	err := n.peers.call(ctx, n.id(), methodWho, func(e *wire.Encoder) { e.Array(0) }, func(d *wire.Decoder) error {
		d.Skip()
		return d.Err()
	})
	if err != nil {
		return fmt.Errorf("the node does not answer at its own port: %w", err)
	}
	return nil
}

func (l *lifeSigns) begin(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.asked[part] {
		return false
	}
	if l.mu.asked == nil {
		l.mu.asked = map[string]bool{}
	}
	l.mu.asked[part] = true
	return true
}

func (l *lifeSigns) end(part string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.asked, part)
}
