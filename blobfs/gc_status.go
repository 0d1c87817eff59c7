package blobfs

import (
	"context"
	"errors"
	"sync"
	"time"
)

// SweepStatus is the state of the Sweepers of this node since it started.
type SweepStatus struct {
	// Rounds counts rounds that succeeded, Failed those that did not.
	Rounds, Failed int64
	// Last is the report of the last round, At when it ended, and Err why it failed.
	Last SweepReport
	At   time.Time
	Err  string
	// Halted is why there are no more rounds until ResumeSweep, as far as this node knows; else
	// empty.
	Halted string
	// Quarantined, Removed and RemovedBytes are totals of all rounds.
	Quarantined, Removed, RemovedBytes int64
}

// gcStatus holds the status.
type gcStatus struct {
	mu sync.Mutex // guards st
	st SweepStatus
}

// Sweeping returns the state of the Sweepers of this node.
func (s *Store) Sweeping() SweepStatus {
	s.gcStatus.mu.Lock()
	defer s.gcStatus.mu.Unlock()
	return s.gcStatus.st
}

// record records how a round ended.
func (n *gcStatus) record(r SweepReport, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.st.Last, n.st.At = r, time.Now()
	n.st.Quarantined += int64(r.Quarantined)
	n.st.Removed += int64(r.Removed)
	n.st.RemovedBytes += r.Bytes
	if err == nil {
		n.st.Rounds++
		n.st.Err, n.st.Halted = "", ""
		return
	}
	n.st.Failed++
	n.st.Err = err.Error()
	if errors.Is(err, ErrSweepHalted) {
		n.st.Halted = n.st.Err
	}
}

// SweepHalted returns why rounds are halted; empty if they are not.
func (s *Store) SweepHalted(ctx context.Context) (string, error) {
	st, _, err := s.loadGCState(ctx)
	if err != nil {
		return "", err
	}
	if st.halted == "" {
		st.halted = s.Alarm()
	}
	s.gcStatus.mu.Lock()
	s.gcStatus.st.Halted = st.halted
	s.gcStatus.mu.Unlock()
	return st.halted, nil
}
