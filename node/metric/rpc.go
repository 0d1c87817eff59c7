package metric

import "github.com/steledb/stele/rpc"

// RPC sends the metrics of an RPC server.
func (m Sender) RPC(s rpc.Stats) {
	m.Gauge("rpc_connections", "Open RPC connections to this node.", float64(s.Conns))
	m.Gauge("rpc_in_flight", "RPC requests in progress.", float64(s.InFlight))
	m.Gauge("rpc_memory_bytes", "Memory of RPC requests in progress and of answers not yet sent.", float64(s.MemoryBytes))
	m.Counter("rpc_received_bytes_total", "Bytes received on RPC connections.", float64(s.BytesIn))
	m.Counter("rpc_sent_bytes_total", "Bytes sent on RPC connections.", float64(s.BytesOut))
	m.Counter("rpc_forbidden_total", "RPC requests rejected by access control before execution.", float64(s.Guarded))
	m.Counter("rpc_malformed_total", "RPC connections closed because of malformed messages.", float64(s.Malformed))
	m.Counter("rpc_corrupt_total", "RPC connections closed because of wrong checksums.", float64(s.Corrupt))
	m.Counter("rpc_overloaded_total", "RPC requests rejected for lack of memory or workers.", float64(s.Overloaded))
	m.Counter("rpc_late_total", "RPC requests rejected because their deadline had passed.", float64(s.Late))
	m.Counter("rpc_dropped_total", "RPC requests dropped because their connection had closed.", float64(s.Dropped))
	m.Counter("rpc_panics_total", "RPC requests whose handler panicked.", float64(s.Panics))
	for i := range s.Methods {
		m.method(&s.Methods[i])
	}
}
