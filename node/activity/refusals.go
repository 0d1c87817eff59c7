package activity

import (
	"cmp"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
)

// refusalReadings is the number of readings whose first and last are RefusalMinutes apart.
const refusalReadings = int(api.RefusalMinutes*time.Minute/interval) + 1

// addRefusals reads the numbers of rejected requests, and replaces those that are kept by the growth in the last minutes.
func (s *Service) addRefusals() {
	if s.Refusals == nil {
		return
	}
	now := s.Refusals()
	if s.refusals = append(s.refusals, now); len(s.refusals) > refusalReadings {
		s.refusals = slices.Delete(s.refusals, 0, 1)
	}
	var all []api.QuotaRefusals
	for quota, n := range now {
		last := s.refusals[0][quota]
		if last > n { // the quota was removed, and set again
			last = 0
		}
		if n > last {
			all = append(all, api.QuotaRefusals{Quota: quota, N: n - last})
		}
	}
	slices.SortFunc(all, func(a, b api.QuotaRefusals) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Quota, b.Quota))
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.kept.QuotaRefusals = all[:min(len(all), api.RefusalsMax)]
}
