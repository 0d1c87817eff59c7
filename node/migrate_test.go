package node_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/migrate"
	"github.com/steledb/stele/table"
)

// migration returns a migration of a replicated table.
func (r *replicated) migration() migrate.Config {
	return migrate.Config{Source: r.from.c, Target: r.to.c, Table: "t", PauseMax: 10 * time.Second, Report: func(step string) { r.t.Log(step) }}
}

// accepts returns the error of a change of one of the tables.
func (r *replicated) accepts(c *client.Client) error {
	return c.Table("t").Apply(r.ctx, client.NewRowMutation("accepts").Set("g:q", []byte("v")))
}

// movingWriter writes to the source until it refuses changes, and then to the target. It records what was acknowledged, and where.
type movingWriter struct {
	acknowledged []string
	sourceBegan  time.Time // when the last change of the source began
	targetEnded  time.Time // when the first change of the target ended
}

func (w *movingWriter) run(r *replicated, id int, stop <-chan struct{}) error {
	at := r.from.c
	for n := 0; ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		row, began := fmt.Sprintf("row%03d-%d-%06d", n%60, id, n), time.Now()
		err := at.Table("t").Apply(r.ctx, client.NewRowMutation(row).Set("g:q", []byte(row)))
		switch {
		case err == nil && at == r.from.c:
			w.sourceBegan = began
		case err == nil && w.targetEnded.IsZero():
			w.targetEnded = time.Now()
		case errors.Is(err, client.ErrReadOnly):
			at = r.to.c
			continue
		case errors.Is(err, api.ErrFollower):
			time.Sleep(time.Millisecond)
			continue
		case err != nil:
			return err
		}
		w.acknowledged = append(w.acknowledged, row)
	}
}

// TestMigrate (MG1, MG2): a table moves to another cluster while clients write. All that either cluster has acknowledged is there, and the source acknowledges nothing
// that began after the target has acknowledged a change.
func TestMigrate(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	r.add()
	var writers [8]movingWriter
	var group sync.WaitGroup
	stop := make(chan struct{})
	for i := range writers {
		group.Go(func() {
			if err := writers[i].run(r, i, stop); err != nil {
				t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	refused, err := migrate.Run(r.ctx, r.migration())
	time.Sleep(100 * time.Millisecond)
	close(stop)
	group.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("changes were refused for %v", refused)
	rows, total := r.to.rows("t"), 0
	for i := range writers {
		w := &writers[i]
		total += len(w.acknowledged)
		for _, row := range w.acknowledged {
			if _, ok := rows[row]; !ok {
				t.Fatalf("row %s was acknowledged, and is not in the target", row)
			}
		}
		if w.targetEnded.IsZero() {
			t.Errorf("writer %d did not reach the target", i)
		}
		for j := range writers {
			if w.sourceBegan.After(writers[j].targetEnded) {
				t.Errorf("the source acknowledged a change that began at %v, the target one that ended at %v", w.sourceBegan, writers[j].targetEnded)
			}
		}
	}
	t.Logf("%d rows were written", total)
	if err := r.accepts(r.from.c); !errors.Is(err, client.ErrReadOnly) {
		t.Errorf("a change of the source: %v, want %v", err, client.ErrReadOnly)
	}
	if err := r.from.c.Tables().ClearRows(r.ctx, "t", "a", "b"); !errors.Is(err, client.ErrReadOnly) {
		t.Errorf("a clear of the source: %v, want %v", err, client.ErrReadOnly)
	}
	if _, err := migrate.Run(r.ctx, r.migration()); !errors.Is(err, api.ErrNotFollower) {
		t.Errorf("a second migration: %v, want %v", err, api.ErrNotFollower)
	}
}

// TestMigrateGivesUp (MG3): if the last changes are not made, the source accepts changes again, and the table can be moved later.
func TestMigrateGivesUp(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	r.add()
	cfg := r.migration()
	cfg.Report = func(step string) { // the last changes are not made
		t.Log(step)
		if err := r.to.c.Replications().Pause(r.ctx, "east"); err != nil {
			t.Error(err)
		}
	}
	r.equal("at first")
	if _, err := migrate.Run(r.ctx, cfg); err == nil {
		t.Error("a paused replication was promoted")
	}
	if err := r.accepts(r.from.c); err != nil {
		t.Errorf("the source after the migration has failed: %v", err)
	}
	if err := r.accepts(r.to.c); !errors.Is(err, api.ErrFollower) {
		t.Errorf("the target after the migration has failed: %v", err)
	}
	resume := func() {
		if err := r.to.c.Replications().Resume(r.ctx, "east"); err != nil {
			t.Fatal(err)
		}
		r.equal("after it is resumed")
	}
	resume()
	left := "an interrupted migration"
	good(r.from.c.Tables().Alter(r.ctx, "t", table.Change{Op: table.ChangeReadOnly, ReadOnly: table.ReadOnlyChange{Reason: left}}))
	var stuck *migrate.StuckError
	if _, err := migrate.Run(r.ctx, cfg); !errors.As(err, &stuck) {
		t.Errorf("a migration of a table that was read-only: %v", err)
	}
	resume()
	if info := good(r.from.c.Tables().Describe(r.ctx, "t")); info.Schema.ReadOnly != left {
		t.Errorf("the source is read-only for %q, want %q", info.Schema.ReadOnly, left)
	}
	if _, err := migrate.Run(r.ctx, r.migration()); err != nil {
		t.Error(err)
	}
	if err := r.accepts(r.to.c); err != nil {
		t.Errorf("the target after the migration: %v", err)
	}
}

// TestMigrateOtherSource (MG2): a table is not promoted if another one than its source became read-only, and that one accepts changes again.
func TestMigrateOtherSource(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	r.add()
	other := newBackupCluster(t, 1)
	newTimed(other)
	cfg := r.migration()
	cfg.Source = other.c
	if _, err := migrate.Run(r.ctx, cfg); !errors.Is(err, migrate.ErrOtherSource) {
		t.Errorf("%v, want %v", err, migrate.ErrOtherSource)
	}
	for name, c := range map[string]*client.Client{"source": r.from.c, "other cluster": other.c} {
		if err := r.accepts(c); err != nil {
			t.Errorf("the %s: %v", name, err)
		}
	}
	if err := r.accepts(r.to.c); !errors.Is(err, api.ErrFollower) {
		t.Errorf("the target: %v", err)
	}
}

// TestMigrateTwice (MG2, MG3): of two migrations at once at most one moves the table, and the source stays read-only once it is moved.
func TestMigrateTwice(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	r.add()
	var errs [3]error
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() { _, errs[i] = migrate.Run(r.ctx, r.migration()) })
	}
	group.Wait()
	moved := r.accepts(r.to.c) == nil
	if source := r.accepts(r.from.c); moved == (source == nil) {
		t.Errorf("moved: %v, the source: %v; %v", moved, source, errs)
	}
	if !moved {
		t.Errorf("none of them has moved the table: %v", errs)
	}
}

// TestMigrateByAnyNode: each node of an open cluster knows the state of replications, and whether a table has all changes. A table is moved by a node that is not
// the master, also if the master dies before.
func TestMigrateByAnyNode(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 3)
	r.add()
	r.equal("after the copy")
	for i := range r.to.addrs {
		c := r.to.client(i)
		good(c.Replications().Sync(r.ctx, "t"))
		all := good(c.Replications().List(r.ctx))
		for end := time.Now().Add(10 * time.Second); all[0].Tables[0].State == api.ReplicationCopying && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			all = good(c.Replications().List(r.ctx))
		}
		if x := &all[0].Tables[0]; x.State != api.ReplicationFollowing || x.LagMS < 0 {
			t.Errorf("node %d: %+v", i, x)
		}
	}
	master := r.to.master()
	r.to.stop(master)
	r.x.step()
	cfg := r.migration()
	cfg.Target = r.to.client((master + 1) % 3)
	refused := good(migrate.Run(r.ctx, cfg))
	t.Logf("changes were refused for %v", refused)
	if err := r.accepts(cfg.Target); err != nil {
		t.Errorf("the target: %v", err)
	}
}

// TestMigrateFamilies (MG1): families that are added and dropped while a table is moved are those of the target, and a read-only table accepts no other ones.
func TestMigrateFamilies(t *testing.T) {
	t.Parallel()
	r := newReplicated(t, 1)
	r.add()
	r.equal("after the copy")
	want := map[string]bool{}
	change := func(n int) error {
		name := fmt.Sprintf("n%02d", n/2)
		if n%4 == 3 {
			_, err := r.from.c.Tables().Alter(r.ctx, "t", table.Change{Op: table.ChangeDrop, Family: table.FamilySpec{Name: name}})
			if err == nil {
				delete(want, name)
			}
			return err
		}
		_, err := r.from.c.Tables().SetFamily(r.ctx, "t", table.FamilySpec{Name: name})
		if err == nil {
			want[name] = true
		}
		return err
	}
	ended := make(chan error, 1)
	cfg := r.migration()
	cfg.Report = func(step string) {
		t.Log(step)
		if len(want) > 0 || step != "making the source read-only" {
			return
		}
		if err := change(0); err != nil {
			t.Error(err)
		}
		go func() {
			for n := 1; n < 40; n++ {
				if err := change(n); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	good(migrate.Run(r.ctx, cfg))
	if err := <-ended; !errors.Is(err, client.ErrReadOnly) {
		t.Errorf("a family of the source: %v, want %v", err, client.ErrReadOnly)
	}
	if _, err := r.from.c.Tables().DropFamily(r.ctx, "t", "f"); !errors.Is(err, client.ErrReadOnly) {
		t.Errorf("the drop of a family of the source: %v, want %v", err, client.ErrReadOnly)
	}
	got := good(r.to.c.Tables().Describe(r.ctx, "t")).Schema
	for n := range 41 {
		if name := fmt.Sprintf("n%02d", n/2); want[name] != (got.Family(name) != nil) {
			t.Errorf("family %s is in the source: %v, in the target: %v", name, want[name], got.Family(name) != nil)
		}
	}
}
