package quota

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// manyQuotas is a cluster whose servers have many quotas.
func manyQuotas(rng *rand.Rand, servers, quotas int) *cluster {
	c := newCluster(rng, servers, 500, time.Second)
	for _, s := range c.server {
		for i := 2; i <= quotas; i++ {
			key := fmt.Sprint("t", i)
			s.all[key] = NewMeter(key, "table", &c.record, 0, 1/float64(servers))
		}
	}
	return c
}

// rounds advances time, in which each server reports twice a second what use has used. It returns
// the number of quotas in reports and answers.
func (c *cluster) rounds(d time.Duration, use func(s *simServer)) int {
	c.reported, c.much = 0, 0
	for end := c.now + int64(d); c.now < end; c.now += 1e7 {
		for _, s := range c.server {
			if c.now >= s.next {
				use(s)
				c.report(s)
			}
		}
	}
	return c.reported
}

// sum returns the sum of the shares of a quota, and the largest.
func (c *cluster) sum(key string) (sum, most float64) {
	for _, s := range c.server {
		share := s.all[key].shares[WriteOps.index()]
		sum, most = sum+share, max(most, share)
	}
	return sum, most
}

// TestIdleQuotasAreNotReported: of 600 quotas on 10 servers only the used ones are reported, and
// the others once a minute, in bounded messages. A server that needs an idle quota still gets it,
// and it becomes equal again.
func TestIdleQuotasAreNotReported(t *testing.T) {
	const servers, quotas, used = 10, 600, 5
	c := manyQuotas(seeded(t), servers, quotas)
	idle := func(*simServer) {}
	take := func(s *simServer, key string, n int64) {
		for range n {
			s.all[key].Take(c.now, WriteOps, 1)
		}
	}
	// All servers report all quotas when they and the master are new, with acknowledgements.
	if reported := c.rounds(10*time.Second, idle); reported < 2*servers*quotas || reported > 5*servers*quotas || c.much > ReportsMax {
		t.Errorf("at first: %d reported quotas, and %d at once, of %d on each of %d servers", reported, c.much, quotas, servers)
	}
	if reported := c.rounds(15*time.Second, idle); reported != 0 {
		t.Errorf("idle: %d reported", reported)
	}
	busy := func(s *simServer) {
		if s.name == "s0" {
			for i := range used {
				take(s, fmt.Sprint("t", i+1), 10) // 20 a second of 500
			}
		}
	}
	// Each round of one server reports them and is answered. The shares of the others change only
	// at first.
	if reported, rounds := c.rounds(15*time.Second, busy), 30; reported < 2*used*rounds || reported > 2*used*(rounds+2*servers) {
		t.Errorf("with %d quotas used on one server: %d reported in %d rounds", used, reported, rounds)
	}
	greedy := func(s *simServer) {
		if s.name == "s1" {
			take(s, "t7", 1000)
		}
	}
	c.rounds(5*time.Second, greedy)
	if reported := c.rounds(10*time.Second, greedy); reported > 10*20 {
		t.Errorf("with one quota used up on one server: %d reported in 20 rounds", reported)
	}
	if sum, most := c.sum("t7"); most < 0.9 || sum > 1.000001 {
		t.Errorf("the only user of an idle quota has %.3f, all together %.3f", most, sum)
	}
	c.rounds(15*time.Second, idle)
	if sum, most := c.sum("t7"); sum < 0.8 || sum > 1.000001 || most > 2.0/servers {
		t.Errorf("of a quota that is idle again all have %.3f, one %.3f", sum, most)
	}
	// A new master gets reports of all quotas at once, and of no idle ones afterwards.
	c.epoch++
	if reported := c.rounds(10*time.Second, idle); reported < 2*servers*quotas || reported > 5*servers*quotas || c.much > ReportsMax {
		t.Errorf("by another master: %d reported, and %d at once", reported, c.much)
	}
	for key := range c.server[0].all {
		if sum, _ := c.sum(key); sum > 1.000001 || sum < 0.8 {
			t.Fatalf("the shares of %s are %.3f together", key, sum)
		}
	}
	// All of them once a minute.
	if reported := c.rounds(60*time.Second, idle); reported < 2*servers*quotas || reported > 3*servers*quotas {
		t.Errorf("in a minute: %d reported", reported)
	}
}

// TestLostAnswersOfManyQuotas: Q3, also if of many quotas one is used now and then and a third of
// the answers is lost.
func TestLostAnswersOfManyQuotas(t *testing.T) {
	const servers, quotas = 5, 20
	rng := seeded(t)
	c := manyQuotas(rng, servers, quotas)
	c.rounds(5*time.Second, func(*simServer) {})
	c.lost = 33
	hot := 0
	for range 100 {
		hot = rng.IntN(quotas)
		users := rng.Perm(servers)[:1+rng.IntN(servers)]
		c.rounds(time.Second, func(s *simServer) {
			for _, u := range users {
				if c.server[u] == s {
					for range rng.IntN(400) {
						s.all[fmt.Sprint("t", hot+1)].Take(c.now, WriteOps, 1)
					}
				}
			}
		})
		for key := range c.server[0].all {
			if sum, _ := c.sum(key); sum > 1.000001 {
				t.Fatalf("the shares of %s are %.6f together", key, sum)
			}
		}
	}
	c.lost = 0
	c.rounds(70*time.Second, func(*simServer) {})
	c.rounds(10*time.Second, func(s *simServer) {
		if s.name == "s3" {
			for range 1000 {
				s.all["t5"].Take(c.now, WriteOps, 1)
			}
		}
	})
	if _, most := c.sum("t5"); most < 0.9 {
		t.Errorf("the only user has %.3f", most)
	}
}

// BenchmarkIdleReports is a round of reports of 100 servers with 1000 quotas each, of which 10 are
// used on each server.
func BenchmarkIdleReports(b *testing.B) {
	c := manyQuotas(rand.New(rand.NewPCG(1, 1)), 100, 1000)
	use := func(s *simServer) {
		for i := range 10 {
			s.all[fmt.Sprint("t", i+1)].Take(c.now, WriteOps, 1)
		}
	}
	c.rounds(10*time.Second, use)
	b.ResetTimer()
	reported := 0
	for b.Loop() {
		reported += c.rounds(500*time.Millisecond, use)
	}
	b.ReportMetric(float64(reported)/float64(b.N), "quotas/round")
}
