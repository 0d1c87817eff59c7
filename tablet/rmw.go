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
	"github.com/steledb/stele/table"
)

// CheckAndMutate applies yes to the row if predicate gives out any cell of it,
// and no otherwise; a nil predicate passes every cell, and an empty list of
// mutations changes nothing. It returns which. Nothing of the row is changed
// between the check and the mutation (I2).
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

// checkBranches checks both sets of mutations, whichever the predicate will choose: a
// request that is wrong fails whatever is in the row.
func (as For) checkBranches(sc *schema, row []byte, yes, no []table.Mutation) error {
	for _, branch := range []struct {
		when      string
		mutations []table.Mutation
	}{{"with a match", yes}, {"without a match", no}} {
		if len(branch.mutations) == 0 {
			continue
		}
		_, err := as.s.checked(sc, &table.RowMutation{Row: row, Mutations: branch.mutations}, as.a)
		if errors.Is(err, api.ErrNoTable) { // a table that is hidden from the caller is answered as one that does not exist
			return err
		}
		if err != nil {
			return fmt.Errorf("%s: %w", branch.when, err)
		}
	}
	return nil
}

// ReadModifyWrite applies rules to the newest cells of their columns, in order,
// and returns the row with the cells that it has written, one for each column.
//
// A new cell bears the server's time, or the timestamp of the cell that it is made
// from if that is in the future: it is then the newest all the same. Errors: as
// Apply and ReadRow, api.ErrNotNumber, table.ErrBadOp. If ctx ends first, the
// rules may still be applied.
func (as For) ReadModifyWrite(ctx context.Context, tableName string, row []byte, rules []table.Rule) (table.Row, error) {
	s, result := as.s, table.Row{Key: slices.Clone(row)}
	stamp, err := as.modify(ctx, tableName, row, nil, func(r *reader, t *Tablet) (*table.RowMutation, error) {
		rm := &table.RowMutation{Row: row}
		result.Cells = nil
		// Who may read what the rules are about sees all of it.
		if err := s.checkRules(t.schema.Load().table, rules, as.a); err != nil {
			return nil, err
		}
		for i := range rules {
			if err := r.applyRule(ctx, t, rm, &rules[i]); err != nil {
				return nil, &table.ElementError{What: "rule", Index: i, Err: err}
			}
			if n := rowMutationBytes(rm); n > s.mutationMax() {
				return nil, &table.LimitError{What: "row mutation bytes", Limit: s.mutationMax(), Got: n}
			}
		}
		for i := range rm.Mutations {
			m := &rm.Mutations[i]
			result.Cells = append(result.Cells, table.Cell{Family: m.Family, Qualifier: slices.Clone(m.Qualifier), Timestamp: m.Timestamp, Value: m.Value})
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

// checkRules checks rules against a schema, as one who has that access may see it.
func (s *Server) checkRules(sc *table.Schema, rules []table.Rule, a Access) error {
	if a != nil {
		return a.Modify(sc, rules)
	}
	for i := range rules {
		if err := rules[i].Validate(sc, s.limits); err != nil {
			return &table.ElementError{What: "rule", Index: i, Err: err}
		}
	}
	return nil
}

// applyRule adds to rm the mutation that a rule comes to, or changes the one of an
// earlier rule about the same column.
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

// newest puts the newest cell of the rule's column into cell, if there is one.
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

// modify runs decide, which may evaluate f, and commits the mutation that it returns, with the
// row's latch held alone from before decide until the commit is visible. It returns the commit's timestamp. decide runs
// again if the row's tablet was split, merged or unloaded before the commit, or if rights have changed.
func (as For) modify(ctx context.Context, tableName string, row []byte, f *table.Program, decide decision) (int64, error) {
	s := as.s
	if err := s.limits.CheckRowKey(row); err != nil {
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
		if err != errHalted {
			return stamp, err
		}
		if err := s.waitOut(ctx, t, &since); err != nil {
			return 0, err
		}
	}
}

// lockAlone takes a latch alone for an operation that may evaluate f. If f is costly, the operation waits for a turn first:
// otherwise other writes would wait for that turn with it. It does not keep the turn while it waits for the latch, since
// its holders may wait for the commit log. Errors: those of Turns.Take.
func (as For) lockAlone(ctx context.Context, l *latch, f *table.Program) error {
	if as.turns != nil && f.Costly() {
		if err := as.turns.Take(ctx); err != nil {
			return err
		}
	}
	if !l.tryLockAlone() {
		as.endTurn()
		l.lockAlone()
	}
	return nil
}

// modifyIn is modify in the row's tablet. It does nothing if that takes no
// writes, or if rights change meanwhile; the error is errHalted or errChanged then.
func (as For) modifyIn(ctx context.Context, t *Tablet, row []byte, f *table.Program, decide decision) (int64, error) {
	s := as.s
	l := t.latches.of(row)
	if planted.On(planted.CheckWithoutLatch) {
		l = new(latch)
	}
	if err := as.lockAlone(ctx, l, f); err != nil {
		return 0, err
	}
	if t.halted.Load() != nil {
		as.endTurn()
		l.unlockAlone()
		return 0, errHalted
	}
	sc := t.schema.Load()
	floor := t.stampFloor() // the commit's timestamp is no lower, even if the clock goes back
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
		if rm, err = s.checked(sc, rm, as.a); err == nil {
			err = s.admit(t, rm)
		}
		admitted = err == nil
	}
	if err == nil && (changed(as.a) || t.schema.Load() != sc) { // what was read was read by the schema at hand
		err = errChanged
	}
	if err != nil || !admitted {
		if admitted {
			s.uncharge(s.chargeBytes(rm))
		}
		l.unlockAlone()
		if err == nil {
			err = s.provable()
		}
		if err == nil && !sc.current() { // after provable
			err = errChanged
		}
		return 0, err
	}
	type outcome struct {
		stamp int64
		err   error
	}
	done := make(chan outcome, 1)
	s.commitLatched(t, sc, rm, l, &alone{floor: floor}, func(stamp int64, err error) { done <- outcome{stamp, err} })
	select {
	case o := <-done:
		return o.stamp, o.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
