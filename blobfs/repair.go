package blobfs

import (
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/timing"
)

// repairer maintains the replication factor of the extents on this node. Each node has one, and
// there is no leader: what an extent needs follows from its holder list, and which node does it
// from placement rank. Two nodes that do the same work do no harm.
type repairer struct {
	s           *Store
	cfg         KeepConfig
	watch       *membershipWatch
	queue       *taskQueue
	repairRate  *rate // repair bytes that other nodes copy at this node's request
	copyRate    *rate // bytes copied to this node
	scrubRate   *rate // bytes read by the scrub
	balanceRate *rate // bytes moved to emptier nodes
	verifyRate  *rate // bytes that other nodes verify before a local replica is dropped
	copySlots   chan struct{}
	recovered   chan struct{} // capacity 1: a suspected node answered

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		scan           scanTotals // of the last complete scan
		scannedVersion uint64     // version of the view that scan used, 0 for none
		retired        int
		counts         KeepCounts
		mark           local.ScrubMark
		drain          DrainStatus
		balancing      bool
	}
}

// tickEvery is how often the repairer checks whether a scan, an audit or a retry is due.
const tickEvery = time.Second

// startRepairer starts the repairer's goroutines. They end with the store.
func (s *Store) startRepairer() {
	k := newRepairer(s)
	s.repairer = k
	s.work.Go(k.run)
	s.work.Go(k.auditLoop)
	s.work.Go(k.scrubLoop)
	s.work.Go(k.balanceLoop)
	s.work.Go(func() { s.gc.DropAbandoned(s.ctx) })
	for range k.cfg.Workers {
		s.work.Go(k.workLoop)
	}
}

func newRepairer(s *Store) *repairer {
	cfg := s.cluster.Keep
	k := &repairer{s: s, cfg: cfg, queue: newTaskQueue(s.cluster.Clock)}
	k.watch = newMembershipWatch(s, cfg)
	k.repairRate = newRate(s.cluster.Clock, cfg.RepairBytes)
	k.copyRate = newRate(s.cluster.Clock, cfg.RepairBytes)
	k.verifyRate = newRate(s.cluster.Clock, cfg.RepairBytes)
	k.scrubRate = newRate(s.cluster.Clock, cfg.ScrubBytes)
	k.balanceRate = newRate(s.cluster.Clock, cfg.BalanceBytes)
	k.copySlots = make(chan struct{}, cfg.Workers)
	k.recovered = make(chan struct{}, 1)
	return k
}

// run scans the extents when the cluster or a data folder changes, when the queue has drained, and
// every ScanEvery.
func (k *repairer) run() {
	var next, again time.Duration
	pause := tickEvery
	failing := 0
	for {
		changed := k.s.peers.Changed()
		v, updated := k.watch.refresh()
		if k.newlyRetired() {
			updated = true
		}
		if updated {
			k.queue.resetFailures()
		}
		failing = k.retryFailed(failing)
		if updated {
			pause = tickEvery
		}
		now := k.s.cluster.Clock.Now()
		// When all tasks of a scan that found under-replicated extents are done, scan again, so
		// that the reported figures are current.
		rescan := now >= again && k.foundShort() && k.queue.idleAfterWork()
		if updated || rescan || now >= next || k.queue.overflowDrained() {
			k.scan(v)
			took := k.s.cluster.Clock.Now() - now
			if rescan {
				pause = min(2*pause, k.cfg.ScanEvery)
			}
			again = now + max(pause, 50*took)
			// Scanning millions of lists uses at most 1/50 of one CPU.
			next = now + max(k.cfg.ScanEvery, 50*took)
			if k.stateOf(v, k.s.self) == nodeDraining {
				next = now + max(drainEvery, 50*took)
			}
			k.drain(v)
		}
		fired, stop := k.s.cluster.Clock.Timer(tickEvery)
		select {
		case <-changed:
		case <-fired:
		case <-k.recovered:
			k.queue.retryNow()
			k.watch.retryNow()
		case <-k.s.ctx.Done():
			stop()
			return
		}
		stop()
	}
}

// peerRecovered makes the repairer retry failed tasks at once, since a suspected node answers
// again.
func (k *repairer) peerRecovered() {
	if k == nil {
		return
	}
	select {
	case k.recovered <- struct{}{}:
	default:
	}
}

// retryFailed retries failed tasks. It logs one warning when failures begin, as there may be
// millions of them, and returns their number.
func (k *repairer) retryFailed(before int) (failing int) {
	n, example := k.queue.requeueFailed()
	if n > 0 && before == 0 {
		k.s.log.Warn("extents not repaired", "extents", n, "err", example)
	}
	return n
}

// newlyRetired reports whether a data folder was retired since the last call.
func (k *repairer) newlyRetired() bool {
	n := k.s.disks.RetiredFolders()
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := n != k.mu.retired
	k.mu.retired = n
	return changed
}

// workLoop runs queued tasks one at a time.
func (k *repairer) workLoop() {
	for {
		t, err := k.queue.pop(k.s.ctx)
		if err != nil {
			return
		}
		err = k.repairExtent(k.s.ctx, t)
		if err != nil && k.s.ctx.Err() == nil {
			k.s.log.Debug("extent not repaired", "extent", t.id.String(), "err", err)
		}
		k.queue.done(t, err)
	}
}

// scanTotals is the result of a scan.
type scanTotals struct {
	extents, bytes int64
	// short counts the under-replicated extents that this node repairs, by live replicas.
	short      [local.HoldersMax + 1]int64
	shortBytes int64 // bytes to copy for them
	surplus    int64
}

// scan reads the holder lists of all extents here and queues tasks.
func (k *repairer) scan(v *view) {
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
			case t.rank < taskFallback:
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
	k.mu.scan, k.mu.scannedVersion = sum, v.version
	k.mu.Unlock()
}

// foundShort reports whether the last scan found extents that this node has to repair.
func (k *repairer) foundShort() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.scan.short != [local.HoldersMax + 1]int64{}
}

// listChanged queues an extent whose holder list on this node has become too short: its writer
// found too few nodes, or a holder is draining. The next scan may be a minute away.
func (k *repairer) listChanged(x ExtentID, h Holders) {
	if k == nil {
		return
	}
	v := k.watch.view()
	if stay := slices.DeleteFunc(slices.Clone(h.Nodes), func(n string) bool { return k.stateOf(v, n) == nodeDraining }); len(stay) >= k.s.cluster.Replicas {
		return
	}
	info, err := k.s.disks.ExtentInfo(x)
	if err != nil {
		return
	}
	if t, _ := k.triage(v, &info); t.rank < taskSurplus {
		t.fallback = false // the responsible node may not have this list
		k.queue.push(t)
	}
}

// scanPage is how many lists are read at a time, while the store's index is locked.
const scanPage = 512

// holders returns the holders of an extent on this node. Without a list, this node is the only
// holder.
func (k *repairer) holders(x *local.ExtentInfo) Holders {
	if x.Holders.Epoch == 0 {
		return Holders{Nodes: []string{k.s.self}}
	}
	return x.Holders
}

// targetReplicas returns the target number of replicas: the replication factor, or the number of
// live nodes that are not draining if that is lower.
func (k *repairer) targetReplicas(v *view) int { return min(k.s.cluster.Replicas, v.live) }

// localBad reports whether the local replica is corrupt or in a retired folder.
func (k *repairer) localBad(x *local.ExtentInfo) bool {
	return x.Retired || k.s.corruptExtents.has(x.ID)
}

// triage returns the task that an extent needs according to its local holder list, and false if
// none.
func (k *repairer) triage(v *view, x *local.ExtentInfo) (task, bool) {
	h := k.holders(x)
	t := task{id: x.ID, created: x.Created}
	var survivors, draining []string
	held := 0
	listed := false
	for _, id := range h.Nodes {
		if id == k.s.self {
			listed = true
			if k.localBad(x) {
				continue
			}
		}
		switch k.stateOf(v, id) {
		case nodeLive:
			survivors = append(survivors, id)
			held++
		case nodeDraining:
			draining = append(draining, id)
		case nodeDown:
			held++
		case nodeGone:
		}
	}
	target := k.targetReplicas(v)
	responsible := k.localBad(x)
	if !responsible {
		candidates := survivors
		if len(candidates) == 0 {
			candidates = draining
		}
		responsible = v.firstRanked(x.ID, candidates) == k.s.self
	}
	short := target - held
	switch {
	case short > 0 && !listed && !k.localBad(x):
		t.rank = len(survivors) // the local replica is one more than the list has
	case k.localBad(x), short > 0 && responsible:
		t.rank = len(survivors) + len(draining)
		t.bytes = max(int64(short), 1) * x.Length
	case short > 0:
		t.rank, t.fallback = taskFallback+len(survivors), true
		return t, v.at-v.changed > k.takeoverDelay(v)
	default:
		t.rank = taskSurplus
		return t, k.surplus(v, h, listed, responsible, len(survivors))
	}
	return t, true
}

// takeoverDelay is how long the responsible node is given, after the last membership change, before
// other nodes act. A draining node waits less: it may be the only node that knows the extent, if
// the blob's writer failed before all nodes had sealed it.
func (k *repairer) takeoverDelay(v *view) time.Duration {
	if k.stateOf(v, k.s.self) == nodeDraining {
		return min(2*k.cfg.Grace, 2*drainEvery)
	}
	return 2 * k.cfg.Grace
}

// auditLoop asks other nodes whether they have the replicas that they should.
func (k *repairer) auditLoop() {
	for {
		if nodes := k.watch.auditsDue(); len(nodes) > 0 {
			k.audit(nodes)
		}
		if timing.SleepOn(k.s.ctx, k.s.cluster.Clock, tickEvery) != nil {
			return
		}
	}
}

// audit asks nodes for the extents here that they should or may have: those whose list names the
// node, and those for which placement ranks it first, because a partition may have left a replica
// that no local list names. Nodes with a true value are asked for all extents.
func (k *repairer) audit(nodes map[string]bool) {
	v := k.watch.view()
	batches := map[string][]local.ExtentInfo{}
	flush := func(node string) {
		if b := batches[node]; len(b) > 0 && !k.auditBatch(node, b) {
			k.watch.auditFailed(node)
			delete(nodes, node)
		}
		delete(batches, node)
	}
	after := ExtentID{Index: -1}
	for k.s.ctx.Err() == nil && len(nodes) > 0 {
		infos := k.s.disks.ListExtents(after, scanPage)
		for _, x := range infos {
			topRanked := v.topRanked(x.ID, k.s.cluster.Replicas)
			for node, whole := range nodes {
				if !whole && !slices.Contains(x.Holders.Nodes, node) && !slices.Contains(topRanked, node) {
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
		k.watch.auditSucceeded(node)
	}
}
