package console

import (
	"context"
	"net/http"

	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/internal/tracetree"
)

// traceView is what the page of a trace shows.
type traceView struct {
	ID      string
	Spans   []tracetree.Span // in the order of a tree
	Unknown []string         // nodes that did not answer, with the reason
}

// tracePage shows what all nodes did for the requests of a trace.
func tracePage(ctx context.Context, q *query) (*content, error) {
	x := &traceView{ID: q.r.PathValue("id")}
	if _, ok := trace.ParseID(x.ID); !ok {
		return nil, &pageError{http.StatusNotFound, "The id of a trace has 32 hexadecimal digits."}
	}
	spans, unknown, err := tracetree.Gather(ctx, q.Client, x.ID)
	if err != nil {
		return nil, err
	}
	if len(spans) == 0 && len(unknown) == 0 {
		return nil, &pageError{http.StatusNotFound, "No node keeps this trace, or no longer: each keeps the last of each kind."}
	}
	x.Spans, x.Unknown = tracetree.Tree(spans), unknown
	return &content{Title: "Trace " + x.ID, Template: "trace.html", Section: "Requests", Data: x}, nil
}
