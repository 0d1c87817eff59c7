package tablet

import (
	"context"
	"errors"

	"github.com/steledb/stele/table"
)

// Access is what one caller may see and change of a table, as the one operation that it is
// for asks it: each time with the schema by which a part of that is done. The operation
// asks Holds before its answer is given, and before a mutation gets its place in the log,
// and begins again if it does not.
//
// Errors of Read, Write and Modify become the operation's. An Access bounds how often it
// lets one begin.
type Access interface {
	// Begin is called when the operation begins, and when it begins again.
	Begin()
	// Read returns what the caller gets of a table.
	Read(ctx context.Context, s *table.Schema) (Sight, error)
	// Write returns rm as the caller may make it, which has been checked against the
	// schema and is not checked again. The error is ErrWouldWait if it is asked by ApplyNow
	// and does not know without waiting.
	Write(s *table.Schema, rm *table.RowMutation) (*table.RowMutation, error)
	// Modify checks the rules of a read-modify-write against the schema.
	Modify(s *table.Schema, rules []table.Rule) error
	// Holds tells whether all that was answered since Begin still holds. It waits for
	// nothing.
	Holds() bool
}

// Sight is what a caller gets of a table. The zero Sight is all of it.
type Sight struct {
	// Families has a bit for each family of the schema, by its place there; nil is all.
	// Cells of others are left out before filters, limits and conditions see them.
	Families []uint64
	// Row tells whether the caller gets a row; nil is every row. Its error ends the read.
	Row func(key []byte) (bool, error)
}

// all tells whether the caller gets all of the table.
func (s *Sight) all() bool { return s.Families == nil && s.Row == nil }

func (s *Sight) family(index int) bool {
	return s.Families == nil || index/64 < len(s.Families) && s.Families[index/64]&(1<<(index%64)) != 0
}

// ErrWouldWait means that an Access has to ask somebody. ApplyNow does nothing then.
var ErrWouldWait = errors.New("rights are to be asked for")

// ErrAccessChanged means that an Access did not hold any more when a scan, or a read of
// several rows, had ended, or that the table's schema had changed: what was emitted is not to be given out.
var ErrAccessChanged = errors.New("rights or the schema have changed during the read")

// errChanged has an operation begin again, because its Access does not hold any more or its schema is not current.
var errChanged = errors.New("rights or the schema have changed")

// For is a server as one caller may use it.
type For struct {
	s     *Server
	a     Access
	turns Turns
	table uint64 // id of the table; 0: whichever has the name
}

// Turns are the turns in which one caller gets to do work that may take seconds, such as matching
// long patterns with large values. Each operation calls them from one goroutine at a time.
type Turns interface {
	// Take waits for the next turn, which is one of about a millisecond, and ends the turn before. Its
	// error ends the operation.
	Take(ctx context.Context) error
	// Resume returns at once if the operation has a turn. Otherwise it waits for the next turn as Take does, but
	// before the caller's other operations: the operation holds a latch, for which other writes wait.
	Resume(ctx context.Context) error
	// End ends the turn, if the operation has one. An operation has none while it waits for a latch, for memory, or for
	// the commit log.
	End()
}

// In returns the server as the caller may use it who waits for turns with what takes long.
func (as For) In(turns Turns) For {
	as.turns = turns
	return as
}

// endTurn ends the turn of an operation, if it has one.
func (as For) endTurn() {
	if as.turns != nil {
		as.turns.End()
	}
}

// Table returns the server for operations on the table with that id, 0 being whichever has the name: rows of another table
// by the name are not served.
func (as For) Table(id uint64) For {
	as.table = id
	return as
}

// For returns the server as a caller may use it, for one operation. Nil may do all.
func (s *Server) For(a Access) For { return For{s: s, a: a} }

// changed tells whether an Access, which may be nil, does not hold any more.
func changed(a Access) bool { return a != nil && !a.Holds() }

// ReadRow is For.ReadRow of who may do all.
func (s *Server) ReadRow(ctx context.Context, tableName string, row []byte, f *table.Program, emit Emit) error {
	return s.For(nil).ReadRow(ctx, tableName, row, f, emit)
}

// Scan is For.Scan of who may do all.
func (s *Server) Scan(ctx context.Context, tableName string, rg Range, f *table.Program, emit Emit) (next []byte, err error) {
	return s.For(nil).Scan(ctx, tableName, rg, f, nil, emit)
}

// Apply is For.Apply of who may do all.
func (s *Server) Apply(tableName string, rm *table.RowMutation, done func(timestamp int64, err error)) {
	s.For(nil).Apply(tableName, rm, done)
}

// ApplyNow is For.ApplyNow of who may do all.
func (s *Server) ApplyNow(tableName string, rm *table.RowMutation, done func(timestamp int64, err error)) bool {
	return s.For(nil).ApplyNow(tableName, rm, done)
}

// CheckAndMutate is For.CheckAndMutate of who may do all.
func (s *Server) CheckAndMutate(ctx context.Context, tableName string, row []byte, predicate *table.Program, yes, no []table.Mutation) (matched bool, err error) {
	return s.For(nil).CheckAndMutate(ctx, tableName, row, predicate, yes, no)
}

// ReadModifyWrite is For.ReadModifyWrite of who may do all.
func (s *Server) ReadModifyWrite(ctx context.Context, tableName string, row []byte, rules []table.Rule) (table.Row, error) {
	return s.For(nil).ReadModifyWrite(ctx, tableName, row, rules)
}
