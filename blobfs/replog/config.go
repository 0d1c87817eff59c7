package replog

import (
	"cmp"
	"errors"
	"time"
)

// Config configures replicated logs. The zero value of a field means its default.
type Config struct {
	// DeadlineMin and DeadlineMax bound how long a replica may take for an append before the writer
	// continues without it. In between, the deadline follows recent append times with a margin.
	// Default 100 ms: moving to another extent uses 64 MiB of prepared disk space on each node, and
	// disks that sync in 1 ms sometimes take 50 ms. Default maximum 2 s: what clients of a tablet
	// tolerate.
	DeadlineMin, DeadlineMax time.Duration
	// WindowBytes bounds the unacknowledged bytes. Default 8 MiB: 60 ms at 1 Gbit/s. At most 12
	// MiB.
	WindowBytes int
	// OpenTimeout is how long a node may take to open a replica. Default 10 s: it may have to write
	// an extent of zeros first.
	OpenTimeout time.Duration
	// Retry is the delay before a failed operation is retried. Default 200 ms.
	Retry time.Duration
	// Avoid is how long a node that failed, was slow or refused an extent for a full disk gets no
	// replicas. For as long after such a refusal, no extent is left for one on another node. Default 10 s.
	Avoid time.Duration
	// ExtentAge is how long the writer stays in an extent that holds data. It then moves to the
	// next one, so that released data is removed even from a log with few appends. Default 6 h.
	ExtentAge time.Duration
	// Check is how often a writer checks that the nodes of its open extents still have their
	// replicas. Default 30 s: each check is at most six short calls.
	Check time.Duration
}

// WithDefaults returns c with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.DeadlineMin = cmp.Or(c.DeadlineMin, 100*time.Millisecond)
	c.DeadlineMax = cmp.Or(c.DeadlineMax, 2*time.Second)
	c.WindowBytes = cmp.Or(c.WindowBytes, 8<<20)
	c.OpenTimeout = cmp.Or(c.OpenTimeout, 10*time.Second)
	c.Retry = cmp.Or(c.Retry, 200*time.Millisecond)
	c.Avoid = cmp.Or(c.Avoid, 10*time.Second)
	c.ExtentAge = cmp.Or(c.ExtentAge, 6*time.Hour)
	c.Check = cmp.Or(c.Check, 30*time.Second)
	return c
}

// Validate returns an error if the configuration is invalid.
func (c Config) Validate() error {
	c = c.WithDefaults()
	if c.DeadlineMin < 0 || c.DeadlineMax < c.DeadlineMin || c.WindowBytes < 0 || c.WindowBytes > 12<<20 || c.OpenTimeout < 0 || c.Retry < 0 || c.Avoid < 0 || c.ExtentAge < 0 || c.Check < 0 {
		return errors.New("log configuration: negative value, maximum below minimum, or window over 12 MiB")
	}
	return nil
}
