package backups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/backup"
	"github.com/steledb/stele/node/changes/changestest"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/roots"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// mortal is a lock service whose client dies at a write: before it is made, or before its answer arrives.
type mortal struct {
	namespace.Files
	writes, dies int // it dies at this write; 0: never
	made         bool
}

var errDead = errors.New("the master is dead")

func (m *mortal) write(do func() error) error {
	m.writes++
	if m.dies == 0 || m.writes < m.dies {
		return do()
	}
	if m.writes == m.dies && m.made {
		if err := do(); err != nil {
			return err
		}
	}
	return errDead
}

func (m *mortal) SetGuarded(ctx context.Context, path string, data []byte, gen uint64, o metaapi.SetOptions) (made uint64, err error) {
	err = m.write(func() error {
		made, err = m.Files.SetGuarded(ctx, path, data, gen, o)
		return err
	})
	return made, err
}

func (m *mortal) DeleteGuarded(ctx context.Context, path string, gen uint64, o metaapi.SetOptions) error {
	return m.write(func() error { return m.Files.DeleteGuarded(ctx, path, gen, o) })
}

// schedules is a cluster with schedules.
type schedules struct {
	scheduler
	t    *testing.T
	node *changestest.Node
}

func newSchedules(t *testing.T) *schedules {
	n := changestest.New(t)
	s := &schedules{t: t, node: n}
	s.scheduler = s.master(0, false)
	return s
}

// master returns the scheduler of a master that dies at a write.
func (s *schedules) master(dies int, made bool) scheduler {
	catalog := &namespace.Catalog{Meta: &mortal{Files: s.node.Meta, dies: dies, made: made}}
	return scheduler{New(Config{
		Ctx: s.t.Context(), Log: s.node.Log, ID: func() string { return changestest.ID }, Catalog: catalog, Changes: s.node.Changes,
		Roots: &roots.Reader{Catalog: catalog, Meta: s.node.Meta}, MasterEpoch: s.node.Epoch,
	})}
}

func (s *schedules) table(id uint64, name string) {
	s.t.Helper()
	if err := s.Catalog.SaveTable(s.t.Context(), table.NewSchema(name, id), nil, 0); err != nil {
		s.t.Fatal(err)
	}
}

func (s *schedules) schedule(name string, every time.Duration, first time.Time, tables ...string) {
	s.t.Helper()
	r := &api.CreateScheduleRequest{Name: name, Tables: tables, Every: every, Keep: 3 * every, First: first}
	if err := s.own(s.t.Context(), func(ctx context.Context) error { return s.add(ctx, r, "ann", first.Add(-time.Hour)) }); err != nil {
		s.t.Fatal(err)
	}
}

// end ends all backups that are being made.
func (s *schedules) end(state backup.State) {
	s.t.Helper()
	for _, x := range s.backups() {
		if x.rec.State == backup.Making {
			if x.rec.State = state; state == backup.Made {
				x.rec.Manifest = blobfs.Handle{ID: blobfs.ID{1}, Length: 1, Extents: []blobfs.ExtentRef{{Length: 1, Replicas: []string{"n1"}}}}
			} else {
				x.rec.Error = "disks are full"
			}
			if _, err := s.Catalog.Set(s.t.Context(), backup.Path(x.id), x.rec.Encode(), metaapi.AnyGeneration); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

func (s *schedules) backups() []entry {
	s.t.Helper()
	all, err := s.all(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

func (s *schedules) ids() (ids []string) {
	for _, x := range s.backups() {
		ids = append(ids, x.id)
	}
	return ids
}

func (s *schedules) runAt(now time.Time) {
	s.t.Helper()
	if err := s.run(s.t.Context(), now); err != nil {
		s.t.Fatal(err)
	}
}

func (s *schedules) info(now time.Time) api.ScheduleInfo {
	s.t.Helper()
	names, err := s.Roots.Meta.Tables(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	all, err := s.infos(s.t.Context(), now, names)
	if err != nil || len(all) != 1 {
		s.t.Fatalf("schedules %+v, %v", all, err)
	}
	return all[0]
}

var firstDue = time.Date(2026, 11, 28, 2, 0, 0, 0, time.UTC)

// TestMastersDie (BU7): masters die before and after each write of a run, also several in a row. Each due time has one backup, and due times that were
// missed have one together.
func TestMastersDie(t *testing.T) {
	for dies := 1; ; dies++ {
		s := newSchedules(t)
		s.table(100, "t")
		s.schedule("daily", 24*time.Hour, firstDue, "t")
		died := false
		for _, made := range []bool{false, true} {
			err := s.master(dies, made).run(t.Context(), firstDue.Add(time.Second))
			if died = died || errors.Is(err, errDead); err != nil && !errors.Is(err, errDead) {
				t.Fatal(err)
			}
		}
		want := []string{backup.ScheduledID("daily", firstDue)}
		for i := range 3 { // the next master, which looks each second
			s.runAt(firstDue.Add(time.Duration(2+i) * time.Second))
		}
		if got := s.ids(); !slices.Equal(got, want) {
			t.Fatalf("masters that die at write %d: backups %v, want %v", dies, got, want)
		}
		if b := s.backups()[0].rec; !b.Expires.Equal(b.Created.Add(3*24*time.Hour)) || b.Schedule != "daily" || b.By != "ann" || !slices.Equal(b.Tables, []string{"t"}) {
			t.Errorf("the backup is %+v", b)
		}
		s.end(backup.Made)
		// No master for days, and then one that dies.
		late := firstDue.Add(80 * time.Hour)
		for _, made := range []bool{false, true} {
			if err := s.master(dies, made).run(t.Context(), late); err != nil && !errors.Is(err, errDead) {
				t.Fatal(err)
			}
		}
		s.runAt(late.Add(time.Second))
		s.runAt(late.Add(time.Minute))
		want = append(want, backup.ScheduledID("daily", firstDue.Add(72*time.Hour)))
		if got := s.ids(); !slices.Equal(got, want) {
			t.Fatalf("masters that die at write %d, and days later: backups %v, want %v", dies, got, want)
		}
		if i := s.info(late); i.LastBackup != want[1] || i.LastMS != firstDue.Add(72*time.Hour).UnixMilli() || i.NextMS != firstDue.Add(96*time.Hour).UnixMilli() {
			t.Errorf("the schedule is %+v", i)
		}
		if !died {
			return
		}
	}
}

// TestScheduledExpiry (BU8): backups of a schedule expire, but not the newest that is made, whatever fails after it. One that is being made
// holds up the next.
func TestScheduledExpiry(t *testing.T) {
	s := newSchedules(t)
	s.table(100, "t")
	s.schedule("hourly", time.Hour, firstDue)
	at := func(hours int) time.Time { return firstDue.Add(time.Duration(hours) * time.Hour) }
	expire := func(now time.Time) {
		t.Helper()
		if err := s.expireAll(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	id := func(hours int) string { return backup.ScheduledID("hourly", at(hours)) }
	s.runAt(at(0))
	s.runAt(at(1))
	if got := s.ids(); len(got) != 1 {
		t.Errorf("while one is being made there are %v", got)
	}
	s.end(backup.Made)
	for i := 1; i <= 2; i++ {
		s.runAt(at(i))
		s.end(backup.Made)
	}
	for i := 3; i <= 4; i++ {
		s.runAt(at(i))
		s.end(backup.Failed)
	}
	if i := s.info(at(4)); i.Failures != 2 || i.State != api.BackupFailed || i.Error != "disks are full" || i.GoodMS != at(2).UnixMilli() || !i.Failing() {
		t.Errorf("the schedule is %+v", i)
	}
	expire(at(4))
	if got := s.ids(); !slices.Equal(got, []string{id(2), id(3), id(4)}) {
		t.Errorf("after 4 hours there are %v", got)
	}
	expire(at(1000))
	if got := s.ids(); !slices.Equal(got, []string{id(2)}) {
		t.Errorf("after weeks of failures there are %v, want the last good one", got)
	}
	s.runAt(at(1000))
	expire(at(1001))
	if got := s.ids(); len(got) != 2 {
		t.Errorf("while another is being made there are %v", got)
	}
	s.end(backup.Made)
	expire(at(1001))
	if got := s.ids(); !slices.Equal(got, []string{id(1000)}) {
		t.Errorf("with a newer one there are %v", got)
	}
	if i := s.info(at(1001)); i.Failures != 0 || i.Failing() || i.State != api.BackupMade {
		t.Errorf("the schedule is %+v", i)
	}
}

// TestTablesOfSchedules: renamed tables stay in a schedule; of dropped ones that with the name takes the place; what is left out is reported. A run that
// cannot begin is reported and begins later.
func TestTablesOfSchedules(t *testing.T) {
	s := newSchedules(t)
	s.table(100, "a")
	s.table(101, "b")
	s.schedule("s", time.Hour, firstDue, "b", "a")
	ctx := t.Context()
	rename := func(from, to string) {
		t.Helper()
		schema, gen, err := s.Catalog.Schema(ctx, from)
		if err == nil {
			schema.Name = to
			err = s.Catalog.RenameTable(ctx, from, gen, schema, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	drop := func(name string) {
		t.Helper()
		if err := s.Catalog.Remove(ctx, namespace.TablePath(name), metaapi.AnyGeneration); err != nil {
			t.Fatal(err)
		}
	}
	tables := func(hours int, want ...string) api.ScheduleInfo {
		t.Helper()
		now := firstDue.Add(time.Duration(hours) * time.Hour)
		s.runAt(now)
		all := s.backups()
		if got := all[len(all)-1].rec.Tables; !slices.Equal(got, want) {
			t.Errorf("after %d hours a backup of %v, want %v", hours, got, want)
		}
		s.end(backup.Made)
		return s.info(now)
	}
	rename("a", "z")
	if i := tables(0, "b", "z"); i.Failing() || !slices.Equal(i.Tables, []string{"b", "z"}) {
		t.Errorf("the schedule is %+v", i)
	}
	drop("b")
	if i := tables(1, "z"); !i.Failing() || i.Error != "left out: there is no table b" || i.State != api.BackupMade {
		t.Errorf("the schedule is %+v", i)
	}
	s.table(102, "b")
	if i := tables(2, "b", "z"); i.Failing() {
		t.Errorf("the schedule is %+v", i)
	}
	drop("b")
	drop("z")
	before := len(s.backups())
	s.runAt(firstDue.Add(3 * time.Hour))
	if i := s.info(firstDue.Add(3 * time.Hour)); i.Error != "there is no table to back up" || len(s.backups()) != before || i.NextMS != firstDue.Add(3*time.Hour).UnixMilli() {
		t.Errorf("without tables the schedule is %+v, and there are %d backups", i, len(s.backups()))
	}
	s.table(103, "a")
	if i := tables(3, "a"); i.Error != "left out: there is no table b" || i.LastMS != firstDue.Add(3*time.Hour).UnixMilli() {
		t.Errorf("the schedule is %+v", i)
	}
}

// TestBoundsOfSchedules: names, periods and numbers of schedules have bounds, and no name is taken twice.
func TestBoundsOfSchedules(t *testing.T) {
	s := newSchedules(t)
	s.table(100, "t")
	add := func(r api.CreateScheduleRequest) error {
		return s.own(t.Context(), func(ctx context.Context) error { return s.add(ctx, &r, "", time.Now()) })
	}
	good := api.CreateScheduleRequest{Name: "x", Every: time.Hour, Keep: time.Hour}
	if err := add(good); err != nil {
		t.Fatal(err)
	}
	if err := add(good); !errors.Is(err, rpc.CodeBadRequest) {
		t.Errorf("a second one: %v", err)
	}
	bad := good
	bad.Name, bad.Tables = "y", []string{"absent"}
	if err := add(bad); !errors.Is(err, api.ErrNoTable) {
		t.Errorf("without its table: %v", err)
	}
	if bad.Tables = []string{"METADATA"}; !errors.Is(add(bad), api.ErrSystemTable) {
		t.Error("METADATA is backed up")
	}
	if bad.Tables = []string{"t", "t"}; add(bad) == nil {
		t.Error("a table twice is accepted")
	}
	for i := 1; i < api.SchedulesMax; i++ {
		r := good
		r.Name = fmt.Sprint("s", i)
		if err := add(r); err != nil {
			t.Fatal(err)
		}
	}
	var limit *table.LimitError
	if err := add(api.CreateScheduleRequest{Name: "z", Every: time.Hour, Keep: time.Hour}); !errors.As(err, &limit) {
		t.Errorf("more than %d: %v", api.SchedulesMax, err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "-a", strings.Repeat("a", api.ScheduleNameMax+1), "a b", "é"} {
		if api.CheckScheduleName(name) == nil {
			t.Errorf("the name %q is accepted", name)
		}
	}
}
