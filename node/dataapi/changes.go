package dataapi

import (
	"context"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/quota"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/node/results"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/tablet"
)

func (d *Service) readChanges(c *rpc.Call) {
	var r api.ReadChangesRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, d.Limits), &r.Options) {
		return
	}
	m := d.Quotas.Meter(c, r.Table, false)
	if err := m.Take(quota.ReadOps, 1, 0); err != nil {
		reply.Fail(c, err)
		return
	}
	a := d.Authz.Access(c, r.Table, r.View)
	defer a.Release()
	memory := results.Answer{Of: d.Results, User: authz.SubjectOf(c).Owner(), Copies: 2}
	defer memory.Release()
	e := wire.GetEncoder()
	defer e.Release()
	q := changesRead{Service: d, call: c, request: &r, as: d.Tablets.TabletsOf(r.Table).For(a.Of(true)).Table(r.TableID)}
	if err := q.answer(c.Context(), e, &memory); err != nil {
		err = d.Tablets.Misrouted(a, err, r.Table, r.TableID, append(r.Start[:len(r.Start):len(r.Start)], 0))
		m.Refund(err, quota.ReadOps, 1, 0)
		reply.Fail(c, err)
		return
	}
	memory.UntilSent(c)
	m.Charge(quota.ReadOps, 0, int64(e.Len()))
	c.Reply(func(out *wire.Encoder) { out.Raw(e.Bytes()) })
}

// changesRead is one read_changes.
type changesRead struct {
	*Service
	call    *rpc.Call
	request *api.ReadChangesRequest
	as      tablet.For
}

// answer encodes the result into e. While it waits for a change it holds no memory of results.
func (q *changesRead) answer(ctx context.Context, e *wire.Encoder, memory *results.Answer) error {
	r := q.request
	if r.Wait > 0 && (r.Next > 0 || r.Since > 0) { // otherwise the current position is requested
		p, err := q.as.ReadChanges(ctx, r.Table, q.of(1, r.Wait))
		if err != nil {
			return err
		}
		p.Release()
		if len(p.Changes) == 0 {
			encodeChanges(e, p)
			return nil
		}
	}
	size := int64(api.ChangesBytes)
	if r.Bytes > 0 {
		size = min(r.Bytes, api.ChangesBytesMax)
	}
	err := memory.Await(ctx, int(size))
	for err == nil {
		var p *tablet.ChangesPage
		if p, err = q.as.ReadChanges(ctx, r.Table, q.of(size, 0)); err != nil {
			break
		}
		e.Reset()
		encodeChanges(e, p)
		p.Release()
		if memory.Fits(e.Len()) {
			return nil
		}
		err = memory.Await(ctx, memory.Lacks)
	}
	return err
}

// of returns the request to the tablet server for so many bytes.
func (q *changesRead) of(bytes int64, wait time.Duration) tablet.ChangesRequest {
	r := q.request
	return tablet.ChangesRequest{Start: r.Start, End: r.End, Next: r.Next, Since: r.Since, Bytes: bytes, ChangeBytes: r.ChangeBytes, Wait: wait, Clears: r.Clears}
}

func encodeChanges(e *wire.Encoder, p *tablet.ChangesPage) {
	r := api.ChangesResult{End: p.End, Next: p.Next, Watermark: p.Watermark, Families: p.Families}
	r.Append(e, len(p.Changes), func(i int, to *api.Change) {
		c := &p.Changes[i]
		*to = api.Change{Row: c.Row, Seq: c.Seq, Time: c.Time, Mutations: c.Mutations, FamilyIDs: c.FamilyIDs, Cleared: c.Cleared}
	})
}

// follow makes a change of a table that follows another one.
func (d *Service) follow(c *rpc.Call) {
	var r api.FollowRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, d.Limits), &r.Options) {
		return
	}
	made, err := d.Tablets.TabletsOf(r.Table).For(nil).Table(r.TableID).Follow(c.Context(), &r)
	if err != nil {
		reply.Fail(c, d.Tablets.Misrouted(nil, err, r.Table, r.TableID, r.Change.Row))
		return
	}
	c.Reply(func(e *wire.Encoder) { e.Int(int64(made)) })
}
