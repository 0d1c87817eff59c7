package world

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/raftmeta"
	"github.com/steledb/stele/raftmeta/storage"
	"github.com/steledb/stele/test/simulation/machine"
	"github.com/steledb/stele/test/simulation/simdisk"
)

// quietTime is how long no client changes anything before the voters are lost: by then the remaining
// ones have all changes, so nothing may be lost.
const quietTime = 10 * time.Second

// recoverLocks stops all nodes and recovers the lock service from the best of a minority of the
// voters, as "stele raft recover" does. Then the others start again, the other voters with their old
// logs. Everything that was acknowledged must still be there: the last reads are judged as ever.
//
// It reports whether everything must still be there: not if the best of the voters lacks changes.
func (w operators) recoverLocks() (whole bool) {
	if !w.plan.recovery || w.failed != "" {
		return true
	}
	w.recovered = true
	time.Sleep(quietTime)
	var ids []string
	err := w.ask(time.Now().Add(healMax), func(ctx context.Context, c *client.Client) (err error) {
		ids, err = voters(ctx, c)
		return err
	})
	if err != nil {
		w.fail("SW1 service: no list of voters: %v", err)
		return false
	}
	w.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	if w.r.IntN(2) == 0 {
		return w.recoverLagging(ids)
	}
	left := ids[:len(ids)/2]
	w.trace.addf("world", "all nodes stop, and the lock service is recovered from one of %v", left)
	for _, h := range w.hosts {
		h.kill(w.r.IntN(2) == 0)
	}
	best, err := w.bestVoter(left)
	if err == nil {
		err = w.recoverGroup(best)
	}
	if err != nil {
		w.fail("SW7 recovery: %v", err)
		return false
	}
	w.count("recoveries of the lock service")
	best.up()
	w.sleep(0, 10*time.Second)
	for _, i := range w.r.Perm(len(w.hosts)) {
		w.hosts[i].up()
	}
	w.inspector().awaitService(time.Now())
	return true
}

// voters returns the ids of the voters, if all of them have the whole log.
func voters(ctx context.Context, c *client.Client) (ids []string, err error) {
	s, err := c.Nodes().RaftStatus(ctx)
	if err != nil {
		return nil, err
	}
	for i := range s.Servers {
		switch v := &s.Servers[i]; {
		case !v.Voter:
		case !v.Alive && !v.Leader || v.Lag > 100:
			return nil, errors.New("a voter lags")
		default:
			ids = append(ids, v.ID)
		}
	}
	if len(ids) < 3 {
		return nil, errors.New("too few voters")
	}
	return ids, nil
}

// bestVoter returns the host whose log has the last entry.
func (w operators) bestVoter(ids []string) (best *host, err error) {
	var last *raftmeta.Recovery
	for _, id := range ids {
		i := slices.IndexFunc(w.hosts, func(h *host) bool { return h.id == id })
		if i < 0 {
			continue
		}
		h := w.hosts[i]
		var r *raftmeta.Recovery
		err := h.offline(func(f *identity.Folders, cfg raftmeta.Config) (err error) {
			r, err = raftmeta.Inspect(context.Background(), cfg)
			return err
		})
		if err != nil {
			return nil, err
		}
		w.trace.addf(h.name, "has entry %d of term %d", r.LastIndex, r.LastTerm)
		if last == nil || r.LastTerm > last.LastTerm || r.LastTerm == last.LastTerm && r.LastIndex > last.LastIndex {
			best, last = h, r
		}
	}
	if best == nil {
		err = errors.New("none of the voters is a host")
	}
	return best, err
}

// recoverGroup makes a host's node the only voter.
func (w operators) recoverGroup(h *host) error {
	return h.offline(func(f *identity.Folders, cfg raftmeta.Config) error {
		r, err := raftmeta.Recover(context.Background(), cfg)
		if err != nil {
			return err
		}
		w.trace.addf(h.name, "%v", r)
		return f.SetRaftEpoch(f.RaftEpoch + 1)
	})
}

// offline runs a command on a stopped host, in a process of its own.
func (h *host) offline(do func(f *identity.Folders, cfg raftmeta.Config) error) error {
	fsys := h.disk.FS()
	h.w.processes++
	done := make(chan error, 1)
	machine.Start(h.w.processes, func() {
		folders, err := identity.InspectFS(fsys, h.cfg.DataDirs)
		if err == nil {
			err = do(folders, raftmeta.Config{FS: fsys, Dir: folders.RaftDir(), ID: folders.Node,
				OpenLog: func(file string) (storage.Backend, error) { return simdisk.OpenRaftLog(fsys, file) }})
		}
		done <- err
	})
	err := <-done
	h.disk.Crash(false) // the process has ended
	return err
}
