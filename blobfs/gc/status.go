package gc

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Status is the state of the Sweepers of this node since it started.
type Status struct {
	// Rounds counts rounds that succeeded, Failed those that did not.
	Rounds, Failed int64
	// Last is the report of the last round, At when it ended, and Err why it failed.
	Last Report
	At   time.Time
	Err  string
	// Halted is why there are no more rounds until Resume, as far as this node knows; else
	// empty.
	Halted string
	// Quarantined, Removed and RemovedBytes are totals of all rounds.
	Quarantined, Removed, RemovedBytes int64
}

// statusRecord holds the status.
type statusRecord struct {
	mu sync.Mutex // guards st
	st Status
}

// Status returns the state of the Sweepers of this node.
func (c *Collector) Status() Status {
	c.status.mu.Lock()
	defer c.status.mu.Unlock()
	return c.status.st
}

// record records how a round ended.
func (n *statusRecord) record(r Report, err error) {
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
	if errors.Is(err, ErrHalted) {
		n.st.Halted = n.st.Err
	}
}

// Halted returns why rounds are halted; empty if they are not.
func (c *Collector) Halted(ctx context.Context) (string, error) {
	st, _, err := c.loadState(ctx)
	if err != nil {
		return "", err
	}
	if st.halted == "" {
		st.halted = c.deps.Disks.Alarm()
	}
	c.status.mu.Lock()
	c.status.st.Halted = st.halted
	c.status.mu.Unlock()
	return st.halted, nil
}
