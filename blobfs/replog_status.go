package blobfs

import (
	"context"
	"sync"
)

// LogStatus describes a log that this node appends to.
type LogStatus struct {
	ID ID
	// Replicas is the number of replicas of the current extent.
	Replicas int
	LogWriterStats
}

// openLogs are the writers of logs that have not ended.
type openLogs struct {
	mu  sync.Mutex
	all map[*SpreadLogWriter]struct{}
}

// add registers a writer until its context ends.
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

// OpenLogs returns the replicated logs that this node appends to.
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
