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

// lifeSigns has the parts that were probed and have not answered.
type lifeSigns struct {
	// mu guards the fields in it. Never held during a probe.
	mu struct {
		sync.Mutex
		changeRequest map[string]bool
	}
}

// Alive probes the node: it sends a request to its own port, and takes the locks of each part. Probes do not wait for a disk, for other nodes, for
// a lease, for space or for memory: a restarted process would wait for the same. The error names the parts that have not answered when ctx ends,
// or why the node has failed. The node must have been started and not be closed.
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
			continue // an earlier probe is still waiting
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
		errs = append(errs, fmt.Errorf("no answer from %s", strings.Join(slices.Sorted(maps.Keys(silent)), ", ")))
	}
	return errors.Join(errs...)
}

// Health returns why the node does not serve as it should, or "".
func (n *Node) Health() string { return n.unready() }

// lifePart is a part that can be probed.
type lifePart struct {
	name string
	ask  func(context.Context) error
}

func (n *Node) parts() []lifePart {
	probe := func(look func()) func(context.Context) error {
		return func(context.Context) error { look(); return nil }
	}
	parts := []lifePart{
		{"the port for clients and nodes", n.askSelf},
		{"the tablet server", probe(func() { n.tablets().Stats(); n.tablets().Served().Loaded() })},
		{"the block store", probe(func() { n.store.Load().Repairs() })},
		{"the lock service", probe(func() { n.voter.Group(); n.leader() })},
		{"the catalog", probe(func() { n.servedTables() })},
	}
	if n.members.Ring() != nil {
		parts = append(parts, lifePart{"gossip", probe(func() { n.members.Ring().Members() })})
	}
	return parts
}

// askSelf sends a request to the node's own port over a persistent connection: new connections are refused when all are in use, although the
// node is alive.
func (n *Node) askSelf(ctx context.Context) error {
	err := n.peers.Call(ctx, n.id(), methodIdentity, func(e *wire.Encoder) { e.Array(0) }, func(d *wire.Decoder) error {
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
	if l.mu.changeRequest[part] {
		return false
	}
	if l.mu.changeRequest == nil {
		l.mu.changeRequest = map[string]bool{}
	}
	l.mu.changeRequest[part] = true
	return true
}

func (l *lifeSigns) end(part string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.changeRequest, part)
}
