package master

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testseed"
)

const stable = 10 * time.Second

// voterSim is a simulated cluster, to which the plan is applied.
type voterSim struct {
	t       *testing.T
	now     time.Duration
	servers []*simServer
	group   []Voter
	steps   int
	// attempts are the nodes that failed to join, as the master records them.
	attempts attempts
}

type simServer struct {
	id, zone string
	alive    bool
	since    time.Duration
	draining bool
	// mute is since when the server does not answer the group, though gossip lists it as alive;
	// zero if it answers.
	mute time.Duration
	// full: its disk has no free space. unable: it fails to join the group. stuck: it joins but does not catch up.
	full, unable, stuck bool
}

// fit reports whether the server could be given a vote.
func (s *simServer) fit() bool { return s.alive && !s.draining && !s.full && !s.unable && !s.stuck }

// votes reports whether the server would answer the group's leader.
func (s *simServer) votes() bool { return s.alive && s.mute == 0 }

func (f *voterSim) view() []Server {
	var all []Server
	for _, s := range f.servers {
		all = append(all, Server{ID: s.id, Zone: s.zone, Alive: s.alive, Since: f.now - s.since, Draining: s.draining, Full: s.full})
	}
	f.attempts.apply(all, f.groupView(), stable, f.clock())
	return all
}

func (f *voterSim) clock() time.Time { return time.Unix(0, 0).Add(f.now) }

// groupView returns the group as seen by its leader.
func (f *voterSim) groupView() []Voter {
	var all []Voter
	for _, v := range f.group {
		if s := f.server(v.ID); s != nil {
			if s.mute != 0 {
				v.Silent = f.now - s.mute
			}
			v.CaughtUp = !v.Staged || !s.stuck
		}
		all = append(all, v)
	}
	return all
}

func (f *voterSim) server(id string) *simServer {
	for _, s := range f.servers {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (f *voterSim) count() (voters, live int) {
	for _, v := range f.group {
		if v.Staged {
			continue
		}
		voters++
		if s := f.server(v.ID); s != nil && s.votes() {
			live++
		}
	}
	return voters, live
}

// elect makes the first live voter the leader if there is a majority.
func (f *voterSim) elect() {
	voters, live := f.count()
	for i := range f.group {
		v := &f.group[i]
		if s := f.server(v.ID); v.Leader && (s == nil || !s.votes()) {
			v.Leader = false
		}
	}
	for _, v := range f.group {
		if v.Leader {
			return
		}
	}
	for i := range f.group {
		v := &f.group[i]
		if s := f.server(v.ID); !v.Staged && s != nil && s.votes() && live >= quorum(voters) {
			v.Leader = true
			return
		}
	}
}

// step applies the next step of the plan, and reports whether there was one. It checks that no step
// loses the majority.
func (f *voterSim) step() bool {
	f.elect()
	voters, live := f.count()
	c := Plan(f.view(), f.groupView(), stable)
	if live < quorum(voters) {
		// Without a majority nothing commits. The plan must not rely on it, but may return any
		// step.
		return false
	}
	switch c.Kind {
	case NoChange:
		return false
	case Stage:
		if f.server(c.ID).unable {
			f.attempts.fail(c.ID, f.clock())
			return true
		}
		f.group = append(f.group, Voter{ID: c.ID, Staged: true, CaughtUp: true})
		f.server(c.ID).mute = 0 // it starts from nothing
	case Promote:
		for i := range f.group {
			if f.group[i].ID == c.ID {
				f.group[i].Staged = false
			}
		}
	case Remove:
		for i, v := range f.group {
			if v.ID == c.ID {
				if v.Leader {
					f.t.Fatalf("the leader %s is removed", c.ID)
				}
				if v.Staged {
					f.attempts.fail(c.ID, f.clock())
				}
				f.group = append(f.group[:i:i], f.group[i+1:]...)
				break
			}
		}
	case StepDown:
		for i := range f.group {
			f.group[i].Leader = false
		}
		for i := range f.group {
			if v := &f.group[i]; v.ID == c.To {
				v.Leader = true
			}
		}
		f.elect()
	}
	f.steps++
	voters, live = f.count()
	if live < quorum(voters) {
		f.t.Fatalf("after %v of %s (%s) %d of %d voters are live", c.Kind, c.ID, c.Why, live, voters)
	}
	if voters > VotersMax+1 {
		f.t.Fatalf("%d voters", voters)
	}
	return true
}

// settle steps until there is nothing more to do.
func (f *voterSim) settle() {
	for range 40 {
		f.now += stable
		for n := 0; f.step(); n++ {
			if n > 60 {
				f.t.Fatalf("the plan finds no end: %v, voters %v", Plan(f.view(), f.groupView(), stable), f.group)
			}
		}
	}
}

// good checks the invariants of a settled cluster.
func (f *voterSim) good() {
	f.t.Helper()
	voters, live := f.count()
	if live < quorum(voters) {
		return // it needs an operator
	}
	able, unable, zones := 0, false, map[string]int{}
	for _, s := range f.servers {
		if s.fit() || s.alive && !s.draining && f.has(s.id) {
			able++
			zones[s.zone] = 0
		}
		unable = unable || s.alive && (s.unable || s.stuck)
	}
	want := min(able, VotersMax)
	if want%2 == 0 && want > 2 {
		want--
	}
	if live < want {
		f.t.Fatalf("%d of %d voters are live, %d could be: %+v of %+v", live, voters, want, f.group, f.view())
	}
	draining := 0
	for _, v := range f.group {
		s := f.server(v.ID)
		if v.Staged {
			if s := f.server(v.ID); !s.stuck && !unable {
				f.t.Fatalf("%s is still staged: %+v of %+v", v.ID, f.group, f.view())
			}
			continue
		}
		if s == nil || s.draining {
			draining++
		} else if s.votes() {
			zones[s.zone]++
		}
	}
	if draining > 0 && able > 0 {
		f.t.Fatalf("%d that left still vote: %+v of %+v", draining, f.group, f.view())
	}
	if voters != live {
		return // dead voters wait for a replacement
	}
	for _, s := range f.servers {
		if !s.fit() || f.in(s.id) {
			continue
		}
		for zone, n := range zones {
			if n >= zones[s.zone]+2 {
				f.t.Fatalf("zone %s has %d voters and zone %s, with %s free, %d", zone, n, s.zone, s.id, zones[s.zone])
			}
		}
	}
}

// has reports whether a server has a vote.
func (f *voterSim) has(id string) bool {
	v, in := find(f.group, id)
	return in && !v.Staged
}

func (f *voterSim) in(id string) bool {
	for _, v := range f.group {
		if v.ID == id {
			return true
		}
	}
	return false
}

// TestPlan has servers join, die, return and drain at random moments, also between the steps of a
// change. It checks that no step loses the majority, and that the plan ends in a good state.
func TestPlan(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	steps := 0
	for range 2000 {
		f := &voterSim{t: t, attempts: attempts{}}
		f.join("a0", "z0")
		f.group = []Voter{{ID: "a0", Leader: true, CaughtUp: true}}
		zones := 1 + r.IntN(4)
		for i := range 40 {
			f.now += time.Duration(r.Int64N(int64(2 * stable)))
			f.event(r, i, zones)
			for range r.IntN(3) {
				f.step()
			}
		}
		f.settle()
		f.good()
		steps += f.steps
	}
	t.Logf("%d steps", steps)
}

func (f *voterSim) join(id, zone string) {
	f.servers = append(f.servers, &simServer{id: id, zone: zone, alive: true, since: f.now})
}

// event changes one server, in a way that a majority can always return.
func (f *voterSim) event(r *rand.Rand, i, zones int) {
	s := f.servers[r.IntN(len(f.servers))]
	voters, live := f.count()
	switch r.IntN(10) {
	case 7:
		s.full = !s.full
	case 8:
		s.unable = !s.unable
	case 9:
		s.stuck = !s.stuck
	case 6:
		if s.votes() && f.in(s.id) && live-1 >= quorum(voters) {
			s.mute = f.now - silentMin // before that the group itself rejects harmful changes
		}
	case 0, 1:
		if len(f.servers) < 9 {
			f.join(fmt.Sprintf("%c%d", 'a'+rune(r.IntN(26)), i+1), fmt.Sprintf("z%d", r.IntN(zones)))
		}
	case 2:
		if s.alive && (!f.in(s.id) || !s.votes() || live-1 >= quorum(voters)) {
			s.alive, s.since = false, f.now
		}
	case 3, 4:
		if !s.alive {
			s.alive, s.since = true, f.now
		}
	case 5:
		if r.IntN(3) == 0 && len(f.servers) > 2 {
			s.draining = true
		}
	}
}

func TestPlanByHand(t *testing.T) {
	live := func(id, zone string) Server { return Server{ID: id, Zone: zone, Alive: true, Since: time.Hour} }
	dead := func(id, zone string) Server { return Server{ID: id, Zone: zone, Since: time.Hour} }
	voter := func(ids ...string) (g []Voter) {
		for i, id := range ids {
			g = append(g, Voter{ID: id, CaughtUp: true, Leader: i == 0})
		}
		return g
	}
	silent := func(id string) []Voter {
		g := voter("a", "b", "c")
		for i := range g {
			if g[i].ID == id {
				g[i].Silent = time.Minute
			}
		}
		return g
	}
	for _, c := range []struct {
		name    string
		servers []Server
		group   []Voter
		want    Change
	}{
		{"a lone node votes", []Server{live("a", "")}, voter("a"), Change{}},
		{"a second one votes too", []Server{live("a", ""), live("b", "")}, voter("a"), Change{Kind: Stage, ID: "b"}},
		{"of four nodes three vote", []Server{live("a", ""), live("b", ""), live("c", ""), live("d", "")}, voter("a", "b", "c"), Change{}},
		{"a fifth brings two more", []Server{live("a", ""), live("b", ""), live("c", ""), live("d", ""), live("e", "")}, voter("a", "b", "c"),
			Change{Kind: Stage, ID: "d"}},
		{"the other zone comes first", []Server{live("a", "x"), live("b", "x"), live("c", "y")}, voter("a"), Change{Kind: Stage, ID: "c"}},
		{"a dead voter without a replacement stays", []Server{live("a", ""), live("b", ""), dead("c", "")}, voter("a", "b", "c"), Change{}},
		{"a dead voter is replaced", []Server{live("a", ""), live("b", ""), dead("c", ""), live("d", "")}, voter("a", "b", "c"),
			Change{Kind: Stage, ID: "d"}},
		{"and removed once it is", []Server{live("a", ""), live("b", ""), dead("c", ""), live("d", "")}, voter("a", "b", "c", "d"),
			Change{Kind: Remove, ID: "c"}},
		{"one gone for a moment is waited for",
			[]Server{live("a", ""), live("b", ""), {ID: "c", Since: time.Second}, live("d", "")}, voter("a", "b", "c"), Change{}},
		{"one that has started and has not opened its log yet is waited for",
			[]Server{live("a", ""), live("b", ""), {ID: "c", Alive: true, HasLog: true, Since: time.Second}}, silent("c"), Change{}},
		{"one that has lost its log may take its own place", []Server{live("a", ""), live("b", ""), {ID: "c", Alive: true, Since: time.Second}}, silent("c"),
			Change{Kind: Remove, ID: "c"}},
		{"one whose log does not answer is replaced", []Server{live("a", ""), live("b", ""), {ID: "c", Alive: true, HasLog: true, Since: time.Hour}, live("d", "")}, silent("c"),
			Change{Kind: Stage, ID: "d"}},
		{"a node that has just come waits", []Server{live("a", ""), {ID: "b", Alive: true, Since: time.Second}}, voter("a"), Change{}},
		{"two that have just come vote beside a lone voter", []Server{live("a", ""), {ID: "b", Alive: true, Since: time.Second}, {ID: "c", Alive: true, Since: time.Second}},
			voter("a"), Change{Kind: Stage, ID: "b"}},
		{"the second of them follows at once", []Server{live("a", ""), {ID: "b", Alive: true, Since: time.Second}, {ID: "c", Alive: true, Since: time.Second}},
			append(voter("a", "b"), Voter{ID: "c", Staged: true, CaughtUp: true}), Change{Kind: Promote, ID: "c"}},
		{"one that has just come votes beside two", []Server{live("a", ""), live("b", ""), {ID: "c", Alive: true, Since: time.Second}}, voter("a", "b"),
			Change{Kind: Stage, ID: "c"}},
		{"unless one of them is to leave", []Server{live("a", ""), {ID: "b", Alive: true, Since: time.Second}, {ID: "c", Alive: true, Since: time.Second, Draining: true}},
			voter("a"), Change{}},
		{"or has come this moment", []Server{live("a", ""), {ID: "b", Alive: true, Since: time.Second}, {ID: "c", Alive: true}}, voter("a"), Change{}},
		{"beside three they wait", []Server{live("a", ""), live("b", ""), live("c", ""), {ID: "d", Alive: true, Since: time.Second}, {ID: "e", Alive: true, Since: time.Second}},
			voter("a", "b", "c"), Change{}},
		{"a leader that leaves hands over", []Server{{ID: "a", Alive: true, Draining: true}, live("b", ""), live("c", ""), live("d", "")},
			voter("a", "b", "c", "d"), Change{Kind: StepDown, ID: "a", To: "b"}},
		{"a leader whose disk is full steps down for one with free space", []Server{{ID: "a", Alive: true, Full: true}, {ID: "b", Alive: true, Full: true}, live("c", "")},
			voter("a", "b", "c"), Change{Kind: StepDown, ID: "a", To: "c"}},
		{"and stays the leader if no voter has free space", []Server{{ID: "a", Alive: true, Full: true}, {ID: "b", Alive: true, Full: true}, dead("c", "")},
			voter("a", "b", "c"), Change{}},
		{"a node whose disk is full is not staged", []Server{live("a", ""), {ID: "b", Alive: true, Since: time.Hour, Full: true}, live("c", ""), live("d", "")}, voter("a"),
			Change{Kind: Stage, ID: "c"}},
		{"and leaves two voters of two that can", []Server{live("a", ""), {ID: "b", Alive: true, Since: time.Hour, Full: true}, live("c", "")}, voter("a", "c"), Change{}},
		{"it does not keep an operator from draining a voter", []Server{live("a", ""), live("b", ""), {ID: "c", Alive: true, Since: time.Hour, Draining: true}, {ID: "d", Alive: true, Since: time.Hour, Full: true}},
			voter("a", "b", "c"), Change{Kind: Remove, ID: "c"}},
		{"nothing is done without a majority", []Server{live("a", ""), dead("b", ""), dead("c", ""), live("d", "")}, voter("a", "b", "c"), Change{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Plan(c.servers, c.group, stable)
			if got.Kind != c.want.Kind || got.ID != c.want.ID || got.To != c.want.To {
				t.Errorf("got %v of %q (%s), want %v of %q", got.Kind, got.ID, got.Why, c.want.Kind, c.want.ID)
			}
		})
	}
}

// TestVoterBounds: how long a node must be up, gone or unresponsive for the plan to count on it or
// to give it up, and how many staged servers that do not catch up are kept.
func TestVoterBounds(t *testing.T) {
	up := func(id string) Server { return Server{ID: id, Alive: true, HasLog: true, Since: time.Hour} }
	voters := func(ids ...string) (g []Voter) {
		for i, id := range ids {
			g = append(g, Voter{ID: id, CaughtUp: true, Leader: i == 0})
		}
		return g
	}
	silent := func(g []Voter, d time.Duration, ids ...string) []Voter {
		for i := range g {
			if slices.Contains(ids, g[i].ID) {
				g[i].Silent = d
			}
		}
		return g
	}
	late := func(ids ...string) (servers []Server, group []Voter) {
		servers, group = []Server{up("a"), up("b"), up("c")}, voters("a", "b", "c")
		for _, id := range ids {
			s := up(id)
			s.Deferred = true
			servers, group = append(servers, s), append(group, Voter{ID: id, Staged: true})
		}
		return servers, group
	}
	two, ofTwo := late("d", "e")
	three, ofThree := late("d", "e", "f")
	for name, c := range map[string]struct {
		servers []Server
		group   []Voter
		want    Change
	}{
		"gone for so long":               {[]Server{up("a"), up("b"), {ID: "c", Since: stable}, up("d")}, voters("a", "b", "c"), Change{Kind: Stage, ID: "d"}},
		"gone for less":                  {[]Server{up("a"), up("b"), {ID: "c", Since: stable - 1}, up("d")}, voters("a", "b", "c"), Change{}},
		"silent for so long":             {[]Server{up("a"), up("b"), up("c"), up("d")}, silent(voters("a", "b", "c"), stable, "c"), Change{Kind: Stage, ID: "d"}},
		"silent for less":                {[]Server{up("a"), up("b"), up("c"), up("d")}, silent(voters("a", "b", "c"), stable-1, "c"), Change{}},
		"up for so long":                 {[]Server{up("a"), {ID: "b", Alive: true, Since: stable}}, voters("a"), Change{Kind: Stage, ID: "b"}},
		"up for less":                    {[]Server{up("a"), {ID: "b", Alive: true, Since: stable - 1}}, voters("a"), Change{}},
		"a majority that just answers":   {[]Server{up("a"), up("b"), up("c"), up("d"), up("e")}, silent(voters("a", "b", "c"), silentMin-1, "b", "c"), Change{Kind: Stage, ID: "d"}},
		"a majority that does not":       {[]Server{up("a"), up("b"), up("c"), up("d"), up("e")}, silent(voters("a", "b", "c"), silentMin, "b", "c"), Change{}},
		"a log that is lost for so long": {[]Server{up("a"), up("b"), {ID: "c", Alive: true, Since: time.Hour}}, silent(voters("a", "b", "c"), stable, "c"), Change{Kind: Remove, ID: "c"}},
		"a log that is lost for less":    {[]Server{up("a"), up("b"), {ID: "c", Alive: true, Since: time.Hour}}, silent(voters("a", "b", "c"), stable-1, "c"), Change{}},
		"two that do not catch up":       {two, ofTwo, Change{}},
		"three that do not catch up":     {three, ofThree, Change{Kind: Remove, ID: "f"}},
		"a fourth voter waits for a fifth": {[]Server{up("a"), up("b"), up("c"), up("d"), up("e")},
			append(voters("a", "b", "c"), Voter{ID: "d", Staged: true, CaughtUp: true}), Change{Kind: Stage, ID: "e"}},
		"a fourth and a fifth voter": {[]Server{up("a"), up("b"), up("c"), up("d"), up("e")},
			append(voters("a", "b", "c"), Voter{ID: "d", Staged: true, CaughtUp: true}, Voter{ID: "e", Staged: true, CaughtUp: true}), Change{Kind: Promote, ID: "d"}},
		"a full leader behind another voter": {[]Server{up("a"), {ID: "b", Alive: true, HasLog: true, Since: time.Hour, Full: true}, up("c")}, voters("b", "a", "c"), Change{Kind: StepDown, ID: "b", To: "a"}},
		"an heir that has caught up": {[]Server{{ID: "a", Alive: true, HasLog: true, Draining: true}, up("b"), up("c"), up("d")},
			[]Voter{{ID: "a", Leader: true, CaughtUp: true}, {ID: "b"}, {ID: "c", CaughtUp: true}, {ID: "d", CaughtUp: true}}, Change{Kind: StepDown, ID: "a", To: "c"}},
		"an heir that stays": {[]Server{{ID: "a", Alive: true, HasLog: true, Draining: true}, {ID: "b", Alive: true, HasLog: true, Draining: true}, up("c"), up("d"), up("e")},
			voters("a", "b", "c", "d", "e"), Change{Kind: StepDown, ID: "a", To: "c"}},
	} {
		got := Plan(c.servers, c.group, stable)
		if got.Kind != c.want.Kind || got.ID != c.want.ID || got.To != c.want.To {
			t.Errorf("%s: %v of %q to %q (%s), want %v of %q to %q", name, got.Kind, got.ID, got.To, got.Why, c.want.Kind, c.want.ID, c.want.To)
		}
	}
}

// TestVoterTarget: an odd number of up to five servers votes, or two of two.
func TestVoterTarget(t *testing.T) {
	for n, want := range []int{1, 1, 2, 3, 3, 5, 5, 5, 5} {
		if got := targetOf(n); got != want {
			t.Errorf("of %d servers %d vote, want %d", n, got, want)
		}
	}
}
