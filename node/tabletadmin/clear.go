package tabletadmin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// MethodClear clears the rows of a tablet in a range: its key in METADATA, the start of the range, which must be in the tablet, and its end;
// an empty one means no bound. The result is the last row of the tablet, empty if it has none.
const MethodClear = "tablet.clear"

// clearsAtOnce is the number of tablets of a table that are cleared at a time.
const clearsAtOnce = 16

// handleClear registers the method by which administrators of a table delete ranges of its rows.
func (tv *Service) handleClear(r method.Registrar) {
	guard := authz.Guard{To: authz.RightOfTable, Right: acl.Admin, Leader: authz.LeaderFirst}
	r.Handle(api.MethodClearRows, rpc.Spawned, guard, func(c *rpc.Call) {
		c.Retain() // what is begun may outlive the call
		var r api.ClearRowsRequest
		if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, tv.Limits), &r.Options) {
			return
		}
		ctx, cancel := context.WithTimeout(c.Context(), tabletChangeTimeout)
		defer cancel()
		if err := tv.clearRows(ctx, &r); err != nil {
			reply.Fail(c, err)
			return
		}
		c.Reply(nil)
	})
}

// clearing deletes the rows of a range of a table.
type clearing struct {
	of     *Service
	schema *table.Schema
}

// clearRows deletes the rows of a range in all tablets that have some, however they split, merge and move meanwhile. Each
// tablet is cleared at a moment of its own. After an error some may be cleared; then the call may be repeated.
func (tv *Service) clearRows(ctx context.Context, r *api.ClearRowsRequest) error {
	if metadata.IsSystem(r.Table) {
		return api.ErrSystemTable
	}
	s, err := tv.Catalog.SchemaOf(ctx, r.Table)
	if err != nil {
		return err
	}
	if s.Follows != "" {
		return &api.FollowerError{Table: s.Name, Replication: s.Follows}
	}
	if err := table.CheckWritable(s); err != nil {
		return err
	}
	c := &clearing{tv, s}
	parts, err := c.divide(ctx, r.Start, r.End)
	if err != nil {
		return err
	}
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(clearsAtOnce)
	for _, p := range parts {
		group.Go(func() error { return c.part(inGroup, p) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	tv.Log.Info("rows cleared", "table", s.Name, "tablets", len(parts))
	return nil
}

// divide divides a range at the ends of the table's tablets as they are now. If the table has none yet, the range is one part.
func (c *clearing) divide(ctx context.Context, start, end []byte) (parts []table.RowRange, err error) {
	rest := table.RowRange{Start: start, End: end}
	err = c.of.Rows().Tablets(ctx, c.schema.ID, func(r *metadata.Row) error {
		after := append(bytes.Clone(r.End), 0)
		if len(r.End) == 0 || bytes.Compare(after, rest.Start) <= 0 || len(end) > 0 && bytes.Compare(after, end) >= 0 {
			return nil
		}
		parts = append(parts, table.RowRange{Start: rest.Start, End: after})
		rest.Start = after
		return nil
	})
	return append(parts, rest), err
}

// part clears a range, tablet by tablet in order of their rows. The tablet that has the start is looked up again until
// it is cleared, so nothing stays uncleared when tablets change meanwhile.
func (c *clearing) part(ctx context.Context, p table.RowRange) error {
	for {
		var last []byte
		if err := untilServed(ctx, func() (err error) {
			last, err = c.first(ctx, p)
			return err
		}); err != nil {
			return err
		}
		if p.Start = append(last, 0); len(last) == 0 || len(p.End) > 0 && bytes.Compare(p.Start, p.End) >= 0 {
			return nil
		}
	}
}

// first clears a range in the tablet that has its start, and returns that tablet's last row. Its errors have no row keys, since they are in
// the audit log.
func (c *clearing) first(ctx context.Context, p table.RowRange) (last []byte, err error) {
	at, err := c.holder(ctx, p.Start)
	if err != nil {
		return nil, err
	}
	err = c.of.callServer(ctx, at, MethodClear, func(e *wire.Encoder) {
		e.Bin(p.Start)
		e.Bin(p.End)
	}, 2, func(d *wire.Decoder) error {
		last = bytes.Clone(d.Bytes())
		return d.Err()
	})
	if answer := (*rpc.Error)(nil); err != nil && !errors.As(err, &answer) && !errors.Is(err, api.ErrNotServing) && ctx.Err() == nil {
		err = reply.Recode(api.ErrUnavailable, err) // the server may be gone; to clear the rows once more does no harm
	}
	return last, err
}

// holder returns the tablet that has a row.
func (c *clearing) holder(ctx context.Context, row []byte) (*placed, error) {
	s := c.schema
	now, err := c.of.Catalog.SchemaOf(ctx, s.Name)
	if err == nil && now.ID != s.ID {
		err = fmt.Errorf("table %q: %w", s.Name, api.ErrNoTable) // it was dropped, and another one has its name
	}
	if err != nil {
		return nil, err
	}
	r, err := c.of.Rows().Holder(ctx, s.ID, row)
	if errors.Is(err, metarows.ErrNoRow) {
		err = fmt.Errorf("a tablet of table %q has no row in METADATA: %w", s.Name, api.ErrNotServing)
	}
	if err != nil {
		return nil, err
	}
	m, err := tablet.DecodeMeta(r.Meta)
	return &placed{schema: s, row: r, meta: m}, err
}

// clearHere clears rows of a tablet of this node.
func (tv *Service) clearHere(ctx context.Context, name string, d *wire.Decoder) (reply.Result, error) {
	r, err := decodeRef(d)
	start, end := bytes.Clone(d.Bytes()), bytes.Clone(d.Bytes())
	if err = cmp.Or(err, d.Err()); err != nil {
		return nil, err
	}
	_, last, err := tv.TabletsOf(name).Clear(ctx, r, start, end)
	if errors.Is(err, tablet.ErrMetaLost) || errors.Is(err, tablet.ErrMetaChanged) || errors.Is(err, tablet.ErrClosed) {
		err = reply.Recode(api.ErrNotServing, err) // by another server, which is asked next
	}
	if err != nil {
		return nil, err
	}
	return func(e *wire.Encoder) { e.Bin(last) }, nil
}
