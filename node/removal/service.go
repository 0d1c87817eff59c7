package removal

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session"
)

// ErrRemoved means that an operator has removed the node from the cluster. Restarting it does not help.
var ErrRemoved = errors.New("node was removed from the cluster")

// removedError is an ErrRemoved with the node's id.
type removedError struct{ id string }

func (e *removedError) Is(target error) bool { return target == ErrRemoved }

func (e *removedError) Error() string {
	return "node " + e.id + " was removed from the cluster: empty its data folders to join it as a new node"
}

// ErrorOf returns an ErrRemoved that names the node.
func ErrorOf(id string) error { return &removedError{id} }

// Service follows the removed nodes of the cluster, and marks nodes as removed.
type Service struct {
	Config
	// List has the removed nodes that this node knows: from its file, and then from the lock service.
	List
}

// Config has what the service needs.
type Config struct {
	Ctx     context.Context // of the node
	Log     *slog.Logger
	FS      vfs.FS
	File    string        // on FS, see package doc
	ID      func() string // this node's
	Cluster func() string // this node's
	Meta    *namespace.Access
	Catalog *namespace.Catalog
	// MayRemove returns an error unless the lock service keeps a majority without that node.
	MayRemove func(ctx context.Context, id string) error
	// Fail stops the node.
	Fail func(err error)
	// Forget drops what the node has stored about removed nodes, so that it no longer spreads it. It is called after List has them. It
	// does not block.
	Forget func(gone map[string]bool)
}

// New returns a service without removed nodes. Load reads those of the file.
func New(cfg Config) *Service { return &Service{Config: cfg} }

// retryPause is the pause before the marks are watched again.
const retryPause = time.Second

// MarkTimeout bounds the check that a node may be removed, and its mark.
const MarkTimeout = 10 * time.Second

// Load reads the removed nodes that this node knew when it stopped. Cluster is the cluster of the data directories; without one there are
// none.
func (s *Service) Load(cluster string) {
	if cluster == "" {
		return
	}
	gone, err := readFile(s.FS, s.File, cluster)
	if err != nil { // the lock service has the list, too
		s.Log.Warn("list of removed nodes unreadable; it is read from the lock service", "err", err)
	} else if gone != nil {
		s.set(gone)
	}
}

// Check returns an ErrRemoved if that node was removed, according to the lock service. Other errors are those of the lock service.
func (s *Service) Check(ctx context.Context, id string) error { return Check(ctx, s.Meta, id) }

// Check is Service.Check with the files of the lock service.
func Check(ctx context.Context, files namespace.Files, id string) error {
	_, err := files.Get(ctx, namespace.RemovedPath(id))
	switch {
	case err == nil:
		return ErrorOf(id)
	case errors.Is(err, api.ErrNotFound):
		return nil
	}
	return err
}

// Marked returns the removed nodes according to the lock service.
func (s *Service) Marked(ctx context.Context) (map[string]bool, error) {
	ids, err := s.Catalog.List(ctx, namespace.RemovedDir)
	if err != nil {
		return nil, err
	}
	gone := make(map[string]bool, len(ids))
	for _, id := range ids {
		gone[id] = true
	}
	return gone, nil
}

// Mark marks a node as removed and then deletes its registration. A node looks for the mark after it has registered: if it registers again
// meanwhile, either Mark or the node itself deletes its registration.
func (s *Service) Mark(ctx context.Context, id, name string) error {
	if _, err := s.Catalog.Set(ctx, namespace.RemovedPath(id), []byte(name), api.AnyGeneration); err != nil {
		return err
	}
	err := s.Catalog.Remove(ctx, namespace.NodePath(id), api.AnyGeneration)
	if errors.Is(err, api.ErrNotFound) {
		return nil
	}
	return err
}

// Watch stops the node when an operator removes it from the cluster, and returns when the node closes.
func (s *Service) Watch() {
	for s.Ctx.Err() == nil {
		err := s.awaitOwn(s.Meta.Current())
		if errors.Is(err, ErrRemoved) {
			s.Fail(err)
			return
		}
		timing.Sleep(s.Ctx, retryPause)
	}
}

// awaitOwn returns when this node is removed, with an ErrRemoved, or when the session is over.
func (s *Service) awaitOwn(current *session.Session) error {
	w, err := current.Watch(s.Ctx, namespace.RemovedPath(s.ID()), api.ContentsChanged)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		if err := s.Check(s.Ctx, s.ID()); err != nil {
			return err
		}
		if _, err := w.Next(s.Ctx); err != nil {
			return err
		}
	}
}

// Follow follows the lock service's list of removed nodes until the node closes. This node forgets and rejects them.
func (s *Service) Follow() {
	lost := map[string]bool{} // removals that the lock service has lost
	for s.Ctx.Err() == nil {
		if err := s.follow(s.Meta.Current(), lost); err != nil {
			s.Log.Debug("removed nodes not followed; retrying", "err", err)
		}
		timing.Sleep(s.Ctx, retryPause)
	}
}

// follow follows the list until the session is over.
func (s *Service) follow(current *session.Session, lost map[string]bool) error {
	w, err := current.Watch(s.Ctx, namespace.RemovedDir, api.ChildAdded|api.ChildRemoved)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		gone, err := s.Marked(s.Ctx)
		if err != nil {
			return err
		}
		again := s.markAgain(s.Ctx, gone, lost)
		s.apply(gone, lost)
		if again != nil {
			return again
		}
		if _, err := w.Next(s.Ctx); err != nil {
			return err
		}
	}
}

// markAgain marks removed nodes that are missing in gone, the lock service's list, and adds them to it: a lock service that was
// recovered from a lagging voter has lost their marks. A node that cannot be marked yet stays in lost. Until it is marked it is a
// member, and may be a voter that the others need for a majority.
func (s *Service) markAgain(ctx context.Context, gone, lost map[string]bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, MarkTimeout)
	defer cancel()
	maps.Copy(lost, s.All())
	maps.DeleteFunc(lost, func(id string, _ bool) bool { return gone[id] || id == s.ID() })
	for id := range lost {
		failed := s.MayRemove(ctx, id)
		if failed == nil {
			failed = s.Mark(ctx, id, "")
		}
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		gone[id] = true
		delete(lost, id)
		s.Log.Warn("node removed again: the lock service had lost the removal", "node", id)
	}
	return err
}

// apply makes gone the current list of removed nodes. The list in memory is replaced first: from then on no goroutine adds such a node
// again, and those added before are dropped afterwards. The file also has lost, the removals that the lock service does not have.
func (s *Service) apply(gone, lost map[string]bool) {
	before := s.All()
	s.set(gone)
	s.Forget(gone)
	if maps.Equal(before, gone) {
		return
	}
	kept := maps.Clone(gone)
	maps.Copy(kept, lost)
	if err := writeFile(s.FS, s.File, s.Cluster(), kept); err != nil {
		s.Log.Warn("list of removed nodes not saved", "err", err)
	}
}
