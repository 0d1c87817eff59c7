package gc

import (
	"cmp"
	"errors"
	"time"
)

// Config configures garbage collection. The zero value of a field means its default.
type Config struct {
	// Every is the interval between rounds. Default 1 h: each round reads all roots and lists all
	// extents.
	Every time.Duration
	// Warn is how long ago a round must have warned of an extent before a later one may quarantine it.
	// Default 10 min: a reader opens a blob within that time of reading its name, and all nodes
	// learn of a new node.
	Warn time.Duration
	// Grace is how long an extent stays in quarantine. Default 24 h: an operator has time to notice
	// a mistake and undo it.
	Grace time.Duration
	// Away is how long a node may be down before rounds proceed without it. Until then there are no
	// rounds, since its pins are unknown. Default 24 h.
	Away time.Duration
	// Marks is how many blobs the Sweeper keeps in memory, at 8 bytes each. If there are more, a
	// round reads the roots several times. Default 4 Mi (32 MiB); at least 2.
	Marks int
}

// WithDefaults returns c with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Every = cmp.Or(c.Every, time.Hour)
	c.Warn = cmp.Or(c.Warn, 10*time.Minute)
	c.Grace = cmp.Or(c.Grace, 24*time.Hour)
	c.Away = cmp.Or(c.Away, 24*time.Hour)
	c.Marks = cmp.Or(c.Marks, 4<<20)
	return c
}

// Validate returns an error if the configuration is invalid.
func (c Config) Validate() error {
	c = c.WithDefaults()
	if c.Every < 0 || c.Warn < 0 || c.Grace < 0 || c.Away < 0 || c.Marks < 2 {
		return errors.New("garbage collection configuration: negative duration or fewer than 2 marks")
	}
	return nil
}
