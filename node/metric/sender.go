// Package metric sends the metrics of a node's services to Prometheus.
package metric

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/steledb/stele/rpc"
)

// LabelsMax bounds the tables, and the quotas, that have metrics of their own.
const LabelsMax = 1000

// Sender creates metrics with the common prefix.
type Sender struct{ out chan<- prometheus.Metric }

// NewSender returns a sender to out.
func NewSender(out chan<- prometheus.Metric) Sender { return Sender{out} }

func (m Sender) send(kind prometheus.ValueType, name, help string, v float64, labels []string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	m.out <- prometheus.MustNewConstMetric(prometheus.NewDesc("stele_"+name, help, names, nil), kind, v, values...)
}

// Gauge sends a value that may fall. labels alternates names and values.
func (m Sender) Gauge(name, help string, v float64, labels ...string) {
	m.send(prometheus.GaugeValue, name, help, v, labels)
}

// Counter sends a count. labels alternates names and values.
func (m Sender) Counter(name, help string, v float64, labels ...string) {
	m.send(prometheus.CounterValue, name, help, v, labels)
}

// method sends the metrics of an RPC method; none if it was never called.
func (m Sender) method(s *rpc.MethodStats) {
	if s.Requests == 0 {
		return
	}
	for code, n := range s.Errors {
		m.Counter("rpc_errors_total", "RPC requests answered with an error, by method and error code, such as not_serving. Codes without a name are summed as other.", float64(n), "method", s.Method, "code", code)
	}
	buckets, seen := map[float64]uint64{}, uint64(0)
	for i, n := range s.Latency {
		seen += n
		if bound := rpc.LatencyBound(i); bound > 0 { // the last bucket has none
			buckets[bound.Seconds()] = seen
		}
	}
	m.out <- prometheus.MustNewConstHistogram(
		prometheus.NewDesc("stele_rpc_request_seconds", "Time from an RPC request's arrival to its answer.", []string{"method"}, nil),
		s.Requests, s.Time.Seconds(), buckets, s.Method)
}

// Bool returns 1 for true, 0 for false.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
