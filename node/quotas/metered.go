package quotas

import (
	"errors"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// Metered is the quotas that a request counts for: its table's and its principal's. The zero value has none.
type Metered struct {
	q           *quotas
	table, user *quota.Meter    // nil for none
	over        *api.QuotaError // the exceeded quota if the table may not grow, or nil
}

// Meter returns the quotas for a call that reads or writes a table. Callers without that right are not charged and learn nothing about the
// table's quota.
func (qs *Service) Meter(c *rpc.Call, name string, write bool) Metered {
	m, _ := qs.meterAs(c, name, write, true)
	return m
}

// MeterNow is Meter for callers that must not wait. It returns false if the caller's rights are unknown.
func (qs *Service) MeterNow(c *rpc.Call, name string, write bool) (Metered, bool) {
	return qs.meterAs(c, name, write, false)
}

func (qs *Service) meterAs(c *rpc.Call, name string, write, waits bool) (m Metered, known bool) {
	set := qs.state.meters.Load()
	if set == nil || metadata.IsSystem(name) {
		return Metered{}, true
	}
	m = Metered{q: &qs.state, table: set.tables[name]}
	if over := qs.state.over.Load(); over != nil {
		m.over = (*over)[name]
	}
	if caller := authz.SubjectOf(c); caller.Restricted() {
		if m.table != nil || m.over != nil {
			uses, whole, known := qs.mayUse(c, caller, name, write, waits)
			switch {
			case !known:
				return Metered{}, false
			case !uses:
				m.table, m.over = nil, nil
			case m.over != nil && !whole: // families that the caller may not see
				hidden := *m.over
				hidden.Used = 0
				m.over = &hidden
			}
		}
		user, _, _ := caller.Principal()
		m.user = set.users[user]
	}
	if m.table == nil && m.user == nil && m.over == nil {
		return Metered{}, true
	}
	return m, true
}

// mayUse reports whether a principal may read, or write, any family of a table served here, and whether it sees all families. known is false
// if a lookup is needed and the call must not wait.
func (qs *Service) mayUse(c *rpc.Call, caller *authz.Subject, name string, write, waits bool) (may, whole, known bool) {
	s := qs.Server().Tablets.Served().Schema(name)
	if s == nil {
		return false, false, true
	}
	v, _ := qs.Authz.Rights.ViewNow(caller, s)
	if v == nil {
		if !waits {
			return false, false, false
		}
		began := c.Trace().Now()
		var err error
		v, _, err = qs.Authz.Rights.View(c.Context(), caller, s)
		c.Trace().Since(trace.Rights, began)
		if err != nil {
			return false, false, true // the operation will fail
		}
	}
	if !write {
		return v.CheckSeen() == nil && (v.CheckRead() == nil || v.UsesViews(acl.Read)), v.SeesAll(), true
	}
	for i := range s.Families {
		if v.CanWrite(s.Families[i].Name) {
			return true, v.SeesAll(), true
		}
	}
	return v.UsesViews(acl.Write), false, true
}

// None reports whether nothing is charged.
func (m Metered) None() bool { return m.q == nil }

// MayAdd returns nil if the mutations are allowed for a table that may not grow: those that only delete.
func (m Metered) MayAdd(all ...[]table.Mutation) error {
	if m.over == nil {
		return nil
	}
	for _, ms := range all {
		for i := range ms {
			if !ms[i].Op.IsDeletion() {
				return m.over
			}
		}
	}
	return nil
}

// bytesOf returns the kind of bytes that belongs to a kind of operations.
func bytesOf(ops quota.Kind) quota.Kind { return ops + 1 }

// Take charges operations and the bytes known so far. On an error, an *api.QuotaError, nothing is charged.
func (m Metered) Take(ops quota.Kind, n, bytes int64) error {
	if m.None() {
		return nil
	}
	now := m.q.Now()
	if m.table != nil {
		if err := takeOf(m.table, now, ops, n, bytes); err != nil {
			return err
		}
	}
	if m.user != nil {
		if err := takeOf(m.user, now, ops, n, bytes); err != nil {
			if m.table != nil {
				m.table.Refund(now, ops, n)
				m.table.Refund(now, bytesOf(ops), bytes)
			}
			return err
		}
	}
	return nil
}

func takeOf(x *quota.Meter, now int64, ops quota.Kind, n, bytes int64) error {
	r := x.Take(now, ops, n)
	if r == nil {
		if r = x.Take(now, bytesOf(ops), bytes); r == nil {
			return nil
		}
		x.Refund(now, ops, n)
	}
	return &api.QuotaError{Quota: r.Quota, Limit: r.Limit, RetryAfter: r.Wait}
}

// Charge charges what was used already.
func (m Metered) Charge(ops quota.Kind, n, bytes int64) {
	if m.None() {
		return
	}
	now := m.q.Now()
	for _, x := range [...]*quota.Meter{m.table, m.user} {
		if x != nil {
			x.Charge(now, ops, n)
			x.Charge(now, bytesOf(ops), bytes)
		}
	}
}

// Refund returns the charge of a failed operation if nothing was executed and it will be retried, here or elsewhere.
func (m Metered) Refund(err error, ops quota.Kind, n, bytes int64) {
	if !m.None() && notBegun(err) {
		m.Release(ops, n, bytes)
	}
}

// notBegun reports whether err means that the operation will be retried, or that its row is not served here.
func notBegun(err error) bool {
	for _, x := range []error{api.ErrNotServing, api.ErrTableReplaced, api.ErrUnavailable, rpc.CodeUnavailable} {
		if errors.Is(err, x) {
			return true
		}
	}
	return reply.RefusesWrites(err)
}

// Release takes back a charge, whatever came of the request.
func (m Metered) Release(ops quota.Kind, n, bytes int64) {
	if m.None() {
		return
	}
	now := m.q.Now()
	for _, x := range [...]*quota.Meter{m.table, m.user} {
		if x != nil {
			x.Refund(now, ops, n)
			x.Refund(now, bytesOf(ops), bytes)
		}
	}
}

// TakeRows charges mutations of rows, all or none: if some were admitted, clients would resend the others again and again. Mutations that
// would grow a table over its quota are refused and not charged.
func (m Metered) TakeRows(all []table.RowMutation, refuse func(i int, err error)) error {
	if m.None() {
		return nil
	}
	rows, bytes := int64(0), int64(0)
	for i := range all {
		if err := m.MayAdd(all[i].Mutations); err != nil {
			refuse(i, err)
			continue
		}
		rows, bytes = rows+1, bytes+all[i].Size()
	}
	if rows == 0 {
		return nil
	}
	return m.Take(quota.WriteOps, rows, bytes)
}

// TakeBoth charges an operation that reads a row, and may apply one of several lists of mutations.
func (m Metered) TakeBoth(perhaps ...[]table.Mutation) error {
	if m.None() {
		return nil
	}
	if err := m.MayAdd(perhaps...); err != nil {
		return err
	}
	if err := m.Take(quota.ReadOps, 1, 0); err != nil {
		return err
	}
	err := m.Take(quota.WriteOps, 1, 0)
	if err != nil {
		m.Release(quota.ReadOps, 1, 0)
	}
	return err
}

// RefundBoth is Refund for TakeBoth.
func (m Metered) RefundBoth(err error) {
	m.Refund(err, quota.ReadOps, 1, 0)
	m.Refund(err, quota.WriteOps, 1, 0)
}
