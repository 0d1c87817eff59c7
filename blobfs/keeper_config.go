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
	// RepairBytes is how many bytes a second this node has copied for repair, how many it takes from others, and
	// how many it has others verify before it drops its own. Default 64 MiB: half of a 1 Gbit/s link.
	RepairBytes int64
	// Workers is how many extents are seen to at a time, and how many are taken, each with CopyMemory. Default 32: small ones cost round
	// trips and syncs, which overlap.
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
	// ScrubPeriod is how long a scrub may take to read everything here. Default two weeks.
	ScrubPeriod time.Duration
	// ScrubBytes is how many bytes a second it reads at least, so that a small store is done within hours; then
	// it rests until a fourteenth of the period has passed since it began. Default 1 MiB.
	ScrubBytes int64
	// BalanceBytes is how many bytes a second this node gives to emptier ones. Default 16 MiB.
	BalanceBytes int64
	// BalanceGap is by how much of a disk, in percent, this node must be fuller than another before it
	// gives. Default 5.
	BalanceGap int
}

func (c KeepConfig) withDefaults() KeepConfig {
	orDefault(&c.Grace, 30*time.Second)
	orDefault(&c.RepairBytes, 64<<20)
	orDefault(&c.Workers, 32)
	orDefault(&c.ScanEvery, time.Minute)
	orDefault(&c.AuditEvery, time.Hour)
	orDefault(&c.TrimAfter, 10*time.Minute)
	orDefault(&c.ScrubPeriod, 14*24*time.Hour)
	orDefault(&c.ScrubBytes, 1<<20)
	orDefault(&c.BalanceBytes, 16<<20)
	orDefault(&c.BalanceGap, 5)
	return c
}

func (c KeepConfig) validate() error {
	if c.Workers > 256 || c.BalanceGap > 100 {
		return errors.New("configuration of the keeper: more than 256 workers, or a gap over 100 percent")
	}
	for _, v := range []int64{
		int64(c.Grace), c.RepairBytes, int64(c.Workers), int64(c.ScanEvery), int64(c.AuditEvery), int64(c.TrimAfter),
		int64(c.ScrubPeriod), c.ScrubBytes, c.BalanceBytes, int64(c.BalanceGap),
	} {
		if v < 0 {
			return errors.New("configuration of the keeper: a value is negative")
		}
	}
	return nil
}
