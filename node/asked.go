package node

import (
	"context"
	"errors"
)

// asked is who asks for a change, by which method, and of what: change looks by it whether he
// still may.
type asked struct {
	who    *subject
	method string
	// name is the method's first parameter; of grant and revoke the table, empty for the cluster.
	name string
}

type askedKey struct{}

func withAsked(ctx context.Context, a asked) context.Context {
	return context.WithValue(ctx, askedKey{}, a)
}

// askedIn returns what ctx has, which withAsked has given it.
func askedIn(ctx context.Context) asked {
	a, _ := ctx.Value(askedKey{}).(asked)
	return a
}

// errNobodyAsked keeps a change from being made for whom nobody knows.
var errNobodyAsked = errors.New("BUG: it is not said who asks for the change")

// stillAsked returns nil if who asks for a change may have it made now. The caller holds
// n.changing, so no right is taken away until it has been made.
func (n *Node) stillAsked(ctx context.Context, a asked) error {
	if a.who == nil {
		return errNobodyAsked
	}
	if !a.who.restricted() {
		return nil
	}
	var err error
	switch g := guards[a.method]; g.to {
	case right, rightOfTable:
		_, err = n.may(a.who, &g, a.name)
	default: // those that look themselves
		_, _, err = n.administers(ctx, a.who, a.name)
	}
	return err
}
