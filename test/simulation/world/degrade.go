package world

import (
	"context"
	"fmt"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// degradedFaults are those of one host that the cluster must do without for any time.
var degradedFaults = []fault{crash, isolate, diskStall, diskFull}

// degrade gives one host a fault that does not end, once everything has all replicas and voters. The others must serve everything meanwhile (SW11), and in plans that
// check all replicas also have these again. Faults that are on only in some seeds do not matter here.
func (w *World) degrade() {
	if !w.plan.degraded || w.failed != "" {
		return
	}
	if !w.operators().awaitRedundancy(time.Now().Add(redundancyMax)) {
		return // judgeBlocks judges it
	}
	w.quiet = false
	h, f := w.host(), degradedFaults[w.r.IntN(len(degradedFaults))]
	full := w.operators().fillOther(h)
	if full != nil {
		f = crash
	}
	w.trace.addf("nemesis", "%s has the fault %s until further notice", h.name, f)
	w.count("degraded: " + string(f))
	h.troubled()
	w.absent = h
	switch f {
	case crash:
		h.kill(w.r.IntN(2) == 0)
	case isolate:
		for _, o := range w.hosts {
			if o != h {
				w.net.Cut(h.net, o.net)
				w.net.Cut(o.net, h.net)
			}
		}
	case diskStall:
		h.disk.Stall(2*redundancyMax, w.r.IntN(2) == 0)
	case diskFull:
		h.disk.SetCapacity(h.disk.Used())
	}
	time.Sleep(degradedNotice)
	w.inspector().awaitService(time.Now())
	if f == crash {
		w.inspector().judgeVoters(full)
		w.inspector().awaitReplicas()
	}
	w.trace.addf("world", "healed again")
	w.absent = nil
	w.heal()
	w.inspector().awaitService(time.Now())
}

// degradedHosts is the least number of hosts of which two may have faults until further notice.
const degradedHosts = 7

// fillOther fills the disk of another host than h, in some plans with many hosts, and returns it: it cannot become a voter then.
func (w operators) fillOther(h *host) *host {
	o := w.hosts[w.r.IntN(len(w.hosts))]
	if len(w.hosts) < degradedHosts || o == h || w.r.IntN(3) == 0 {
		return nil
	}
	w.count("degraded: another disk is full")
	o.troubled()
	o.disk.SetCapacity(o.disk.Used() + o.cfg.ReserveBytes/2)
	return o
}

// degradedNotice is the time in which the others notice that a node is gone, and begin to do its work.
const degradedNotice = 30 * time.Second

// awaitReplicas waits until all replicas of a host that stays down are on others, in plans that check replicas (SW4).
func (w inspector) awaitReplicas() {
	if !w.plan.settled && w.plan.tuning.Repair.Grace == 0 || w.failed != "" || len(w.hosts) <= hostsMin {
		return
	}
	var why error
	if !w.operators().await(time.Now().Add(redundancyMax), func(ctx context.Context, c *client.Client) error {
		if why = w.operators().redundant(ctx, c); why == nil {
			why = replicated(ctx, c, w.absent.name)
		}
		return why
	}) {
		w.fail("SW4 replicas: those of %s are not on other hosts %v after its end: %v", w.absent.name, redundancyMax, why)
	}
}

// replicated returns an error unless each extent has all replicas on nodes that answer. One node may be silent: the status counts its replicas as long
// as it may come back.
func replicated(ctx context.Context, c *client.Client, absent string) error {
	after := ""
	for {
		step, err := c.BlockStore().Fsck(ctx, after, false)
		if err != nil {
			return err
		}
		if silent := step.Silent; len(silent) > 1 || len(silent) == 1 && silent[0] != absent {
			return fmt.Errorf("%v are silent", silent)
		}
		for i := range step.Findings {
			if f := &step.Findings[i]; f.Count(api.ReplicaGood) < int(f.ReplicationFactor) {
				return fmt.Errorf("%+v", *f)
			}
		}
		if after = step.Next; after == "" {
			return nil
		}
	}
}
