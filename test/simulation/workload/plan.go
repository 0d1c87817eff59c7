package workload

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/steledb/stele/table"
)

// Feature is something that a plan switches on or off.
type Feature string

// The features.
const (
	Reads       Feature = "reads"
	Writes      Feature = "writes"
	Batches     Feature = "batches"
	Checks      Feature = "checks"
	Counters    Feature = "counters"
	Appends     Feature = "appends"
	Deletes     Feature = "deletes"
	Stamps      Feature = "stamps"     // timestamps that clients set, and several changes of a column
	Aggregates  Feature = "aggregates" // families of sums, minima and maxima
	Streams     Feature = "streams"    // change streams of tables
	Tokens      Feature = "tokens"     // writes with idempotency tokens, which are sent several times
	Schedules   Feature = "schedules"  // of backups
	Views       Feature = "views"      // of tables that are never dropped
	Renames     Feature = "renames"    // of tables that are never dropped, and back
	Scans       Feature = "scans"
	Files       Feature = "files"
	Locks       Feature = "locks"
	Ephemerals  Feature = "ephemerals"
	Watches     Feature = "watches"
	Recreation  Feature = "recreation" // drop and create of tables
	Alteration  Feature = "alteration" // of families
	Clears      Feature = "clears"     // of ranges of rows, and of whole tables
	Splits      Feature = "splits"
	Merges      Feature = "merges"
	Moves       Feature = "moves"
	Compactions Feature = "compactions"
	Drains      Feature = "drains"
	BlobStore   Feature = "blobs"
	Backups     Feature = "backups"
	Rights      Feature = "rights" // in a secured cluster only
	Quotas      Feature = "quotas"
)

// features lists for each feature how often it is on, of 100 plans, and its weight among the
// operations.
var features = []struct {
	of         Feature
	percent    int
	weight     int
	needsUsers bool
}{
	{Reads, 100, 300, false},
	{Writes, 100, 300, false},
	{Batches, 60, 60, false},
	{Checks, 60, 100, false},
	{Counters, 50, 80, false},
	{Appends, 40, 40, false},
	{Deletes, 60, 60, false},
	{Stamps, 50, 80, false},
	{Scans, 70, 60, false},
	{Files, 60, 120, false},
	{Locks, 60, 30, false},
	{Ephemerals, 40, 10, false},
	{Watches, 40, 10, false},
	{Recreation, 50, 8, false},
	{Alteration, 50, 6, false},
	{Splits, 60, 10, false},
	{Merges, 50, 8, false},
	{Moves, 60, 10, false},
	{Compactions, 60, 10, false},
	{Drains, 30, 2, false},
	{BlobStore, 40, 20, false},
	{Backups, 40, 6, false},
	{Rights, 60, 20, true},
	{Quotas, 40, 4, true},
	{Clears, 50, 8, false},
	{Aggregates, 50, 100, false},
	{Streams, 50, 30, false},
	{Tokens, 40, 60, false},
	{Renames, 40, 6, false},
	{Views, 40, 8, false},
	{Schedules, 20, 2, false},
}

// Weighted is a feature that is on, with its weight among the operations.
type Weighted struct {
	Feature Feature
	Weight  int
}

// TablePlan is a table of a plan.
type TablePlan struct {
	Name     string
	Families []table.FamilySpec
	SplitAt  []string
	// Dropped means that the table and its last family may be dropped and created again.
	Dropped bool
	// Stream means that the table has a change stream. It is never dropped then.
	Stream bool
	// Renamed means that the table may have its other name. It is never dropped then.
	Renamed bool
	// Followed means that a table of the follower follows this one. It is never dropped nor renamed then.
	Followed bool
	// FamilyDropped means that its last family may be dropped and created again.
	FamilyDropped bool
}

// other returns the other name of a table that is renamed.
func (t *TablePlan) other() string { return t.Name + "-renamed" }

// Plan is what the clients of a run do. It follows from its seed.
type Plan struct {
	Seed     uint64
	Secured  bool
	Clients  int
	Features []Weighted
	Tables   []TablePlan
	// Keys is the number of keys in use of a table at a time: those of the current era. EraLength is
	// how long an era lasts. Without eras, operations of unknown outcome would accumulate on few
	// rows until no order could be found.
	Keys      int
	EraLength time.Duration
	// ValueMax is the maximum size of a value, in bytes, BlobMax of a blob.
	ValueMax, BlobMax int
	// Pace bounds the pause of a client after an operation, and Rest that after Burst operations.
	Pace, Rest time.Duration
	Burst      int
	// Slow bounds the long pauses of an application between two parts of one operation.
	Slow time.Duration
	// TimeoutMin and TimeoutMax bound the time of one operation.
	TimeoutMin, TimeoutMax time.Duration
}

// opsPerSecond is about how many operations all clients make together, in the mean. More find less
// for the same computing time: what happens between operations matters.
const opsPerSecond = 12

// NewPlan returns the plan with that seed. Users have rights only in a secured cluster.
func NewPlan(seed uint64, secured bool, clients int) Plan {
	r := rand.New(rand.NewPCG(seed, 0x706c616e))
	p := Plan{
		Seed: seed, Secured: secured, Clients: clients,
		Keys: 20 + r.IntN(60), EraLength: time.Duration(2+r.IntN(8)) * time.Second,
		ValueMax: 1 << (4 + r.IntN(9)), BlobMax: 1 << (10 + r.IntN(9)),
		Pace:       time.Duration(5<<r.IntN(6)) * time.Millisecond,
		TimeoutMin: 500 * time.Millisecond, TimeoutMax: time.Duration(2+r.IntN(14)) * time.Second,
	}
	p.Burst, p.Slow = 5+r.IntN(36), 10*time.Second<<r.IntN(3)
	p.Rest = time.Duration(float64(2*clients*p.Burst) / opsPerSecond * float64(time.Second))
	for _, f := range features {
		// Both numbers are drawn even if the feature is off, so that one feature does not change
		// the others.
		on, weight := r.IntN(100) < f.percent, 1+r.IntN(2*f.weight)
		if on && (secured || !f.needsUsers) {
			p.Features = append(p.Features, Weighted{f.of, weight})
		}
	}
	for i := range 1 + r.IntN(6) {
		p.Tables = append(p.Tables, newTable(r, i))
		if families := newAggregates(r); p.Has(Aggregates) {
			p.Tables[i].Families = append(p.Tables[i].Families, families...)
		}
		p.Tables[i].Stream = p.Has(Streams) && !p.Tables[i].Dropped
		p.Tables[i].Renamed = p.Has(Renames) && !p.Tables[i].Dropped
	}
	return p
}

// Has reports whether a feature is on.
func (p *Plan) Has(f Feature) bool {
	for _, w := range p.Features {
		if w.Feature == f {
			return true
		}
	}
	return false
}

func newTable(r *rand.Rand, i int) TablePlan {
	t := TablePlan{Name: fmt.Sprintf("t%d", i), Dropped: r.IntN(2) == 0}
	for f := range 1 + r.IntN(3) {
		t.Families = append(t.Families, newFamily(r, f))
	}
	for n := range r.IntN(4) {
		t.SplitAt = append(t.SplitAt, fmt.Sprintf("%02x", (n+1)*0x40))
	}
	return t
}

// newFamily returns a family. Its last digit is the number of versions that it keeps.
func newFamily(r *rand.Rand, i int) table.FamilySpec {
	versions := 1 + r.IntN(3)
	gc := table.MaxVersions(versions)
	if r.IntN(3) == 0 {
		gc = table.Union(gc, table.MaxAge(10*365*24*time.Hour)) // no cell becomes that old
	}
	f := table.FamilySpec{Name: fmt.Sprintf("%c%d", 'a'+i, versions), GC: &gc}
	inMemory := r.IntN(2) == 0
	if r.IntN(2) == 0 {
		f.Group = fmt.Sprintf("group%d", i)
		f.Compression = table.Compression(1 + r.IntN(4))
		f.Bloom = table.BloomMode(1 + r.IntN(3))
		f.InMemory = &inMemory
	}
	return f
}

// familyNames returns the names of the table's families.
func (t *TablePlan) familyNames() (names []string) {
	for i := range t.Families {
		names = append(names, t.Families[i].Name)
	}
	return names
}

// AllFeatures returns all features, with the same weight for rare ones: for tests.
func AllFeatures(secured bool) (all []Weighted) {
	for _, f := range features {
		if secured || !f.needsUsers {
			all = append(all, Weighted{f.of, max(20, f.weight)})
		}
	}
	return all
}
