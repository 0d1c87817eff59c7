package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
)

func put(row string) *RowMutation { return NewRowMutation(row).SetAt("f:a", 1, []byte(row)) }

// wantTrace checks which requests a call took.
func wantTrace(t *testing.T, f *fake, name string, want ...string) {
	t.Helper()
	if got := f.traced(); !slices.Equal(got, want) {
		t.Errorf("%s took\n\t%s\nwant\n\t%s", name, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

const scanMetadata = api.MethodScanOpen + " " + metadata.Name

// Paper §5.1: three round trips with an empty cache, none with a full one, and at most six if every
// cached location is stale.
func TestRoundTripsOfLookups(t *testing.T) {
	f := newFakeCluster(newFake(t), 6)
	f.layout("t", []string{"g", "p"}, 2, 3, 2)
	tb := f.open(Config{}).Table("t")
	apply := func(row string) {
		t.Helper()
		check(t, tb.Apply(t.Context(), put(row)))
	}
	apply("b")
	wantTrace(t, f, "a call with nothing known", "root t@0", scanMetadata+"@0", scanMetadata+"@1", "mutate t@2")
	for i, row := range []string{"a", "g", "g\x00", "p", "q"} {
		apply(row)
		if row != "a" { // the tablet below b was not looked up
			wantTrace(t, f, "a call of a known tablet", fmt.Sprintf("mutate t@%d", []int{0, 2, 3, 3, 2}[i]))
		} else {
			wantTrace(t, f, "a call below what is known", scanMetadata+"@1", "mutate t@2")
		}
	}
	f.move("t", "b", 4)
	apply("b")
	wantTrace(t, f, "a stale tablet", "mutate t@2!", scanMetadata+"@1", "mutate t@4")
	apply("c")
	wantTrace(t, f, "a call after it", "mutate t@4")

	f.move("t", "b", 5)
	f.move(metadata.Name, "\xff", 3)
	apply("b")
	wantTrace(t, f, "a stale METADATA tablet", "mutate t@4!", scanMetadata+"@1!", scanMetadata+"@0", scanMetadata+"@3", "mutate t@5")

	f.move("t", "b", 2)
	f.move(metadata.Name, "\xff", 4)
	f.move(metadata.Name, "\x00", 5)
	apply("b")
	wantTrace(t, f, "all stale", "mutate t@5!", scanMetadata+"@3!", scanMetadata+"@0!", "root METADATA@0", scanMetadata+"@5", scanMetadata+"@4", "mutate t@2")

	f.mu.Lock()
	f.ids("u")
	f.mu.Unlock()
	f.layout("u", nil, 3)
	check(t, tb.client.Table("u").Apply(t.Context(), put("b")))
	wantTrace(t, f, "another table", "root u@0", scanMetadata+"@4", "mutate u@3")

	// The servers of all cached locations are gone.
	for _, at := range []int{4, 5, 2} {
		f.kill(at)
	}
	f.move("t", "b", 3)
	f.move(metadata.Name, "\xff", 1)
	f.move(metadata.Name, "\x00", 0)
	_, err := tb.Get(t.Context(), "b") // a change is not sent twice over a broken connection
	check(t, err)
	wantTrace(t, f, "all dead", "root METADATA@0", scanMetadata+"@0", scanMetadata+"@1", "read t@3")
	s := tb.client.Stats()
	if s.RoundTrips != 3+1+1+3+5+2+5 || s.Stale != 1+2+3+3 {
		t.Errorf("counted %+v", s)
	}
	if addr, node, ok := tb.client.Locate(t.Context(), "t", 0, []byte("b"), "n0"); addr != f.cluster.addrs[3] || node != "n3" || !ok {
		t.Errorf("row b is at %s, %s, %v", addr, node, ok)
	}
	f.move("t", "b", 2)
	time.Sleep(unassignedTime) // METADATA is not read again before
	if addr, node, ok := tb.client.Locate(t.Context(), "t", 0, []byte("b"), "n3"); addr != f.cluster.addrs[2] || node != "n2" || !ok {
		t.Errorf("row b, which n3 does not have, is at %s, %s, %v", addr, node, ok)
	}
	if _, _, ok := tb.client.Locate(t.Context(), "nosuch", 0, []byte("b"), "n0"); ok {
		t.Error("a row of an unknown table is located")
	}
}

// The counts are the same with many METADATA tablets, and after those have split, merged and moved.
func TestRoundTripsOfLookupsInManyMetadataTablets(t *testing.T) {
	f := newFakeCluster(newFake(t), 6)
	f.layout("t", []string{"c", "g", "k", "p", "t"}, 2, 3, 2, 3, 2, 3)
	root := string(metadata.RootEnd())
	metadataEnds := func(ends ...string) []string {
		all := []string{root}
		for _, e := range ends {
			all = append(all, f.metadataKey("t", e))
		}
		return all
	}
	f.layout(metadata.Name, metadataEnds("g", "p"), 0, 1, 4, 5)
	tb := f.open(Config{}).Table("t")
	apply := func(row string) {
		t.Helper()
		check(t, tb.Apply(t.Context(), put(row)))
	}
	apply("h")
	wantTrace(t, f, "a call with nothing known", "root t@0", scanMetadata+"@0", scanMetadata+"@4", "mutate t@2")
	if got := tb.client.MetadataNodes(); !slices.Equal(got, []string{"n0", "n1", "n4", "n5"}) {
		t.Errorf("METADATA is known to be on %q", got)
	}
	apply("a")
	wantTrace(t, f, "a call of a tablet in another METADATA tablet", scanMetadata+"@1", "mutate t@2")
	for i, row := range []string{"d", "g", "k", "p"} { // each METADATA tablet returned all its locations
		apply(row)
		wantTrace(t, f, "a call of a known tablet", fmt.Sprintf("mutate t@%d", []int{3, 3, 2, 3}[i]))
	}
	apply("z")
	wantTrace(t, f, "a call above what is known", scanMetadata+"@5", "mutate t@3")

	// METADATA splits, and its lower part moves; the cached location still names the old server.
	f.layout(metadata.Name, metadataEnds("c", "g", "p"), 0, 5, 1, 4, 5)
	f.move("t", "e", 4)
	apply("e")
	wantTrace(t, f, "a stale tablet in the half that stayed", "mutate t@3!", scanMetadata+"@1", "mutate t@4")
	f.move("t", "b", 4)
	apply("b")
	wantTrace(t, f, "a stale tablet in the half that moved", "mutate t@2!", scanMetadata+"@1!", scanMetadata+"@0", scanMetadata+"@5", "mutate t@4")

	// All METADATA tablets are merged into one, which moves, and so does the root tablet.
	f.layout(metadata.Name, metadataEnds(), 2, 3)
	f.move("t", "b", 5)
	apply("b")
	wantTrace(t, f, "all stale", "mutate t@4!", scanMetadata+"@5!", scanMetadata+"@0!", "root METADATA@0", scanMetadata+"@2", scanMetadata+"@3", "mutate t@5")

	// METADATA splits at a row that is no tablet's end: the tablet across it takes one more round
	// trip.
	f.layout(metadata.Name, metadataEnds("e"), 2, 3, 4)
	f.move("t", "d", 0)
	apply("d")
	wantTrace(t, f, "a tablet whose row is behind the end of the METADATA tablet",
		"mutate t@4!", scanMetadata+"@3", scanMetadata+"@3!", scanMetadata+"@2", scanMetadata+"@4", "mutate t@0")

	// More METADATA tablets of one table than one response holds.
	var ends, tablets []string
	servers, of := []int{2}, []int{1}
	for i := range 3 * lookupRows {
		ends, tablets = append(ends, key(i)), append(tablets, key(i))
		servers, of = append(servers, 1+i%5), append(of, 1+i%5)
	}
	f.layout("t", tablets, of...)
	f.layout(metadata.Name, metadataEnds(ends...), append([]int{2}, servers...)...)
	tb = f.open(Config{}).Table("t")
	f.traced()
	n := 0
	for _, i := range []int{170, 20, 100, 171, 5} {
		apply(key(i))
		n += len(f.traced())
	}
	if s := tb.client.Stats(); s.RoundTrips != 4+2+2+1+2 || n != int(s.RoundTrips)+5 {
		t.Errorf("five calls in as many of %d METADATA tablets took %d requests, %+v", len(ends), n, s)
	}
}

// ids gives a new table an id.
func (f *fake) ids(name string) {
	f.cluster.ids[name] = uint64(100 + len(f.cluster.ids))
	f.schemas[name], f.rows[name] = f.schemas["t"], f.rows["t"]
}

func TestLookupsAreShared(t *testing.T) {
	f := newFakeCluster(newFake(t), 4)
	var ends []string
	servers := []int{2}
	for i := range 40 {
		ends, servers = append(ends, key(i*10)), append(servers, 2+i%2)
	}
	f.layout("t", ends, servers...)
	tb := f.open(Config{}).Table("t")
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			if _, err := tb.Get(t.Context(), key(i)); err != nil {
				t.Errorf("get: %v", err)
			}
		})
	}
	wg.Wait()
	if n := tb.client.Stats().RoundTrips; n > 4*flightsMax+2 {
		t.Errorf("400 calls at once made %d requests to find 40 tablets", n)
	}
}

func TestTabletsWithoutAServerAreWaitedFor(t *testing.T) {
	f := newFakeCluster(newFake(t), 4)
	tb := f.open(Config{RetriesPerSecond: 1}).Table("t")
	check(t, tb.Apply(t.Context(), put("a")))
	for _, unassigned := range []func(){
		func() { f.move("t", "a", noServer) },
		func() { f.moveUnpublished("t", "a", noServer) }, // METADATA names this server, but it is still loading the tablet
		func() { f.move("t", "a", noServer); f.move(metadata.Name, "\xff", noServer) },
		func() { f.move("t", "a", noServer); f.move(metadata.Name, "\x00", noServer) },
	} {
		unassigned()
		var wg sync.WaitGroup
		for i := range 200 { // more than the retry budget
			wg.Go(func() {
				if err := tb.Apply(t.Context(), put(fmt.Sprint("a", i))); err != nil {
					t.Errorf("apply: %v", err)
				}
			})
		}
		time.Sleep(200 * time.Millisecond)
		f.move(metadata.Name, "\x00", 1)
		f.move(metadata.Name, "\xff", 0)
		f.move("t", "a", 3)
		wg.Wait()
		f.mu.Lock()
		lookups := 0
		for _, line := range f.cluster.trace {
			if strings.HasPrefix(line, scanMetadata) {
				lookups++
			}
		}
		f.cluster.trace = nil
		f.mu.Unlock()
		if lookups > 150 {
			t.Errorf("%d lookups by 200 calls", lookups)
		}
	}
	f.move("t", "a", noServer)
	tb.client.cfg.RetryTimeMax = 100 * time.Millisecond
	err := tb.Apply(t.Context(), put("a"))
	if !errors.Is(err, ErrNotServing) || errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), `row "a" of table "t"`) {
		t.Errorf("a tablet that stays unassigned: %v", err)
	}
}

func TestMissingTables(t *testing.T) {
	f := newFakeCluster(newFake(t), 4)
	c := f.open(Config{})
	if _, err := c.Table("nosuch").Get(t.Context(), "r"); !errors.Is(err, ErrNoTable) {
		t.Errorf("get: %v", err)
	}
	wantTrace(t, f, "a table that is not there", "root nosuch@0")
	var ms []*RowMutation
	for i := range 50 {
		ms = append(ms, put(key(i)))
	}
	if err := c.Table("nosuch").ApplyAll(t.Context(), ms); !errors.Is(err, ErrNoTable) {
		t.Errorf("apply all: %v", err)
	}
	if n := len(f.traced()); n > 3 {
		t.Errorf("50 mutations of no table took %d requests", n)
	}
	tb := c.Table("t")
	f.layout("t", []string{"m"}, 2, 3)
	check(t, tb.Apply(t.Context(), put("a")))
	f.cluster.ignorant = true
	f.traced()
	f.move("t", "a", 3) // server 2 has no other, and no longer knows the table
	time.Sleep(2 * unassignedTime)
	check(t, tb.Apply(t.Context(), put("a")))
	wantTrace(t, f, "a server that knows no such table", "mutate t@2!", "root t@0", scanMetadata+"@1", "mutate t@3")
	f.cluster.ignorant = false
	check(t, tb.Apply(t.Context(), put("z")))
	wantTrace(t, f, "a call of its other tablet", "mutate t@3")
	f.mu.Lock()
	delete(f.cluster.ids, "t")
	delete(f.cluster.tablets, "t")
	schema := f.schemas["t"]
	delete(f.schemas, "t")
	f.publishLocked()
	f.mu.Unlock()
	if err := tb.Apply(t.Context(), put("a")); !errors.Is(err, ErrNoTable) || errors.Is(err, ErrAmbiguous) {
		t.Errorf("apply to a table that was dropped: %v", err)
	}
	// It is created again with another id, while the client has cached the old one.
	f.mu.Lock()
	f.cluster.ids["t"], f.schemas["t"] = 77, schema
	f.mu.Unlock()
	f.layout("t", []string{"m"}, 2, 3)
	check(t, tb.Apply(t.Context(), put("a")))
	f.mu.Lock()
	f.cluster.ids["t"] = 78
	f.mu.Unlock()
	f.layout("t", []string{"m"}, 3, 2)
	check(t, tb.Apply(t.Context(), put("a")))
	check(t, tb.Apply(t.Context(), put("z")))
}

func TestHints(t *testing.T) {
	f := newFakeCluster(newFake(t), 5)
	tb := f.open(Config{}).Table("t")
	check(t, tb.Apply(t.Context(), put("a")))
	f.traced()
	hint := func(at int) *api.NotServingError {
		return &api.NotServingError{Addr: f.cluster.addrs[at], Node: fmt.Sprint("n", at)}
	}
	f.cluster.hints = func(name string, row []byte) *api.NotServingError {
		if name != "t" {
			return nil
		}
		tablet, _ := f.cluster.tablet(name, row)
		return hint(tablet.serves)
	}
	f.move("t", "a", 2)
	check(t, tb.Apply(t.Context(), put("a")))
	wantTrace(t, f, "a right hint", "mutate t@4!", "mutate t@2")
	// Two servers hint at each other.
	f.cluster.hints = func(name string, row []byte) *api.NotServingError { return hint(5 - f.at) }
	f.move("t", "a", 3)
	check(t, tb.Apply(t.Context(), put("a")))
	wantTrace(t, f, "the hint of a server that was hinted at", "mutate t@2!", scanMetadata+"@1", "mutate t@3")
	f.move("t", "a", 4)
	check(t, tb.Apply(t.Context(), put("a")))
	wantTrace(t, f, "a wrong hint", "mutate t@3!", "mutate t@2!", scanMetadata+"@1", "mutate t@4")
	if s := tb.client.Stats(); s.Hints != 2 {
		t.Errorf("counted %+v", s)
	}
}

// METADATA can be read and split like any other table.
func TestMetadataIsRead(t *testing.T) {
	f := newFakeCluster(newFake(t), 5)
	var ends []string
	var servers []int
	for i := range 300 {
		ends, servers = append(ends, key(i)), append(servers, i%5)
	}
	f.layout("t", ends[:299], servers...)
	f.layout(metadata.Name, []string{string(metadata.RootEnd()), f.metadataKey("t", key(50)), f.metadataKey("t", key(200))}, 0, 1, 2, 3)
	c := f.open(Config{})
	var ms []*RowMutation
	for i := range 300 {
		ms = append(ms, put(key(i)))
	}
	check(t, c.Table("t").ApplyAll(t.Context(), ms))
	if s := c.Stats(); s.Tablets < 300 || s.RoundTrips > 20 {
		t.Errorf("300 tablets in sequence: %+v", s)
	}
	keys, err := keysOf(c.Table(metadata.Name).Scan(t.Context()))
	if err != nil || len(keys) != 300+3 || !slices.IsSorted(keys) {
		t.Errorf("METADATA has %d rows, %v, want 303", len(keys), err)
	}
	row, err := c.Table(metadata.Name).Get(t.Context(), f.metadataKey("t", key(250)))
	if err != nil || row == nil {
		t.Errorf("a row of METADATA: %v, %v", row, err)
	}
	// The row that a METADATA tablet ends with is removed: the next row is in the tablet after it.
	f.layout("t", slices.Concat(ends[:50], ends[51:299]), servers[:299]...)
	c2 := f.open(Config{})
	if _, err := c2.Table("t").Get(t.Context(), key(50)); err != nil {
		t.Errorf("get: %v", err)
	}
}

func TestMetadataAppears(t *testing.T) {
	for _, ignorant := range []bool{false, true} {
		f := newFake(t)
		tb := f.open(Config{}).Table("t")
		check(t, tb.Apply(t.Context(), put("a")))
		tb.client.locator.modeChecked.Store(time.Now().Add(-time.Hour).UnixNano())
		newFakeCluster(f, 3).cluster.ignorant = ignorant
		check(t, tb.Apply(t.Context(), put("a"))) // rejected by the node in the cache
		wantTrace(t, f, "the first call", "mutate t@0!", "root t@0", scanMetadata+"@0", scanMetadata+"@1", "mutate t@2")
	}
	f := newFake(t)
	tb := f.open(Config{}).Table("nosuch")
	for _, want := range []int{1, 2, 1} { // requests: the second call looks up again
		before := f.count(f.requests, "read")
		if _, err := tb.Get(t.Context(), "r"); !errors.Is(err, ErrNoTable) || f.count(f.requests, "read") != before+want {
			t.Errorf("no such table: %v after %d requests, want %d", err, f.count(f.requests, "read")-before, want)
		}
		if want == 1 {
			tb.client.locator.modeChecked.Store(time.Now().Add(-time.Hour).UnixNano())
		}
	}
}

// One of two METADATA servers has no lease for a while. Rows whose tablets the other one has are
// located at once, by calls right after a failed one and by calls that waited for its lookup. The
// server without a lease does not get a request from every call.
func TestLookupsWithUnavailableMetadataServer(t *testing.T) {
	f := newFakeCluster(newFake(t), 6)
	f.layout("t", []string{"c", "g", "k", "p", "t"}, 2, 3, 2, 3, 2, 3)
	f.layout(metadata.Name, []string{string(metadata.RootEnd()), f.metadataKey("t", "g")}, 0, 4, 5)
	tb := f.open(Config{}).Table("t")
	check(t, tb.Apply(t.Context(), put("z"))) // the locations of METADATA's tablets are cached now
	f.mu.Lock()
	f.cluster.silent = map[int]bool{4: true}
	f.mu.Unlock()
	l := tb.client.locator
	find := func(row string) error {
		_, err := l.find(t.Context(), "t", []byte(row))
		return err
	}
	silent := func(row string) {
		t.Helper()
		if err := find(row); !errors.Is(err, api.ErrUnavailable) {
			t.Fatalf("a row of the server without a lease: %v", err)
		}
	}
	silent("a")
	check(t, find("h"))
	forget := func(rows ...string) {
		for _, row := range rows {
			if loc := l.lookUp("t", []byte(row)); loc != nil {
				l.invalidate(destination{loc.node, loc}, broken, nil)
			}
		}
	}

	// If the location of METADATA's tablet is not cached, a lookup waits for that of an earlier
	// row.
	silent("b")
	for i := range 20 {
		time.Sleep(unassignedTime)
		forget("h", "z")
		l.forgetMetadata()
		var wg sync.WaitGroup
		for _, row := range []string{"a", "h", "z"} {
			wg.Go(func() {
				if err := find(row); (err == nil) != (row != "a") {
					t.Errorf("round %d, row %q: %v", i, row, err)
				}
			})
		}
		wg.Wait()
	}

	time.Sleep(unassignedTime)
	f.traced()
	began := time.Now()
	for time.Since(began) < 10*unassignedTime {
		silent("a")
		silent("d")
	}
	took := time.Since(began)
	requests := slices.DeleteFunc(f.traced(), func(s string) bool { return s != scanMetadata+"@4!" })
	if n := len(requests); n == 0 || n > 2+int(took/unassignedTime) {
		t.Errorf("a server without a lease got %d requests in %v", n, took)
	}

	f.mu.Lock()
	f.cluster.silent = nil
	f.mu.Unlock()
	check(t, tb.Apply(t.Context(), put("a")))
}

// forgetMetadata discards the locations of METADATA's tablets, except the root tablet's.
func (l *locator) forgetMetadata() {
	t := l.table(metadata.Name)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replaceLocked(t, &known{id: t.known.Load().id})
}
