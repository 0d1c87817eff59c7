package quotas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

// handleQuotas registers the methods that manage quotas.
func (qs *Service) handleQuotas(r method.Registrar) {
	r.Handle(api.MethodSetQuota, rpc.Spawned, authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, SelfAudited: true}, qs.serveSetQuota)
	r.Handle(api.MethodRemoveQuota, rpc.Spawned, authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, SelfAudited: true}, qs.serveRemoveQuota)
	r.HandleNames(api.MethodListQuotas, 0, authz.Guard{To: authz.Right, Right: acl.Monitor}, qs.listQuotas)
}

func (qs *Service) serveSetQuota(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.SetQuotaRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	err := qs.setQuota(c.Context(), authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: api.MethodSetQuota, Name: r.Name}, &r)
	qs.answerChange(c, api.MethodSetQuota, r.Of, r.Name, err)
}

func (qs *Service) serveRemoveQuota(c *rpc.Call) {
	c.Retain()
	var r api.NamesRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, api.MethodRemoveQuota, 2), &r.Options) {
		return
	}
	err := qs.removeQuota(c.Context(), authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: api.MethodRemoveQuota, Name: r.Names[1]}, r.Names[0])
	qs.answerChange(c, api.MethodRemoveQuota, r.Names[0], r.Names[1], err)
}

// answerChange records a change in the audit log and the node's log, and answers it once it is in force on this node.
func (qs *Service) answerChange(c *rpc.Call, method, of, name string, err error) {
	qs.Authz.Audit.Action(authz.SubjectOf(c), method, "quota of "+of+" "+name, err)
	if err != nil {
		reply.Fail(c, err)
		return
	}
	qs.Log.Info("quota changed", "kind", of, "name", name, "method", method)
	qs.quotasChanged(c.Context())
	c.Reply(nil)
}

// quotaFile returns the path of the quota of a table or a user. Errors: api.ErrNoTable, ErrNoUser, ErrSystemTable.
func (qs *Service) quotaFile(ctx context.Context, of, name string) (string, error) {
	switch of {
	case api.QuotaOfTable:
		if metadata.IsSystem(name) {
			return "", api.ErrSystemTable
		}
		s, _, err := qs.Catalog.Schema(ctx, name)
		if err != nil {
			return "", err
		}
		return quota.TableFile(s.ID), nil
	case api.QuotaOfUser:
		if qs.Authz.Open {
			return "", api.ErrOpenCluster
		}
		err := qs.CheckUser(ctx, name)
		return quota.PrincipalFile(name), err
	}
	return "", reply.BadRequest(fmt.Errorf("kind of quota is %[3].40q, want %[1]s or %[2]s", api.QuotaOfTable, api.QuotaOfUser, of))
}

// setQuota sets the given bounds of a quota. The change is in force on this node when it answers, and on all others soon after.
func (qs *Service) setQuota(ctx context.Context, a authz.ChangeRequest, r *api.SetQuotaRequest) error {
	if len(r.Bounds) == 0 && len(r.Unbounded) == 0 {
		return reply.BadRequest(errors.New("no bound given"))
	}
	return qs.changeQuota(ctx, a, r.Of, func(old *quota.Record) (*quota.Record, error) {
		next := quota.Record{Name: r.Name}
		if old != nil {
			next = *old
			next.Name = r.Name // the table may have been renamed
		}
		setBounds(&next, r)
		if err := next.Check(); err != nil {
			return nil, reply.BadRequest(err)
		}
		return &next, nil
	})
}

// setBounds sets the bounds that a request names, and removes those that it names as unbounded.
func setBounds(next *quota.Record, r *api.SetQuotaRequest) {
	burst := r.Burst
	if burst == 0 {
		burst = quota.BurstDefault
	}
	for kind, limit := range r.Bounds {
		if kind == api.QuotaBytes {
			next.BytesMax = limit
			continue
		}
		k := slices.Index(rateKinds[:], kind)
		next.Rates[k] = quota.Rate{PerSecond: limit, Burst: burst}
	}
	for _, kind := range r.Unbounded {
		if k := slices.Index(rateKinds[:], kind); k >= 0 {
			next.Rates[k] = quota.Rate{}
		} else {
			next.BytesMax = 0
		}
	}
}

// rateKinds has the kinds of rates in the order of records.
var rateKinds = [quota.Kinds]string{api.QuotaReadOps, api.QuotaReadBytes, api.QuotaWriteOps, api.QuotaWriteBytes}

// removeQuota removes a quota. The error is api.ErrNoQuota if there is none.
func (qs *Service) removeQuota(ctx context.Context, a authz.ChangeRequest, of string) error {
	return qs.changeQuota(ctx, a, of, func(old *quota.Record) (*quota.Record, error) {
		if old == nil {
			return nil, fmt.Errorf("quota of %s %q: %w", of, a.Name, api.ErrNoQuota)
		}
		return &quota.Record{}, nil
	})
}

// changeQuota changes the quota of the table or user of a request; an empty quota is removed.
func (qs *Service) changeQuota(ctx context.Context, a authz.ChangeRequest, of string, edit func(old *quota.Record) (*quota.Record, error)) error {
	return qs.Changes.Do(ctx, a, func(ctx context.Context) error {
		file, err := qs.quotaFile(ctx, of, a.Name)
		if err != nil {
			return err
		}
		if err := qs.records.edit(ctx, file, edit); err != nil {
			return err
		}
		if _, err := qs.records.nextEpoch(ctx); err != nil {
			return reply.Recode(api.ErrOutcomeUnknown, fmt.Errorf("the change may not be in force on all servers; repeat it: %w", err))
		}
		return nil
	})
}

// ForgetTable removes the quota and the owner of a dropped table. They would have no effect: ids are not reused.
func (qs *Service) ForgetTable(ctx context.Context, tableID uint64) {
	_, err := qs.records.remove(ctx, quota.TableFile(tableID))
	if _, ownerErr := qs.records.remove(ctx, quota.OwnerFile(tableID)); err != nil || ownerErr != nil {
		qs.Log.Warn("quota of dropped table not removed", "table_id", tableID, "err", errors.Join(err, ownerErr))
	}
}

// ForgetUser removes the quota of a removed user, and the ownership of tables: a later user of that name has none.
func (qs *Service) ForgetUser(ctx context.Context, name string) (found bool, err error) {
	owned, err := qs.records.forgetOwner(ctx, name)
	if err != nil {
		return owned, err
	}
	found, err = qs.records.remove(ctx, quota.PrincipalFile(name))
	return found || owned, err
}

func (qs *Service) listQuotas(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	all := &api.Quotas{}
	tables, err := qs.Meta.Tables(ctx)
	if err != nil {
		return nil, err
	}
	for _, of := range []string{api.QuotaOfTable, api.QuotaOfUser} {
		dir := quota.TablesDir
		if of == api.QuotaOfUser {
			dir = quota.PrincipalsDir
		}
		first := len(all.Quotas)
		err := qs.records.each(ctx, dir, func(name string, r *quota.Record) error {
			if of == api.QuotaOfTable {
				id, err := strconv.ParseUint(name, 10, 64)
				if r.Name = tables[id]; err != nil || r.Name == "" || table.IsDropped(r.Name) {
					return nil // of one that was dropped
				}
			}
			all.Quotas = append(all.Quotas, quotaInfo(of, r))
			return nil
		})
		if err != nil {
			return nil, err
		}
		slices.SortFunc(all.Quotas[first:], func(a, b api.QuotaInfo) int { return cmp.Compare(a.Name, b.Name) })
	}
	return all.Append, qs.addUsed(ctx, all, tables)
}

// addUsed adds the used bytes to byte quotas. tables has names by id.
func (qs *Service) addUsed(ctx context.Context, all *api.Quotas, tables map[uint64]string) error {
	if !slices.ContainsFunc(all.Quotas, func(q api.QuotaInfo) bool { return q.Bounds[0].Kind == api.QuotaBytes }) {
		return nil
	}
	owners, err := qs.records.owners(ctx)
	if err != nil {
		return err
	}
	u, err := qs.Usage(ctx, 0)
	if err != nil || len(u.Silent) > 0 || slices.ContainsFunc(u.Tables, func(t api.TableUsage) bool { return t.Unserved != 0 }) {
		return err
	}
	byTable, byUser := map[string]int64{}, map[string]int64{}
	for _, t := range u.Tables {
		byTable[t.Name] = t.DiskBytes + t.MemtableBytes
	}
	for id, owner := range owners {
		byUser[owner] += byTable[tables[id]]
	}
	for i := range all.Quotas {
		q := &all.Quotas[i]
		if len(q.Bounds) == 0 || q.Bounds[0].Kind != api.QuotaBytes {
			continue
		}
		b := &q.Bounds[0]
		if b.Used = byTable[q.Name]; q.Of == api.QuotaOfUser {
			b.Used = byUser[q.Name]
		}
	}
	return nil
}

// quotaInfo returns the description of a quota, its byte bound first, if any.
func quotaInfo(of string, r *quota.Record) api.QuotaInfo {
	q := api.QuotaInfo{Of: of, Name: r.Name}
	if r.BytesMax > 0 {
		q.Bounds = append(q.Bounds, api.QuotaBound{Kind: api.QuotaBytes, Limit: r.BytesMax, Used: -1})
	}
	for k, x := range r.Rates {
		if x.PerSecond > 0 {
			q.Bounds = append(q.Bounds, api.QuotaBound{Kind: rateKinds[k], Limit: x.PerSecond, BurstMS: int64(x.Burst / time.Millisecond), Used: -1})
		}
	}
	return q
}
