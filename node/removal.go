package node

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"time"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/security/pki"
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

// severAfter is how long a node that was removed keeps its connections, to hear of it and end
// by itself.
const severAfter = 3 * time.Second

// refuse turns away nodes that were removed.
func (s *security) refuse(p pki.Peer) error {
	if gone := s.removed.Load(); gone != nil && p.Kind == pki.Node && (*gone)[p.Name] {
		return &removedError{p.Name}
	}
	return nil
}

// followRemoved turns away nodes that were removed, and soon ends the connections that they
// have, until the node closes.
func (n *Node) followRemoved() {
	if n.security == nil {
		return
	}
	for n.ctx.Err() == nil {
		if err := n.hearOfRemoved(n.meta.current()); err != nil {
			n.log.Debug("follow which nodes are removed", "error", err)
		}
		pause(n.ctx, removalRetry)
	}
}

// hearOfRemoved does so until the session is over.
func (n *Node) hearOfRemoved(s *session.Session) error {
	w, err := s.Watch(n.ctx, removedDir, api.ChildAdded|api.ChildRemoved)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		ids, err := n.catalog.list(n.ctx, removedDir)
		if err != nil {
			return err
		}
		gone := make(map[string]bool, len(ids))
		for _, id := range ids {
			gone[id] = true
		}
		before := n.security.removed.Swap(&gone)
		n.background.Go(func() {
			if pause(n.ctx, severAfter); n.ctx.Err() == nil {
				n.security.endpoint.Sever(func(p pki.Peer) bool { return p.Kind == pki.Node && gone[p.Name] })
			}
		})
		if before == nil && len(gone) > 0 || before != nil && !maps.Equal(*before, gone) {
			if err := writeRemoved(n.removedList(), n.security.cluster, gone); err != nil {
				n.log.Warn("a node that was removed may find this one when it starts anew", "error", err)
			}
		}
		if _, err := w.Next(n.ctx); err != nil {
			return err
		}
	}
}

func (n *Node) removedList() string { return filepath.Join(n.cfg.DataDirs[0], removedFile) }

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
