package metarows

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/node/metarows/metarowstest"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session/sessiontest"
	"github.com/steledb/stele/tablet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tableID is the table of most rows.
const tableID = 500

// newTable returns a Table without lock service.
func newTable(t *testing.T) (*Table, *metarowstest.Rows) {
	t.Helper()
	rows := metarowstest.New(t)
	return NewTable(nil, nil, rows.Table()), rows
}

// created adds the row of a tablet and returns it.
func created(t *testing.T, m *Table, id uint64, start, end string) *metadata.Row {
	t.Helper()
	r := metarowstest.Row(id, tableID, start, end)
	if err := m.Create(t.Context(), r, "created"); err != nil {
		t.Fatal(err)
	}
	return r
}

// with returns a copy of a row that is assigned to a server.
func with(r *metadata.Row, server string) *metadata.Row {
	next := *r
	next.Server, next.Addr = server, server+":1"
	return &next
}

// TestCompareAndSet: of two changes of one generation one succeeds, and the other fails with ErrChanged, although the row then has the
// generation that the other would have given it. A change that is repeated with the same contents succeeds once.
func TestCompareAndSet(t *testing.T) {
	m, _ := newTable(t)
	ctx := t.Context()
	r := created(t, m, 1000, "", "")
	if err := m.Create(ctx, r, "created"); err != nil {
		t.Errorf("created again: %v", err)
	}
	if err := m.Create(ctx, with(r, "b.2"), ""); !errors.Is(err, ErrChanged) {
		t.Errorf("created by another server: %v", err)
	}
	mine, again, other := with(r, "a.1"), with(r, "a.1"), with(r, "b.2")
	if err := m.Replace(ctx, mine, "mine"); err != nil || mine.Generation != r.Generation+1 {
		t.Fatalf("generation %d, %v; want %d", mine.Generation, err, r.Generation+1)
	}
	if err := m.Replace(ctx, again, "mine"); err != nil || again.Generation != mine.Generation {
		t.Errorf("the same change again: generation %d, %v", again.Generation, err)
	}
	if err := m.Replace(ctx, other, "other's"); !errors.Is(err, ErrChanged) || other.Generation != r.Generation {
		t.Errorf("another change of that generation: %v, generation %d", err, other.Generation)
	}
	if err := m.Remove(ctx, other); !errors.Is(err, ErrChanged) {
		t.Errorf("a removal of an earlier generation: %v", err)
	}
	if got, err := m.Get(ctx, tableID, nil); err != nil || !reflect.DeepEqual(got, mine) {
		t.Errorf("the row is %+v, %v; want %+v", got, err, mine)
	}
	if event, err := m.Last(ctx, mine.Key()); err != nil || event != "mine" {
		t.Errorf("the last event is %q, %v", event, err)
	}
	for range 2 {
		if err := m.Remove(ctx, mine); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
	if _, err := m.Get(ctx, tableID, nil); !errors.Is(err, ErrNoRow) {
		t.Errorf("the removed row: %v", err)
	}
	if err := m.Replace(ctx, mine, ""); !errors.Is(err, ErrChanged) {
		t.Errorf("a change of the removed row: %v", err)
	}
	if err := m.Create(ctx, r, ""); !errors.Is(err, ErrChanged) {
		t.Errorf("the removed row created again: %v", err)
	}
}

// TestConcurrentChanges: servers that change a row at random from what they last read advance its generation by one with each success,
// and never two of them from the same generation.
func TestConcurrentChanges(t *testing.T) {
	m, _ := newTable(t)
	seed := testseed.New(t)
	r := created(t, m, 1000, "", "")
	const servers, changes = 4, 25
	var mu sync.Mutex
	won := map[uint64]string{} // by new generation
	var all sync.WaitGroup
	for i := range servers {
		rng, name := rand.New(rand.NewPCG(seed, uint64(i))), "s"+strconv.Itoa(i)
		all.Go(func() {
			mine := *r
			for range changes {
				if rng.IntN(2) == 0 {
					now, err := m.Get(t.Context(), tableID, nil)
					if err != nil {
						t.Error(err)
						return
					}
					mine = *now
				}
				next := with(&mine, name+"."+strconv.Itoa(rng.IntN(1<<30)))
				err := m.Replace(t.Context(), next, "")
				if errors.Is(err, ErrChanged) {
					continue
				}
				mu.Lock()
				if before := won[next.Generation]; err != nil || before != "" {
					t.Errorf("%s changes it to generation %d, which %q has made: %v", name, next.Generation, before, err)
				}
				won[next.Generation] = next.Server
				mu.Unlock()
				mine = *next
			}
		})
	}
	all.Wait()
	now, err := m.Get(t.Context(), tableID, nil)
	if err != nil || now.Generation != r.Generation+uint64(len(won)) || won[now.Generation] != now.Server {
		t.Errorf("after %d changes the row is %+v, %v", len(won), now, err)
	}
}

// TestUnknownOutcome: a change whose answer is lost is settled by rereading the row: it succeeded if the row has its contents, failed if the
// row has others of that generation or a later one, and is unknown otherwise. It is executed at most once.
func TestUnknownOutcome(t *testing.T) {
	const lost, notMade = true, false
	for name, c := range map[string]struct {
		executed bool
		change   func(m *Table, r *metadata.Row) error
		between  func(m *Table, r *metadata.Row) error // by another server, before the row is read again
		want     error
	}{
		"replaced":                     {lost, replace, nil, nil},
		"not replaced":                 {notMade, replace, nil, client.ErrAmbiguous},
		"replaced by another":          {notMade, replace, replaceOther, ErrChanged},
		"replaced, then by another":    {lost, replace, replaceNext, ErrChanged},
		"replaced, then removed":       {lost, replace, removeNext, client.ErrAmbiguous},
		"replaced, then to the same":   {lost, replace, replaceSame, ErrChanged},
		"not replaced, but removed":    {notMade, replace, remove, client.ErrAmbiguous},
		"removed":                      {lost, remove, nil, nil},
		"not removed":                  {notMade, remove, nil, client.ErrAmbiguous},
		"not removed, but by another":  {notMade, remove, remove, nil},
		"not removed, but replaced":    {notMade, remove, replaceOther, client.ErrAmbiguous},
		"created":                      {lost, create, nil, nil},
		"not created":                  {notMade, create, nil, client.ErrAmbiguous},
		"not created, but by another":  {notMade, create, createOther, ErrChanged},
		"not created, but in the same": {notMade, create, create, nil},
	} {
		m, rows := newTable(t)
		r := created(t, m, 1000, "", "m")
		before := rows.Changes()
		fault := func(method, _ string) error {
			if method != api.MethodCheckAndMutate {
				return nil
			}
			rows.Before(nil)
			rows.After(nil)
			if c.between != nil {
				if err := c.between(m, r); err != nil {
					t.Errorf("%s: between: %v", name, err)
				}
				before++
			}
			return api.ErrOutcomeUnknown
		}
		if c.executed {
			rows.After(fault)
			before++
		} else {
			rows.Before(fault)
		}
		if err := c.change(m, r); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if rows.Changes() != before {
			t.Errorf("%s: %d changes were executed, want %d", name, rows.Changes(), before)
		}
	}
}

func replace(m *Table, r *metadata.Row) error {
	return m.Replace(context.Background(), with(r, "a.1"), "")
}
func replaceOther(m *Table, r *metadata.Row) error {
	return m.Replace(context.Background(), with(r, "b.2"), "")
}
func remove(m *Table, r *metadata.Row) error { return m.Remove(context.Background(), r) }

// next is a row after replace.
func next(r *metadata.Row) *metadata.Row {
	r = with(r, "a.1")
	r.Generation++
	return r
}

func replaceNext(m *Table, r *metadata.Row) error {
	return m.Replace(context.Background(), with(next(r), "b.2"), "")
}
func replaceSame(m *Table, r *metadata.Row) error {
	return m.Replace(context.Background(), with(next(r), "a.1"), "")
}
func removeNext(m *Table, r *metadata.Row) error { return m.Remove(context.Background(), next(r)) }

func create(m *Table, _ *metadata.Row) error {
	return m.Create(context.Background(), metarowstest.Row(1001, tableID, "m", ""), "")
}

func createOther(m *Table, _ *metadata.Row) error {
	return m.Create(context.Background(), with(metarowstest.Row(1001, tableID, "m", ""), "b.2"), "")
}

// TestRejectedChange: a change that a server has rejected was not made, and the row is not read again. If the row cannot be read after
// an unknown outcome, that stays unknown.
func TestRejectedChange(t *testing.T) {
	m, rows := newTable(t)
	r := created(t, m, 1000, "", "")
	reads := 0
	rows.Before(func(method, _ string) error {
		if method == api.MethodRead {
			reads++
		}
		return api.ErrDiskFull
	})
	if err := replace(m, r); !errors.Is(err, client.ErrDiskFull) || reads != 0 {
		t.Errorf("a full disk: %v, %d reads", err, reads)
	}
	rows.Before(func(method, _ string) error {
		if method == api.MethodRead {
			return api.ErrDiskFull
		}
		return api.ErrOutcomeUnknown
	})
	if err := replace(m, r); err == nil || errors.Is(err, ErrChanged) {
		t.Errorf("a row that cannot be read again: %v", err)
	}
	rows.Before(nil)
	if got, err := m.Get(t.Context(), tableID, nil); err != nil || got.Generation != r.Generation {
		t.Errorf("the row is %+v, %v", got, err)
	}
}

// TestDamagedRows: a reader of one damaged row gets a *metadata.FormatError. A reader of several gets the others, and of the damaged one its
// table and end, the error, or nothing, as each function states. Place reads a row with damage in columns that it does not need.
func TestDamagedRows(t *testing.T) {
	m, rows := newTable(t)
	ctx := t.Context()
	for i, end := range []string{"c", "f", "i", ""} {
		created(t, m, 1000+uint64(i), []string{"", "c", "f", "i"}[i], end)
	}
	bad := metadata.Key(nil, tableID, []byte("f"))
	rows.Plant(bad, "files", "meta", []byte{0xc1})
	var damage *metadata.FormatError
	if _, err := m.Get(ctx, tableID, []byte("f")); !errors.As(err, &damage) {
		t.Errorf("the damaged row: %v", err)
	}
	if r, err := m.Place(ctx, tableID, []byte("f")); err != nil || r.Generation != metadata.FirstGeneration(1001) {
		t.Errorf("its location: %+v, %v", r, err)
	}
	if _, err := m.Holder(ctx, tableID, []byte("d")); !errors.As(err, &damage) {
		t.Errorf("the tablet of row d: %v", err)
	}
	between, err := m.Between(ctx, tableID, nil, nil)
	if got := ends(between); err != nil || !slices.Equal(got, []string{"c", "f", "i"}) || between[1].Generation != 0 || between[0].Generation == 0 {
		t.Errorf("between: %q, %v", got, err)
	}
	var scanned, all []*metadata.Row
	from, to := metadata.TableRange(tableID)
	if err := m.Scan(ctx, string(from), string(to), nil, func(r *metadata.Row) { scanned = append(scanned, r) }); !errors.As(err, &damage) {
		t.Errorf("a scan: %v", err)
	}
	if got := ends(scanned); !slices.Equal(got, []string{"c"}) {
		t.Errorf("a scan reads %q, want the rows before the damaged one", got)
	}
	if err := m.Tablets(ctx, tableID, func(r *metadata.Row) error { all = append(all, r); return nil }); err != nil {
		t.Error(err)
	}
	if got := ends(all); !slices.Equal(got, []string{"c", "i", ""}) {
		t.Errorf("tablets: %q, want those that can be read", got)
	}
	stop := errors.New("stop")
	if err := m.Tablets(ctx, tableID, func(*metadata.Row) error { return stop }); err != stop {
		t.Errorf("an error of the caller: %v", err)
	}
	// A key that is none.
	rows.Plant([]byte("short"), "loc", "generation", []byte("12345678"))
	var broken []string
	err = m.ScanAll(ctx, "", "", nil, func(key string, r *metadata.Row, err error) error {
		if r == nil {
			broken = append(broken, key)
			if !errors.As(err, &damage) {
				t.Errorf("key %q: %v", key, err)
			}
		}
		return nil
	})
	if err != nil || !slices.Equal(broken, []string{"short"}) {
		t.Errorf("keys that are none: %q, %v", broken, err)
	}
}

func ends(rows []*metadata.Row) (all []string) {
	for _, r := range rows {
		all = append(all, string(r.End))
	}
	return all
}

// TestRanges: Holder and Between find the tablets of rows by their ranges, whose ends are inclusive, and no other table's.
func TestRanges(t *testing.T) {
	m, _ := newTable(t)
	ctx := t.Context()
	for i, end := range []string{"c", "f", ""} {
		created(t, m, 1000+uint64(i), []string{"", "c", "f"}[i], end)
	}
	for _, id := range []uint64{tableID - 1, tableID + 1} {
		if err := m.Create(ctx, metarowstest.Row(2*id, id, "", ""), ""); err != nil {
			t.Fatal(err)
		}
	}
	for row, want := range map[string]string{"a": "c", "c": "c", "c\x00": "f", "f": "f", "g": "", "": "c"} {
		if r, err := m.Holder(ctx, tableID, []byte(row)); err != nil || r.Table != tableID || string(r.End) != want {
			t.Errorf("row %q is in %+v, %v; want the tablet to %q", row, r, err, want)
		}
	}
	if _, err := m.Holder(ctx, tableID+7, []byte("a")); !errors.Is(err, ErrNoRow) {
		t.Errorf("a row of no table: %v", err)
	}
	for _, c := range []struct {
		start, end string
		want       []string
	}{{"", "", []string{"c", "f"}}, {"c", "", []string{"f"}}, {"", "f", []string{"c"}}, {"c", "f", nil}, {"a", "g", []string{"c", "f"}}} {
		rows, err := m.Between(ctx, tableID, []byte(c.start), []byte(c.end))
		if got := ends(rows); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("between %q and %q: %q, %v; want %q", c.start, c.end, got, err, c.want)
		}
	}
}

// openMeta returns access to a lock service without files.
func openMeta(t *testing.T) *namespace.Access {
	t.Helper()
	meta := &namespace.Access{Client: sessiontest.NewClient(t)}
	if err := meta.Open(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { meta.Close(context.Background(), slog.New(slog.DiscardHandler)) })
	return meta
}

// faultyFiles has the writes of a lock service fail once.
type faultyFiles struct {
	namespace.Files
	executed bool         // the write is executed first
	between  func() error // what happens before the next one
	failed   bool
}

// SetGuarded implements namespace.Files.
func (f *faultyFiles) SetGuarded(ctx context.Context, path string, data []byte, gen uint64, o metaapi.SetOptions) (uint64, error) {
	if f.failed {
		return f.Files.SetGuarded(ctx, path, data, gen, o)
	}
	f.failed = true
	if f.executed {
		if _, err := f.Files.SetGuarded(ctx, path, data, gen, o); err != nil {
			return 0, err
		}
	}
	if f.between != nil {
		if err := f.between(); err != nil {
			return 0, err
		}
	}
	return 0, metaapi.ErrOutcomeUnknown
}

// TestRoot: the root tablet's row is a file of the lock service, which is changed by compare-and-set, too. A write of unknown outcome is
// settled.
func TestRoot(t *testing.T) {
	meta, ctx := openMeta(t), t.Context()
	files := &faultyFiles{Files: meta, failed: true}
	m := NewTable(files, func() metaapi.SetOptions { return metaapi.SetOptions{} }, nil)
	if _, err := m.Root(ctx); !errors.Is(err, ErrNoRow) {
		t.Errorf("before there is one: %v", err)
	}
	describe := tablet.EncodeMeta(&tablet.Meta{ID: metadata.RootTabletID, Table: metadata.TableID, End: metadata.RootEnd()})
	data := metadata.EncodeRoot(&metadata.Row{Meta: describe})
	if _, err := m.SetRoot(ctx, data, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := m.SetRoot(ctx, data, 0); !errors.Is(err, ErrChanged) {
		t.Errorf("created twice: %v", err)
	}
	r, err := m.Get(ctx, metadata.TableID, metadata.RootEnd())
	if err != nil || !r.IsRoot() || r.Server != "" {
		t.Fatalf("the row is %+v, %v", r, err)
	}
	mine, other := with(r, "a.1"), with(r, "b.2")
	if err := m.Replace(ctx, mine, ""); err != nil || mine.Generation <= r.Generation {
		t.Fatalf("generation %d after %d: %v", mine.Generation, r.Generation, err)
	}
	if err := m.Replace(ctx, other, ""); !errors.Is(err, ErrChanged) || other.Generation != r.Generation {
		t.Errorf("another change of that generation: %v", err)
	}
	for _, row := range [][]byte{nil, metadata.RootEnd()} {
		if got, err := m.Holder(ctx, metadata.TableID, row); err != nil || got.Server != "a.1" {
			t.Errorf("the tablet of row %q is %+v, %v", row, got, err)
		}
	}
	for name, c := range map[string]struct {
		executed bool
		between  func() error
		want     error
	}{
		"written":     {true, nil, nil},
		"not written": {false, nil, nil}, // the write is repeated: at one generation it is made at most once
		"written by another": {false, func() error {
			_, err := meta.Set(ctx, metadata.RootPath, metadata.EncodeRoot(with(r, "c.3")), metaapi.AnyGeneration)
			return err
		}, ErrChanged},
	} {
		now, err := m.Root(ctx)
		if err != nil {
			t.Fatal(err)
		}
		*files = faultyFiles{Files: meta, executed: c.executed, between: c.between}
		change := with(now, "d.4")
		change.Recoveries = []string{name}
		if err := m.Replace(ctx, change, ""); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		after, err := m.Root(ctx)
		if err != nil || c.want == nil && !reflect.DeepEqual(after, change) || c.want != nil && after.Server != "c.3" {
			t.Errorf("%s: the row is %+v, %v; want %+v", name, after, err, change)
		}
	}
	stale := NewTable(meta, func() metaapi.SetOptions {
		return metaapi.SetOptions{Guard: metaapi.Sequencer{Path: metadata.RootPath, Mode: metaapi.Exclusive, LockGeneration: 1}}
	}, nil)
	now, err := m.Root(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stale.Replace(ctx, with(now, "e.5"), ""); !errors.Is(err, metaapi.ErrStale) {
		t.Errorf("a write by a server that has lost its lock: %v", err)
	}
	if _, err := meta.Set(ctx, metadata.RootPath, []byte("x"), metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	var damage *metadata.FormatError
	if _, err := m.Root(ctx); !errors.As(err, &damage) {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestDamaged: a row counts as damaged at the generation at which the damage was found, and no longer when it has changed.
func TestDamaged(t *testing.T) {
	var d Damaged
	bad := errors.New("damaged")
	if err := d.Why("k", 1); err != nil {
		t.Errorf("a row that was not noted: %v", err)
	}
	d.Note("k", 5, bad)
	if err := d.Why("k", 5); err != bad {
		t.Errorf("at its generation: %v", err)
	}
	if err := d.Why("l", 5); err != nil {
		t.Errorf("another row: %v", err)
	}
	for _, generation := range []uint64{6, 5} { // the change is remembered
		if err := d.Why("k", generation); err != nil {
			t.Errorf("at generation %d, after it has changed: %v", generation, err)
		}
	}
}

// TestPlacement: the placement counts the tablets of each table by server, those of the root tablet's table with the root tablet, and
// is an error as a whole if one part cannot be read.
func TestPlacement(t *testing.T) {
	meta, rows, ctx := openMeta(t), metarowstest.New(t), t.Context()
	m := NewTable(meta, func() metaapi.SetOptions { return metaapi.SetOptions{} }, rows.Table())
	if w := m.Placement(ctx, 0, meta); !errors.Is(w.Err, ErrNoRow) {
		t.Errorf("without a root tablet: %v", w.Err)
	}
	describe := tablet.EncodeMeta(&tablet.Meta{ID: metadata.RootTabletID, Table: metadata.TableID, End: metadata.RootEnd()})
	if _, err := m.SetRoot(ctx, metadata.EncodeRoot(&metadata.Row{Meta: describe, Server: "n1.1"}), 0); err != nil {
		t.Fatal(err)
	}
	for i, server := range []string{"n1.1", "n1.1", "n2.1", ""} {
		end := []string{"c", "f", "i", ""}[i]
		r := with(metarowstest.Row(1000+uint64(i), tableID, []string{"", "c", "f", "i"}[i], end), server)
		if err := m.Create(ctx, r, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Create(ctx, with(metarowstest.Row(2000, tableID+1, "", ""), "n3.1"), ""); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[uint64]map[uint64]map[string]int64{
		0:                {metadata.TableID: {"n1.1": 1}, tableID: {"n1.1": 2, "n2.1": 1, "": 1}, tableID + 1: {"n3.1": 1}},
		tableID:          {tableID: {"n1.1": 2, "n2.1": 1, "": 1}},
		metadata.TableID: {metadata.TableID: {"n1.1": 1}},
	} {
		w := m.Placement(ctx, id, meta)
		if w.Err != nil || !reflect.DeepEqual(w.Tablets, want) || w.Names[metadata.TableID] != metadata.Name {
			t.Errorf("of table %d: %+v; want %v", id, w, want)
		}
	}
	rows.Plant(metadata.Key(nil, tableID, []byte("f")), "loc", "generation", nil)
	if w := m.Placement(ctx, 0, meta); w.Err == nil || w.Tablets != nil {
		t.Errorf("with a damaged row: %+v", w)
	}
}
