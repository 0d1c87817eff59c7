package bigtableport

import "github.com/steledb/stele/node/metric"

// Collect sends the metrics of requests for rows. It works on a nil Port.
func (p *Port) Collect(m metric.Sender) {
	if p == nil {
		return
	}
	for _, r := range p.server.Requests() {
		for _, of := range r.Methods {
			m.Counter("bigtable_requests_total", "Requests of Cloud Bigtable's data API that have ended, by method and app profile. Requests in sessions are those of ReadRow and MutateRow.", float64(of.Requests), "method", of.Method, "app_profile", r.Profile)
			m.Counter("bigtable_request_seconds_total", "Time of requests of Cloud Bigtable's data API, by method and app profile; without sessions and readers of change streams, which clients end.", of.Time.Seconds(), "method", of.Method, "app_profile", r.Profile)
		}
		for code, n := range r.Errors {
			m.Counter("bigtable_errors_total", "Requests of Cloud Bigtable's data API that have failed, by app profile and code of gRPC.", float64(n), "app_profile", r.Profile, "code", code)
		}
	}
}
