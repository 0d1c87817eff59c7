package quota

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testseed"
)

// seeded returns a random source with the seed of the test.
func seeded(t *testing.T) *rand.Rand { return rand.New(rand.NewPCG(testseed.New(t), 1)) }

// Q1: in no period does a bucket admit more than rate, burst and one request, however its rate
// changes between two bounds. It admits that much under load.
func TestBucketRate(t *testing.T) {
	rng := seeded(t)
	for range 20 {
		rate, burst := 10+rng.Float64()*1e5, time.Duration(100+rng.IntN(2000))*time.Millisecond
		var b bucket
		b.set(0, rate, burst)
		type let struct{ at, n int64 }
		var all []let
		largest, now := int64(0), int64(0)
		for now < int64(20*time.Second) {
			n := 1 + rng.Int64N(1+int64(rate/20))
			if wait := b.take(now, n); wait == 0 {
				all, largest = append(all, let{now, n}), max(largest, n)
			}
			now += rng.Int64N(int64(20 * time.Millisecond))
		}
		total := int64(0)
		for _, x := range all {
			total += x.n
		}
		if want := rate * 20; float64(total) < want*0.95 || float64(total) > want+rate*burst.Seconds()+float64(largest) {
			t.Errorf("rate %.0f, burst %v: %d let in, in 20 s", rate, burst, total)
		}
		for i := range all { // spans
			sum := int64(0)
			for _, x := range all[i:min(len(all), i+200)] {
				sum += x.n
				most := rate*(float64(x.at-all[i].at)/1e9+burst.Seconds()) + float64(largest) + 1
				if float64(sum) > most {
					t.Fatalf("rate %.0f, burst %v: %d let in from %d to %d ns, which is more than %.0f", rate, burst, sum, all[i].at, x.at, most)
				}
			}
		}
	}
}

// Q2: a request is admitted after its wait and not before. Large requests and later charges are
// paid for.
func TestBucketWait(t *testing.T) {
	rng := seeded(t)
	for range 1000 {
		var b bucket
		b.set(0, 1+rng.Float64()*1e6, time.Duration(10+rng.IntN(2000))*time.Millisecond)
		now := int64(0)
		for range 20 {
			n := 1 + rng.Int64N(1e6)
			wait := b.take(now, n)
			if wait == 0 {
				if rng.IntN(3) == 0 {
					b.charge(now, rng.Int64N(1e6))
				}
				continue
			}
			if wait > 1 && b.take(now+int64(wait)-1, n) == 0 {
				t.Fatalf("let in before the %v were over", wait)
			}
			now += int64(wait)
			if again := b.take(now, n); again != 0 {
				t.Fatalf("wait for %v, and then for %v", wait, again)
			}
		}
	}
}

// Even the longest burst ends.
func TestBucketLongestBurst(t *testing.T) {
	var b bucket
	b.set(0, 1, BurstMax)
	n := 0
	for ; n < 5000 && b.take(0, 1) == 0; n++ {
	}
	if n != 3601 {
		t.Errorf("%d let in at once, of a burst of 3600", n)
	}
	b.charge(0, 1e12)
	if wait := b.take(0, 1); wait <= 0 || wait > 24*BurstMax {
		t.Errorf("after a huge charge: wait for %v", wait)
	}
}

// Refunded units can be used again, and no more than those.
func TestBucketGiveBack(t *testing.T) {
	var b bucket
	b.set(0, 10, time.Second)
	for range 100 {
		if wait := b.take(0, 5); wait != 0 {
			t.Fatalf("after what was let in was given back: wait for %v", wait)
		}
		b.refund(0, 5)
	}
	count := func(wantOffered int64, wantRefused bool) {
		t.Helper()
		if offered, refused := b.count(); offered != wantOffered || refused != wantRefused {
			t.Errorf("offered %d, refused %v; want %d, %v", offered, refused, wantOffered, wantRefused)
		}
	}
	count(0, false)
	b.take(0, 3)
	b.take(0, 2)
	b.refund(0, 2)
	count(3, false)
	b.refund(0, 1000)
	count(0, false) // not less than nothing
	n := 0
	for ; b.take(0, 1) == 0; n++ {
	}
	if n != 11 {
		t.Errorf("%d let in of a burst of 10", n)
	}
	count(12, true) // including the rejected one
	count(0, false)
	b.refund(0, 3)
	b.charge(0, 2)
	count(0, false) // units requested before the count are refunded after it
	for n = 0; b.take(0, 1) == 0; n++ {
	}
	if n != 1 {
		t.Errorf("%d let in after 3 were given back and 2 charged", n)
	}
}

// A share that moves back and forth gains nothing.
func TestSharesSaveNothing(t *testing.T) {
	r := &Record{Rates: [Kinds]Rate{{PerSecond: 1000, Burst: time.Second}}}
	m := NewMeter("k", `table "t"`, r, 0, 1)
	n := 0
	for ; m.Take(0, ReadOps, 1) == nil; n++ {
	}
	for range 100 {
		m.SetShares(0, [Kinds]float64{0.01})
		m.SetShares(0, [Kinds]float64{1})
		for ; m.Take(0, ReadOps, 1) == nil; n++ {
		}
	}
	if n > 1102 {
		t.Errorf("%d let in at once of 1000", n)
	}
	idle := NewMeter("k", `table "t"`, r, 0, 0.01)
	idle.SetShares(0, [Kinds]float64{1})
	for n = 0; idle.Take(0, ReadOps, 1) == nil; n++ {
	}
	if n > 12 {
		t.Errorf("%d let in at once by a share of a hundredth that has grown", n)
	}
	if x := m.Take(0, ReadOps, 1); x == nil || x.Quota != `table "t" read_ops` || x.Limit != 1000 {
		t.Errorf("refused with %+v", x)
	}
	if m.Take(0, WriteOps, 1e9) != nil {
		t.Error("refused what is not bounded")
	}
}

// Stored form: records in lock services must stay readable.
func TestRecord(t *testing.T) {
	r := Record{Name: "web", BytesMax: 1 << 40, Rates: [Kinds]Rate{{}, {PerSecond: 1 << 20, Burst: time.Second}, {PerSecond: 100, Burst: 2500 * time.Millisecond}}}
	if got, want := hex.EncodeToString(r.Encode()), "9401a3776562cf000001000000000092"+"9302ce001000"+"00cd03e8"+"930364cd09c4"; got != want {
		t.Errorf("encoded as\n%s, want\n%s", got, want)
	}
	if back, err := Decode(r.Encode()); err != nil || *back != r {
		t.Errorf("%+v, %v", back, err)
	}
	for _, bad := range []string{"", "90", "9402a00090", "9401a00090ff", "9401a0ff90", "9401a00091930501cd03e8", "9401a00091930101cd0000", "9401a00092930101cd03e8930101cd03e8", "9401a000919301ffcd03e8"} {
		b, err := hex.DecodeString(bad)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := Decode(b); err == nil {
			t.Errorf("%s is %+v", bad, r)
		}
	}
	if !(&Record{Name: "x"}).Empty() || r.Empty() {
		t.Error("empty records are mistaken")
	}
}

func TestOwner(t *testing.T) {
	if got := hex.EncodeToString(EncodeOwner("ann")); got != "9201a3616e6e" {
		t.Errorf("encoded as %s", got)
	}
	if name, err := DecodeOwner(EncodeOwner("ann")); name != "ann" || err != nil {
		t.Error(name, err)
	}
	for _, bad := range []string{"", "9201", "9202a3616e6e", "9201a0", "9201a3616e6e00", "9301a3616e6e00"} {
		b, err := hex.DecodeString(bad)
		if err != nil {
			t.Fatal(err)
		}
		if name, err := DecodeOwner(b); err == nil {
			t.Errorf("%s is %q", bad, name)
		}
	}
}

// cluster is servers and a master in simulated time.
type cluster struct {
	rng      *rand.Rand
	record   Record
	now      int64
	epoch    uint64
	alive    int // servers that the master believes alive
	master   Allocator
	server   []*simServer
	lost     int     // percent of the master's answers that are lost
	most     float64 // largest sum of the shares
	reported int     // quotas in reports and answers
	much     int     // most quotas in one message
}

type simServer struct {
	name  string
	meter *Meter
	all   map[string]*Meter
	rep   Reporter
	next  int64 // when it next reports
	last  int64
	deaf  bool
}

func newCluster(rng *rand.Rand, n int, rate int64, burst time.Duration) *cluster {
	c := &cluster{rng: rng, epoch: 1, alive: n, record: Record{Name: "t", Rates: [Kinds]Rate{{}, {}, {PerSecond: rate, Burst: burst}}}}
	for i := range n {
		s := &simServer{name: fmt.Sprint("s", i), meter: NewMeter("t1", `table "t"`, &c.record, 0, 1/float64(n)), next: rng.Int64N(5e8)}
		s.all = map[string]*Meter{"t1": s.meter}
		c.server = append(c.server, s)
	}
	return c
}

// report is a round of a server's reports.
func (c *cluster) report(s *simServer) {
	since, now := time.Duration(c.now-s.last), time.Unix(0, c.now)
	s.last, s.next = c.now, c.now+5e8
	if s.deaf {
		return
	}
	round := s.rep.Begin(now, s.name, s.all)
	for more := true; more; {
		r := s.rep.Next(since)
		answer := c.master.Divide(now, c.epoch, s.name, round, r, c.alive, func(string) *Record { return &c.record })
		c.reported, c.much = c.reported+len(r)+len(answer), max(c.much, len(r), len(answer))
		if c.rng.IntN(100) < c.lost {
			return
		}
		more = s.rep.Answered(c.now, c.epoch, s.all, r, answer)
	}
}

// run has clients, each of one server, write as fast as admitted for a while. It returns the
// admitted units.
func (c *cluster) run(d time.Duration, clients []int) (let int) {
	at := make([]int64, len(clients))
	for i := range at {
		at[i] = c.now + c.rng.Int64N(1e6)
	}
	for end := c.now + int64(d); c.now < end; c.now += 5e5 {
		for _, s := range c.server {
			if c.now >= s.next {
				c.report(s)
				c.most = max(c.most, c.shares())
			}
		}
		for i, s := range clients {
			for at[i] <= c.now {
				if x := c.server[s].meter.Take(c.now, WriteOps, 1); x == nil {
					let++
					at[i] += 2e6 // its round trip
				} else {
					at[i] = c.now + int64(x.Wait) + c.rng.Int64N(1+int64(x.Wait)/4)
				}
			}
		}
	}
	return let
}

func (c *cluster) shares() (sum float64) {
	for _, s := range c.server {
		sum += s.meter.shares[WriteOps.index()]
	}
	return sum
}

// clientsOn returns clients, given their number on each server.
func clientsOn(n ...int) (all []int) {
	for s, k := range n {
		for range k {
			all = append(all, s)
		}
	}
	return all
}

// Q3: the sum of admitted units stays within a tenth of the quota while the load moves between
// servers, also if answers of the master are lost.
func TestLoadMoves(t *testing.T) {
	for _, lost := range []int{0, 20} {
		c := newCluster(seeded(t), 3, 500, time.Second)
		c.lost = lost
		c.run(5*time.Second, clientsOn(4, 4, 4)) // the burst, and what is admitted before a new master has all shares
		total, time0 := 0, c.now
		for _, load := range [][]int{{12, 0, 0}, {0, 12, 0}, {4, 4, 4}, {0, 0, 12}, {10, 1, 1}, {0, 6, 6}} {
			n := c.run(20*time.Second, clientsOn(load...))
			if total += n; n > 500*20*11/10 || n < 500*20*8/10 {
				t.Errorf("with %d lost of a hundred, load %v: %d let in, of %d", lost, load, n, 500*20)
			}
			if s := c.shares(); s < 0.9 {
				t.Errorf("shares are %.3f together", s)
			}
		}
		if c.most > 1.000001 {
			t.Errorf("with %d lost of a hundred: shares were up to %.3f together", lost, c.most)
		}
		want := int(500 * (c.now - time0) / 1e9)
		t.Logf("%d lost of a hundred: %d let in, of %d", lost, total, want)
		if total > want*11/10 || total < want*9/10 {
			t.Errorf("with %d lost of a hundred: %d let in, of %d", lost, total, want)
		}
	}
}

// A server without answers keeps its share, and the others get the remainder. A new master changes
// nothing before it knows the shares. The share of a removed server goes to the others.
func TestAllocatorLosesServers(t *testing.T) {
	c := newCluster(seeded(t), 3, 500, time.Second)
	c.run(20*time.Second, clientsOn(6, 4, 2))
	k := WriteOps.index()
	has := c.server[0].meter.shares[k]
	c.server[0].deaf = true
	if n := c.run(20*time.Second, clientsOn(6, 4, 2)); n < 500*20*9/10 || n > 500*20*11/10 {
		t.Errorf("with a server without answers: %d let in", n)
	}
	if now := c.server[0].meter.shares[k]; now != has {
		t.Errorf("a server without answers had %.3f and has %.3f", has, now)
	}
	c.epoch++
	c.alive++ // one does not report
	c.server[0].deaf = false
	var before [3]float64
	for i, s := range c.server {
		before[i] = s.meter.shares[k]
	}
	c.run(2*time.Second, clientsOn(0, 0, 12))
	for i, s := range c.server {
		if s.meter.shares[k] != before[i] {
			t.Errorf("a new master has changed the share of %s from %.3f to %.3f at once", s.name, before[i], s.meter.shares[k])
		}
	}
	c.run(10*time.Second, clientsOn(0, 0, 12))
	if s := c.server[2].meter.shares[k]; s < 0.9 || c.shares() > 1.000001 {
		t.Errorf("the server with all the load has %.3f, all together %.3f", s, c.shares())
	}
	c.server[2].deaf = true
	c.run(5*time.Second, clientsOn(12))
	if stale := c.master.Stale(time.Unix(0, c.now)); len(stale) != 1 || stale[0] != "s2" {
		t.Errorf("silent are %v", stale)
	}
	if s := c.server[0].meter.shares[k]; s > 0.1 {
		t.Errorf("%.3f was given away that a silent server has", s)
	}
	c.master.Forget(time.Unix(0, c.now), "s2")
	if n := c.run(10*time.Second, clientsOn(12)); n < 500*10*9/10 {
		t.Errorf("%d let in after a server is gone", n)
	}
}

// Invalid shares are ignored.
func TestAllocatorHostile(t *testing.T) {
	var a Allocator
	r := &Record{Rates: [Kinds]Rate{{PerSecond: 1, Burst: time.Second}}}
	nan := 0.0
	nan /= nan
	for _, x := range []Report{{Shares: [Kinds]float64{nan}}, {Shares: [Kinds]float64{2}}, {Shares: [Kinds]float64{-1}}, {Offered: [Kinds]float64{nan}}} {
		if got := a.Divide(time.Now(), 1, "s", 1, []Report{x}, 1, func(string) *Record { return r }); len(got) != 0 {
			t.Errorf("%+v was answered with %v", x, got)
		}
	}
	if got := a.Divide(time.Now(), 1, "s", 1, []Report{{Key: "x"}}, 1, func(string) *Record { return nil }); len(got) != 0 {
		t.Errorf("a quota that is not there: %v", got)
	}
}

// TestWaitOfSmallShare: a server with a small share returns the time after which it may have more.
// A server with the whole rate returns the exact wait.
func TestWaitOfSmallShare(t *testing.T) {
	const second = int64(time.Second)
	r := &Record{Name: "t"}
	r.Rates[WriteOps.index()] = Rate{PerSecond: 100, Burst: time.Second}
	for share, want := range map[float64]time.Duration{0.001: shareWait, 0.5: 2500 * time.Millisecond, 1: 4 * time.Second} {
		m := NewMeter("k", "what", r, second, share)
		if refused := m.Take(second, WriteOps, int64(share*500)+1); refused != nil {
			t.Fatalf("share %v: the first is refused: %+v", share, refused)
		}
		refused := m.Take(second, WriteOps, 1)
		if refused == nil {
			refused = m.Take(second, WriteOps, 1)
		}
		if refused == nil || refused.Wait < want/2 || refused.Wait > want+50*time.Millisecond {
			t.Errorf("share %v: wait %+v, want about %v", share, refused, want)
		}
	}
}

// TestShareOfNothing: a server with a share of zero admits next to nothing, not everything.
func TestShareOfNothing(t *testing.T) {
	r := &Record{Name: "t"}
	r.Rates[WriteOps.index()] = Rate{PerSecond: 100, Burst: time.Second}
	m := NewMeter("k", "what", r, 0, 0)
	in := 0
	for range 1000 {
		if m.Take(0, WriteOps, 1) == nil {
			in++
		}
	}
	if in > 1 {
		t.Errorf("%d are let in", in)
	}
}
