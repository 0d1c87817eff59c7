package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/raftmeta/api"
)

// Service is the lock service of one server. It serves while it has a lease manager. Every write
// goes through it.
type Service struct {
	replica Replica
	machine *fsm.Machine
	clock   Clock
	// quotaOf returns the quota of the user on whose behalf a node makes a change. Nil means that
	// such changes are charged to no user.
	quotaOf func(owner string) fsm.Quota
	// refused counts the writes that the namespace rejected.
	refused atomic.Uint64

	// mu guards the fields in it. Never held across a call.
	mu struct {
		sync.Mutex
		// manager is nil if this server does not lead.
		manager *manager
		// changed is closed and replaced when manager changes.
		changed chan struct{}
	}
}

// NewService returns the service of the server r, whose state machine is m. quotaOf returns the quota
// of the user on whose behalf a node makes a change; nil means that no user is charged.
func NewService(r Replica, m *fsm.Machine, clock Clock, quotaOf func(owner string) fsm.Quota) *Service {
	v := &Service{replica: r, machine: m, clock: clock, quotaOf: quotaOf}
	v.mu.changed = make(chan struct{})
	return v
}

// Lead starts to serve in a term in which this server has caught up.
func (v *Service) Lead(term uint64) {
	v.Follow()
	v.setManager(newManager(v.replica, v.machine, v.clock, term))
}

// Follow undoes lead. Calls in progress fail with api.ErrNotReady, unless their command is in the log.
func (v *Service) Follow() {
	if lm := v.setManager(nil); lm != nil {
		v.machine.Observe(nil)
		lm.shutdown()
	}
}

// setManager sets the lease manager and returns the previous one.
func (v *Service) setManager(lm *manager) *manager {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.mu.manager
	v.mu.manager = lm
	close(v.mu.changed)
	v.mu.changed = make(chan struct{})
	return old
}

// current returns the lease manager of the term in which this server leads, or an error if there is
// none. The channel is closed when that changes; it is nil if waiting is useless.
func (v *Service) current() (*manager, <-chan struct{}, error) {
	v.mu.Lock()
	lm, changed := v.mu.manager, v.mu.changed
	v.mu.Unlock()
	if err := v.replica.Usable(); err != nil {
		return nil, nil, err
	}
	term := v.replica.Leading()
	switch {
	case term == 0:
		return nil, nil, v.replica.NotLeading()
	case lm == nil || lm.term != term:
		return nil, changed, api.ErrNotReady
	}
	return lm, nil, nil
}

// manager is current, but waits for a lease manager that is about to be created.
func (v *Service) manager(ctx context.Context) (*manager, error) {
	for {
		lm, changed, err := v.current()
		if changed == nil {
			return lm, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// checkDisk returns api.ErrDiskFull if this server leads and its log must not grow. Another server names
// the leader: its disk does not matter.
func (v *Service) checkDisk() error {
	err := v.replica.CheckDisk()
	if err == nil || v.replica.Leading() != 0 {
		return err
	}
	return v.replica.NotLeading()
}

// OpenSession implements api.Service.
func (v *Service) OpenSession(ctx context.Context, name string, lease time.Duration) (api.SessionID, time.Duration, error) {
	return v.openSession(ctx, name, lease, nil)
}

func (v *Service) openSession(ctx context.Context, name string, lease time.Duration, quota *fsm.Quota) (api.SessionID, time.Duration, error) {
	if n := len(name); n > api.SessionNameBytesMax {
		return 0, 0, &api.TooLargeError{What: api.LimitName, Limit: api.SessionNameBytesMax, Got: int64(n)}
	}
	if lease == 0 {
		lease = api.LeaseDefault
	}
	lease = min(max(lease, api.LeaseMin), api.LeaseMax).Truncate(time.Millisecond)
	if err := v.checkDisk(); err != nil {
		return 0, 0, err
	}
	lm, err := v.manager(ctx)
	if err != nil {
		return 0, 0, err
	}
	c := fsm.Command{Op: fsm.OpOpenSession, Name: name, Duration: lease, Quota: quota}
	if err := v.precheck(&c); err != nil {
		return 0, 0, err
	}
	id, err := lm.openSession(ctx, c)
	if err != nil {
		return 0, 0, err
	}
	return id, lease, nil
}

// KeepAlive implements api.Service.
func (v *Service) KeepAlive(_ context.Context, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
	lm, _, err := v.current()
	if err != nil {
		done(api.KeepAliveResponse{}, err)
		return
	}
	lm.keepAlive(req, done)
}

// CloseSession implements api.Service.
func (v *Service) CloseSession(ctx context.Context, s api.SessionID) error {
	lm, err := v.manager(ctx)
	if err != nil {
		return err
	}
	return lm.closeSession(ctx, s)
}

// Get implements api.Service.
func (v *Service) Get(ctx context.Context, path string, s api.SessionID) (api.File, api.CachePermission, error) {
	return v.get(ctx, path, s, nil)
}

func (v *Service) get(ctx context.Context, path string, s api.SessionID, quota *fsm.Quota) (api.File, api.CachePermission, error) {
	if err := fsm.CheckDir(path); err != nil {
		return api.File{}, api.CachePermission{}, err
	}
	term, err := v.replica.Verify(ctx)
	if err != nil {
		return api.File{}, api.CachePermission{}, err
	}
	var lm *manager
	if s != 0 {
		lm, _, _ = v.current()
	}
	if lm == nil || lm.term != term {
		var n *fsm.NodeView
		v.machine.View(func(ns *fsm.Namespace, _ uint64) { n = ns.Lookup(path) })
		f, err := n.File()
		return f, api.CachePermission{}, err
	}
	n, perm, mark := lm.read(path, s, quota)
	if mark != 0 {
		// If this fails, or another call writes the file meanwhile, the result is still valid. It
		// is only not cached.
		if _, err := lm.propose(ctx, fsm.Command{Op: fsm.OpMarkCached, Path: path, Generation: mark}); err == nil {
			n, perm, _ = lm.read(path, s, quota)
		}
	}
	f, err := n.File()
	return f, perm, err
}

// GetStale implements api.Service.
func (v *Service) GetStale(_ context.Context, path string) (api.File, error) {
	if err := fsm.CheckDir(path); err != nil {
		return api.File{}, err
	}
	if err := v.replica.Usable(); err != nil {
		return api.File{}, err
	}
	var n *fsm.NodeView
	v.machine.View(func(ns *fsm.Namespace, _ uint64) { n = ns.Lookup(path) })
	return n.File()
}

// Stat implements api.Service.
func (v *Service) Stat(ctx context.Context, path string) (api.Stat, error) {
	if err := fsm.CheckDir(path); err != nil {
		return api.Stat{}, err
	}
	if _, err := v.replica.Verify(ctx); err != nil {
		return api.Stat{}, err
	}
	var n *fsm.NodeView
	v.machine.View(func(ns *fsm.Namespace, _ uint64) { n = ns.Lookup(path) })
	if n == nil {
		return api.Stat{}, api.ErrNotFound
	}
	return n.Stat(), nil
}

// List implements api.Service.
func (v *Service) List(ctx context.Context, dir string) ([]api.Stat, error) {
	if err := fsm.CheckDir(dir); err != nil {
		return nil, err
	}
	if _, err := v.replica.Verify(ctx); err != nil {
		return nil, err
	}
	var views []*fsm.NodeView
	err := api.ErrNotFound
	v.machine.View(func(ns *fsm.Namespace, _ uint64) {
		switch n := ns.Get(dir); {
		case n == nil:
		case !n.Dir:
			err = api.ErrNotDirectory
		default:
			views, err = ns.Children(n), nil
		}
	})
	if err != nil {
		return nil, err
	}
	stats := make([]api.Stat, len(views))
	for i, n := range views {
		stats[i] = n.Stat()
	}
	return stats, nil
}

// ReadDirectory implements api.Service.
func (v *Service) ReadDirectory(ctx context.Context, dir string, o api.DirectoryOptions) (p api.DirectoryPage, err error) {
	if err := fsm.CheckDir(dir); err != nil {
		return p, err
	}
	if _, err := v.replica.Verify(ctx); err != nil {
		return p, err
	}
	v.machine.View(func(ns *fsm.Namespace, index uint64) {
		switch n := ns.Get(dir); {
		case n == nil:
			err = api.ErrNotFound
		case !n.Dir:
			err = api.ErrNotDirectory
		default:
			if o.Since > index { // of another cluster
				o.Since = 0
			}
			p = fsm.ReadPage(ns, n, o)
			p.Index = index
		}
	})
	return p, err
}

// CheckSequencer implements api.Service.
func (v *Service) CheckSequencer(ctx context.Context, q api.Sequencer) error {
	if _, err := v.replica.Verify(ctx); err != nil {
		return err
	}
	err := api.ErrStale
	v.machine.View(func(ns *fsm.Namespace, _ uint64) {
		if ns.Valid(q) {
			err = nil
		}
	})
	return err
}

// RefusedWrites returns the number of writes that the namespace rejected.
func (v *Service) RefusedWrites() uint64 { return v.refused.Load() }
