package replog

import (
	"context"
	"slices"
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
	if seq, nodes := w.m.Current(); seq != 0 {
		st.Replicas = len(nodes)
	} else {
		_, nodes = w.m.Standby()
		st.Replicas = len(nodes)
	}
	return st
}
