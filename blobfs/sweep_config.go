package blobfs

import (
	"errors"
	"time"
)

// SweepConfig says how garbage is found and removed. The zero value of a field means its default.
type SweepConfig struct {
	// Every is the time from one round to the next. Default 1 h: each reads all roots, and lists all extents.
	Every time.Duration
	// Warn is how long a node has to know that an extent seems to be garbage before a later round may put it into
	// quarantine. Default 10 min: whoever reads the name of a blob opens it within that time, and all know of
	// a new node.
	Warn time.Duration
	// Grace is how long an extent stays in quarantine. Default 24 h: a person can find out that
	// something is wrong, and undo it.
	Grace time.Duration
	// Away is how long a node may be away before the sweep goes on without it. Until then there are no rounds, for nobody
	// knows what it uses. Default 24 h.
	Away time.Duration
	// Marks is how many blobs the sweeper keeps in memory, at 8 bytes each. Of more it reads the roots several
	// times in a round. Default 4 Mi: 32 MiB.
	Marks int
}

func (c SweepConfig) withDefaults() SweepConfig {
	orDefault(&c.Every, time.Hour)
	orDefault(&c.Warn, 10*time.Minute)
	orDefault(&c.Grace, 24*time.Hour)
	orDefault(&c.Away, 24*time.Hour)
	orDefault(&c.Marks, 4<<20)
	return c
}

func (c SweepConfig) validate() error {
	c = c.withDefaults()
	if c.Every < 0 || c.Warn < 0 || c.Grace < 0 || c.Away < 0 || c.Marks < 2 {
		return errors.New("configuration of the sweep: a duration is negative, or marks are fewer than 2")
	}
	return nil
}
