package quotas

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/rpc"
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
	count := func(m Metered) (n int) {
		for m.Take(quota.WriteOps, 1, 1) == nil {
			n++
		}
		return n
	}
	q := &quotas{began: time.Now()}
	m := Metered{q: q, table: meter(2, 1e6), user: meter(1, 1e6)}
	if n := count(m); n < 3600 || n > 3620 {
		t.Errorf("%d let in by a user's quota of 3600", n)
	}
	m.user = nil
	if n := count(m); n < 3600 || n > 3640 {
		t.Errorf("%d let in by what the table has left of 7200: what a user's quota refused is used up", n)
	}
	var used *api.QuotaError
	if err := m.Take(quota.WriteOps, 1, 1); !errors.As(err, &used) || used.Quota != "it write_ops" || used.Bytes || used.Limit != 2 || used.RetryAfter <= 0 {
		t.Errorf("refused with %v", err)
	}
	m.table = meter(1e6, 1)
	if n := count(m); n < 3600 || n > 3620 {
		t.Errorf("%d bytes let in, of 3600", n)
	}
	m.table = meter(1, 1)
	for m.Take(quota.WriteOps, 1, 4000) == nil {
	}
	for range 3000 { // for their bytes
		if m.Take(quota.WriteOps, 1, 4000) == nil {
			t.Fatal("let in beyond a quota of bytes")
		}
	}
	m.Release(quota.WriteOps, 0, 8000)
	m.table.Refund(q.Now(), quota.WriteBytes, 1<<40)
	n := 0
	for m.Take(quota.WriteOps, 1, 0) == nil {
		n++
	}
	if n < 3590 || n > 3620 {
		t.Errorf("%d let in, of 3600: what was refused for its bytes is used up", n)
	}

	for _, x := range []struct {
		err  error
		back bool
	}{
		{fmt.Errorf("x: %w", api.ErrNotServing), true}, {api.ErrNoTable, false}, {api.ErrUnavailable, true}, {&rpc.Error{Code: rpc.CodeUnavailable, Retryable: true}, true}, {&api.OverloadedError{}, true},
		{api.ErrDiskFull, true}, {api.ErrOutcomeUnknown, false}, {table.ErrBadRowKey, false}, {&api.PermissionError{}, false},
	} {
		m := Metered{q: q, table: meter(1, 1e6)}
		for range 3000 {
			if err := m.Take(quota.WriteOps, 1, 1); err != nil {
				t.Fatal(err)
			}
			m.Refund(x.err, quota.WriteOps, 1, 1)
		}
		if n := count(m); (n >= 3600) != x.back {
			t.Errorf("after 3000 operations that ended with %v %d are let in, of 3600", x.err, n)
		}
	}
	if err := (Metered{}).Take(quota.WriteOps, 1e9, 1e15); err != nil {
		t.Errorf("without a quota: %v", err)
	}
}

// TestRefunds: what was taken for an operation that was not begun is given back once, to the table and to the user, of each
// kind; what was used before it stays used. The clock stands still, so that all counts are exact.
func TestRefunds(t *testing.T) {
	const burst = 3600 // an hour's worth of one a second, and one more
	notBegun, failed := fmt.Errorf("x: %w", api.ErrNotServing), api.ErrOutcomeUnknown
	take := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name string
		do   func(t *testing.T, m Metered)
		left [quota.Kinds]int // what is let in afterwards: one unit at a time
	}{
		{"nothing", func(*testing.T, Metered) {}, [quota.Kinds]int{3601, 3601, 3601, 3601}},
		{"a write that is not begun", func(t *testing.T, m Metered) {
			take(t, m.Take(quota.WriteOps, 100, 200))
			m.Refund(notBegun, quota.WriteOps, 100, 200)
		}, [quota.Kinds]int{3601, 3601, 3601, 3601}},
		{"a write, and one that is not begun", func(t *testing.T, m Metered) {
			take(t, m.Take(quota.WriteOps, 100, 200))
			take(t, m.Take(quota.WriteOps, 30, 40))
			m.Refund(notBegun, quota.WriteOps, 30, 40)
		}, [quota.Kinds]int{3601, 3601, 3501, 3401}},
		{"a write, and one that fails", func(t *testing.T, m Metered) {
			take(t, m.Take(quota.WriteOps, 100, 200))
			take(t, m.Take(quota.WriteOps, 30, 40))
			m.Refund(failed, quota.WriteOps, 30, 40)
		}, [quota.Kinds]int{3601, 3601, 3471, 3361}},
		{"reads that are charged, and one that is not begun", func(t *testing.T, m Metered) {
			m.Charge(quota.ReadOps, 500, 700)
			take(t, m.Take(quota.ReadOps, 10, 0))
			m.Refund(notBegun, quota.ReadOps, 10, 0)
		}, [quota.Kinds]int{3101, 2901, 3601, 3601}},
		{"a conditional write, and one that is not begun", func(t *testing.T, m Metered) {
			take(t, m.TakeBoth(nil, nil))
			take(t, m.TakeBoth(nil, nil))
			m.RefundBoth(notBegun)
		}, [quota.Kinds]int{3600, 3601, 3600, 3601}},
		{"a conditional write that fails", func(t *testing.T, m Metered) {
			take(t, m.TakeBoth(nil, nil))
			m.RefundBoth(failed)
		}, [quota.Kinds]int{3600, 3601, 3600, 3601}},
		{"a conditional write that may not write", func(t *testing.T, m Metered) {
			take(t, m.Take(quota.ReadOps, 10, 0))
			m.Charge(quota.WriteOps, burst+1, 0)
			if m.TakeBoth(nil, nil) == nil {
				t.Error("let in")
			}
		}, [quota.Kinds]int{3591, 3601, 0, 3601}},
		{"a write that has too many bytes", func(t *testing.T, m Metered) {
			take(t, m.Take(quota.WriteOps, 10, burst+1))
			if m.Take(quota.WriteOps, 100, 1) == nil {
				t.Error("let in")
			}
		}, [quota.Kinds]int{3601, 3601, 3591, 0}},
		{"what is refunded twice by mistake is no more than was charged", func(t *testing.T, m Metered) {
			take(t, m.Take(quota.WriteOps, 10, 10))
			m.Release(quota.WriteOps, 20, 20)
		}, [quota.Kinds]int{3601, 3601, 3601, 3601}},
	} {
		t.Run(x.name, func(t *testing.T) {
			for _, caller := range []string{"table", "user", "both"} {
				synctest.Test(t, func(t *testing.T) {
					meter := func() *quota.Meter {
						r := &quota.Record{}
						for k := range r.Rates {
							r.Rates[k] = quota.Rate{PerSecond: 1, Burst: quota.BurstMax}
						}
						return quota.NewMeter("k", "it", r, 0, 1)
					}
					m := Metered{q: &quotas{began: time.Now()}}
					if caller != "user" {
						m.table = meter()
					}
					if caller != "table" {
						m.user = meter()
					}
					x.do(t, m)
					for _, of := range []*quota.Meter{m.table, m.user} {
						for k := range quota.Kinds {
							n := 0
							for of != nil && of.Take(0, quota.Kind(k+1), 1) == nil {
								n++
							}
							if of != nil && n != x.left[k] {
								t.Errorf("%s: %d %v are let in, want %d", caller, n, quota.Kind(k+1), x.left[k])
							}
						}
					}
				})
			}
		})
	}
}

// A user's quota that refuses takes nothing of the table's, and a table's nothing of the user's.
func TestRefusedByOneTakesNothingOfTheOther(t *testing.T) {
	for _, refuses := range []string{"table", "user"} {
		for _, kind := range []quota.Kind{quota.WriteOps, quota.WriteBytes} {
			synctest.Test(t, func(t *testing.T) {
				full := &quota.Record{}
				for k := range full.Rates {
					full.Rates[k] = quota.Rate{PerSecond: 1, Burst: quota.BurstMax}
				}
				m := Metered{q: &quotas{began: time.Now()}, table: quota.NewMeter("t", "it", full, 0, 1), user: quota.NewMeter("u", "it", full, 0, 1)}
				empty, other := m.table, m.user
				if refuses == "user" {
					empty, other = other, empty
				}
				for k := range quota.Kinds { // used before, which is not to be given back
					other.Charge(0, quota.Kind(k+1), 200)
				}
				empty.Charge(0, kind, 5000)
				if m.Take(quota.WriteOps, 50, 70) == nil {
					t.Fatal("let in")
				}
				for k := range quota.Kinds {
					n := 0
					for other.Take(0, quota.Kind(k+1), 1) == nil {
						n++
					}
					if n != 3401 {
						t.Errorf("%s refuses for its %v: %d %v of the other are left, want 3401", refuses, kind, n, quota.Kind(k+1))
					}
				}
			})
		}
	}
}
