package console

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/steledb/stele/client"
)

// action changes something, and returns the page to show next. Errors: those of the client, *pageError.
type action func(ctx context.Context, q *query) (next string, err error)

// act answers a request that changes something. What is wrong with it is shown as a page.
func (c *Console) act(w http.ResponseWriter, r *http.Request, a action) {
	if err := r.ParseForm(); err != nil {
		c.fail(w, r, &pageError{http.StatusBadRequest, err.Error()})
		return
	}
	cl, release := c.open(w, r)
	if cl == nil {
		return
	}
	defer release()
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	next, err := a(ctx, &query{cl, r})
	if err != nil {
		c.fail(w, r, err)
		return
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func drain(ctx context.Context, q *query) (string, error) {
	node := q.r.PathValue("node")
	return "/nodes/" + url.PathEscape(node), q.Nodes().Drain(ctx, node)
}

func undrain(ctx context.Context, q *query) (string, error) {
	node := q.r.PathValue("node")
	return "/nodes/" + url.PathEscape(node), q.Nodes().Undrain(ctx, node)
}

// errNoID rejects an address that names no tablet.
var errNoID = &pageError{http.StatusBadRequest, "The id of a tablet is a number."}

// tablet returns the tablet that a request names, and the page of its table.
func (q *query) tablet() (table string, ref client.TabletRef, next string, err error) {
	table = q.r.PathValue("table")
	id, err := strconv.ParseUint(q.r.PathValue("id"), 10, 64)
	if err != nil || id == 0 {
		err = errNoID
	}
	return table, client.TabletRef{ID: id}, "/tables/" + url.PathEscape(table), err
}

// splitTablet splits a tablet at about half of its bytes.
func splitTablet(ctx context.Context, q *query) (string, error) {
	table, ref, next, err := q.tablet()
	if err == nil {
		_, err = q.Tablets().Halve(ctx, table, ref)
	}
	return next, err
}

// mergeTablet merges a tablet with the next one.
func mergeTablet(ctx context.Context, q *query) (string, error) {
	table, ref, next, err := q.tablet()
	if err == nil {
		_, err = q.Tablets().Merge(ctx, table, ref)
	}
	return next, err
}

func moveTablet(ctx context.Context, q *query) (string, error) {
	table, ref, next, err := q.tablet()
	if err == nil {
		_, err = q.Tablets().Move(ctx, table, ref, q.r.PostFormValue("node"))
	}
	return next, err
}

func compactTablet(ctx context.Context, q *query) (string, error) {
	table, ref, next, err := q.tablet()
	if err == nil {
		err = q.Tablets().Compact(ctx, table, ref, true)
	}
	return next, err
}
