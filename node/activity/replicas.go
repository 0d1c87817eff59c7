package activity

import (
	"slices"
	"time"

	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/client/api"
)

// addReplicas replaces the times of log replicas by those since the last call.
func (s *Service) addReplicas() {
	if s.Replicas == nil {
		return
	}
	var all []api.ReplicaTimes
	now, dropped := map[string]replog.ReplicaTimes{}, map[string]int64{}
	for _, x := range s.Replicas() {
		last := s.replicas[x.Node]
		now[x.Node] = x
		t := replicaTimes(&last, &x)
		dropped[x.Node] = x.Dropped
		if len(s.dropped) > 0 {
			t.Dropped = x.Dropped - s.dropped[0][x.Node]
		}
		if t.P99US >= 0 || t.Dropped > 0 {
			all = append(all, t)
		}
	}
	s.replicas = now
	if s.dropped = append(s.dropped, dropped); len(s.dropped) > refusalReadings {
		s.dropped = slices.Delete(s.dropped, 0, 1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.kept.LogReplicas = all
}

// LogReplicas returns the times of log replicas in the last interval.
func (s *Service) LogReplicas() []api.ReplicaTimes {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.kept.LogReplicas)
}

// replicaTimes returns the times between two readings.
func replicaTimes(last, now *replog.ReplicaTimes) api.ReplicaTimes {
	t := api.ReplicaTimes{Node: now.Node, Appends: now.Appends - last.Appends, MeanUS: -1, P99US: -1}
	if t.Appends > 0 {
		t.MeanUS = ((now.Total - last.Total) / time.Duration(t.Appends)).Microseconds()
		rank, seen := t.Appends-t.Appends/100, int64(0)
		for i := range now.Latency {
			if seen += now.Latency[i] - last.Latency[i]; seen >= rank {
				t.P99US = 1 << i
				break
			}
		}
	}
	if now.Oldest > 0 {
		t.P99US = max(t.P99US, now.Oldest.Microseconds())
	}
	return t
}
