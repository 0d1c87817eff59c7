package quotas

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
)

// MethodReport reports a server's demand and the size of its tables to the master:
//
//	[server, [[key, [share, demand a second, whether some was refused]…]…], [[table, bytes]…], round]
//
// with one element for each kind of rate. It has the quotas used since the previous round, and those whose shares on this server the master
// may not know, in several messages if there are many (quota.ReportsMax). Tables are reported once a round, by id, if there are byte quotas.
// The result has the new shares, including those of quotas that were not in the report, the tables that may not grow, nil if the master does
// not know them yet, and the epoch of the master, which knows nothing of reports to earlier masters:
//
//	[[[key, share…]…], [[table, quota, limit, used]…], epoch]
const MethodReport = "cluster.quota_report"

// reportsMax bounds the quotas, and the tables, in a report.
const reportsMax = 1_000_000

// useReport is a report, and useAnswer its result.
type useReport struct {
	server string
	round  uint64
	rates  []quota.Report
	tables map[uint64]int64
}

type useAnswer struct {
	shares map[string][quota.Kinds]float64
	over   map[uint64]quota.Over // nil: unknown
	epoch  uint64
}

func (qs *Service) handleQuotaReports(r method.Registrar) {
	r.Handle(MethodReport, rpc.Spawned, authz.Guard{}, func(c *rpc.Call) {
		var r useReport
		if err := r.decode(&c.Params, c.NumParams); err != nil {
			c.Fail(rpc.Errorf(rpc.CodeBadRequest, "%s: %v", MethodReport, err))
			return
		}
		if caller := authz.SubjectOf(c); caller != nil && caller.Peer.Name != namespace.NodeOf(r.server) {
			reply.Fail(c, &api.PermissionError{Method: MethodReport, Text: fmt.Sprintf("node %s reports for server %.80q: a node reports for itself alone", caller.Peer.Name, r.server)})
			return
		}
		a, err := qs.answerUse(&r)
		if err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(a.append)
	})
}

// reportUse reports this server's demand and table sizes to the master, and applies the result.
func (qs *Service) reportUse(set *meterSet, since time.Duration) {
	s := qs.Server()
	reporter := &qs.state.reporter
	r := useReport{server: s.Name, round: reporter.Begin(time.Now(), s.Name, set.of)}
	names := map[uint64]string{}
	if len(set.bounds) > 0 {
		r.tables = map[uint64]int64{}
		for _, x := range s.Tablets.Sizes() {
			r.tables[x.ID], names[x.ID] = x.DiskBytes+x.MemtableBytes, x.Table
		}
	} else {
		qs.state.over.Store(nil)
	}
	ctx, cancel := context.WithTimeout(qs.Ctx, reportTimeout)
	defer cancel()
	for more := true; more; {
		r.rates = reporter.Next(since)
		a, err := qs.askUse(ctx, &r)
		if err != nil {
			qs.Log.Debug("quota report failed; previous shares remain", "err", err)
			return
		}
		if a.over != nil {
			qs.state.mayNotGrow(set, quotaErrors(a.over, names))
		}
		r.tables = nil
		more = reporter.Answered(qs.state.Now(), a.epoch, set.of, r.rates, a.shares)
	}
}

// quotaErrors returns the errors of exceeded quotas by the names of their tables.
func quotaErrors(over map[uint64]quota.Over, names map[uint64]string) map[string]*api.QuotaError {
	errs := map[string]*api.QuotaError{}
	for id, o := range over {
		if name := names[id]; name != "" {
			errs[name] = &api.QuotaError{Quota: o.Quota, Bytes: true, Limit: o.Limit, Used: o.Used}
		}
	}
	return errs
}

// askUse sends a report to the master, which may be this node.
func (qs *Service) askUse(ctx context.Context, r *useReport) (*useAnswer, error) {
	if qs.MasterEpoch() != 0 {
		return qs.answerUse(r)
	}
	masterID, _ := qs.Epochs.Last()
	if masterID == "" || masterID == qs.ID() {
		return nil, fmt.Errorf("%w: no master is known", api.ErrUnavailable)
	}
	a := &useAnswer{}
	return a, qs.Peers.Call(ctx, masterID, MethodReport, r.append, a.decode)
}

// answerUse processes a report on the master.
func (qs *Service) answerUse(r *useReport) (*useAnswer, error) {
	epoch, now, q := qs.MasterEpoch(), time.Now(), &qs.state
	if epoch == 0 {
		return nil, changes.ErrNotMaster
	}
	set := q.meters.Load()
	a := &useAnswer{epoch: epoch}
	a.shares = q.master.Divide(now, epoch, r.server, r.round, r.rates, qs.aliveServers(), func(key string) *quota.Record {
		if set == nil || set.of[key] == nil {
			return nil // unknown here
		}
		return set.of[key].Record()
	})
	if r.tables == nil || set == nil {
		return a, nil
	}
	q.ledger.Note(now, epoch, r.server, r.tables)
	all := q.ledger.Over(now, qs.aliveServers(), set.bounds)
	if all == nil {
		return a, nil
	}
	a.over = map[uint64]quota.Over{}
	for id := range r.tables {
		if o, ok := all[id]; ok {
			a.over[id] = o
		}
	}
	return a, nil
}

// goneEvery is the interval at which the master checks silent servers.
const goneEvery = 5 * time.Second

// forgetServers reclaims, on the master, the shares of servers whose lock is gone. A server that only cannot reach the master keeps its shares.
func (qs *Service) forgetServers(set *meterSet) {
	q := &qs.state
	if qs.MasterEpoch() == 0 || time.Since(q.gone) < goneEvery {
		return
	}
	q.gone = time.Now()
	q.master.Keep(func(key string) bool { return set.of[key] != nil })
	stale := q.master.Stale(q.gone)
	for _, s := range q.ledger.Servers() {
		if s != qs.Server().Name && !slices.Contains(stale, s) {
			stale = append(stale, s)
		}
	}
	if len(stale) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(qs.Ctx, reportTimeout)
	defer cancel()
	alive, err := qs.Meta.InstancesAlive(ctx)
	if err != nil {
		return // it has reported again
	}
	for _, server := range stale {
		if !alive[server] {
			q.master.Forget(q.gone, server)
			q.ledger.Forget(q.gone, server)
		}
	}
}

func (r *useReport) append(e *wire.Encoder) {
	e.Array(4)
	e.Str(r.server)
	e.Array(len(r.rates))
	for i := range r.rates {
		x := &r.rates[i]
		e.Array(1 + quota.Kinds)
		e.Str(x.Key)
		for k := range x.Shares {
			e.Array(3)
			e.Float(x.Shares[k])
			e.Float(x.Offered[k])
			e.Bool(x.Refused[k])
		}
	}
	if r.tables == nil {
		e.Nil()
	} else {
		e.Array(len(r.tables))
	}
	for id, bytes := range r.tables {
		e.Array(2)
		e.Uint(id)
		e.Int(bytes)
	}
	e.Uint(r.round)
}

func (r *useReport) decode(d *wire.Decoder, values int) error {
	r.server = d.Str()
	for range d.ArrayMax(reportsMax) {
		x := decodeRates(d)
		if d.Err() != nil {
			return d.Err()
		}
		r.rates = append(r.rates, x)
	}
	if !d.IsNil() {
		r.tables = map[uint64]int64{}
		for range d.ArrayMax(reportsMax) {
			rest := d.Array() - 2
			id, bytes := d.Uint(), d.Int()
			skip(d, rest)
			if d.Err() != nil {
				return d.Err()
			}
			r.tables[id] = max(bytes, 0)
		}
	}
	if values > 3 {
		r.round = d.Uint()
	}
	return d.Err()
}

// decodeRates decodes the part of a report that is about one quota.
func decodeRates(d *wire.Decoder) quota.Report {
	more := d.Array() - 1 - quota.Kinds
	x := quota.Report{Key: d.Str()}
	for k := range x.Shares {
		rest := d.Array() - 3
		x.Shares[k], x.Offered[k], x.Refused[k] = d.Float(), d.Float(), d.Bool()
		skip(d, rest)
	}
	skip(d, more)
	return x
}

func (a *useAnswer) append(e *wire.Encoder) {
	e.Array(3)
	e.Array(len(a.shares))
	for key, s := range a.shares {
		e.Array(1 + quota.Kinds)
		e.Str(key)
		for _, x := range s {
			e.Float(x)
		}
	}
	if a.over == nil {
		e.Nil()
	} else {
		e.Array(len(a.over))
	}
	for id, o := range a.over {
		e.Array(4)
		e.Uint(id)
		e.Str(o.Quota)
		e.Int(o.Limit)
		e.Int(o.Used)
	}
	e.Uint(a.epoch)
}

func (a *useAnswer) decode(d *wire.Decoder) error {
	values := d.Array()
	a.shares = map[string][quota.Kinds]float64{}
	for range d.ArrayMax(reportsMax) {
		more := d.Array() - 1 - quota.Kinds
		key, s := d.Str(), [quota.Kinds]float64{}
		for k := range s {
			s[k] = d.Float()
		}
		skip(d, more)
		if d.Err() != nil {
			return d.Err()
		}
		a.shares[key] = s
	}
	if !d.IsNil() {
		a.over = map[uint64]quota.Over{}
		for range d.ArrayMax(reportsMax) {
			rest := d.Array() - 4
			id, o := d.Uint(), quota.Over{Quota: d.Str(), Limit: d.Int(), Used: d.Int()}
			skip(d, rest)
			if d.Err() != nil {
				return d.Err()
			}
			a.over[id] = o
		}
	}
	if values > 2 {
		a.epoch = d.Uint()
	}
	skip(d, values-3)
	return d.Err()
}

// skip skips values that a later version has appended.
func skip(d *wire.Decoder, n int) {
	for ; n > 0 && d.Err() == nil; n-- {
		d.Skip()
	}
}
