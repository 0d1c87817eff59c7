package tablet

import (
	"context"
	"errors"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/table"
)

// Access defines what one caller may see and change of a table, for one operation. Its methods are
// called with the schema by which that part of the operation is done. The operation calls Holds
// before it returns its result, and before a mutation gets its place in the log. If Holds returns
// false, it starts over.
//
// Errors of Read, Write and Modify become the operation's. An Access bounds how often it permits a
// restart.
type Access interface {
	// Begin is called when the operation begins, and again each time it starts over.
	Begin()
	// Read returns what the caller may see of a table.
	Read(ctx context.Context, s *table.Schema) (Visibility, error)
	// Write checks rm against the schema and the caller's rights and returns it as the caller may
	// make it. It is not checked again. The error is ErrWouldWait if ApplyNow calls it and the
	// rights are not known without waiting.
	Write(s *table.Schema, rm *table.RowMutation) (*table.RowMutation, error)
	// Modify checks the rules of a read-modify-write of a row against the schema and the caller's rights.
	Modify(s *table.Schema, row []byte, rules []table.Rule) error
	// Caller returns the name of the user; empty if there is none. It names the users of hot rows.
	Caller() string
	// Holds reports whether all results since Begin are still valid. It does not block.
	Holds() bool
}

// Visibility is what a caller may see of a table. The zero value is the whole table.
type Visibility struct {
	// Families has a bit for each family of the schema, by its index there; nil means all. Cells of
	// other families are removed before filters, limits and conditions see them.
	Families []uint64
	// Row reports whether the caller may see a row; nil means every row. Its error ends the read.
	Row func(key []byte) (bool, error)
	// Next returns the first row at or above key that the caller may see, or false if there is none, so that scans need not look at all rows
	// between; nil if that is unknown.
	Next func(key []byte) ([]byte, bool)
	// Column reports whether the caller may see a column of a family, which is given by its index in the schema; nil means every column. Cells of other
	// columns are removed as those of other families.
	Column func(family int, qualifier []byte) bool
}

// all reports whether the caller may see the whole table.
func (s *Visibility) all() bool { return s.Families == nil && s.Row == nil && s.Column == nil }

func (s *Visibility) family(index int) bool {
	return s.Families == nil || index/64 < len(s.Families) && s.Families[index/64]&(1<<(index%64)) != 0
}

// ErrWouldWait means that an Access cannot answer without waiting. ApplyNow then does nothing.
var ErrWouldWait = errors.New("access check would wait")

// ErrAccessChanged means that the rights or the table's schema changed during a scan or a read of
// several rows. The emitted rows must be discarded.
var ErrAccessChanged = errors.New("rights or schema changed during the read")

// errChanged makes an operation start over, because its Access no longer holds or its schema is not
// current.
var errChanged = errors.New("rights or schema changed")

// For is a server as seen by one caller.
type For struct {
	s     *Server
	a     Access
	turns Turns
	table uint64 // id of the table; 0: the current table of that name
	trace *trace.Record
	// position is set by ReadRow; see Positioned.
	position *api.RowPosition
	// follows is the replication whose changes are made; empty for ordinary ones.
	follows string
}

// check returns the mutation as the caller may make it. Errors: those of checkWritable.
func (as For) check(sc *schema, rm *table.RowMutation) (*table.RowMutation, error) {
	rm, err := as.s.writes.check(sc, rm, as.a, as.follows != "")
	if err == nil {
		err = sc.checkWritable(as.follows)
	}
	if err == nil && len(rm.Mutations) == 0 { // the log has no entry without
		err = table.ErrNoMutations
	}
	return rm, err
}

// Traced returns a copy of as whose operation records what it does in r, which may be nil. The operation does not use
// r after it has returned, or after the done of Apply or the emit of ReadRow was called.
func (as For) Traced(r *trace.Record) For {
	as.trace = r
	return as
}

// Turns schedules one caller's work that may take seconds, such as matching long patterns against
// large values. Each operation calls it from one goroutine at a time.
type Turns interface {
	// Take ends the current turn, if any, and waits for the next one. A turn lasts about a
	// millisecond. An error ends the operation.
	Take(ctx context.Context) error
	// Resume returns at once if the operation has a turn. Otherwise it waits for the next one like
	// Take, but ahead of the caller's other operations, because the operation holds a latch that
	// other writes wait for.
	Resume(ctx context.Context) error
	// End ends the turn, if the operation has one. An operation has none while it waits for a
	// latch, for memory, or for the commit log.
	End()
}

// In returns a copy of as whose long operations wait for turns.
func (as For) In(turns Turns) For {
	as.turns = turns
	return as
}

// endTurn ends the operation's turn, if it has one.
func (as For) endTurn() {
	if as.turns != nil {
		as.turns.End()
	}
}

// Table returns a copy of as for operations on the table with that id; 0 is the current table of
// the name. Rows of another table with the same name are not served.
func (as For) Table(id uint64) For {
	as.table = id
	return as
}

// For returns the server as seen by one caller, for one operation. A nil Access permits everything.
func (s *Server) For(a Access) For { return For{s: s, a: a} }

// changed reports whether an Access no longer holds. a may be nil.
func changed(a Access) bool { return a != nil && !a.Holds() }
