package replog

import (
	"context"
	"sync"

	"github.com/steledb/stele/blobfs/local"
)

// Status describes a log that this node appends to.
type Status struct {
	ID local.ID
	// Replicas is the number of replicas of the current extent.
	Replicas int
	WriterStats
}

// writers are the writers of logs that have not ended.
type writers struct {
	mu  sync.Mutex
	all map[*Writer]struct{}
}

// add registers a writer until its context ends.
func (o *writers) add(w *Writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[*Writer]struct{}{}
	}
	o.all[w] = struct{}{}
	context.AfterFunc(w.ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.all, w)
	})
}

// Writers returns the replicated logs that this node appends to.
func (logs *Logs) Writers() []Status {
	logs.writers.mu.Lock()
	var open []*Writer
	for w := range logs.writers.all {
		open = append(open, w)
	}
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
	if seq, nodes := w.m.Current(); seq != 0 {
		st.Replicas = len(nodes)
	} else {
		_, nodes = w.m.Standby()
		st.Replicas = len(nodes)
	}
	return st
}
