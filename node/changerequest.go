package node

import (
	"context"
	"errors"
)

// changeRequest identifies the request behind a change: its subject, method and object. change uses it to authorize the request again.
type changeRequest struct {
	caller *subject
	method string
	// name is the method's first parameter. For grant and revoke it is the table, or empty for the cluster.
	name string
}

type changeRequestKey struct{}

func withRequest(ctx context.Context, a changeRequest) context.Context {
	return context.WithValue(ctx, changeRequestKey{}, a)
}

// requestIn returns the request that withRequest has stored in ctx.
func requestIn(ctx context.Context) changeRequest {
	a, _ := ctx.Value(changeRequestKey{}).(changeRequest)
	return a
}

// errNoSubject prevents a change without a subject.
var errNoSubject = errors.New("BUG: change without a subject")
