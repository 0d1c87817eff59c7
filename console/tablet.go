package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/text"
)

// tabletView is what the page of a tablet shows.
type tabletView struct {
	client.TabletInfo
	Table      string
	Hidden     bool   // sizes are hidden
	Server     string // its server in METADATA; empty: it is not assigned
	Addr       string
	Generation uint64
	Recoveries []string
	Splitting  bool
	Events     []tabletEvent
}

// tabletEvent is an entry of a tablet's history.
type tabletEvent struct{ Time, Text string }

// tabletPage shows one tablet, and its history from METADATA.
func tabletPage(ctx context.Context, q *query) (*content, error) {
	name := q.r.PathValue("table")
	id, err := strconv.ParseUint(q.r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, errNoID
	}
	info, err := q.Tables().Describe(ctx, name)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(info.Tablets, func(t client.TabletInfo) bool { return t.ID == id })
	if at < 0 {
		return nil, &pageError{http.StatusNotFound, fmt.Sprintf("Table %s has no tablet %d now: it was split or merged, or its table was dropped.", name, id)}
	}
	x := &tabletView{TabletInfo: info.Tablets[at], Table: name, Hidden: info.SizesHidden}
	if name != metadata.Name { // the root tablet has no row
		if err := x.readRow(ctx, q.Client, info.Schema.ID); err != nil {
			return nil, err
		}
	}
	return &content{Title: fmt.Sprintf("Tablet %d of %s", id, name), Template: "tablet.html", Section: "Tables", Data: x}, nil
}

// readRow reads the tablet's row of METADATA.
func (x *tabletView) readRow(ctx context.Context, c *client.Client, tableID uint64) error {
	row, err := c.Table(metadata.Name).Get(ctx, string(metadata.Key(nil, tableID, x.End)), client.Filter(metadata.RowsWithEvents()))
	if err != nil || row == nil || len(row.Cells) == 0 {
		return err
	}
	r, err := metadata.Decode(row)
	if err != nil {
		return err
	}
	x.Server, x.Addr, x.Generation, x.Recoveries, x.Splitting = r.Server, r.Addr, r.Generation, r.Recoveries, r.Split != nil
	for _, e := range metadata.Events(row) {
		x.Events = append(x.Events, tabletEvent{text.Moment(e.Time), e.Text})
	}
	return nil
}
