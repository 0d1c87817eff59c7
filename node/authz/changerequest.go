package authz

import (
	"context"
	"errors"
)

// ChangeRequest identifies the request behind a change: its subject, method and object. A change uses it to authorize the request again.
type ChangeRequest struct {
	Caller *Subject
	Method string
	// Name is the method's first parameter. For grant and revoke it is the table, or empty for the cluster.
	Name string
}

type changeRequestKey struct{}

// WithRequest stores a request in ctx.
func WithRequest(ctx context.Context, a ChangeRequest) context.Context {
	return context.WithValue(ctx, changeRequestKey{}, a)
}

// RequestIn returns the request that WithRequest has stored in ctx.
func RequestIn(ctx context.Context) ChangeRequest {
	a, _ := ctx.Value(changeRequestKey{}).(ChangeRequest)
	return a
}

// errNoSubject prevents a change without a subject.
var errNoSubject = errors.New("BUG: change without a subject")
