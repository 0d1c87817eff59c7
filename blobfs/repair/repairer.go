package repair

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/internal/background"
	"github.com/steledb/stele/internal/timing"
)

// Logs has the lists of replicated logs.
type Logs interface {
	// Load returns the list of a server's log; generation 0 if there is none.
	Load(ctx context.Context, server string, id local.ID) (l logproto.List, gen uint64, err error)
}

// Deps are the parts of a node's store that repair uses.
type Deps struct {
	Disks      *local.Store
	Peers      *members.Peers
	Logs       Logs
	Corruption *Corruption
	Clock      timing.Clock
	Work       *background.Group
	Logger     *slog.Logger
	Replicas   int // the replication factor
	// ReplyTimeout bounds a short call to a node. Calls that transfer an extent get two CallTimeouts
	// in addition to the time for its bytes.
	ReplyTimeout, CallTimeout time.Duration
	// Forget closes an extent that is kept open for other nodes.
	Forget func(x local.ExtentID)
}

// Repairer maintains the replication factor of the extents on this node. Each node has one, and
// there is no leader: what an extent needs follows from its holder list, and which node does it
// from placement rank. Two nodes that do the same work do no harm.
type Repairer struct {
	cfg         Config
	deps        Deps
	self        string
	ctx         context.Context // canceled when the store closes
	remote      *remote
	audits      *auditor
	watch       *membershipWatch
	queue       *taskQueue
	repairRate  *rate // repair bytes that other nodes copy at this node's request
	scrubRate   *rate // bytes read by the scrub
	balanceRate *rate // bytes moved to emptier nodes
	verifyRate  *rate // bytes that other nodes verify before a local replica is dropped
	limits      *Limits
	recovered   chan struct{} // capacity 1: a suspected node answered

	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		scan           scanTotals // of the last complete scan
		scannedVersion uint64     // version of the view that scan used, 0 for none
		retired        int
		counts         Counts
		mark           local.ScrubProgress
		drain          DrainStatus
		balancing      bool
	}
}

// tickEvery is how often the repairer checks whether a scan, an audit or a retry is due.
const tickEvery = time.Second

// New returns the repairer of a node. cfg is complete, see Config.WithDefaults.
func New(cfg Config, deps Deps) *Repairer {
	k := &Repairer{cfg: cfg, deps: deps, self: deps.Peers.Self(), ctx: deps.Work.Context(), queue: newTaskQueue(deps.Clock)}
	k.watch = newMembershipWatch(deps.Peers.Membership(), deps.Clock, cfg)
	k.remote = &remote{k}
	k.audits = &auditor{k}
	k.repairRate = newRate(deps.Clock, cfg.RepairBytes)
	k.limits = newLimits(deps.Clock, cfg)
	k.verifyRate = newRate(deps.Clock, cfg.RepairBytes)
	k.scrubRate = newRate(deps.Clock, cfg.ScrubBytes)
	k.balanceRate = newRate(deps.Clock, cfg.BalanceBytes)
	k.recovered = make(chan struct{}, 1)
	deps.Corruption.onFound = func(x local.ExtentID) { k.queue.push(task{id: x, rank: 1}) }
	return k
}

// Start starts the repairer's goroutines. They end with Deps.Work.
func (k *Repairer) Start() {
	work := k.deps.Work
	work.Go(k.run)
	work.Go(k.audits.run)
	work.Go(func() { newScrubber(k).run() })
	work.Go(func() { newBalancer(k).run() })
	for range k.cfg.Workers {
		work.Go(k.workLoop)
	}
}

// run scans the extents when the cluster or a data folder changes, when the queue has drained, and
// every ScanEvery.
func (k *Repairer) run() {
	var next, again time.Duration
	pause := tickEvery
	failing := 0
	for {
		changed := k.deps.Peers.Changed()
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
		now := k.deps.Clock.Now()
		// When all tasks of a scan that found under-replicated extents are done, scan again, so
		// that the reported figures are current.
		rescan := now >= again && k.foundShort() && k.queue.idleAfterWork()
		if updated || rescan || now >= next || k.queue.overflowDrained() {
			k.scan(v)
			took := k.deps.Clock.Now() - now
			if rescan {
				pause = min(2*pause, k.cfg.ScanEvery)
			}
			again = now + max(pause, 50*took)
			// Scanning millions of lists uses at most 1/50 of one CPU.
			next = now + max(k.cfg.ScanEvery, 50*took)
			if k.stateOf(v, k.self) == nodeDraining {
				next = now + max(drainEvery, 50*took)
			}
			k.drain(v)
		}
		fired, stop := k.deps.Clock.Timer(tickEvery)
		select {
		case <-changed:
		case <-fired:
		case <-k.recovered:
			k.queue.retryNow()
			k.watch.retryNow()
		case <-k.ctx.Done():
			stop()
			return
		}
		stop()
	}
}

// PeerRecovered makes the repairer retry failed tasks at once, since a suspected node answers
// again.
func (k *Repairer) PeerRecovered() {
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
func (k *Repairer) retryFailed(before int) (failing int) {
	n, example := k.queue.requeueFailed()
	if n > 0 && before == 0 {
		k.deps.Logger.Warn("extents not repaired", "extents", n, "err", example)
	}
	return n
}

// newlyRetired reports whether a data folder was retired since the last call.
func (k *Repairer) newlyRetired() bool {
	n := k.deps.Disks.RetiredFolders()
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := n != k.mu.retired
	k.mu.retired = n
	return changed
}

// workLoop runs queued tasks one at a time.
func (k *Repairer) workLoop() {
	for {
		t, err := k.queue.pop(k.ctx)
		if err != nil {
			return
		}
		err = k.repairExtent(k.ctx, t)
		if err != nil && k.ctx.Err() == nil {
			k.deps.Logger.Debug("extent not repaired", "extent", t.id.String(), "err", err)
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

// count counts a task that the scan has found.
func (s *scanTotals) count(t *task) {
	switch {
	case t.rank < taskFallback:
		s.short[min(t.rank, local.HoldersMax)]++
		s.shortBytes += t.bytes
	case t.rank >= taskSurplus:
		s.surplus++
	}
}

// scan reads the holder lists of all extents here and queues tasks.
func (k *Repairer) scan(v *view) {
	var sum scanTotals
	after := local.ExtentID{Index: -1}
	for k.ctx.Err() == nil {
		infos := k.deps.Disks.ListExtents(after, scanPage)
		for i := range infos {
			x := &infos[i]
			sum.extents++
			sum.bytes += x.Length
			t, ok := k.triage(v, x)
			if !ok {
				continue
			}
			k.queue.push(t)
			sum.count(&t)
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
func (k *Repairer) foundShort() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.scan.short != [local.HoldersMax + 1]int64{}
}

// ListChanged queues an extent whose holder list on this node has become too short: its writer
// found too few nodes, or a holder is draining. The next scan may be a minute away.
func (k *Repairer) ListChanged(x local.ExtentID, h local.Holders) {
	if k == nil {
		return
	}
	v := k.watch.view()
	if stay := slices.DeleteFunc(slices.Clone(h.Nodes), func(n string) bool { return k.stateOf(v, n) == nodeDraining }); len(stay) >= k.deps.Replicas {
		return
	}
	info, err := k.deps.Disks.ExtentInfo(x)
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
func (k *Repairer) holders(x *local.ExtentInfo) local.Holders {
	if x.Holders.Epoch == 0 {
		return local.Holders{Nodes: []string{k.self}}
	}
	return x.Holders
}

// targetReplicas returns the target number of replicas: the replication factor, or the number of
// live nodes that are not draining if that is lower.
func (k *Repairer) targetReplicas(v *view) int { return min(k.deps.Replicas, v.live) }

// localBad reports whether the local replica is corrupt or in a retired folder.
func (k *Repairer) localBad(x *local.ExtentInfo) bool {
	return x.Retired || k.deps.Corruption.Has(x.ID)
}

// triage returns the task that an extent needs according to its local holder list, and false if
// none.
func (k *Repairer) triage(v *view, x *local.ExtentInfo) (task, bool) {
	h := k.holders(x)
	t := task{id: x.ID, created: x.Created}
	var survivors, draining []string
	held := 0
	listed := false
	for _, id := range h.Nodes {
		if id == k.self {
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
		responsible = v.firstRanked(x.ID, candidates) == k.self
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
func (k *Repairer) takeoverDelay(v *view) time.Duration {
	if k.stateOf(v, k.self) == nodeDraining {
		return min(2*k.cfg.Grace, 2*drainEvery)
	}
	return 2 * k.cfg.Grace
}
