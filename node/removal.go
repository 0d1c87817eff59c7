package node

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

// removalRetry is the pause before the mark is watched for anew.
const removalRetry = time.Second

// watchRemoval ends the node when the operator removes it from the cluster while it
// runs, and returns when the node closes.
func (n *Node) watchRemoval() {
	for n.ctx.Err() == nil {
		err := n.awaitRemoval(n.meta.current())
		var gone *removedError
		if errors.As(err, &gone) {
			n.fail(err)
			return
		}
		select {
		case <-time.After(removalRetry):
		case <-n.ctx.Done():
		}
	}
}

// awaitRemoval returns when the node is removed, with a *removedError, or the session
// is over.
func (n *Node) awaitRemoval(s *session.Session) error {
	w, err := s.Watch(n.ctx, removedPath(n.id()), api.ContentsChanged)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		if err := n.checkNotRemoved(n.ctx, n.id()); err != nil {
			return err
		}
		if _, err := w.Next(n.ctx); err != nil {
			return err
		}
	}
}

// ErrRemoved means that the operator has taken the node out of the cluster. Starting it again
// does not help.
var ErrRemoved = errors.New("node was removed from the cluster")

// removedError is an ErrRemoved that says which node.
type removedError struct{ id string }

func (e *removedError) Is(target error) bool { return target == ErrRemoved }

func (e *removedError) Error() string {
	return "node " + e.id + " was removed from the cluster: empty its data folders to have it join as a new one"
}

// checkNotRemoved returns a *removedError if the operator has removed that node.
func (n *Node) checkNotRemoved(ctx context.Context, id string) error {
	_, err := n.meta.Get(ctx, removedPath(id))
	switch {
	case err == nil:
		return &removedError{id}
	case errors.Is(err, api.ErrNotFound):
		return nil
	}
	return err
}
