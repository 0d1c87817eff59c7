package blobfs

import (
	"context"
	"sync"
)

// LogStatus is a log that this node appends to.
type LogStatus struct {
	ID ID
	// Replicas is on how many nodes is what is appended now.
	Replicas int
	LogWriterStats
}

// openLogs are the writers of logs that have not ended.
type openLogs struct {
	mu  sync.Mutex
	all map[*SpreadLogWriter]struct{}
}

// add notes a writer until its context ends.
func (o *openLogs) add(w *SpreadLogWriter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[*SpreadLogWriter]struct{}{}
	}
	o.all[w] = struct{}{}
	context.AfterFunc(w.ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.all, w)
	})
}

// OpenLogs returns the logs on several nodes that this one appends to.
func (s *Store) OpenLogs() []LogStatus {
	s.openLogs.mu.Lock()
	var writers []*SpreadLogWriter
	for w := range s.openLogs.all {
		writers = append(writers, w)
	}
	s.openLogs.mu.Unlock()
	var all []LogStatus
	for _, w := range writers {
		all = append(all, w.status())
	}
	return all
}

func (w *SpreadLogWriter) status() LogStatus {
	st := LogStatus{ID: w.id, LogWriterStats: w.Stats()}
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
