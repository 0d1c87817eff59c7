package client

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// TabletChange tells what became of a tablet that was split, moved or merged.
type TabletChange = api.TabletChange

// TabletRef names a tablet of a table: the one that has Row, or if ID is not 0 that of
// this id. The zero TabletRef is the table's first tablet.
type TabletRef struct {
	Row string
	ID  uint64
}

// SplitTablet splits the tablet that has the row at: the lower part ends with it. An
// empty at is a row that parts the bytes of the table's largest tablet about evenly. Errors:
// ErrBadSplit, if a tablet ends there already or has nothing to part, ErrSystemTable, ErrLimit at 10,000 tablets,
// *AmbiguousError, and those of Describe.
func (c *Client) SplitTablet(ctx context.Context, table, at string) (*TabletChange, error) {
	return c.changeTablet(ctx, api.MethodSplitTablet, api.TabletRequest{Table: table, Row: []byte(at)})
}

// HalveTablet splits a tablet at a row that parts its bytes about evenly. Errors: those of
// SplitTablet, ErrNoTablet.
func (c *Client) HalveTablet(ctx context.Context, table string, t TabletRef) (*TabletChange, error) {
	return c.changeTablet(ctx, api.MethodSplitTablet, api.TabletRequest{Table: table, Row: []byte(t.Row), ID: t.ID, Middle: true})
}

// MoveTablet brings a tablet to a node, given by its id or name, and returns when it is served
// there. For some minutes the balance leaves it there. Asking twice is as once. Errors: ErrNoTablet,
// ErrNodeNotFound, ErrNodeNotAlive, ErrTabletBusy, *AmbiguousError, and those of Describe.
func (c *Client) MoveTablet(ctx context.Context, table string, t TabletRef, node string) (*TabletChange, error) {
	return c.changeTablet(ctx, api.MethodMoveTablet, api.TabletRequest{Table: table, Row: []byte(t.Row), ID: t.ID, Node: node})
}

// MergeTablets makes one tablet of a tablet and the one above it, or the one below it if it is the
// table's last. The smaller moves to the server of the larger first, if need be. Errors: ErrNoTablet, also if
// there is no neighbour; ErrSystemTable, ErrTabletBusy, ErrConflict if one was split meanwhile,
// *AmbiguousError, and those of Describe.
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
