package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/steledb/stele/client"
)

// action changes something, and returns the page to show next. Errors: those of the client, *pageError.
type action func(ctx context.Context, q *query) (next string, err error)

// readForm reads the form of a request. The connection is not read any more then: otherwise the deadline for the form would also end the work.
func readForm(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return &pageError{http.StatusBadRequest, err.Error()}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a writer of a test has none
	return nil
}

// act answers a request that changes something. What is wrong with it is shown as a page.
func (c *Console) act(w http.ResponseWriter, r *http.Request, a action) {
	if err := readForm(w, r); err != nil {
		c.fail(w, r, err)
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

// tablet returns the tablet that a request names, and the page of its table, with the same part of its tablets.
func (q *query) tablet() (table string, ref client.TabletRef, next string, err error) {
	table = q.r.PathValue("table")
	id, err := strconv.ParseUint(q.r.PathValue("id"), 10, 64)
	if err != nil || id == 0 {
		err = errNoID
	}
	next = "/tables/" + url.PathEscape(table)
	if from, fromErr := strconv.Atoi(q.r.URL.Query().Get("from")); fromErr == nil && from > 0 {
		next += "?from=" + strconv.Itoa(from)
	}
	return table, client.TabletRef{ID: id}, next, err
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

// compactTablet compacts a tablet. It does not wait for long: a large tablet takes minutes.
func compactTablet(ctx context.Context, q *query) (string, error) {
	table, ref, next, err := q.tablet()
	if err == nil {
		err = q.Tablets().Compact(ctx, table, ref, true)
	}
	if errors.Is(err, context.DeadlineExceeded) { // it goes on without its caller
		err = nil
	}
	return next, err
}
