package api

import (
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// CheckAndMutateRequest holds the parameters of check_and_mutate:
//
//	[table, row, filter | nil, [mutation…], [mutation…], options?]
//
// The first mutations apply if the filter passes a cell of the row, the others if it passes none. A
// nil filter passes all cells.
type CheckAndMutateRequest struct {
	TableOptions
	Table     string
	Row       []byte
	Predicate []byte // as ReadRequest.Filter
	True      []table.Mutation
	False     []table.Mutation
	// System is set by nodes, which may change METADATA.
	System bool

	names names
}

// Append encodes the parameters.
func (r *CheckAndMutateRequest) Append(e *wire.Encoder) {
	n := r.TableOptions.count()
	if r.System {
		n++
	}
	e.Array(5 + min(n, 1))
	e.Str(r.Table)
	e.Bin(r.Row)
	if len(r.Predicate) > 0 {
		e.Raw(r.Predicate)
	} else {
		e.Nil()
	}
	table.AppendMutations(e, r.True)
	table.AppendMutations(e, r.False)
	r.TableOptions.append(e, n)
	if r.System {
		e.Str("system")
		e.Bool(true)
	}
}

func (r *CheckAndMutateRequest) option(key []byte, d *wire.Decoder) bool {
	if string(key) != "system" {
		return r.TableOptions.option(key, d)
	}
	r.System = d.Bool()
	return true
}

// Decode decodes the n parameters in d. A nil lim means the defaults. The result of the method is a
// bool: whether the predicate passed a cell.
func (r *CheckAndMutateRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodCheckAndMutate, n, 5, 6); err != nil {
		return err
	}
	r.Table, r.Row, r.Predicate = r.names.table(d), d.Bytes(), rawFilter(d)
	if err := checkRow(d, r.Row, lim); err != nil {
		return err
	}
	if err := checkFilter(r.Predicate, lim); err != nil {
		return err
	}
	r.System = false
	var err error
	if r.True, err = decodeBranch(d, r.True, &r.names, lim); err != nil {
		return &table.ElementError{What: "mutations", Index: 0, Err: err}
	}
	if r.False, err = decodeBranch(d, r.False, &r.names, lim); err != nil {
		return &table.ElementError{What: "mutations", Index: 1, Err: err}
	}
	return r.TableOptions.decode(d, n > 5, r)
}

// decodeBranch decodes mutations; nil means none.
func decodeBranch(d *wire.Decoder, ms []table.Mutation, names *names, lim *table.Limits) ([]table.Mutation, error) {
	if d.IsNil() {
		return ms[:0], nil
	}
	return table.DecodeMutations(d, reuse(ms), names.families(), lim)
}

// ReadModifyWriteRequest holds the parameters of read_modify_write:
//
//	[table, row, [rule…], options?]
//
// The result is a row with the new cells, as encoded by AppendRow.
type ReadModifyWriteRequest struct {
	TableOptions
	Table string
	Row   []byte
	Rules []table.Rule
	// RowBytes bounds the result of RowMemory for the result: the row of a larger one is not changed, and the call is a RowTooLargeError with that limit. 0
	// means unset.
	RowBytes int64

	names names
}

// Append encodes the parameters.
func (r *ReadModifyWriteRequest) Append(e *wire.Encoder) {
	n := r.TableOptions.count() + set(r.RowBytes)
	e.Array(3 + min(n, 1))
	e.Str(r.Table)
	e.Bin(r.Row)
	e.Array(len(r.Rules))
	for i := range r.Rules {
		table.AppendRule(e, &r.Rules[i])
	}
	r.TableOptions.append(e, n)
	appendCount(e, rowBytes, r.RowBytes)
}

// Decode decodes the n parameters in d. A nil lim means the defaults.
func (r *ReadModifyWriteRequest) Decode(d *wire.Decoder, n int, lim *table.Limits) error {
	if err := params(MethodReadModifyWrite, n, 3, 4); err != nil {
		return err
	}
	r.Table, r.Row, r.Rules, r.RowBytes = r.names.table(d), d.Bytes(), reuse(r.Rules), 0
	if err := checkRow(d, r.Row, lim); err != nil {
		return err
	}
	rules := d.Array()
	if err := within("rules", rules, RulesMax); err != nil {
		return err
	}
	if rules == 0 && d.Err() == nil {
		return table.ErrNoRules
	}
	for i := range rules {
		if i < cap(r.Rules) {
			r.Rules = r.Rules[:i+1]
		} else {
			r.Rules = append(r.Rules, table.Rule{})
		}
		if err := table.DecodeRule(d, &r.Rules[i], r.names.families()); err != nil {
			return &table.ElementError{What: "rule", Index: i, Err: err}
		}
	}
	return r.TableOptions.decode(d, n > 3, r)
}

func (r *ReadModifyWriteRequest) option(key []byte, d *wire.Decoder) bool {
	if string(key) != rowBytes {
		return r.TableOptions.option(key, d)
	}
	r.RowBytes = countOption(d, rowBytes)
	return true
}
