package blobfs

import (
	"errors"
	"time"
)

// LogConfig says how logs are kept on several nodes. The zero value of a field means its default.
type LogConfig struct {
	// DeadlineMin and DeadlineMax bound how long a replica may take for an append before the
	// writer goes on without it; in between it is what appends took lately, with room. Default 100 ms:
	// going on elsewhere takes 64 MiB of prepared disk on each node, and disks that sync
	// in 1 ms take 50 ms now and then; and 2 s: what clients of a tablet bear.
	DeadlineMin, DeadlineMax time.Duration
	// WindowBytes bounds what is sent and not acknowledged. Default 8 MiB: 60 ms at
	// 1 Gbit/s.
	WindowBytes int
	// OpenTimeout is how long a node may take to open a replica. Default 10 s: it may have to
	// write an extent of zeros first.
	OpenTimeout time.Duration
	// Retry is the wait before something is tried again that failed. Default 200 ms.
	Retry time.Duration
	// Avoid is how long a node that failed or was slow gets no replicas. Default 10 s.
	Avoid time.Duration
	// ExtentAge is how long a log goes on in an extent in which there is something: then in the next, so
	// that what is released goes, also from a log to which little is appended. Default 6 h.
	ExtentAge time.Duration
}

func (c LogConfig) withDefaults() LogConfig {
	orDefault(&c.DeadlineMin, 100*time.Millisecond)
	orDefault(&c.DeadlineMax, 2*time.Second)
	orDefault(&c.WindowBytes, 8<<20)
	orDefault(&c.OpenTimeout, 10*time.Second)
	orDefault(&c.Retry, 200*time.Millisecond)
	orDefault(&c.Avoid, 10*time.Second)
	orDefault(&c.ExtentAge, 6*time.Hour)
	return c
}

func (c LogConfig) validate() error {
	c = c.withDefaults()
	if c.DeadlineMin < 0 || c.DeadlineMax < c.DeadlineMin || c.WindowBytes < 0 || c.WindowBytes > 12<<20 || c.OpenTimeout < 0 || c.Retry < 0 || c.Avoid < 0 || c.ExtentAge < 0 {
		return errors.New("configuration of logs: a value is negative, a maximum is below its minimum, or the window is over 12 MiB")
	}
	return nil
}
