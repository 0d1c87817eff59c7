package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/tables"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

const (
	// saveEvery is how often the position is saved. What was made since comes again after a failure, and is left out row by row.
	saveEvery = 5 * time.Second
	// saveIdle is how often it is saved without changes, so that it does not become stale.
	saveIdle = 24 * time.Hour
	// lanes is the number of changes that are made at a time, of different rows.
	lanes = 64
	// staleAfter is the age of a saved position after which rows are copied again. Positions of rows are kept for 31 days.
	staleAfter = 30 * 24 * time.Hour
)

// follow copies the rows that are not copied yet, and then makes changes as they come, until an error.
func (f *follower) follow(ctx context.Context) error {
	defer f.done.Store(nil)
	if err := f.load(ctx); err != nil {
		return err
	}
	if _, err := f.sync(ctx); err != nil {
		return err
	}
	if err := f.save(ctx); err != nil { // from now on, a former master begins no copy of a large row: see copyLarge
		return err
	}
	if !f.st.copied {
		f.following.Store(false)
		if err := f.copy(ctx); err != nil {
			return err
		}
	}
	err := f.changesFrom(ctx)
	if errors.Is(err, api.ErrOutOfRange) || errors.Is(err, errIncomplete) {
		f.Log.Warn("changes of the source are not enough: its rows are copied again", "replication", f.run.name, "table", f.table, "err", err)
		f.st = f.st.again()
		return errors.Join(err, f.save(ctx))
	}
	return err
}

// load reads the progress.
func (f *follower) load(ctx context.Context) error {
	id, err := f.tableOf(ctx, f.run, f.table)
	if err != nil {
		return err
	}
	file, err := f.Catalog.Meta.Get(ctx, statePath(f.run.name, f.table))
	if errors.Is(err, metaapi.ErrNotFound) {
		f.st, f.gen = &state{table: id}, 0
		return nil
	}
	if err != nil {
		return err
	}
	if f.st, err = decodeState(file.Data); err != nil {
		return err
	}
	f.gen = file.Generation
	if f.st.table != id && f.st.table != 0 { // of a table that had the name before
		f.st = &state{}
	}
	f.st.table = id
	if f.st.token != "" && !f.st.clears {
		f.Log.Warn("clears of the source may be missing, since an earlier version has followed it: its rows are copied again", "replication", f.run.name, "table", f.table)
	}
	if !f.st.clears || time.Since(f.st.saved) > staleAfter {
		f.st = f.st.again()
	}
	return nil
}

// save writes the progress. The error is metaapi.ErrGeneration if another master has written it.
func (f *follower) save(ctx context.Context) error {
	if err := f.saves.Wait(ctx); err != nil {
		return err
	}
	gen, err := f.Catalog.Set(ctx, statePath(f.run.name, f.table), f.st.encode(), f.gen)
	if err == nil {
		f.gen = gen
	}
	return err
}

// changesFrom makes the changes from the saved position on, until an error.
func (f *follower) changesFrom(ctx context.Context) error {
	p := &pages{follower: f}
	if err := p.begin(f.st.token); err != nil {
		return err
	}
	dirty := false
	for {
		n, err := p.next(ctx)
		if err != nil {
			return err
		}
		dirty = dirty || n > 0
		f.done.Store(&made{f.st.source, p.stream.Positions()})
		if at := p.stream.Watermark(); !at.IsZero() {
			f.watermark.Store(at.UnixMicro())
		}
		f.following.Store(true)
		f.failure.Store(nil)
		if age := time.Since(f.st.saved); age >= saveIdle || dirty && age >= saveEvery {
			if err := p.savePosition(ctx); err != nil {
				return err
			}
			dirty = false
		}
	}
}

var seed = maphash.MakeSeed()

// makeAll makes changes: those of a row in their order, and others at the same time. A clear is made between all changes before it and all after it. When makeAll
// returns nil, all are made.
func (f *follower) makeAll(ctx context.Context, got []client.Change) error {
	for len(got) > 0 {
		n := slices.IndexFunc(got, func(x client.Change) bool { return x.Cleared != nil })
		if n < 0 {
			return f.makeRows(ctx, got)
		}
		if err := f.makeRows(ctx, got[:n]); err != nil {
			return err
		}
		if err := f.makeClear(ctx, &got[n]); err != nil {
			return err
		}
		got = got[n+1:]
	}
	return nil
}

// makeClear deletes the rows of a clear that have no later change. All changes of them before it are made: so the rows without cells that are visible have none to
// delete, and need no position of the clear.
func (f *follower) makeClear(ctx context.Context, x *client.Change) error {
	moment.Pass("before a clear of the source is made", "")
	if err := f.throttle(ctx, changeBytes(x)); err != nil {
		return err
	}
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(lanes)
	err := eachKeyFrom(inGroup, f.to, x.Cleared.Start, x.Cleared.End, func(row []byte) bool {
		row = bytes.Clone(row)
		group.Go(func() error {
			c := &client.Change{Row: row, Seq: x.Seq, Time: x.Time, Mutations: []table.Mutation{table.DeleteRow()}, FamilyIDs: []uint32{0}}
			if err := f.throttle(inGroup, changeBytes(c)); err != nil {
				return err
			}
			return f.makeOne(inGroup, c)
		})
		return inGroup.Err() == nil
	})
	if failed := group.Wait(); failed != nil { // the cause of err, if there is one
		return failed
	}
	return err
}

// makeRows is makeAll for changes without clears.
func (f *follower) makeRows(ctx context.Context, got []client.Change) error {
	var of [lanes][]*client.Change
	bytes := 0
	for i := range got {
		x := &got[i]
		lane := maphash.Bytes(seed, x.Row) % lanes
		of[lane] = append(of[lane], x)
		bytes += changeBytes(x)
	}
	if err := f.throttle(ctx, bytes); err != nil {
		return err
	}
	group, inGroup := errgroup.WithContext(ctx)
	for _, all := range of {
		if len(all) == 0 {
			continue
		}
		group.Go(func() error {
			for _, x := range all {
				if err := f.makeOne(inGroup, x); err != nil && !planted.On(planted.FailedRowSkipped) {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func changeBytes(x *client.Change) int {
	n := len(x.Row)
	if x.Cleared != nil {
		n = len(x.Cleared.Start) + len(x.Cleared.End)
	}
	for i := range x.Mutations {
		n += len(x.Mutations[i].Family) + len(x.Mutations[i].Qualifier) + len(x.Mutations[i].Value) + 16
	}
	return n
}

// throttle counts bytes, and waits for the rate of the replication.
func (f *follower) throttle(ctx context.Context, bytes int) error {
	f.bytes.Add(int64(bytes))
	for limit := f.run.limit; limit != nil && bytes > 0; {
		n := min(bytes, limit.Burst())
		if err := limit.WaitN(ctx, n); err != nil {
			return err
		}
		bytes -= n
	}
	return nil
}

// errIncomplete means that a row is that of an incomplete copy.
var errIncomplete = errors.New("the copy of the row is incomplete")

// makeOne makes one change. The error is errIncomplete if the row has to be copied first.
func (f *follower) makeOne(ctx context.Context, x *client.Change) error {
	made, err := f.send(ctx, x, nil)
	if made == api.FollowedNow {
		f.changes.Add(1)
	}
	return err
}

// send makes a change, or a part of a row. It gives the table families that it lacks. The error is errIncomplete if the change is not made since the row is
// that of an incomplete copy, or of another one.
func (f *follower) send(ctx context.Context, x *client.Change, part *api.RowPart) (made api.Followed, err error) {
	moment.Pass("before a change of the source is made", "")
	made, err = f.to.Follow(ctx, f.run.name, f.st.table, x, part)
	if errors.Is(err, table.ErrNoFamily) {
		if x, err = f.known(ctx, x); err == nil {
			made, err = f.to.Follow(ctx, f.run.name, f.st.table, x, part)
		}
	}
	if err == nil && made == api.FollowedIncomplete {
		err = errIncomplete
	}
	if err != nil {
		return 0, fmt.Errorf("row %.64q: %w", x.Row, err)
	}
	return made, nil
}

// known gives the table the families of the source, and returns a change without the mutations of families that the source has not any more.
func (f *follower) known(ctx context.Context, x *client.Change) (*client.Change, error) {
	schema, err := f.sync(ctx)
	if err != nil {
		return x, err
	}
	left := &client.Change{Row: x.Row, Seq: x.Seq, Time: x.Time}
	for i, m := range x.Mutations {
		id := uint32(0)
		if len(x.FamilyIDs) > 0 {
			id = x.FamilyIDs[i]
		}
		if of := schema.Family(m.Family); m.Op == table.OpDeleteRow || of != nil && (id == 0 || of.ID == id) {
			left.Mutations, left.FamilyIDs = append(left.Mutations, m), append(left.FamilyIDs, id)
		}
	}
	return left, nil
}

// syncFamilies gives the table the families of the source, unless it has those of that version.
func (f *follower) syncFamilies(ctx context.Context, version uint64) (*families, error) {
	if last := f.families.Load(); last != nil && last.version == version {
		return last, nil
	}
	schema, err := f.sync(ctx)
	if err != nil {
		return nil, err
	}
	now := &families{version, schema} // or schema is of a later version, which the next result has
	f.families.Store(now)
	return now, nil
}

// sync gives the table the families of the source, whose schema it returns. A family that was dropped there is dropped here with its cells, also if
// another one has its name.
func (f *follower) sync(ctx context.Context) (*table.Schema, error) {
	f.syncing.Lock() // changes of several rows may find that a family is missing
	defer f.syncing.Unlock()
	source, err := f.describe(ctx)
	if err != nil {
		return nil, err
	}
	if f.st.source != 0 && f.st.source != source.ID { // its sequence numbers are others
		return nil, fmt.Errorf("the source's table %q was dropped and created again: remove the replication and the table, and create them again", f.table)
	}
	if f.st.source == 0 {
		f.st.source = source.ID
	}
	have, err := f.Catalog.SchemaOf(ctx, f.table)
	if err != nil {
		return nil, err
	}
	if err := f.run.check(have, f.st.table); err != nil {
		return nil, err
	}
	if sameFamilies(have, source) {
		return source, nil
	}
	if err := f.alters.Wait(ctx); err != nil {
		return nil, err
	}
	moment.Pass("before a table gets the families of the source", "")
	node := &authz.Subject{Peer: pki.Peer{Kind: pki.Node, Name: f.ID()}}
	return source, f.Changes.Do(ctx, authz.ChangeRequest{Caller: node}, func(ctx context.Context) error {
		_, err := tables.AlterNow(ctx, f.Tables, f.table, func(old *table.Schema) (*table.Schema, error) {
			if err := f.run.check(old, f.st.table); err != nil {
				return nil, err
			}
			return withFamilies(old, source)
		})
		return err
	})
}

// sameFamilies reports whether a table has the families of its source.
func sameFamilies(have, source *table.Schema) bool {
	for i := range source.Families {
		if x := have.Family(source.Families[i].Name); x == nil || x.Source != source.Families[i].ID {
			return false
		}
	}
	return len(have.Families) == len(source.Families)+1
}

// withFamilies returns the schema of a table with the families of its source.
func withFamilies(have, source *table.Schema) (s *table.Schema, err error) {
	s = have
	for _, x := range have.Families {
		if x.Name == table.PositionFamily || x.Source >= source.NextFamilyID { // the second is younger than source
			continue
		}
		if of := source.Family(x.Name); of == nil || of.ID > x.Source {
			if s, err = s.DropFamily(x.Name); err != nil {
				return nil, err
			}
		}
	}
	for _, x := range source.Families {
		if s.Family(x.Name) == nil {
			if s.Group(x.Group) == nil {
				x.Group = table.DefaultGroup
			}
			x.Source = x.ID
			if s, err = s.AddFamily(x); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}
