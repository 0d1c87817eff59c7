package blobfs

import (
	"errors"
	"time"
)

// KeepConfig says how a node keeps the replicas of the sealed extents it holds. The zero value of a
// field means its default.
type KeepConfig struct {
	// Off means that this node repairs, scrubs and moves nothing by itself.
	Off bool
	// Grace is how long a node may be dead before what it held is copied elsewhere. Default 30 s:
	// longer than a restart. It doubles, up to sixteen times this, with each return of the node within an hour.
	Grace time.Duration
	// RepairBytes is how many bytes a second this node has copied for repair, and how many it takes
	// from others. Default 64 MiB: half of a 1 Gbit/s link.
	RepairBytes int64
	// Workers is how many extents are seen to at a time. Default 16: small ones cost round trips
	// and syncs, which overlap.
	Workers int
	// ScanEvery is how often the lists of all extents here are looked through, beside whenever a node comes
	// or goes. Default 1 min.
	ScanEvery time.Duration
	// AuditEvery is how often other nodes are asked whether they hold what they should; beside when
	// they come back. Default 1 h.
	AuditEvery time.Duration
	// TrimAfter is how long no node must have come or gone before replicas that are too many are
	// dropped. Default 10 min.
	TrimAfter time.Duration
}

func (c KeepConfig) withDefaults() KeepConfig {
	orDefault(&c.Grace, 30*time.Second)
	orDefault(&c.RepairBytes, 64<<20)
	orDefault(&c.Workers, 16)
	orDefault(&c.ScanEvery, time.Minute)
	orDefault(&c.AuditEvery, time.Hour)
	orDefault(&c.TrimAfter, 10*time.Minute)
	return c
}

func (c KeepConfig) validate() error {
	if c.Grace < 0 || c.RepairBytes < 0 || c.Workers < 0 || c.Workers > 256 || c.ScanEvery < 0 || c.AuditEvery < 0 || c.TrimAfter < 0 {
		return errors.New("configuration of the keeper: a value is negative, or more than 256 workers")
	}
	return nil
}
