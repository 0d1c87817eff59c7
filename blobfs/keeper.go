package blobfs

import (
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/local"
)

// keeper sees to it that the extents here have the replicas that they should. Each node has one,
// and none leads: what has to be done for an extent follows from its list of holders, and which of them
// does it from their rank. Two that do the same thing do no harm.
type keeper struct {
	s        *Store
	cfg      KeepConfig
	watch    *watch
	queue    *taskQueue
	repairs  *rate // bytes that others copied because this node said so
	taken    *rate // bytes copied here
	scrubs   *rate // bytes read by the scrub
	balances *rate // bytes given to emptier nodes
	verified *rate // bytes that others read before a replica here is dropped
	taking   chan struct{}
	back     chan struct{} // of capacity 1: a node that had not answered does

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		scan      scanTotals // of the last scan that ended
		scanned   uint64     // the number of the view that it looked at, 0 for none
		retired   int
		counts    KeepCounts
		mark      local.ScrubMark
		drain     DrainStatus
		balancing bool
	}
}

// tickEvery is how often the keeper looks at the clock.
const tickEvery = time.Second

// startKeeper starts the keeper. It ends with the store.
func (s *Store) startKeeper() {
	k := newKeeper(s)
	s.keeper = k
	s.spawn(k.run)
	s.spawn(k.auditing)
	s.spawn(k.scrubbing)
	s.spawn(k.balancing)
	s.spawn(k.abandoning)
	for range k.cfg.Workers {
		s.spawn(k.work)
	}
}

func newKeeper(s *Store) *keeper {
	cfg := s.cluster.Keep
	k := &keeper{s: s, cfg: cfg, queue: newTaskQueue(s.cluster.Clock)}
	k.watch = newWatch(s, cfg)
	k.repairs = newRate(s.cluster.Clock, cfg.RepairBytes)
	k.taken = newRate(s.cluster.Clock, cfg.RepairBytes)
	k.verified = newRate(s.cluster.Clock, cfg.RepairBytes)
	k.scrubs = newRate(s.cluster.Clock, cfg.ScrubBytes)
	k.balances = newRate(s.cluster.Clock, cfg.BalanceBytes)
	k.taking = make(chan struct{}, cfg.Workers)
	k.back = make(chan struct{}, 1)
	return k
}

// run scans when something has changed, and now and then.
func (k *keeper) run() {
	var next, again time.Duration
	pause := tickEvery
	failing := 0
	for {
		changed := k.s.cluster.Fleet.Changed()
		v, news := k.watch.refresh()
		if k.newlyRetired() {
			news = true
		}
		if news {
			k.queue.forgive()
		}
		failing = k.complain(failing)
		if news {
			pause = tickEvery
		}
		now := k.s.cluster.Clock.Now()
		// What a scan found to be too few is looked at again when all was done: that is what is told of, too.
		over := now >= again && k.found() && k.queue.rested()
		if news || over || now >= next || k.queue.drained() {
			k.scan(v)
			took := k.s.cluster.Clock.Now() - now
			if over {
				pause = min(2*pause, k.cfg.ScanEvery)
			}
			again = now + max(pause, 50*took)
			// Looking through millions of lists shall not take more than a fiftieth of a processor.
			next = now + max(k.cfg.ScanEvery, 50*took)
			if k.of(v, k.s.self) == leaving {
				next = now + max(drainEvery, 50*took)
			}
			k.drain(v)
		}
		fired, stop := k.s.cluster.Clock.Timer(tickEvery)
		select {
		case <-changed:
		case <-fired:
		case <-k.back:
			k.queue.hurry()
			k.watch.hurry()
		case <-k.s.ctx.Done():
			stop()
			return
		}
		stop()
	}
}

// heard has what failed tried again: a node answers that did not.
func (k *keeper) heard() {
	if k == nil {
		return
	}
	select {
	case k.back <- struct{}{}:
	default:
	}
}

// complain tries again what failed, and says once that something does. There may be millions of them.
func (k *keeper) complain(before int) (failing int) {
	n, example := k.queue.retry()
	if n > 0 && before == 0 {
		k.s.log.Warn("extents have not the replicas that they should", "extents", n, "err", example)
	}
	return n
}

// newlyRetired tells whether a data folder was retired since it was last asked.
func (k *keeper) newlyRetired() bool {
	n := k.s.disks.RetiredFolders()
	k.mu.Lock()
	defer k.mu.Unlock()
	news := n != k.mu.retired
	k.mu.retired = n
	return news
}

// work does one task after the other.
func (k *keeper) work() {
	for {
		t, err := k.queue.pop(k.s.ctx)
		if err != nil {
			return
		}
		err = k.tend(k.s.ctx, t)
		if err != nil && k.s.ctx.Err() == nil {
			k.s.log.Debug("extent has not the replicas that it should", "extent", t.id.String(), "err", err)
		}
		k.queue.done(t, err)
	}
}

// scanTotals is what a scan has found.
type scanTotals struct {
	extents, bytes int64
	// short counts those that this node is to repair, by live replicas.
	short      [local.HoldersMax + 1]int64
	shortBytes int64 // still to be copied for them
	surplus    int64
}

// scan looks at the lists of all extents here, and makes tasks.
func (k *keeper) scan(v *view) {
	var sum scanTotals
	after := ExtentID{Index: -1}
	for k.s.ctx.Err() == nil {
		infos := k.s.disks.ListExtents(after, scanPage)
		for i := range infos {
			x := &infos[i]
			sum.extents++
			sum.bytes += x.Length
			t, ok := k.triage(v, x)
			if !ok {
				continue
			}
			k.queue.push(t)
			switch {
			case t.rank < taskBehind:
				sum.short[min(t.rank, local.HoldersMax)]++
				sum.shortBytes += t.bytes
			case t.rank >= taskSurplus:
				sum.surplus++
			}
		}
		if len(infos) < scanPage {
			break
		}
		after = infos[len(infos)-1].ID
	}
	k.mu.Lock()
	k.mu.scan, k.mu.scanned = sum, v.number
	k.mu.Unlock()
}

// found tells whether the last scan found extents that this node has to repair.
func (k *keeper) found() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.scan.short != [local.HoldersMax + 1]int64{}
}

// noticed has an extent seen to whose list here has become one with too few nodes on it: its writer found no more, or somebody
// leaves. A scan may be far off.
func (k *keeper) noticed(x ExtentID, h Holders) {
	if k == nil {
		return
	}
	v := k.watch.view()
	if stay := slices.DeleteFunc(slices.Clone(h.Nodes), func(n string) bool { return k.of(v, n) == leaving }); len(stay) >= k.s.cluster.Replicas {
		return
	}
	info, err := k.s.disks.ExtentInfo(x)
	if err != nil {
		return
	}
	if t, _ := k.triage(v, &info); t.rank < taskSurplus {
		t.behind = false // whoever is to repair it may not have this list
		k.queue.push(t)
	}
}

// scanPage is how many lists are looked at while the store's index is locked.
const scanPage = 512

// listed returns who should have an extent that is here: without a list, this node.
func (k *keeper) listed(x *local.ExtentInfo) Holders {
	if x.Holders.Epoch == 0 {
		return Holders{Nodes: []string{k.s.self}}
	}
	return x.Holders
}

// want is how many replicas an extent should have now.
func (k *keeper) want(v *view) int { return min(k.s.cluster.Replicas, v.present) }

// bad tells whether this node's replica is not to be relied on.
func (k *keeper) bad(x *local.ExtentInfo) bool { return x.Retired || k.s.rot.has(x.ID) }

// triage says what the list of an extent here alone calls for.
func (k *keeper) triage(v *view, x *local.ExtentInfo) (task, bool) {
	h := k.listed(x)
	t := task{id: x.ID, created: x.Created}
	var survivors, leavers []string
	held := 0
	listed := false
	for _, id := range h.Nodes {
		if id == k.s.self {
			listed = true
			if k.bad(x) {
				continue
			}
		}
		switch k.of(v, id) {
		case present:
			survivors = append(survivors, id)
			held++
		case leaving:
			leavers = append(leavers, id)
		case away:
			held++
		case gone:
		}
	}
	want := k.want(v)
	mine := k.bad(x)
	if !mine {
		among := survivors
		if len(among) == 0 {
			among = leavers
		}
		mine = v.first(x.ID, among) == k.s.self
	}
	short := want - held
	switch {
	case short > 0 && !listed && !k.bad(x):
		t.rank = len(survivors) // this replica is one more than the list has
	case k.bad(x), short > 0 && mine:
		t.rank = len(survivors) + len(leavers)
		t.bytes = max(int64(short), 1) * x.Length
	case short > 0:
		t.rank, t.behind = taskBehind+len(survivors), true
		return t, v.at-v.changed > k.patience(v)
	default:
		t.rank = taskSurplus
		return t, k.surplus(v, h, listed, mine, len(survivors))
	}
	return t, true
}

// patience is how long others are left to do what is theirs to do, once nobody comes or goes. A node that leaves is
// waited for, and may be the only one that knows of an extent: of a blob whose writer went away before all were done.
func (k *keeper) patience(v *view) time.Duration {
	if k.of(v, k.s.self) == leaving {
		return min(2*k.cfg.Grace, 2*drainEvery)
	}
	return 2 * k.cfg.Grace
}

// auditing asks the holders of extents here whether they are that.
func (k *keeper) auditing() {
	for {
		if nodes := k.watch.due(); len(nodes) > 0 {
			k.audit(nodes)
		}
		if sleep(k.s.ctx, k.s.cluster.Clock, tickEvery) != nil {
			return
		}
	}
}

// audit asks nodes for the extents here that they may have: those on an extent's list, and those
// that placement would choose first, for a list that was not told to all may have lost sight of a replica. Those with a
// true value are asked for all.
func (k *keeper) audit(nodes map[string]bool) {
	v := k.watch.view()
	batches := map[string][]local.ExtentInfo{}
	flush := func(node string) {
		if b := batches[node]; len(b) > 0 && !k.auditBatch(node, b) {
			k.watch.undone(node)
			delete(nodes, node)
		}
		delete(batches, node)
	}
	after := ExtentID{Index: -1}
	for k.s.ctx.Err() == nil && len(nodes) > 0 {
		infos := k.s.disks.ListExtents(after, scanPage)
		for _, x := range infos {
			likely := v.likely(x.ID, k.s.cluster.Replicas)
			for node, whole := range nodes {
				if !whole && !slices.Contains(x.Holders.Nodes, node) && !slices.Contains(likely, node) {
					continue
				}
				if batches[node] = append(batches[node], x); len(batches[node]) == checkMax {
					flush(node)
				}
			}
		}
		if len(infos) < scanPage {
			break
		}
		after = infos[len(infos)-1].ID
	}
	for node := range nodes {
		flush(node)
	}
	for node := range nodes {
		k.watch.audited(node)
	}
}
