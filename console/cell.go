package console

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/table"
)

// cellBytesMax is the size of a cell, with the rest of its column's version, that can be opened.
const cellBytesMax = 16 << 20

// cellPolicy is the Content-Security-Policy of a cell that is shown as HTML: it runs no script, loads nothing from elsewhere, and has no access to
// the console.
const cellPolicy = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'self'"

// cellAddress returns the address of a cell.
func cellAddress(tableName string, key []byte, c *table.Cell) string {
	return "/tables/" + url.PathEscape(tableName) + "/cell?" + url.Values{
		"row": {text.Bytes(key)}, "family": {c.Family}, "qualifier": {text.Bytes(c.Qualifier)}, "timestamp": {strconv.FormatInt(c.Timestamp, 10)},
	}.Encode()
}

// serveCell sends the whole value of a cell: as a file or, with as=html, as a page without scripts.
func (c *Console) serveCell(w http.ResponseWriter, r *http.Request) {
	cl, release := c.open(w, r)
	if cl == nil {
		return
	}
	defer release()
	select {
	case c.cells <- struct{}{}: // until it is sent
		defer func() { <-c.cells }()
	default:
		c.fail(w, r, errCrowded)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	cell, err := findCell(ctx, &query{cl, r})
	if err != nil {
		c.fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", cellPolicy)
	if r.URL.Query().Get("as") == "html" {
		h.Set("Content-Type", "text/html; charset=utf-8")
	} else {
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Disposition", "attachment; filename=cell")
	}
	_, _ = w.Write(cell.Value) // the browser may be gone
}

// findCell reads the cell that a request names.
func findCell(ctx context.Context, q *query) (*table.Cell, error) {
	form := q.r.URL.Query()
	row, rowErr := text.Unescape(form.Get("row"))
	qualifier, qualifierErr := text.Unescape(form.Get("qualifier"))
	micros, timeErr := strconv.ParseInt(form.Get("timestamp"), 10, 64)
	family := form.Get("family")
	if rowErr != nil || qualifierErr != nil || timeErr != nil || family == "" {
		return nil, &pageError{http.StatusBadRequest, "A cell is named by row, family, qualifier and timestamp."}
	}
	at := time.UnixMicro(micros)
	got, err := q.Table(q.r.PathValue("table")).Get(ctx, row, client.Columns(family+":"+qualifier), client.TimeRange(at, at.Add(time.Microsecond)), client.RowBytesMax(cellBytesMax))
	if err != nil {
		return nil, err
	}
	if got == nil || len(got.Cells) == 0 {
		return nil, &pageError{http.StatusNotFound, "There is no such cell now: it was deleted or replaced, or is too old."}
	}
	return &got.Cells[0], nil
}
