package node

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/steledb/stele/node/metric"
)

// registry returns the node's metrics. They are read from the parts' counters on each scrape, and cost nothing in between.
func (n *Node) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{node: n},
	)
	return r
}

type collector struct{ node *Node }

// Describe sends nothing: the collector is unchecked, because its metrics depend on methods and directories.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the current values.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	m := metric.NewSender(out)
	n := c.node
	m.Gauge("build_info", "Constant 1, labelled with the program's version.", 1, "version", Version(), "go", runtime.Version())
	m.Gauge("ready", "1 while this node serves requests.", metric.Bool(n.unready() == ""))
	m.Gauge("uptime_seconds", "Time since this node started.", time.Since(n.started).Seconds())
	m.RPC(n.rpc.Stats())
	if n.serving.Load() { // all parts exist
		for _, part := range []interface{ Collect(metric.Sender) }{n.status, n.data, n.usage, n.quotas, n.blobs, n.lockServer, n.locks, n.members} {
			part.Collect(m)
		}
	}
}
