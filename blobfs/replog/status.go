package replog

import (
	"context"
	"slices"
	"sync"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/place"
)

// Status describes a log that this node appends to.
type Status struct {
	ID local.ID
	// Replicas is the number of replicas of the current extent.
	Replicas int
	// Under is the number of sealed extents that are still needed and have fewer replicas on live nodes
	// than the replication factor, or than members if there are fewer. A draining node counts for none.
	Under int
	WriterStats
}

// writers are the writers of logs that have not ended.
type writers struct {
	mu  sync.Mutex
	all []*Writer
}

// add registers a writer until its context ends.
func (o *writers) add(w *Writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, w)
	context.AfterFunc(w.ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = slices.DeleteFunc(o.all, func(other *Writer) bool { return other == w })
	})
}

// Writers returns the replicated logs that this node appends to.
func (logs *Logs) Writers() []Status {
	logs.writers.mu.Lock()
	open := slices.Clone(logs.writers.all)
	logs.writers.mu.Unlock()
	var all []Status
	for _, w := range open {
		all = append(all, w.status())
	}
	return all
}

func (w *Writer) status() Status {
	st := Status{ID: w.id, WriterStats: w.Stats()}
	w.mu.Lock()
	defer w.mu.Unlock()
	l, _ := w.m.List()
	st.Under = w.weak.under(&l, w.logs.live(), w.logs.wanted())
	if seq, nodes := w.m.Current(); seq != 0 {
		st.Replicas = len(nodes)
	} else {
		_, nodes = w.m.Standby()
		st.Replicas = len(nodes)
	}
	return st
}

// wanted returns the number of replicas that a sealed extent should have.
func (logs *Logs) wanted() int {
	members := 0
	for _, m := range logs.deps.Peers.Members() {
		if !m.Draining {
			members++
		}
	}
	return min(logs.deps.Replicas, members)
}

// live returns the nodes that answer and are not draining.
func (logs *Logs) live() []place.Node {
	return slices.DeleteFunc(logs.deps.Peers.Nodes(), func(n place.Node) bool { return n.Draining })
}
