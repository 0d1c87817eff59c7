package monitor

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/steledb/stele/node/metric"
)

// Registry returns the node's metrics. They are read from the parts' counters on each scrape, and cost nothing in between.
func (sv *Service) Registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{sv},
	)
	return r
}

type collector struct{ sv *Service }

// Describe sends nothing: the collector is unchecked, because its metrics depend on methods and directories.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the current values.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	m := metric.NewSender(out)
	m.Gauge("build_info", "Constant 1, labelled with the program's version.", 1, "version", c.sv.Version, "go", runtime.Version())
	m.Gauge("ready", "1 while this node serves requests.", metric.Bool(c.sv.Unready() == ""))
	m.Gauge("uptime_seconds", "Time since this node started.", time.Since(c.sv.Began).Seconds())
	for _, part := range c.sv.Collectors() {
		part.Collect(m)
	}
}
