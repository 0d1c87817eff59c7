package blobfs

import (
	"context"
	"errors"
	"sync"
	"time"
)

// SweepStatus is what the sweepers of this node did since it started.
type SweepStatus struct {
	// Rounds ended well, Failed did not.
	Rounds, Failed int64
	// Last is what the last round did, well or not, At when it ended, and Err why it failed.
	Last SweepReport
	At   time.Time
	Err  string
	// Halted is why there are no more rounds until ResumeSweep, as far as this node knows; empty if there are.
	Halted string
	// Quarantined, Removed and RemovedBytes are of all rounds.
	Quarantined, Removed, RemovedBytes int64
}

// sweepNotes is where the status is kept.
type sweepNotes struct {
	mu sync.Mutex // guards st
	st SweepStatus
}

// Sweeping returns what the sweepers of this node did.
func (s *Store) Sweeping() SweepStatus {
	s.swept.mu.Lock()
	defer s.swept.mu.Unlock()
	return s.swept.st
}

// note notes how a round ended.
func (n *sweepNotes) note(r SweepReport, err error) {
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

// SweepHalted returns why there are no rounds of the sweep, empty if there is no reason.
func (s *Store) SweepHalted(ctx context.Context) (string, error) {
	st, _, err := s.loadSweepState(ctx)
	if err != nil {
		return "", err
	}
	if st.halted == "" {
		st.halted = s.Alarm()
	}
	s.swept.mu.Lock()
	s.swept.st.Halted = st.halted
	s.swept.mu.Unlock()
	return st.halted, nil
}
