package master

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client/metadata"
)

// manyState is a state with that many nodes and user tablets. The tablets of the first lost nodes are on servers that are gone, whose
// logs are sorted.
func manyState(nodes, tablets, lost int) *TabletState {
	var users []TabletServer
	for i := range nodes {
		users = append(users, holding(fmt.Sprintf("s%04d", i)))
	}
	for i := range tablets {
		v := &users[i%nodes]
		v.Has = append(v.Has, Held{Key: string(metadata.Key(nil, 16, fmt.Appendf(nil, "row-%08d", i))), Bytes: 100 << 20})
	}
	s := servedState(users...)
	for i := range nodes {
		s.Servers = append(s.Servers, TabletServer{Name: fmt.Sprintf("m%04d", i), Node: fmt.Sprintf("s%04d", i), Metadata: true})
	}
	for i := range lost {
		s.Recovered[s.Servers[1+i].Name] = true
	}
	s.Servers = append(s.Servers[:1], s.Servers[1+lost:]...)
	return s
}

// The time of a plan for the tablets of lost servers grows with their number, and hardly with that of the servers.
func TestPlanOfManyServers(t *testing.T) {
	took := func(nodes int) time.Duration {
		s := manyState(nodes, 40_000, nodes/2)
		began := time.Now()
		if orders := PlanTablets(s); len(orders) != 20_000 {
			t.Fatalf("%d orders", len(orders))
		}
		return time.Since(began)
	}
	took(200) // warm up
	if few, many := took(200), took(4000); many > 6*few {
		t.Errorf("with 200 nodes %v, with 4000 nodes %v", few, many)
	}
}

// The server that gets the next tablet is the one that a comparison of all servers finds, whatever has been planned before.
func TestLightestOfAll(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		s := servedState()
		for i := range 1 + rnd.IntN(20) {
			s.Servers = append(s.Servers, TabletServer{Name: fmt.Sprintf("s%d", i), Node: fmt.Sprintf("n%d", rnd.IntN(12)), Metadata: rnd.IntN(2) == 0,
				Draining: rnd.IntN(6) == 0, Failing: rnd.IntN(6) == 0, Silent: rnd.IntN(8) == 0})
		}
		p := newPlanner(s)
		for range 300 {
			v := &s.Servers[rnd.IntN(len(s.Servers))]
			p.loads[v.Name] += 64 * rnd.IntN(2)
			p.weigh(v, float64(rnd.IntN(4)-1))
			metadata, last := rnd.IntN(2) == 0, s.Servers[rnd.IntN(len(s.Servers))].Name
			if got, want := p.lightest(metadata, last), p.leastOf(metadata, last); got != want {
				t.Fatalf("seed %d: the lightest server is %q, want %q", seed, got, want)
			}
		}
	}
}

// leastOf is lightest by comparing all servers.
func (p *planner) leastOf(metadata bool, last string) string {
	for _, draining := range []bool{false, true} {
		var all []*TabletServer
		for i := range p.state.Servers {
			if v := &p.state.Servers[i]; v.Metadata == metadata && v.Draining == draining && !v.Silent && p.loads[v.Name] < v.loadsMax() {
				all = append(all, v)
			}
		}
		others := slices.DeleteFunc(slices.Clone(all), func(v *TabletServer) bool { return v.Name == last })
		switch {
		case len(others) > 0:
			return slices.MinFunc(others, p.compare).Name
		case len(all) > 0:
			return last
		case p.anyStays(metadata):
			return ""
		}
	}
	return ""
}

// BenchmarkPlan plans for a million tablets on a thousand nodes.
func BenchmarkPlan(b *testing.B) {
	for _, c := range []struct {
		name                 string
		nodes, tablets, lost int
	}{
		{"steady-100-100k", 100, 100_000, 0}, {"steady-1000-1M", 1000, 1_000_000, 0},
		{"rack-100-100k", 100, 100_000, 5}, {"rack-1000-1M", 1000, 1_000_000, 50}, {"half-1000-1M", 1000, 1_000_000, 500},
	} {
		s := manyState(c.nodes, c.tablets, c.lost)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.ReportMetric(float64(len(PlanTablets(s))), "orders")
			}
		})
	}
}
