package client

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// TabletChange is the result of a split, move or merge.
type TabletChange = api.TabletChange

// TabletRef selects a tablet of a table: the one with that ID or, if ID is 0, the one that holds
// Row. The zero TabletRef is the table's first tablet.
type TabletRef struct {
	Row string
	ID  uint64
}

// SplitTablet splits the tablet that holds the row at, which becomes the last row of the lower
// part. If at is empty, the table's largest tablet is split at about half of its bytes. Errors:
// ErrBadSplit if a tablet already ends at that row or a part would be empty, ErrSystemTable,
// ErrLimit at 10,000 tablets, *AmbiguousError, and those of Describe.
func (c *Client) SplitTablet(ctx context.Context, table, at string) (*TabletChange, error) {
	return c.changeTablet(ctx, api.MethodSplitTablet, api.TabletRequest{Table: table, Row: []byte(at)})
}

// HalveTablet splits a tablet at about half of its bytes. Errors: those of SplitTablet,
// ErrNoTablet.
func (c *Client) HalveTablet(ctx context.Context, table string, t TabletRef) (*TabletChange, error) {
	return c.changeTablet(ctx, api.MethodSplitTablet, api.TabletRequest{Table: table, Row: []byte(t.Row), ID: t.ID, Middle: true})
}

// MoveTablet moves a tablet to a node, given by its id or name, and returns when it is served
// there. The balancer leaves it there for some minutes. The call is idempotent. Errors:
// ErrNoTablet, ErrNodeNotFound, ErrNodeNotAlive, ErrTabletBusy, *AmbiguousError, and those of
// Describe.
func (c *Client) MoveTablet(ctx context.Context, table string, t TabletRef, node string) (*TabletChange, error) {
	return c.changeTablet(ctx, api.MethodMoveTablet, api.TabletRequest{Table: table, Row: []byte(t.Row), ID: t.ID, Node: node})
}

// MergeTablets merges a tablet with the next one or, if it is the table's last, with the previous
// one. If necessary, the smaller one first moves to the server of the larger. Errors: ErrNoTablet,
// also if there is no neighbour; ErrSystemTable, ErrTabletBusy, ErrConflict if one was split
// meanwhile, *AmbiguousError, and those of Describe.
func (c *Client) MergeTablets(ctx context.Context, table string, t TabletRef) (*TabletChange, error) {
	return c.changeTablet(ctx, api.MethodMergeTablets, api.TabletRequest{Table: table, Row: []byte(t.Row), ID: t.ID})
}

// CompactTablet is Compact for one tablet. Errors: ErrNoTablet, and those of Compact.
func (c *Client) CompactTablet(ctx context.Context, table string, t TabletRef, major bool) error {
	req := api.TabletRequest{Table: table, Row: []byte(t.Row), ID: t.ID, Major: major}
	encode := func(e *wire.Encoder) { req.AppendAs(api.MethodCompactTablet, e) }
	return c.do(ctx, &call{method: api.MethodCompactTablet, safe: true, encode: encode})
}

func (c *Client) changeTablet(ctx context.Context, method string, req api.TabletRequest) (*TabletChange, error) {
	done := &api.TabletChange{}
	encode := func(e *wire.Encoder) { req.AppendAs(method, e) }
	k := call{method: method, change: true, safe: method == api.MethodMoveTablet, encode: encode, decode: done.Decode}
	if err := c.do(ctx, &k); err != nil {
		return nil, err
	}
	return done, nil
}
