package node

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/table"
)

// TestMetered: a request counts for its table and its principal, or for none of them if one refuses it; what was not begun is
// given back, and what failed otherwise is not.
func TestMetered(t *testing.T) {
	meter := func(ops, bytes int64) *quota.Meter {
		r := &quota.Record{Rates: [quota.Kinds]quota.Rate{{}, {}, {PerSecond: ops, Burst: quota.BurstMax}, {PerSecond: bytes, Burst: quota.BurstMax}}}
		return quota.NewMeter("k", "it", r, 0, 1)
	}
	// An hour's worth of one a second: 3600, and one more before it is used up.
	count := func(m metered) (n int) {
		for m.take(quota.WriteOps, 1, 1) == nil {
			n++
		}
		return n
	}
	q := &quotas{began: time.Now()}
	m := metered{q: q, table: meter(2, 1e6), user: meter(1, 1e6)}
	if n := count(m); n < 3600 || n > 3620 {
		t.Errorf("%d let in by a user's quota of 3600", n)
	}
	m.user = nil
	if n := count(m); n < 3600 || n > 3640 {
		t.Errorf("%d let in by what the table has left of 7200: what a user's quota refused is used up", n)
	}
	var used *api.QuotaError
	if err := m.take(quota.WriteOps, 1, 1); !errors.As(err, &used) || used.Quota != "it write_ops" || used.Bytes || used.Limit != 2 || used.RetryAfter <= 0 {
		t.Errorf("refused with %v", err)
	}
	m.table = meter(1e6, 1)
	if n := count(m); n < 3600 || n > 3620 {
		t.Errorf("%d bytes let in, of 3600", n)
	}
	m.table = meter(1, 1)
	for m.take(quota.WriteOps, 1, 4000) == nil {
	}
	for range 3000 { // for their bytes
		if m.take(quota.WriteOps, 1, 4000) == nil {
			t.Fatal("let in beyond a quota of bytes")
		}
	}
	m.giveBack(quota.WriteOps, 0, 8000)
	m.table.GiveBack(q.now(), quota.WriteBytes, 1<<40)
	n := 0
	for m.take(quota.WriteOps, 1, 0) == nil {
		n++
	}
	if n < 3590 || n > 3620 {
		t.Errorf("%d let in, of 3600: what was refused for its bytes is used up", n)
	}

	for _, x := range []struct {
		err  error
		back bool
	}{
		{fmt.Errorf("x: %w", api.ErrNotServing), true}, {api.ErrNoTable, false}, {api.ErrUnavailable, true}, {errLeaseEnded, true}, {&api.OverloadedError{}, true},
		{api.ErrDiskFull, true}, {api.ErrUnsure, false}, {table.ErrBadRowKey, false}, {&api.PermissionError{}, false},
	} {
		m := metered{q: q, table: meter(1, 1e6)}
		for range 3000 {
			if err := m.take(quota.WriteOps, 1, 1); err != nil {
				t.Fatal(err)
			}
			m.refund(x.err, quota.WriteOps, 1, 1)
		}
		if n := count(m); (n >= 3600) != x.back {
			t.Errorf("after 3000 operations that ended with %v %d are let in, of 3600", x.err, n)
		}
	}
	if err := (metered{}).take(quota.WriteOps, 1e9, 1e15); err != nil {
		t.Errorf("without a quota: %v", err)
	}
}
