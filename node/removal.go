package node

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
	"github.com/steledb/stele/security/pki"
)

// removalRetry is the pause before the mark is watched again.
const removalRetry = time.Second

// watchRemoval stops the node when an operator removes it from the cluster, and returns when the node closes.
func (n *Node) watchRemoval() {
	for n.ctx.Err() == nil {
		err := n.awaitRemoval(n.meta.Current())
		var gone *removedError
		if errors.As(err, &gone) {
			n.fail(err)
			return
		}
		timing.Sleep(n.ctx, removalRetry)
	}
}

// awaitRemoval returns when the node is removed, with a *removedError, or when the session is over.
func (n *Node) awaitRemoval(s *session.Session) error {
	w, err := s.Watch(n.ctx, namespace.RemovedPath(n.id()), api.ContentsChanged)
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

// removals has the removed nodes that this node knows: from its file, and then from the lock service. Safe for concurrent use; the zero
// value has none.
type removals struct {
	ids atomic.Pointer[map[string]bool]
}

// set replaces the list.
func (r *removals) set(gone map[string]bool) { r.ids.Store(&gone) }

// has reports whether a node was removed. It does not block.
func (r *removals) has(id string) bool { return r.all()[id] }

// all returns the removed nodes. The caller must not change the map.
func (r *removals) all() map[string]bool {
	if ids := r.ids.Load(); ids != nil {
		return *ids
	}
	return nil
}

// loadRemoved reads the removed nodes that this node knew when it stopped.
func (n *Node) loadRemoved(cluster string) {
	if cluster == "" {
		return
	}
	gone, err := readRemoved(n.removedList(), cluster)
	if err != nil { // the lock service has the list, too
		n.log.Warn("list of removed nodes unreadable; it is read from the lock service", "err", err)
	} else if gone != nil {
		n.removed.set(gone)
	}
}

// disconnectAfter is how long a removed node keeps its connections, to learn of its removal and stop by itself.
const disconnectAfter = 3 * time.Second

// refuse rejects removed nodes.
func (s *security) refuse(p pki.Peer) error {
	if p.Kind == pki.Node && s.removed.has(p.Name) {
		return &removedError{p.Name}
	}
	return nil
}

// followRemoved follows the lock service's list of removed nodes until the node closes. This node forgets them, and with certificates
// rejects them and soon closes their connections.
func (n *Node) followRemoved() {
	lost := map[string]bool{} // removals that the lock service has lost
	for n.ctx.Err() == nil {
		if err := n.watchRemoved(n.meta.Current(), lost); err != nil {
			n.log.Debug("removed nodes not followed; retrying", "err", err)
		}
		timing.Sleep(n.ctx, removalRetry)
	}
}

// watchRemoved follows the list until the session is over.
func (n *Node) watchRemoved(s *session.Session, lost map[string]bool) error {
	w, err := s.Watch(n.ctx, namespace.RemovedDir, api.ChildAdded|api.ChildRemoved)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		gone, err := n.listRemoved(n.ctx)
		if err != nil {
			return err
		}
		again := n.removeAgain(n.ctx, gone, lost)
		n.setRemoved(gone, lost)
		if again != nil {
			return again
		}
		if _, err := w.Next(n.ctx); err != nil {
			return err
		}
	}
}

// listRemoved returns the removed nodes according to the lock service.
func (n *Node) listRemoved(ctx context.Context) (map[string]bool, error) {
	ids, err := n.catalog.List(ctx, namespace.RemovedDir)
	if err != nil {
		return nil, err
	}
	gone := make(map[string]bool, len(ids))
	for _, id := range ids {
		gone[id] = true
	}
	return gone, nil
}

// removeAgain marks removed nodes that are missing in gone, the lock service's list, and adds them to it: a lock service that was
// recovered from a lagging voter has lost their marks. A node that cannot be marked yet stays in lost. Until it is marked it is a
// member, and may be a voter that the others need for a majority.
func (n *Node) removeAgain(ctx context.Context, gone, lost map[string]bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, removalLook)
	defer cancel()
	maps.Copy(lost, n.removed.all())
	maps.DeleteFunc(lost, func(id string, _ bool) bool { return gone[id] || id == n.id() })
	for id := range lost {
		failed := n.checkQuorumWithout(ctx, id)
		if failed == nil {
			failed = n.markRemoved(ctx, id, "")
		}
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		gone[id] = true
		delete(lost, id)
		n.log.Warn("node removed again: the lock service had lost the removal", "node", id)
	}
	return err
}

// markRemoved marks a node as removed and then deletes its registration. From the mark on the node cannot register again.
func (n *Node) markRemoved(ctx context.Context, id, name string) error {
	if _, err := n.catalog.Set(ctx, namespace.RemovedPath(id), []byte(name), api.AnyGeneration); err != nil {
		return err
	}
	err := n.catalog.Remove(ctx, nodePath(id), api.AnyGeneration)
	if errors.Is(err, api.ErrNotFound) {
		return nil
	}
	return err
}

// setRemoved applies the current list of removed nodes. The list in memory is replaced first: from then on no goroutine adds such a node
// again, and those added before are dropped afterwards. The file also has lost, the removals that the lock service does not have.
func (n *Node) setRemoved(gone, lost map[string]bool) {
	before := n.removed.all()
	n.removed.set(gone)
	n.forgetRemoved(gone)
	if n.security != nil {
		n.background.Go(func() {
			if timing.Sleep(n.ctx, disconnectAfter); n.ctx.Err() == nil {
				n.security.endpoint.Disconnect(func(p pki.Peer) bool { return p.Kind == pki.Node && gone[p.Name] })
			}
		})
	}
	if maps.Equal(before, gone) {
		return
	}
	kept := maps.Clone(gone)
	maps.Copy(kept, lost)
	if err := writeRemoved(n.removedList(), n.cluster(), kept); err != nil {
		n.log.Warn("list of removed nodes not saved", "err", err)
	}
}

// forgetRemoved drops what this node has stored about removed nodes, so that it no longer spreads it.
func (n *Node) forgetRemoved(gone map[string]bool) {
	n.known.forgetRemoved()
	if err := n.former.ForgetRemoved(); err != nil {
		n.log.Warn("peers file still contains removed nodes", "err", err)
	}
	if n.ring == nil {
		return
	}
	for id := range gone {
		n.ring.Forget(id)
	}
}

func (n *Node) removedList() string { return filepath.Join(n.cfg.DataDirs[0], removedFile) }

// ErrRemoved means that an operator has removed the node from the cluster. Restarting it does not help.
var ErrRemoved = errors.New("node was removed from the cluster")

// removedError is an ErrRemoved with the node's id.
type removedError struct{ id string }

func (e *removedError) Is(target error) bool { return target == ErrRemoved }

func (e *removedError) Error() string {
	return "node " + e.id + " was removed from the cluster: empty its data folders to join it as a new node"
}

// checkNotRemoved returns a *removedError if that node was removed.
func (n *Node) checkNotRemoved(ctx context.Context, id string) error {
	_, err := n.meta.Get(ctx, namespace.RemovedPath(id))
	switch {
	case err == nil:
		return &removedError{id}
	case errors.Is(err, api.ErrNotFound):
		return nil
	}
	return err
}
