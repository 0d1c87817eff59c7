// Package monitor is the HTTP port of a node: its metrics, whether it lives and is ready, Go's profiles, and the console. It also probes the node's parts
// for a supervisor of the process (Alive).
//
//	path           reports
//	/metrics       the metrics of all parts, for Prometheus
//	/healthz       200 unless the process has failed
//	/readyz        200 while the node serves
//	/debug/pprof/  profiles: on a port with TLS, and where Config.Profiles adds them
//	others         the console
//
// A port on loopback and that of an open node serve plain HTTP, to requests for this host only. Any other port uses TLS, and
// metrics and profiles need a right (see Authorize). The console authenticates its users itself, on all ports.
//
// # Goroutines
//
//	goroutine    started by  ends with         does
//	serve        Serve       Close             accepts connections of HTTP; one for the port, one for the socket of profiles
//	probe        Alive       its part answers  one for each part, at most one at once
//
// # Invariants
//
//	MO1. Connections, headers, and the time for which a client may keep an answer waiting are bounded, whatever the client sends (I11, I13).
package monitor
