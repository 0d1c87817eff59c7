package node

import (
	"context"
	"errors"
)

// asked identifies the request behind a change: its subject, method and object. change uses it to authorize the request again.
type asked struct {
	who    *subject
	method string
	// name is the method's first parameter. For grant and revoke it is the table, or empty for the cluster.
	name string
}

type askedKey struct{}

func withAsked(ctx context.Context, a asked) context.Context {
	return context.WithValue(ctx, askedKey{}, a)
}

// askedIn returns the request that withAsked has stored in ctx.
func askedIn(ctx context.Context) asked {
	a, _ := ctx.Value(askedKey{}).(asked)
	return a
}

// errNobodyAsked prevents a change without a subject.
var errNobodyAsked = errors.New("BUG: change without a subject")
