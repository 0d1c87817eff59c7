package activity

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// TestSums (AC1): each series has the growth of its counter in each interval, for at most an hour.
func TestSums(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stats rpc.Stats
		read := rpc.MethodStats{Method: api.MethodRead}
		write := rpc.MethodStats{Method: api.MethodMutate, Errors: map[string]uint64{"conflict": 0}}
		commits := int64(0)
		var mu sync.Mutex // guards the counters
		s := New(Config{Name: "n1", RPC: func() rpc.Stats {
			mu.Lock()
			defer mu.Unlock()
			stats.Methods = []rpc.MethodStats{read, write, {Method: api.MethodPing, Requests: 7}}
			return stats
		}, Commits: func() int64 {
			mu.Lock()
			defer mu.Unlock()
			return commits
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		synctest.Wait()
		for i := range api.ActivityIntervalsMax + 3 {
			mu.Lock()
			for j := range 200 { // of which two take 1 ms, and the others 4 µs
				bucket, d := 2, 4*time.Microsecond
				if j > 197 {
					bucket, d = 10, time.Millisecond
				}
				read.Requests++
				read.Time += d
				read.Latency[bucket]++
			}
			commits += int64(i)
			write.Errors["conflict"]++
			stats.BytesIn += 10
			mu.Unlock()
			time.Sleep(interval)
			synctest.Wait()
		}
		cancel()
		<-done
		a := s.kept()
		last := len(a.Reads) - 1
		if len(a.Reads) != api.ActivityIntervalsMax || a.Reads[0] != 200 || a.Commits[0] != 3 || a.Commits[last] != api.ActivityIntervalsMax+2 || a.Errors[last] != 1 || a.BytesIn[0] != 10 {
			t.Errorf("%+v", a)
		}
		if a.ReadP99US[0] != 4 || a.ReadMeanUS[0] != 13 || a.WriteP99US[0] != -1 || a.Scans[0] != 0 {
			t.Errorf("reads: p99 %d, mean %d; writes: p99 %d", a.ReadP99US[0], a.ReadMeanUS[0], a.WriteP99US[0])
		}
		var e wire.Encoder
		a.Append(&e)
		var got api.Activity
		d := wire.NewDecoder(e.Bytes())
		if err := got.Decode(&d); err != nil || got.EndMS != a.EndMS || !slices.Equal(got.Commits, a.Commits) {
			t.Errorf("%v: %+v", err, got)
		}
	})
}

// TestReplicaTimes: log replicas have the times of the last interval only, and the wait for an answer that has not come counts.
func TestReplicaTimes(t *testing.T) {
	now := []replog.ReplicaTimes{{Node: "a", Appends: 7, Total: 7 * time.Second}}
	s := New(Config{Replicas: func() []replog.ReplicaTimes { return slices.Clone(now) }})
	s.addReplicas()
	now[0].Appends, now[0].Total = 107, now[0].Total+100*time.Millisecond
	now[0].Latency[10] += 98
	now[0].Latency[11] += 2
	now = append(now, replog.ReplicaTimes{Node: "b", Oldest: 3 * time.Second}, replog.ReplicaTimes{Node: "c"})
	s.addReplicas()
	want := []api.ReplicaTimes{{Node: "a", Appends: 100, MeanUS: 1000, P99US: 2048}, {Node: "b", MeanUS: -1, P99US: 3_000_000}}
	if got := s.LogReplicas(); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	s.addReplicas()
	if got := s.LogReplicas(); !slices.Equal(got, want[1:]) {
		t.Errorf("without an append since: %+v", got)
	}
	now = []replog.ReplicaTimes{{Node: "d", Dropped: 3}}
	s.addReplicas()
	if got := s.LogReplicas(); len(got) != 1 || got[0] != (api.ReplicaTimes{Node: "d", MeanUS: -1, P99US: -1, Dropped: 3}) {
		t.Errorf("of a node whose replicas were left: %+v", got)
	}
	for range refusalReadings {
		s.addReplicas()
	}
	if got := s.LogReplicas(); len(got) != 0 {
		t.Errorf("ten minutes later: %+v", got)
	}
}

// TestQuotaRefusals: refusals are those of the last minutes, also of a quota that was removed and set again.
func TestQuotaRefusals(t *testing.T) {
	now := map[string]int64{"a": 5}
	s := New(Config{Refusals: func() map[string]int64 { return maps.Clone(now) }})
	s.addRefusals()
	now["a"], now["b"] = 12, 3
	s.addRefusals()
	want := []api.QuotaRefusals{{Quota: "a", N: 7}, {Quota: "b", N: 3}}
	if got := s.kept().QuotaRefusals; !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	now["a"] = 2
	s.addRefusals()
	if got := s.kept().QuotaRefusals; len(got) != 2 || got[1] != (api.QuotaRefusals{Quota: "a", N: 2}) {
		t.Errorf("of a new quota: %+v", got)
	}
	for range refusalReadings {
		s.addRefusals()
	}
	if got := s.kept().QuotaRefusals; len(got) != 0 || len(s.refusals) != refusalReadings {
		t.Errorf("later: %+v of %d readings", got, len(s.refusals))
	}
}
