package tablet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/latch"
)

// CheckAndMutate applies yes to the row if predicate passes any cell of it, and no otherwise. It
// reports whether the predicate matched. A nil predicate passes every cell; an empty list of
// mutations changes nothing. The row cannot change between the check and the mutation (I2).
//
// Errors: as Apply and ReadRow. If ctx ends first, the mutation may still be made.
func (as For) CheckAndMutate(ctx context.Context, tableName string, row []byte, predicate *table.Program, yes, no []table.Mutation) (matched bool, err error) {
	_, err = as.modify(ctx, tableName, row, predicate, func(r *reader, t *Tablet) (*table.RowMutation, error) {
		if err := as.checkBranches(t.schema.Load(), row, yes, no); err != nil {
			return nil, err
		}
		matched, r.access = false, as.a
		err := r.readRow(ctx, t, row, predicate, func([]byte, []table.Cell) error {
			matched = true
			return nil
		})
		rm := &table.RowMutation{Row: row, Mutations: no}
		if matched {
			rm.Mutations = yes
		}
		return rm, err
	})
	return matched, err
}

// positionQualifier is the column of the family of positions that has the position of the row.
const positionQualifier = "seq"

// rowPosition is how far a row follows the one of the source.
type rowPosition struct {
	seq uint64 // of the last change that it has
	// copy and parts are those of the incomplete copy that the row is, and the number of its parts; 0 if it is complete.
	copy, parts uint64
}

// encode returns the position as a value of 8 bytes if the row is complete, and of 24 otherwise.
func (p rowPosition) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, p.seq)
	if p.copy != 0 {
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, p.copy), p.parts)
	}
	return b
}

// errPositionFormat means that the position of a row has a format that this version does not know. Without its whole meaning no change may be made.
var errPositionFormat = errors.New("the row's position was written by a later version, or is damaged: update this node")

// decodePosition decodes a position; an empty one is that of a row without changes. The error is errPositionFormat.
func decodePosition(b []byte) (p rowPosition, err error) {
	switch len(b) {
	case 0:
	case 24:
		p.copy, p.parts = binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
		fallthrough
	case 8:
		p.seq = binary.BigEndian.Uint64(b)
	default:
		return p, fmt.Errorf("%w: it has %d bytes", errPositionFormat, len(b))
	}
	return p, nil
}

// follow returns what a change does to a row with the position, and the row's position after it.
func (p rowPosition) follow(c *api.Change, part *api.RowPart) (api.Followed, rowPosition) {
	next := rowPosition{seq: c.Seq}
	switch {
	case part == nil:
		whole := len(c.Mutations) > 0 && c.Mutations[0].Op == table.OpDeleteRow
		if p.copy != 0 && (!whole || p.seq > c.Seq) {
			return api.FollowedIncomplete, p
		}
		if whole && len(c.Mutations) == 1 && planted.On(planted.ClearUnpositioned) {
			return api.FollowedNow, rowPosition{seq: max(p.seq, c.Seq)}
		}
		if p.copy == 0 && p.seq >= c.Seq && !planted.On(planted.RowPositionIgnored) {
			return api.FollowedBefore, p
		}
		return api.FollowedNow, next
	case p.copy == part.Copy && p.parts > part.Index, p.copy == 0 && p.seq >= c.Seq:
		return api.FollowedBefore, p
	case part.Index == 0 && p.seq > c.Seq, part.Index > 0 && (p.copy != part.Copy || p.parts != part.Index):
		return api.FollowedIncomplete, p
	}
	if !part.Last {
		next.copy, next.parts = part.Copy, part.Index+1
	}
	return api.FollowedNow, next
}

// Follow makes a change in a table that follows another one, unless the row has it already: its position, in the same commit, has a sequence
// number of at least that of the change. So each change is made once, if those of a row come in order, however often they come. Likewise for the
// parts of a row: each is made once, after the one before it, and only if no other copy of the row has begun since the first one. The change
// may be as large as an ordinary one, since its position does not count.
//
// Mutations of families that the source has dropped are left out: those with an id below that of the family that the one of this table follows.
//
// Errors: as Apply and ReadRow; table.ErrNoFamily if the family of this table follows one with a lower id; api.ErrNotFollower if the table does not follow
// the replication, or not any more.
func (as For) Follow(ctx context.Context, f *api.FollowRequest) (made api.Followed, err error) {
	as.follows = f.Replication
	c := &f.Change
	_, err = as.modify(ctx, f.Table, c.Row, nil, func(r *reader, t *Tablet) (*table.RowMutation, error) {
		rm := &table.RowMutation{Row: c.Row}
		sc := t.schema.Load().table
		if sc.Follows != f.Replication {
			return nil, fmt.Errorf("table %q: %w", sc.Name, api.ErrNotFollower)
		}
		mutations, err := ofFamilies(sc, c)
		if err != nil {
			return nil, err
		}
		var last table.Cell
		r.positions = true
		rule := table.Rule{Family: table.PositionFamily, Qualifier: []byte(positionQualifier)}
		if err := r.newest(ctx, t, c.Row, &rule, &last); err != nil {
			return nil, err
		}
		before, err := decodePosition(last.Value)
		if err != nil {
			return nil, err
		}
		var next rowPosition
		if made, next = before.follow(c, f.Part); made == api.FollowedNow {
			at := max(t.stampFloor(), last.Timestamp) // the policy of the family keeps it by its age from now on
			rm.Mutations = append(mutations, table.Set(table.PositionFamily, []byte(positionQualifier), at, next.encode()))
		}
		return rm, nil
	})
	return made, err
}

// applyOnce is applyTo for a mutation with a token: it is not made if the row has the cell of the token, which is written in the same commit (T18).
func (as For) applyOnce(t *Tablet, rm *table.RowMutation, done func(timestamp int64, err error)) error {
	s, sc := as.s, t.schema.Load()
	if as.a != nil {
		as.a.Begin()
	}
	rm, err := as.check(sc, rm)
	if err == nil {
		err = rm.Token.CheckStart(s.gcClock.Now())
	}
	if err == nil {
		err = s.writes.admit(t, rm, as.trace)
	}
	if err != nil {
		return err
	}
	l := t.fence.latches.Of(rm.Row)
	if err := as.lockExclusive(context.Background(), l, nil); err != nil {
		s.writeMemory.Release(s.writes.chargeBytes(rm))
		return err
	}
	made, there := int64(0), false
	if t.fence.raised.Load() != nil {
		err = errFenced
	} else if made, there, err = as.findToken(t, rm); err == nil && (changed(as.a) || t.schema.Load() != sc || !sc.current()) {
		err = errChanged // T12
	}
	if err == nil && !there {
		exclusive := &exclusiveWrite{floor: t.stampFloor()}
		as.commitLatched(t, sc, rm, l, exclusive, func(stamp int64, err error) {
			exclusive.times.report(as.trace)
			done(stamp, err)
		})
		return nil
	}
	s.writeMemory.Release(s.writes.chargeBytes(rm))
	l.UnlockExclusive()
	if err == nil {
		err = s.checkServing()
	}
	if err == nil && (changed(as.a) || !sc.current()) || err == errGone { // after checkServing
		err = errChanged
	}
	if err != nil {
		return err
	}
	if !stamped(rm) {
		made = 0
	}
	done(made, nil)
	return nil
}

// findToken reports whether the row of rm has the cell of its token, and the timestamp of the cell. The row's latch is held.
func (as For) findToken(t *Tablet, rm *table.RowMutation) (made int64, there bool, err error) {
	if planted.On(planted.TokenIgnored) {
		return 0, false, nil
	}
	r := readerPool.Get().(*reader)
	defer r.release()
	r.beginLatched(as)
	r.token = tokenColumn(rm.Token)
	err = r.readRow(context.Background(), t, rm.Row, nil, func(_ []byte, cells []table.Cell) error {
		made, there = cells[0].Timestamp, true
		return nil
	})
	return made, there, err
}

// ofFamilies returns the mutations of a change that are of the families which those of a table follow.
func ofFamilies(sc *table.Schema, c *api.Change) (all []table.Mutation, err error) {
	for i := range c.Mutations {
		m := &c.Mutations[i]
		if f := sc.Family(m.Family); f != nil && m.Op != table.OpDeleteRow && len(c.FamilyIDs) > 0 && !planted.On(planted.FamilyIDsIgnored) {
			switch id := c.FamilyIDs[i]; {
			case f.Source > id:
				continue
			case f.Source < id:
				return nil, &table.NoFamilyError{Table: sc.Name, Family: m.Family}
			}
		}
		all = append(all, *m)
	}
	return all, nil
}

// checkBranches checks both lists of mutations, whatever the predicate will choose: an invalid
// request fails whatever the row holds.
func (as For) checkBranches(sc *schema, row []byte, yes, no []table.Mutation) error {
	for _, branch := range []struct {
		when      string
		mutations []table.Mutation
	}{{"with a match", yes}, {"without a match", no}} {
		if len(branch.mutations) == 0 {
			continue
		}
		_, err := as.check(sc, &table.RowMutation{Row: row, Mutations: branch.mutations})
		// a table that is hidden from the caller is reported as missing
		if errors.Is(err, api.ErrNoTable) {
			return err
		}
		if err != nil {
			return fmt.Errorf("%s: %w", branch.when, err)
		}
	}
	return nil
}

// ReadModifyWrite applies rules in order to the newest cells of their columns. It returns the row
// with the cells that it has written, one for each column.
//
// A new cell has the server's timestamp, or that of the cell that it replaces if that is in the
// future, so that the new cell is the newest. Unless bytesMax is 0, it bounds the result of api.RowMemory for the new cells. Errors: as Apply and ReadRow,
// api.ErrNotNumber, table.ErrBadOp, *api.RowTooLargeError. If ctx ends first, the rules may still be applied.
func (as For) ReadModifyWrite(ctx context.Context, tableName string, row []byte, rules []table.Rule, bytesMax int64) (table.Row, error) {
	s, result := as.s, table.Row{Key: slices.Clone(row)}
	stamp, err := as.modify(ctx, tableName, row, nil, func(r *reader, t *Tablet) (*table.RowMutation, error) {
		rm := &table.RowMutation{Row: row}
		result.Cells = nil
		// A caller with read access to the columns of the rules sees all their cells.
		if err := s.writes.checkRules(t.schema.Load().table, row, rules, as.a); err != nil {
			return nil, err
		}
		for i := range rules {
			if err := r.applyRule(ctx, t, rm, &rules[i]); err != nil {
				return nil, &table.ElementError{What: "rule", Index: i, Err: err}
			}
			if n := rowMutationBytes(rm); n > s.writes.mutationMax() {
				return nil, &table.LimitError{What: "row mutation bytes", Limit: s.writes.mutationMax(), Got: n}
			}
		}
		for i := range rm.Mutations {
			m := &rm.Mutations[i]
			result.Cells = append(result.Cells, table.Cell{Family: m.Family, Qualifier: slices.Clone(m.Qualifier), Timestamp: m.Timestamp, Value: m.Value})
		}
		if bytesMax > 0 && api.RowMemory(result.Cells) > bytesMax {
			return nil, &api.RowTooLargeError{Limit: bytesMax}
		}
		return rm, nil
	})
	if err != nil {
		return table.Row{}, err
	}
	for i := range result.Cells {
		if result.Cells[i].Timestamp == table.ServerTimestamp {
			result.Cells[i].Timestamp = stamp
		}
	}
	slices.SortFunc(result.Cells, func(a, b table.Cell) int { return table.CompareCells(&a, &b) })
	return result, nil
}

// checkRules checks rules for a row against a schema and the access of their caller.
func (a *admission) checkRules(sc *table.Schema, row []byte, rules []table.Rule, of Access) error {
	if of != nil {
		return of.Modify(sc, row, rules)
	}
	for i := range rules {
		if err := rules[i].Validate(sc, a.limits); err != nil {
			return &table.ElementError{What: "rule", Index: i, Err: err}
		}
	}
	return nil
}

// applyRule adds the mutation of a rule to rm, or changes that of an earlier rule for the same
// column.
func (r *reader) applyRule(ctx context.Context, t *Tablet, rm *table.RowMutation, rule *table.Rule) error {
	at := slices.IndexFunc(rm.Mutations, func(m table.Mutation) bool {
		return m.Family == rule.Family && string(m.Qualifier) == string(rule.Qualifier)
	})
	if at < 0 {
		old := table.Cell{Timestamp: table.ServerTimestamp}
		if err := r.newest(ctx, t, rm.Row, rule, &old); err != nil {
			return err
		}
		m := table.Set(rule.Family, rule.Qualifier, table.ServerTimestamp, slices.Clone(old.Value))
		if old.Timestamp >= t.stampFloor() {
			m.Timestamp = old.Timestamp
		}
		at = len(rm.Mutations)
		rm.Mutations = append(rm.Mutations, m)
	}
	m := &rm.Mutations[at]
	switch rule.Op {
	case table.RuleAppend:
		if n := int64(len(m.Value) + len(rule.Value)); n > t.server.limits.ValueBytes {
			return &table.LimitError{What: "value bytes", Limit: t.server.limits.ValueBytes, Got: n}
		}
		m.Value = append(m.Value, rule.Value...)
	case table.RuleIncrement:
		n := int64(0)
		if len(m.Value) == 8 {
			n = int64(binary.BigEndian.Uint64(m.Value))
		} else if len(m.Value) != 0 {
			return api.ErrNotNumber
		}
		m.Value = binary.BigEndian.AppendUint64(nil, uint64(n+rule.Amount))
	}
	return nil
}

// newest sets cell to the newest cell of the rule's column, if there is one.
func (r *reader) newest(ctx context.Context, t *Tablet, row []byte, rule *table.Rule, cell *table.Cell) error {
	f, err := table.Compile(table.Chain{
		table.ColumnRange{Family: rule.Family, Qualifiers: table.ByteRange{Start: table.Closed(rule.Qualifier), End: table.Closed(rule.Qualifier)}},
		table.CellsPerColumnLimit(1),
	})
	if err != nil {
		return err
	}
	return r.readRow(ctx, t, row, f, func(_ []byte, cells []table.Cell) error {
		*cell = cells[0]
		return nil
	})
}

// decision returns the mutation of a read-modify-write.
type decision func(*reader, *Tablet) (*table.RowMutation, error)

// modify runs decide, which may evaluate f, and commits the mutation that it returns. It returns
// the commit's timestamp. The row's latch is held exclusively from before decide until the commit
// is visible. decide runs again if the row's tablet was split, merged or unloaded before the
// commit, or if rights have changed.
func (as For) modify(ctx context.Context, tableName string, row []byte, f *table.Program, decide decision) (int64, error) {
	if err := as.s.limits.CheckRowKey(row); err != nil {
		return 0, err
	}
	for since := (time.Time{}); ; {
		t, err := as.tabletOf(ctx, tableName, row)
		if err != nil {
			return 0, err
		}
		stamp, err := as.modifyIn(ctx, t, row, f, decide)
		if err == errChanged && ctx.Err() == nil {
			continue
		}
		if err != errFenced {
			return stamp, err
		}
		if err := as.waitForFence(ctx, t, &since); err != nil {
			return 0, err
		}
	}
}

// lockExclusive locks a latch exclusively for an operation that may evaluate f. If f is costly, it
// waits for a turn first: otherwise other writes would wait for the turn as well. It gives up the
// turn while it waits for the latch, whose holders may wait for the commit log. Errors: those of
// Turns.Take.
func (as For) lockExclusive(ctx context.Context, l *latch.Latch, f *table.Program) error {
	if as.turns != nil && f.Costly() {
		if err := as.turns.Take(ctx); err != nil {
			return err
		}
	}
	if !l.TryLockExclusive() {
		as.endTurn()
		began := as.trace.Now()
		l.LockExclusive()
		as.trace.Since(trace.Latch, began)
	}
	return nil
}

// modifyIn is modify in the row's tablet. If the tablet accepts no writes or rights change
// meanwhile, it does nothing and returns errFenced or errChanged.
func (as For) modifyIn(ctx context.Context, t *Tablet, row []byte, f *table.Program, decide decision) (int64, error) {
	s := as.s
	l := t.fence.latches.Of(row)
	if planted.On(planted.CheckWithoutLatch) {
		l = new(latch.Latch)
	}
	if err := as.lockExclusive(ctx, l, f); err != nil {
		return 0, err
	}
	if t.fence.raised.Load() != nil {
		as.endTurn()
		l.UnlockExclusive()
		return 0, errFenced
	}
	sc := t.schema.Load()
	floor := t.stampFloor() // lower bound of the commit's timestamp, even if the clock goes back
	if as.a != nil {
		as.a.Begin()
	}
	r := readerPool.Get().(*reader)
	r.beginLatched(as)
	rm, err := decide(r, t)
	r.release()
	as.endTurn()
	admitted := err == nil && len(rm.Mutations) > 0
	if admitted {
		if rm, err = as.check(sc, rm); err == nil {
			err = s.writes.admit(t, rm, as.trace)
		}
		admitted = err == nil
	}
	// The row was read by schema sc, which must be current while the latch is held (T12).
	if err == nil && (changed(as.a) || t.schema.Load() != sc || admitted && !sc.current()) {
		err = errChanged
	}
	if err != nil || !admitted {
		if admitted {
			s.writeMemory.Release(s.writes.chargeBytes(rm))
		}
		l.UnlockExclusive()
		if err == nil {
			err = s.checkServing()
		}
		if err == nil && !sc.current() { // after checkServing
			err = errChanged
		}
		return 0, err
	}
	type outcome struct {
		stamp int64
		err   error
	}
	done := make(chan outcome, 1)
	exclusive := &exclusiveWrite{floor: floor}
	as.commitLatched(t, sc, rm, l, exclusive, func(stamp int64, err error) { done <- outcome{stamp, err} })
	select {
	case o := <-done:
		exclusive.times.report(as.trace)
		return o.stamp, o.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
