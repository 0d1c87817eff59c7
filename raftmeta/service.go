package raftmeta

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/raftmeta/api"
)

// service is the lock service of one server. It serves while it has a lease manager. Every write
// goes through it, including those of Group.Set and Group.Delete.
type service struct {
	replica replica
	machine *fsm.Machine
	clock   Clock
	// quotaOf is Config.QuotaOf.
	quotaOf func(owner string) fsm.Quota
	// refused counts the writes that the namespace rejected.
	refused atomic.Uint64

	// mu guards the fields in it. Never held across a call.
	mu struct {
		sync.Mutex
		// manager is nil if this server does not lead.
		manager *leaseManager
		// changed is closed and replaced when manager changes.
		changed chan struct{}
	}
}

func newService(r replica, m *fsm.Machine, clock Clock) *service {
	v := &service{replica: r, machine: m, clock: clock}
	v.mu.changed = make(chan struct{})
	return v
}

// lead starts to serve in a term in which this server has caught up.
func (v *service) lead(term uint64) {
	v.follow()
	v.setManager(newLeaseManager(v.replica, v.machine, v.clock, term))
}

// follow undoes lead. Calls in progress fail with api.ErrNotReady, unless their command is in the log.
func (v *service) follow() {
	if lm := v.setManager(nil); lm != nil {
		v.machine.Observe(nil)
		lm.shutdown()
	}
}

// setManager sets the lease manager and returns the previous one.
func (v *service) setManager(lm *leaseManager) *leaseManager {
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
func (v *service) current() (*leaseManager, <-chan struct{}, error) {
	v.mu.Lock()
	lm, changed := v.mu.manager, v.mu.changed
	v.mu.Unlock()
	if err := v.replica.usable(); err != nil {
		return nil, nil, err
	}
	term := v.replica.leading()
	switch {
	case term == 0:
		return nil, nil, v.replica.notLeading()
	case lm == nil || lm.term != term:
		return nil, changed, api.ErrNotReady
	}
	return lm, nil, nil
}

// manager is current, but waits for a lease manager that is about to be created.
func (v *service) manager(ctx context.Context) (*leaseManager, error) {
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

// Service returns the lock service of this server. It serves while the server leads its group;
// GetStale always works.
func (g *Group) Service() api.Service { return g.service }

// serviceLoop starts and stops the service with this server's leadership.
func (g *Group) serviceLoop() {
	defer g.service.follow()
	led := uint64(0)
	for {
		_, _, term, changed := g.lead.state()
		if term != led {
			if led = term; term == 0 {
				g.service.follow()
			} else {
				g.service.lead(term)
			}
		}
		select {
		case <-changed:
		case <-g.closing:
			return
		}
	}
}

// leading returns the term in which this server has caught up, or zero.
func (g *Group) leading() uint64 {
	_, _, term, _ := g.lead.state()
	return term
}

// checkDisk returns api.ErrDiskFull if the disk has too little free space.
func (g *Group) checkDisk() error { return g.disk.check() }

// OpenSession implements api.Service.
func (v *service) OpenSession(ctx context.Context, name string, lease time.Duration) (api.SessionID, time.Duration, error) {
	return v.openSession(ctx, name, lease, nil)
}

func (v *service) openSession(ctx context.Context, name string, lease time.Duration, quota *fsm.Quota) (api.SessionID, time.Duration, error) {
	if n := len(name); n > api.SessionNameBytesMax {
		return 0, 0, &api.TooLargeError{What: api.LimitName, Limit: api.SessionNameBytesMax, Got: int64(n)}
	}
	if lease == 0 {
		lease = api.LeaseDefault
	}
	lease = min(max(lease, api.LeaseMin), api.LeaseMax).Truncate(time.Millisecond)
	if err := v.replica.checkDisk(); err != nil {
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
func (v *service) KeepAlive(_ context.Context, req api.KeepAliveRequest, done func(api.KeepAliveResponse, error)) {
	lm, _, err := v.current()
	if err != nil {
		done(api.KeepAliveResponse{}, err)
		return
	}
	lm.keepAlive(req, done)
}

// CloseSession implements api.Service.
func (v *service) CloseSession(ctx context.Context, s api.SessionID) error {
	lm, err := v.manager(ctx)
	if err != nil {
		return err
	}
	return lm.closeSession(ctx, s)
}

// Get implements api.Service.
func (v *service) Get(ctx context.Context, path string, s api.SessionID) (api.File, api.CachePermission, error) {
	return v.get(ctx, path, s, nil)
}

func (v *service) get(ctx context.Context, path string, s api.SessionID, quota *fsm.Quota) (api.File, api.CachePermission, error) {
	if err := fsm.CheckDir(path); err != nil {
		return api.File{}, api.CachePermission{}, err
	}
	term, err := v.replica.verify(ctx)
	if err != nil {
		return api.File{}, api.CachePermission{}, err
	}
	var lm *leaseManager
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
func (v *service) GetStale(_ context.Context, path string) (api.File, error) {
	if err := fsm.CheckDir(path); err != nil {
		return api.File{}, err
	}
	if err := v.replica.usable(); err != nil {
		return api.File{}, err
	}
	var n *fsm.NodeView
	v.machine.View(func(ns *fsm.Namespace, _ uint64) { n = ns.Lookup(path) })
	return n.File()
}

// Stat implements api.Service.
func (v *service) Stat(ctx context.Context, path string) (api.Stat, error) {
	if err := fsm.CheckDir(path); err != nil {
		return api.Stat{}, err
	}
	if _, err := v.replica.verify(ctx); err != nil {
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
func (v *service) List(ctx context.Context, dir string) ([]api.Stat, error) {
	if err := fsm.CheckDir(dir); err != nil {
		return nil, err
	}
	if _, err := v.replica.verify(ctx); err != nil {
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

// CheckSequencer implements api.Service.
func (v *service) CheckSequencer(ctx context.Context, q api.Sequencer) error {
	if _, err := v.replica.verify(ctx); err != nil {
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
