package quota

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

const ops = int(WriteOps) - 1

// writes returns a quota of n writes a second.
func writes(perSecond int64, burst time.Duration) *Record {
	r := &Record{Name: "t"}
	r.Rates[ops] = Rate{PerSecond: perSecond, Burst: burst}
	return r
}

// lets returns the units that a meter admits at once.
func lets(m *Meter, now int64) (n int) {
	for ; n < 1e6 && m.Take(now, WriteOps, 1) == nil; n++ {
	}
	return n
}

// TestBucketRefund: units can be refunded at any time, and then no longer count as requested.
func TestBucketRefund(t *testing.T) {
	const now = int64(time.Hour)
	m := NewMeter("k", `table "t"`, writes(10, time.Second), now, 1)
	if n := lets(m, now); n != 11 {
		t.Fatalf("%d let in", n)
	}
	m.Refund(now, WriteOps, 4)
	if n := lets(m, now); n != 4 {
		t.Errorf("%d let in after 4 were given back", n)
	}
	m.Refund(now, WriteOps, 3)
	m.Charge(now, WriteOps, 2)
	if n := lets(m, now); n != 1 {
		t.Errorf("%d let in after 3 were given back and 2 charged", n)
	}
	m.Refund(now, WriteOps, 5)
	// 11, 4 and 1 admitted, 3 rejected, 2 charged, and 12 refunded.
	r := m.Report(2 * time.Second)
	if r.Offered[ops] != 4.5 || !r.Refused[ops] {
		t.Errorf("in two seconds %v a second were asked for, refused: %v; want 4.5, true", r.Offered[ops], r.Refused[ops])
	}
	m.Refund(now, WriteOps, 1)
	if r := m.Report(time.Second); r.Offered[ops] != 0 || r.Refused[ops] || r.used() {
		t.Errorf("with nothing but units given back: %+v", r)
	}
}

// TestRatesChange: when a rate changes, the remaining burst is kept in units. A changed burst takes
// effect by itself. A removed rate limits nothing.
func TestRatesChange(t *testing.T) {
	const now = int64(time.Hour)
	for _, test := range []struct {
		rate  int64
		burst time.Duration
		want  int
	}{
		{100, time.Second, 51}, {200, time.Second, 51}, {50, time.Second, 51}, {200, 100 * time.Millisecond, 21}, {100, 2 * time.Second, 51},
	} {
		m := NewMeter("k", `table "t"`, writes(100, time.Second), now, 1)
		m.Take(now, WriteOps, 50)
		m.SetRecord(now, writes(test.rate, test.burst))
		if n := lets(m, now); n != test.want {
			t.Errorf("%d of 100 left, then %d a second and %v: %d let in, want %d", 50, test.rate, test.burst, n, test.want)
		}
		later := now + int64(time.Hour)
		if n, want := lets(m, later), int(float64(test.rate)*test.burst.Seconds())+1; n != want {
			t.Errorf("%d a second and %v, an hour later: %d let in, want %d", test.rate, test.burst, n, want)
		}
		m.SetRecord(later, &Record{Name: "t"})
		if n := lets(m, later); n != 1e6 {
			t.Errorf("without a rate %d let in", n)
		}
		m.SetRecord(later, writes(test.rate, test.burst))
		if n, want := lets(m, later), int(float64(test.rate)*test.burst.Seconds())+1; n != want {
			t.Errorf("with a rate again: %d let in, want %d", n, want)
		}
	}
}

// TestRecordLimits: records at the limits are valid and round-trip; those beyond a limit are
// invalid.
func TestRecordLimits(t *testing.T) {
	all := [Kinds]Rate{}
	for i := range all {
		all[i] = Rate{int64(i + 1), BurstMin}
		r := Record{Name: "t", BytesMax: 1, Rates: all} // one more rate each time
		if back, err := Decode(r.Encode()); err != nil || *back != r {
			t.Errorf("%d rates: %+v, %v", i+1, back, err)
		}
	}
	bad := func(change func(r *Record)) error {
		r := &Record{Name: "t", BytesMax: 1}
		change(r)
		_, err := Decode(r.Encode())
		if check := r.Check(); (check == nil) != (err == nil) {
			t.Errorf("%+v: %v, and read: %v", r, check, err)
		}
		return err
	}
	rate := func(n int64, burst time.Duration) func(r *Record) {
		return func(r *Record) { r.Rates[1] = Rate{n, burst} }
	}
	for what, test := range map[string]struct {
		valid  bool
		change func(r *Record)
	}{
		"no bytes":        {true, func(r *Record) { r.BytesMax = 0 }},
		"most bytes":      {true, func(r *Record) { r.BytesMax = math.MaxInt64 }},
		"bytes below 0":   {false, func(r *Record) { r.BytesMax = -1 }},
		"highest rate":    {true, rate(PerSecondMax, BurstMax)},
		"too high a rate": {false, rate(PerSecondMax+1, BurstMax)},
		"rate below 0":    {false, rate(-1, BurstMin)},
		"longest burst":   {true, rate(1, BurstMax)},
		"too long":        {false, rate(1, BurstMax+time.Millisecond)},
		"shortest burst":  {true, rate(1, BurstMin)},
		"too short":       {false, rate(1, BurstMin-time.Millisecond)},
	} {
		if err := bad(test.change); (err == nil) != test.valid {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, r := range []Record{{BytesMax: 1}, *writes(1, BurstMin)} {
		if r.Empty() {
			t.Errorf("%+v bounds nothing", r)
		}
	}
	names := ""
	for k := range Kind(6) {
		names += k.String() + " "
	}
	if names != "kind 0 read_ops read_bytes write_ops write_bytes kind 5 " {
		t.Errorf("the kinds are %s", names)
	}
}

// TestReportSanity: reports with numbers at the ends of their ranges are valid, others are not; any
// demand counts as use.
func TestReportSanity(t *testing.T) {
	report := func(share, offered float64) *Report {
		r := &Report{}
		r.Shares[ops], r.Offered[ops] = share, offered
		return r
	}
	for _, test := range []struct {
		share, offered float64
		sane           bool
	}{
		{0, 0, true}, {1, 1e15, true}, {-1e-9, 0, false}, {1 + 1e-9, 0, false}, {0, -1, false}, {0, math.Inf(1), false}, {0, math.NaN(), false}, {math.NaN(), 0, false},
	} {
		if r := report(test.share, test.offered); r.valid() != test.sane {
			t.Errorf("%+v is sane: %v", r, r.valid())
		}
	}
	refused := &Report{Refused: [Kinds]bool{ops: true}}
	if report(1, 0).used() || !report(1, 1).used() || !refused.used() {
		t.Error("a report without use is used, or one with use is not")
	}
}

// TestReporterRepeats: the reporter repeats what the master may not know, and other quotas only
// once a minute.
func TestReporterRepeats(t *testing.T) {
	start, half, less := time.Unix(1000, 0), [Kinds]float64{.5, .5, .5, .5}, [Kinds]float64{.2, .5, .5, .5}
	for what, test := range map[string]struct {
		epoch  uint64
		answer map[string][Kinds]float64
		again  bool // in this round
		next   bool // in the next round
	}{
		"acknowledged":         {1, map[string][Kinds]float64{"t1": half}, false, false},
		"not answered":         {1, nil, false, true},
		"by no master":         {0, map[string][Kinds]float64{"t1": half}, false, true},
		"less":                 {1, map[string][Kinds]float64{"t1": less}, true, true},
		"a quota not had":      {1, map[string][Kinds]float64{"t1": half, "t9": less}, false, false},
		"another without less": {1, map[string][Kinds]float64{"t1": half, "t2": half}, false, false},
	} {
		var p Reporter
		meters := map[string]*Meter{"t1": NewMeter("t1", `table "t"`, writes(10, time.Second), 0, .5)}
		if p.Begin(start, "s", meters) != 1 {
			t.Errorf("%s: the first round is %d", what, p.round)
		}
		sent := p.Next(time.Second)
		if len(sent) != 1 {
			t.Fatalf("%s: %+v is reported at first", what, sent)
		}
		p.epoch = test.epoch // the master knows it
		meters["t2"] = NewMeter("t2", `table "u"`, &Record{Name: "u"}, 0, .5)
		meters["t2"].synced = true
		if again := p.Answered(0, test.epoch, meters, sent, test.answer); again != test.again {
			t.Errorf("%s: more to report in this round: %v", what, again)
		}
		if n := len(p.Next(time.Second)); (n == 1) != test.again {
			t.Errorf("%s: %d more are reported", what, n)
		}
		if p.Begin(start.Add(time.Second), "s", meters) != 2 {
			t.Errorf("%s: the second round is %d", what, p.round)
		}
		if n := len(p.Next(time.Second)); (n == 1) != test.next {
			t.Errorf("%s: %d are reported in the next round", what, n)
		}
		p.Begin(start.Add(fullReportPeriod), "s", meters)
		if n := len(p.Next(time.Second)); n != 1 {
			t.Errorf("%s: %d are reported after a minute", what, n)
		}
	}
}

// TestReporterOfNewMaster: a new master gets reports of all quotas in its first round, of none
// twice.
func TestReporterOfNewMaster(t *testing.T) {
	meters := map[string]*Meter{}
	for i := range 5 {
		key := fmt.Sprint("t", i)
		meters[key] = NewMeter(key, "table", writes(10, time.Second), 0, .5)
		meters[key].synced = true
	}
	meters["unbounded"] = NewMeter("unbounded", "table", &Record{}, 0, .5)
	p := Reporter{epoch: 1, server: "s", full: time.Unix(1000, 0)}
	meters["t3"].Take(0, WriteOps, 1)
	p.Begin(time.Unix(1001, 0), "s", meters)
	sent := p.Next(time.Second)
	if len(sent) != 1 || sent[0].Key != "t3" {
		t.Fatalf("reported %+v, want the used ones", sent)
	}
	if !p.Answered(0, 2, meters, sent, map[string][Kinds]float64{"t3": sent[0].Shares}) {
		t.Fatal("a new master gets no other reports")
	}
	var keys []string
	for _, r := range p.Next(time.Second) {
		keys = append(keys, r.Key)
	}
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"t0", "t1", "t2", "t4"}) {
		t.Errorf("a new master gets reports of %v, besides t3", keys)
	}
}

// talk is a master with the reports of servers and its answers.
type talk struct {
	Allocator
	record *Record
	now    time.Time
	alive  int
	rounds map[string]uint64
}

func newTalk() *talk {
	return &talk{record: writes(100, time.Second), now: time.Unix(1000, 0), alive: 2, rounds: map[string]uint64{}}
}

// report reports a share and a demand of one quota for a server; -1 reports nothing. It returns the
// share in the answer; -1 if there is none.
func (m *talk) report(server string, share, offered float64) float64 {
	m.rounds[server]++
	var reports []Report
	if share >= 0 {
		r := Report{Key: "t"}
		r.Shares[ops], r.Offered[ops] = share, offered
		reports = []Report{r}
	}
	answer := m.Divide(m.now, 1, server, m.rounds[server], reports, m.alive, func(string) *Record { return m.record })
	if s, ok := answer["t"]; ok {
		return s[ops]
	}
	return -1
}

func (m *talk) after(d time.Duration) { m.now = m.now.Add(d) }

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestIdleSharesBecomeEqual: the shares of an idle quota become equal, though no server reports it:
// first the surplus of one is removed, then the others get it. Nothing changes before it was idle
// for a while, or long after.
func TestIdleSharesBecomeEqual(t *testing.T) {
	for _, wait := range []time.Duration{idleFor - time.Millisecond, idleFor + time.Millisecond, settledAfter - 100*time.Millisecond, settledAfter + time.Millisecond} {
		m := newTalk()
		if a, b := m.report("a", .8, 0), m.report("b", .2, 0); !near(a, .8) || !near(b, .2) {
			t.Fatalf("at first %v and %v", a, b)
		}
		m.report("c", -1, 0) // has no grant
		m.after(wait)
		idle := wait > idleFor && wait < settledAfter
		if c := m.report("c", -1, 0); c != -1 {
			t.Errorf("a server that has nothing of it gets %v", c)
		}
		b := m.report("b", -1, 0) // nothing is free for b yet
		a := m.report("a", -1, 0)
		if b != -1 || !idle && a != -1 || idle && !near(a, .5) {
			t.Errorf("after %v: a gets %v, b %v", wait, a, b)
		}
		if !idle {
			continue
		}
		if b := m.report("b", -1, 0); b != -1 {
			t.Errorf("after %v: b is given %v before a has said that it has less", wait, b)
		}
		if a := m.report("a", .5, 0); !near(a, .5) {
			t.Errorf("after %v: a has %v", wait, a)
		}
		if b := m.report("b", -1, 0); !near(b, .5) {
			t.Errorf("after %v: b gets %v", wait, b)
		}
	}
}

// TestSmallDifferencesStay: shares that differ little are unchanged, unless their sum exceeds one.
func TestSmallDifferencesStay(t *testing.T) {
	for _, test := range []struct{ a, b, want float64 }{{.51, .49, -1}, {.49, .51, -1}, {.49, .49, -1}, {.52, .5, .5}, {.6, .4, .5}, {.4, .4, .5}} {
		m := newTalk()
		m.report("a", test.a, 0)
		m.report("b", test.b, 0)
		m.after(2 * time.Second)
		if a := m.report("a", -1, 0); !near(a, test.want) {
			t.Errorf("a has %v and b %v: a gets %v, want %v", test.a, test.b, a, test.want)
		}
	}
}

// TestBusyServerGetsIdleShare: an unused share goes to a server that needs it, at the next message
// of the idle one, which gets no more meanwhile.
func TestBusyServerGetsIdleShare(t *testing.T) {
	m := newTalk()
	m.report("a", .5, 0)
	m.report("b", .5, 0)
	m.after(time.Second)
	m.report("b", -1, 0)
	if a := m.report("a", .5, 100); !near(a, .5) {
		t.Errorf("a gets %v before b has less", a)
	}
	m.after(time.Second)
	b := m.report("b", -1, 0)
	if !near(b, .01) { // half of idlePart
		t.Errorf("b gets %v", b)
	}
	m.report("b", b, 0)
	if a := m.report("a", .5, 100); !near(a, .99) {
		t.Errorf("a gets %v, and b has %v", a, b)
	}
	m.after(time.Second)
	if b := m.report("b", -1, 0); b != -1 {
		t.Errorf("while a is busy b gets %v", b)
	}
}

// TestSilentServerKeepsItsShare: the share of a server that does not report stays reserved; the
// others share the remainder.
func TestSilentServerKeepsItsShare(t *testing.T) {
	m := newTalk()
	m.alive = 3
	m.report("a", .3, 0)
	m.report("b", .3, 0)
	m.report("c", .4, 0)
	m.after(reportTimeout + time.Millisecond)
	m.report("b", -1, 0)
	if stale := m.Stale(m.now); len(stale) != 2 || slices.Contains(stale, "b") {
		t.Errorf("silent are %v", stale)
	}
	if b := m.report("b", .3, 100); !near(b, .3) {
		t.Errorf("with two silent servers b gets %v", b)
	}
	m.report("a", .3, 100)
	if a, b := m.report("a", .3, 100), m.report("b", .1, 100); !near(a, .3) || !near(b, .3) {
		t.Errorf("with a silent server that has .4 the others get %v and %v", a, b)
	}
	m.Forget(m.now, "c")
	if a, b := m.report("a", .3, 100), m.report("b", .3, 100); !near(a, .5) || !near(b, .5) {
		t.Errorf("when it is gone the others get %v and %v", a, b)
	}
	m.Forget(m.now, "c") // again
	m.Forget(m.now, "a")
	if b := m.report("b", .3, 100); !near(b, 1) {
		t.Errorf("b alone gets %v", b)
	}
	m.Forget(m.now, "b")
	if n := len(m.mu.quotas); n != 0 {
		t.Errorf("%d quotas are remembered that no server has", n)
	}
}

// TestNewMasterLearns: a new master changes no share before all live servers have reported or had
// the time to.
func TestNewMasterLearns(t *testing.T) {
	for alive, learns := range map[int]bool{0: true, 2: false, 3: true} {
		m := newTalk()
		m.alive = alive
		m.report("b", .1, 0)
		if a := m.report("a", .8, 0); near(a, .8) != learns {
			t.Errorf("%d are alive, two have reported: a gets %v", alive, a)
		}
		m.after(learnPeriod)
		m.report("b", .1, 0)
		if a := m.report("a", .8, 0); !near(a, .5) {
			t.Errorf("%d are alive: after a while a gets %v", alive, a)
		}
	}
}

// TestRoundsOfNeed: the demand of a server is the larger of its last two rounds. A server that
// rejected requests needs the whole rate.
func TestRoundsOfNeed(t *testing.T) {
	server := &lastReport{}
	h := &grant{server: server}
	say := func(round uint64, offered float64, refused bool) float64 {
		server.round = round
		if offered >= 0 {
			r := Report{}
			r.Offered[ops], r.Refused[ops] = offered, refused
			h.note(round, &r)
		}
		return h.demand(ops, 100)
	}
	for i, step := range []struct {
		round   uint64
		offered float64
		refused bool
		want    float64
	}{
		{1, 40, false, .5}, {2, 8, false, .5}, {3, 16, false, .2}, {3, 4, false, .2}, {3, 24, false, .3}, {4, 0, false, .3}, {5, -1, false, 0},
		{6, 40, false, .5}, {7, -1, false, .5}, {8, -1, false, 0}, {9, 8, false, .1}, // earlier rounds no longer count
		{10, 1, true, 1}, {10, 1, false, 1}, {11, 1, false, .0125},
	} {
		if got := say(step.round, step.offered, step.refused); !near(got, step.want) {
			t.Errorf("step %d: has need of %v, want %v", i, got, step.want)
		}
	}
	short := func(share float64) bool { return h.needsMoreThan(writes(100, time.Second), [Kinds]float64{ops: share}) }
	if !short(0.01) || short(.0125) || short(.02) {
		t.Error("a share below .0125 is short, and no other")
	}
	h.offered[0] = 50 // of a kind without a rate
	if h.needsMoreThan(writes(100, time.Second), [Kinds]float64{ops: 1}) {
		t.Error("a kind without a rate is short")
	}
	if say(12, 1000, true); short(1) {
		t.Error("a server that has all is short")
	}
}

// TestServersWithoutRounds: for a server that does not number its rounds each report is a round, so
// old demand expires.
func TestServersWithoutRounds(t *testing.T) {
	m := newTalk()
	for i, want := range []float64{1, 1, .51} {
		m.after(100 * time.Millisecond)
		for _, name := range []string{"a", "b"} {
			offered := map[bool]float64{true: 100}[i == 0 && name == "a"]
			r := Report{Key: "t", Offered: [Kinds]float64{ops: offered}}
			m.Divide(m.now, 1, name, 0, []Report{r}, 2, func(string) *Record { return m.record })
		}
		if part := m.mu.quotas["t"].grants["a"].demand(ops, 100); (part > .5) != (want == 1) {
			t.Errorf("after report %d a has need of %v", i+1, part)
		}
	}
}

// TestManyQuotasAtOnce: an answer is bounded. Unknown quotas and invalid reports do not keep others
// from being answered.
func TestManyQuotasAtOnce(t *testing.T) {
	m := newTalk()
	m.alive = 2
	const quotas = 2*ReportsMax + 50
	for _, name := range []string{"a", "b"} {
		for from := 0; from < quotas; from += ReportsMax {
			var reports []Report
			for i := from; i < min(from+ReportsMax, quotas); i++ {
				r := Report{Key: fmt.Sprint("t", i)}
				r.Shares[ops] = map[string]float64{"a": .8, "b": .2}[name]
				reports = append(reports, r)
			}
			reports = append([]Report{{Key: "gone"}, {Key: "bad", Shares: [Kinds]float64{2}}}, reports...)
			record := func(key string) *Record {
				if key == "gone" {
					return nil
				}
				return m.record
			}
			if got := m.Divide(m.now, 1, name, uint64(from+1), reports, 2, record); len(got) != len(reports)-2 {
				t.Fatalf("%d of %d were answered", len(got), len(reports)-2)
			}
		}
	}
	m.after(idleFor + time.Millisecond)
	reported := map[string]bool{}
	for round := range uint64(3) {
		got := m.Divide(m.now, 1, "a", quotas+round, nil, 2, func(string) *Record { return m.record })
		if len(got) > ReportsMax || len(got) == 0 {
			t.Fatalf("round %d: %d were answered at once, at most %d may be", round, len(got), ReportsMax)
		}
		for key := range got {
			reported[key] = true
		}
	}
	// One quota that is short among many that are not is changed at b at once.
	m.after(settledAfter)
	busy := Report{Key: "t7", Offered: [Kinds]float64{ops: 500}, Shares: [Kinds]float64{ops: .5}}
	m.Divide(m.now, 1, "a", 2*quotas, []Report{busy}, 2, func(string) *Record { return m.record })
	if got := m.Divide(m.now, 1, "b", 2*quotas, nil, 2, func(string) *Record { return m.record }); len(got) != 1 || got["t7"][ops] >= .2 {
		t.Errorf("b gets %v", got)
	}
}

// TestLedgerForgets: an unknown server can be removed. The usage of removed servers counts for a
// while, each separately.
func TestLedgerForgets(t *testing.T) {
	var l Ledger
	now := time.Unix(1000, 0)
	bounds := []Bound{{Key: "t", Quota: "t", Limit: 100, Tables: []uint64{1}}, {Key: "u", Quota: "u", Limit: 100, Tables: []uint64{2}}}
	const servers = 20
	for i := range servers {
		l.Note(now.Add(time.Duration(i)), 1, fmt.Sprint("s", i), map[uint64]int64{1: 6})
	}
	l.Note(now, 1, "late", map[uint64]int64{2: 100})
	for i := range servers {
		l.Forget(now, fmt.Sprint("s", i))
	}
	l.Forget(now, "unknown")
	if over := l.Over(now, 1, bounds); over[1].Used != 6*servers || over[2].Used != 100 {
		t.Errorf("%+v is used", over)
	}
	end := now.Add(retainFor - time.Millisecond)
	l.Forget(end, "late")
	if over := l.Over(end, 0, bounds); over[1].Used != 6*servers || over[2].Used != 100 {
		t.Errorf("just before what servers had is forgotten: %+v", over)
	}
	later := now.Add(retainFor + fullFor + time.Second)
	if over := l.Over(later, 0, bounds); len(over) != 1 || over[2].Used != 100 {
		t.Errorf("when it is forgotten: %+v", over)
	}
	if n := len(l.mu.retained); n != 1 {
		t.Errorf("what %d servers had is remembered", n)
	}
}

// TestLedgerOfUnknownServers: a new master that does not know the number of live servers gives no
// verdict before they had the time to report.
func TestLedgerOfUnknownServers(t *testing.T) {
	var l Ledger
	now := time.Unix(1000, 0)
	bounds := []Bound{{Key: "t", Quota: "t", Limit: 1, Tables: []uint64{1}}}
	l.Note(now, 1, "a", map[uint64]int64{1: 100})
	if over := l.Over(now.Add(learnPeriod-1), 0, bounds); over != nil {
		t.Errorf("at first: %+v", over)
	}
	if over := l.Over(now.Add(learnPeriod), 0, bounds); len(over) != 1 {
		t.Errorf("after a while: %+v", over)
	}
}
