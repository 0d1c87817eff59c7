package client

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
)

// Types of the results about tablets.
type (
	// TabletChange is the result of a split, move or merge.
	TabletChange = api.TabletChange
	// UnservedTablets lists the tablets that no server serves.
	UnservedTablets = api.UnservedTablets
	// UnservedTablet is a tablet that no server serves.
	UnservedTablet = api.UnservedTablet
)

// TabletRef selects a tablet of a table: the one with that ID or, if ID is 0, the one that holds
// Row. The zero TabletRef is the table's first tablet.
type TabletRef struct {
	Row string
	ID  uint64
}

// Tablets splits, moves, merges and compacts tablets. The cluster does so automatically, so that
// operators rarely need it.
type Tablets struct{ calls *caller }

// Tablets returns the administration of tablets.
func (c *Client) Tablets() Tablets { return Tablets{&c.calls} }

// Split splits the tablet that holds the row at, which becomes the last row of the lower part. If
// at is empty, the table's largest tablet is split at about half of its bytes. Errors: ErrBadSplit
// if a tablet already ends at that row or a part would be empty, ErrSystemTable, ErrLimit at 10,000
// tablets, *AmbiguousError, and those of Tables.Describe.
func (t Tablets) Split(ctx context.Context, table, at string) (*TabletChange, error) {
	return t.change(ctx, api.MethodSplitTablet, api.TabletRequest{Table: table, Row: []byte(at)})
}

// Halve splits a tablet at about half of its bytes. Errors: those of Split, ErrNoTablet.
func (t Tablets) Halve(ctx context.Context, table string, ref TabletRef) (*TabletChange, error) {
	return t.change(ctx, api.MethodSplitTablet, api.TabletRequest{Table: table, Row: []byte(ref.Row), ID: ref.ID, Middle: true})
}

// Move moves a tablet to a node, given by its id or name, and returns when it is served there. The
// balancer leaves it there for some minutes. The call is idempotent. Errors: ErrNoTablet,
// ErrNodeNotFound, ErrNodeNotAlive, ErrTabletBusy, *AmbiguousError, and those of Tables.Describe.
func (t Tablets) Move(ctx context.Context, table string, ref TabletRef, node string) (*TabletChange, error) {
	return t.change(ctx, api.MethodMoveTablet, api.TabletRequest{Table: table, Row: []byte(ref.Row), ID: ref.ID, Node: node})
}

// Merge merges a tablet with the next one or, if it is the table's last, with the previous one. If
// necessary, the smaller one first moves to the server of the larger. Errors: ErrNoTablet, also if
// there is no neighbour; ErrSystemTable, ErrTabletBusy, ErrConflict if one was split meanwhile,
// *AmbiguousError, and those of Tables.Describe.
func (t Tablets) Merge(ctx context.Context, table string, ref TabletRef) (*TabletChange, error) {
	return t.change(ctx, api.MethodMergeTablets, api.TabletRequest{Table: table, Row: []byte(ref.Row), ID: ref.ID})
}

// Compact is Tables.Compact for one tablet. Errors: ErrNoTablet, and those of Tables.Compact.
func (t Tablets) Compact(ctx context.Context, table string, ref TabletRef, major bool) error {
	req := api.TabletRequest{Table: table, Row: []byte(ref.Row), ID: ref.ID, Major: major}
	encode := func(e *wire.Encoder) { req.AppendAs(api.MethodCompactTablet, e) }
	return t.calls.do(ctx, &call{method: api.MethodCompactTablet, safe: true, encode: encode})
}

func (t Tablets) change(ctx context.Context, method string, req api.TabletRequest) (*TabletChange, error) {
	done := &api.TabletChange{}
	encode := func(e *wire.Encoder) { req.AppendAs(method, e) }
	k := call{method: method, change: true, safe: method == api.MethodMoveTablet, encode: encode, decode: done.Decode}
	if err := t.calls.do(ctx, &k); err != nil {
		return nil, err
	}
	return done, nil
}

// Unserved returns the tablets that no server has served for some seconds, as far as the master
// knows. Errors: those of Nodes.List; ErrUnavailable while no master is known.
func (t Tablets) Unserved(ctx context.Context) (*UnservedTablets, error) {
	u := &api.UnservedTablets{}
	return u, t.calls.query(ctx, api.MethodUnservedTablets, nil, u.Decode)
}
