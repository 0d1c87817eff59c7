package members

import (
	"time"

	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
)

// selfMeta returns what the node publishes by gossip.
func (sv *Service) selfMeta() gossip.Meta {
	m := gossip.Meta{Name: sv.Name, RPC: sv.Self.Address, HTTP: sv.HTTP(), Zone: sv.Zone, Version: sv.Version}
	sv.Self.View(func(f *identity.Folders) {
		m.ID, m.Start, m.Voter, m.RaftEpoch = f.Node, f.Starts, f.Voter(), f.RaftEpoch
	})
	m.CapacityBytes, m.FreeBytes = sv.DiskSpace()
	perDay, over := sv.DiskGrowth()
	m.GrowthBytes, m.GrowthOver = perDay, uint64(over/time.Second)
	return m
}

// Publish publishes changes of this node by gossip.
func (sv *Service) Publish() {
	if sv.Ring() == nil {
		return
	}
	fresh := sv.selfMeta()
	err := sv.Ring().UpdateMeta(func(m *gossip.Meta) {
		m.Voter, m.RaftEpoch, m.CapacityBytes, m.FreeBytes = fresh.Voter, fresh.RaftEpoch, fresh.CapacityBytes, fresh.FreeBytes
		m.GrowthBytes, m.GrowthOver = fresh.GrowthBytes, fresh.GrowthOver
	})
	if err != nil {
		sv.Log.Warn("change not published by gossip", "err", err)
	}
}

const (
	// publishPeriod is the interval at which the free disk space is published, in a cluster of up to publishNodes. In a larger one it is
	// as many times as long, up to publishPeriodMax: gossip repeats what one node publishes on all others.
	publishPeriod    = 30 * time.Second
	publishPeriodMax = 10 * time.Minute
	publishNodes     = 30
	// fullPeriod is the interval at which the node checks whether its disk has become full, or is no longer: that is published at once.
	fullPeriod = 2 * time.Second
)

// publishEvery returns the interval at which each of that many nodes publishes its free disk space.
func publishEvery(nodes int) time.Duration {
	return min(publishPeriod*time.Duration(max(nodes, publishNodes))/publishNodes, publishPeriodMax)
}

func (sv *Service) publishLoad() {
	tick := time.NewTicker(fullPeriod)
	defer tick.Stop()
	published, full := time.Now(), false
	for {
		select {
		case <-tick.C:
			_, free := sv.DiskSpace()
			if now := time.Now(); (free == 0) != full || now.Sub(published) >= publishPeriod && now.Sub(published) >= publishEvery(len(sv.Gossiped())) {
				published, full = now, free == 0
				sv.Publish()
			}
		case <-sv.Ctx.Done():
			return
		}
	}
}
