package members

import (
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/metric"
)

// Collect sends the metrics of gossip; none if gossip is off.
func (sv *Service) Collect(m metric.Sender) {
	ring := sv.Ring()
	if ring == nil {
		return
	}
	alive := 0
	for _, x := range ring.Members() {
		if x.State == gossip.Alive {
			alive++
		}
	}
	m.Gauge("gossip_members_alive", "Nodes that gossip lists as alive.", float64(alive))
	stats := ring.Stats()
	m.Counter("gossip_refused_streams_total", "Gossip streams closed because they exceeded a bound or were not valid gossip.", float64(stats.RefusedStreams))
	m.Counter("gossip_dropped_packets_total", "Gossip packets dropped because they exceeded a bound or were not valid gossip.", float64(stats.DroppedPackets))
}
