package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/raftmeta/api"
)

// Set implements api.Service.
func (v *Service) Set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions) (uint64, error) {
	if o.Owner != "" && v.quotaOf != nil {
		return v.set(ctx, path, data, gen, o, bounded(v.quotaOf(o.Owner)), true)
	}
	return v.set(ctx, path, data, gen, o, nil, true)
}

func (v *Service) set(ctx context.Context, path string, data []byte, gen uint64, o api.SetOptions, quota *fsm.Quota, final bool) (uint64, error) {
	if err := fsm.CheckFile(path); err != nil {
		return 0, err
	}
	if len(data) > api.FileBytesMax {
		return 0, &api.TooLargeError{What: api.LimitFile, Limit: api.FileBytesMax, Got: int64(len(data))}
	}
	if err := checkOptions(o); err != nil {
		return 0, err
	}
	if err := v.checkDisk(); err != nil {
		return 0, err
	}
	if o.From != "" {
		if err := fsm.CheckRename(path, o.From); err != nil {
			return 0, err
		}
	}
	r, err := v.write(ctx, fsm.Command{Op: fsm.OpSet, Path: path, Data: data, Generation: gen, From: o.From, FromGeneration: o.FromGeneration,
		Session: o.Session, Ephemeral: o.Ephemeral, AbsentSince: o.AbsentSince, Guard: o.Guard, Quota: quota, Final: final})
	return r.Generation, err
}

// Delete implements api.Service.
func (v *Service) Delete(ctx context.Context, path string, gen uint64, o api.SetOptions) error {
	if err := fsm.CheckFile(path); err != nil {
		return err
	}
	if err := checkOptions(o); err != nil {
		return err
	}
	_, err := v.write(ctx, fsm.Command{Op: fsm.OpDelete, Path: path, Generation: gen, Session: o.Session, Guard: o.Guard})
	return err
}

// SetACL implements api.Service.
func (v *Service) SetACL(ctx context.Context, path, acl string, o api.SetOptions) (uint64, error) {
	return v.setACL(ctx, path, acl, o, nil)
}

func (v *Service) setACL(ctx context.Context, path, acl string, o api.SetOptions, quota *fsm.Quota) (uint64, error) {
	if err := fsm.CheckDir(path); err != nil {
		return 0, err
	}
	if n := len(acl); n > api.ACLBytesMax {
		return 0, &api.TooLargeError{What: api.LimitACL, Limit: api.ACLBytesMax, Got: int64(n)}
	}
	if err := checkOptions(o); err != nil {
		return 0, err
	}
	if err := v.checkDisk(); err != nil {
		return 0, err
	}
	r, err := v.write(ctx, fsm.Command{Op: fsm.OpSetACL, Path: path, Name: acl, Session: o.Session, Guard: o.Guard, Quota: quota})
	return r.Generation, err
}

// write makes a change at c.Path, and at c.From of a rename.
func (v *Service) write(ctx context.Context, c fsm.Command) (fsm.Result, error) {
	lm, err := v.manager(ctx)
	if err != nil {
		return fsm.Result{}, err
	}
	if err := v.precheck(&c); err != nil {
		return fsm.Result{}, err
	}
	o := api.SetOptions{From: c.From}
	r, err := lm.write(ctx, c, o.Paths(c.Path)...)
	if err != nil {
		return fsm.Result{}, err
	}
	if err := r.Err(c.Generation); err != nil {
		v.refused.Add(1)
		return fsm.Result{}, err
	}
	return r, nil
}

// checkOptions rejects options that cannot be encoded in a command.
func checkOptions(o api.SetOptions) error {
	if o.Guard.Path == "" {
		return nil
	}
	if len(o.Guard.Path) > fsm.PathBytesMax || checkMode(o.Guard.Mode) != nil {
		return api.ErrStale // such a lock cannot exist
	}
	return nil
}

func checkMode(m api.Mode) error {
	if m != api.Exclusive && m != api.Shared {
		return fmt.Errorf("lock mode %d is neither exclusive (%d) nor shared (%d)", m, api.Exclusive, api.Shared)
	}
	return nil
}

// Acquire implements api.Service.
func (v *Service) Acquire(ctx context.Context, s api.SessionID, path string, mode api.Mode, wait, delay time.Duration) (api.Grant, error) {
	return v.acquire(ctx, s, path, mode, wait, delay, nil)
}

func (v *Service) acquire(ctx context.Context, s api.SessionID, path string, mode api.Mode, wait, delay time.Duration, quota *fsm.Quota) (api.Grant, error) {
	if err := fsm.CheckDir(path); err != nil {
		return api.Grant{}, err
	}
	if err := checkMode(mode); err != nil {
		return api.Grant{}, err
	}
	if err := v.checkDisk(); err != nil {
		return api.Grant{}, err
	}
	lm, err := v.manager(ctx)
	if err != nil {
		return api.Grant{}, err
	}
	// Rounded up to whole milliseconds, so that a short delay does not become none.
	delay = min(max(delay, 0)+time.Millisecond-1, api.LockDelayMax).Truncate(time.Millisecond)
	c := fsm.Command{Op: fsm.OpAcquire, Session: s, Path: path, Mode: mode, Duration: delay, Quota: quota}
	if err := v.precheck(&c); err != nil {
		return api.Grant{}, err
	}
	r, err := lm.acquire(ctx, c, wait)
	if err == nil {
		err = r.Err(0)
	}
	if err != nil {
		return api.Grant{}, err
	}
	q := api.Sequencer{Path: path, Mode: mode, Instance: r.Instance, LockGeneration: r.Generation}
	return api.Grant{Sequencer: q, Hold: r.Hold}, nil
}

// Release implements api.Service.
func (v *Service) Release(ctx context.Context, s api.SessionID, path string, hold uint64) error {
	if err := fsm.CheckDir(path); err != nil {
		return err
	}
	lm, err := v.manager(ctx)
	if err != nil {
		return err
	}
	r, err := lm.propose(ctx, fsm.Command{Op: fsm.OpRelease, Session: s, Path: path, Hold: hold})
	if err != nil {
		return err
	}
	return r.Err(0)
}

// Watch implements api.Service.
func (v *Service) Watch(ctx context.Context, s api.SessionID, path string, kinds api.EventKind, gen uint64) (uint64, error) {
	return v.watch(ctx, s, path, kinds, gen, nil)
}

func (v *Service) watch(ctx context.Context, s api.SessionID, path string, kinds api.EventKind, gen uint64, quota *fsm.Quota) (uint64, error) {
	if err := fsm.CheckDir(path); err != nil {
		return 0, err
	}
	lm, err := v.manager(ctx)
	if err != nil {
		return 0, err
	}
	return lm.watch(ctx, s, path, kinds, gen, quota)
}

// Unwatch implements api.Service.
func (v *Service) Unwatch(ctx context.Context, s api.SessionID, path string, watch uint64) error {
	lm, err := v.manager(ctx)
	if err != nil {
		return err
	}
	lm.unwatch(s, path, watch)
	return nil
}
