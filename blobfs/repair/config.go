package repair

import (
	"cmp"
	"errors"
	"time"
)

// Config configures how a node maintains the replicas of the sealed extents that it holds. The
// zero value of a field means its default.
type Config struct {
	// Off disables repair, scrub and rebalancing by this node.
	Off bool
	// Grace is how long a node may be dead before its replicas are copied elsewhere. Default 30 s:
	// longer than a restart. It doubles with each return of the node within an hour, up to
	// sixteenfold.
	Grace time.Duration
	// RepairBytes is a rate in bytes per second. Three things are limited to it: the bytes that
	// other nodes copy at this node's request, the bytes copied to this node, and the bytes that
	// other nodes verify before a local replica is dropped. Default 64 MiB: half of a 1 Gbit/s
	// link.
	RepairBytes int64
	// Workers is the number of concurrent tasks, and of concurrent copies to this node, each of
	// which uses CopyMemory. Default 32, at most 256: small extents are bound by round trips and
	// syncs, which overlap.
	Workers int
	// ScanEvery is how often the holder lists of all extents here are scanned, in addition to scans
	// after membership changes. Default 1 min.
	ScanEvery time.Duration
	// AuditEvery is how often other nodes are asked whether they have the replicas that they
	// should, in addition to when they return. Default 1 h.
	AuditEvery time.Duration
	// TrimAfter is how long membership must be unchanged before surplus replicas are dropped.
	// Default 10 min.
	TrimAfter time.Duration
	// ScrubPeriod is the longest time for a scrub of everything on this node. Default two weeks.
	ScrubPeriod time.Duration
	// ScrubBytes is the scrub's minimum rate in bytes per second, so that a small store is scrubbed
	// within hours. The next scrub starts a fourteenth of ScrubPeriod after the last one ended.
	// Default 1 MiB.
	ScrubBytes int64
	// BalanceBytes is the rate, in bytes per second, of moves to emptier nodes. Default 16 MiB.
	BalanceBytes int64
	// BalanceGap is how much fuller than another node this node must be, in percentage points,
	// before it moves extents there. Default 5.
	BalanceGap int
}

// WithDefaults returns c with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Grace = cmp.Or(c.Grace, 30*time.Second)
	c.RepairBytes = cmp.Or(c.RepairBytes, 64<<20)
	c.Workers = cmp.Or(c.Workers, 32)
	c.ScanEvery = cmp.Or(c.ScanEvery, time.Minute)
	c.AuditEvery = cmp.Or(c.AuditEvery, time.Hour)
	c.TrimAfter = cmp.Or(c.TrimAfter, 10*time.Minute)
	c.ScrubPeriod = cmp.Or(c.ScrubPeriod, 14*24*time.Hour)
	c.ScrubBytes = cmp.Or(c.ScrubBytes, 1<<20)
	c.BalanceBytes = cmp.Or(c.BalanceBytes, 16<<20)
	c.BalanceGap = cmp.Or(c.BalanceGap, 5)
	return c
}

// Validate returns an error if the configuration is invalid.
func (c Config) Validate() error {
	if c.Workers > 256 || c.BalanceGap > 100 {
		return errors.New("repair configuration: more than 256 workers, or a gap over 100 percent")
	}
	for _, v := range []int64{
		int64(c.Grace), c.RepairBytes, int64(c.Workers), int64(c.ScanEvery), int64(c.AuditEvery), int64(c.TrimAfter),
		int64(c.ScrubPeriod), c.ScrubBytes, c.BalanceBytes, int64(c.BalanceGap),
	} {
		if v < 0 {
			return errors.New("repair configuration: negative value")
		}
	}
	return nil
}
