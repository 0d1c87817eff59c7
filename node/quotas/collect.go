package quotas

import (
	"maps"
	"slices"

	"github.com/steledb/stele/node/metric"
	"github.com/steledb/stele/node/quota"
)

// Refusals returns the numbers of requests that a node has rejected because of rate quotas, since it started or the quota was set, by the
// quota's name as in errors, such as: table "web" write_ops. Those without any are left out.
func Refusals(qs *Service) map[string]int64 {
	all := map[string]int64{}
	set := qs.state.meters.Load()
	if set == nil {
		return all
	}
	for _, m := range set.of {
		for k, n := range m.Refusals() {
			if n > 0 {
				all[m.Name()+" "+rateKinds[k]] = n
			}
		}
	}
	return all
}

// Collect collects the numbers of requests refused for quotas: for the first quotas by name each, and for the others together.
func (qs *Service) Collect(m metric.Sender) {
	set := qs.state.meters.Load()
	if set == nil {
		return
	}
	rest := [quota.Kinds]int64{}
	for i, key := range slices.Sorted(maps.Keys(set.of)) {
		n := set.of[key].Refusals()
		for k := range n {
			if i >= metric.LabelsMax {
				rest[k] += n[k]
			} else if set.of[key].Record().Rates[k].PerSecond > 0 {
				sendRefusals(m, set.of[key].Name(), k, n[k])
			}
		}
	}
	for k := range rest {
		if len(set.of) > metric.LabelsMax {
			sendRefusals(m, "(other)", k, rest[k])
		}
	}
}

func sendRefusals(m metric.Sender, of string, k int, n int64) {
	m.Counter("quota_refusals_total", "Requests rejected on this node because of a rate quota. Above 1000 quotas the others are summed as (other).", float64(n), "quota", of, "kind", rateKinds[k])
}
