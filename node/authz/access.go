package authz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/trace"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
)

// Access is what a principal may do with one table in one request. It implements tablet.Access. A nil access allows everything.
type Access struct {
	z             *Authorizer
	caller        *Subject
	method, table string
	part          string // the name of the view to which the request is confined; empty for the whole table
	now           bool   // must not wait
	begun         int    // times that the operation has begun
	trace         *trace.Record

	// Since Begin: the ticket of the last check of rights, the view used, and whether rights changed between two checks.
	looked, moved bool
	ticket        acl.Ticket
	view          *acl.View
	reads         bool
	writes        []string // families; a read-modify-write reads them, too
	memo          rowMemo
}

// rowMemo caches the decision for the table of the last METADATA row.
type rowMemo struct {
	known bool
	table uint64
	sees  bool
}

// begunMax bounds how often an operation restarts because rights change.
const begunMax = 8

// accesses has unused accesses, so that a request allocates none.
var accesses = sync.Pool{New: func() any { return new(Access) }}

// Access returns what a call may do with a table, or with the part of it in a view. Release it with Release when no operation uses it.
func (z *Authorizer) Access(c *rpc.Call, name, view string) *Access {
	caller := SubjectOf(c)
	if !caller.Restricted() && view == "" {
		return nil
	}
	a := accesses.Get().(*Access)
	a.z, a.caller, a.method, a.table, a.part, a.trace = z, caller, c.Method(), name, view, c.Trace()
	return a
}

// Release returns a, which may be nil, to the pool. No operation may use it any more.
func (a *Access) Release() {
	if a == nil {
		return
	}
	clear(a.writes)
	*a = Access{writes: a.writes[:0]}
	accesses.Put(a)
}

// Of returns the access for a tablet server's operation, which may or may not wait for rights.
func (a *Access) Of(waits bool) tablet.Access {
	if a == nil {
		return nil
	}
	a.now, a.begun = !waits, 0
	return a
}

// Caller implements tablet.Access.
func (a *Access) Caller() string { return a.caller.Owner() }

// Begin implements tablet.Access.
func (a *Access) Begin() {
	a.begun++
	a.looked, a.moved, a.reads, a.writes, a.memo = false, false, false, a.writes[:0], rowMemo{}
}

// Holds implements tablet.Access. An operation that waits begins again, which is no restart, when its rights hold.
func (a *Access) Holds() bool {
	if a.looked && (a.moved || !a.z.Rights.Holds(a.caller, a.ticket)) {
		return false
	}
	a.begun = 0
	return true
}

// note records the ticket of a check of rights.
func (a *Access) note(t acl.Ticket) {
	a.moved = a.moved || a.looked && t != a.ticket
	a.looked, a.ticket = true, t
}

// look returns the view of the table for a schema. Errors: api.ErrNoTable if the principal sees nothing of it,
// tablet.ErrWouldWait, those of Rights.View.
func (a *Access) look(ctx context.Context, s *table.Schema) (*acl.View, error) {
	if a.begun > begunMax {
		return nil, a.z.Rights.Recode(acl.ErrUncertain)
	}
	if !a.caller.Restricted() {
		return a.within(acl.Unrestricted(s))
	}
	v, t := a.z.Rights.ViewNow(a.caller, s)
	if v == nil {
		if a.now {
			return nil, tablet.ErrWouldWait
		}
		began := a.trace.Now()
		var err error
		v, t, err = a.z.Rights.View(ctx, a.caller, s)
		a.trace.Since(trace.Rights, began)
		if err != nil {
			return nil, err
		}
	}
	a.note(t)
	return a.within(v)
}

// within returns v, or what it has in the view of the request, as what the operation uses.
func (a *Access) within(v *acl.View) (*acl.View, error) {
	a.view = v
	if v.CheckSeen() != nil {
		return nil, namespace.NoSuchTable(a.table)
	}
	if a.part == "" {
		return v, nil
	}
	in, err := v.In(a.part)
	if err != nil {
		return nil, err
	}
	a.view = in
	return in, nil
}

// Read implements tablet.Access.
func (a *Access) Read(ctx context.Context, s *table.Schema) (tablet.Visibility, error) {
	if s.ID == metadata.TableID {
		if a.part != "" {
			return tablet.Visibility{}, &table.NoViewError{Table: metadata.Name, View: a.part}
		}
		return a.readMetadata(ctx, s)
	}
	v, err := a.look(ctx, s)
	if err == nil {
		err = a.refused(v.CheckRead())
	}
	if err != nil {
		return tablet.Visibility{}, err
	}
	a.reads = true
	if part := v.Part(); part != nil {
		return visibleIn(part, v, s), nil
	}
	if v.ReadsAll() {
		return tablet.Visibility{}, nil
	}
	return tablet.Visibility{Families: v.ReadMask()}, nil
}

// visibleIn returns what is visible of a table in one of its views.
func visibleIn(part *table.View, v *acl.View, s *table.Schema) tablet.Visibility {
	families := make([]*table.ViewFamily, len(s.Families))
	for i := range s.Families {
		families[i] = part.Family(s.Families[i].Name)
	}
	return tablet.Visibility{
		Families: v.ReadMask(), Next: part.NextRow,
		Row:    func(key []byte) (bool, error) { return part.HasRow(key) || planted.On(planted.ViewRowsOpen), nil },
		Column: func(family int, qualifier []byte) bool { return families[family].HasColumn(qualifier) },
	}
}

// MayRead returns an error if the principal may read nothing of the table. It runs before work for reads; each read is checked
// again. Errors: api.ErrNoTable, *api.PermissionError, those of Rights.View.
func (a *Access) MayRead(ctx context.Context) error {
	if !a.caller.Restricted() {
		return nil
	}
	if a.table == metadata.Name { // every principal sees some of it
		_, err := a.z.Rights.Known(ctx, a.caller)
		return err
	}
	v, _, err := a.z.SeeTable(ctx, a.caller, a.table)
	if err == nil && a.part != "" {
		v, err = v.In(a.part)
	}
	if err != nil {
		return err
	}
	return a.refused(v.CheckRead())
}

// readMetadata returns what the principal sees of METADATA. Without the right to read the cluster, it sees only the locations of
// tablets of tables that it may see.
func (a *Access) readMetadata(ctx context.Context, s *table.Schema) (tablet.Visibility, error) {
	if a.begun > begunMax {
		return tablet.Visibility{}, a.z.Rights.Recode(acl.ErrUncertain)
	}
	t, err := a.z.Rights.Check(ctx, a.caller, acl.Read)
	if err == nil {
		a.note(t)
		return tablet.Visibility{}, nil
	}
	if !errors.Is(err, api.ErrPermission) {
		return tablet.Visibility{}, err
	}
	a.note(t)
	places := make([]uint64, (len(s.Families)+63)/64)
	for i := range s.Families {
		if s.Families[i].Name == metadata.LocationFamily {
			places[i/64] |= 1 << (i % 64)
		}
	}
	return tablet.Visibility{Families: places, Row: func(key []byte) (bool, error) { return a.seesRow(ctx, key) }}, nil
}

// seesRow reports whether a row of METADATA belongs to a table that the principal may see.
func (a *Access) seesRow(ctx context.Context, key []byte) (bool, error) {
	id, _, err := metadata.ParseKey(key)
	if err != nil {
		return false, nil
	}
	if a.memo.known && a.memo.table == id {
		return a.memo.sees, nil
	}
	sees, t, err := a.z.Rights.sees(ctx, a.caller, id)
	if err != nil {
		return false, err
	}
	a.note(t)
	a.memo = rowMemo{true, id, sees}
	return sees, nil
}

// Write implements tablet.Access.
func (a *Access) Write(s *table.Schema, rm *table.RowMutation) (*table.RowMutation, error) {
	v, err := a.look(context.Background(), s)
	if err != nil {
		return nil, err
	}
	if err := v.CheckPart(rm); err != nil {
		return nil, a.refused(ElementPermission(err))
	}
	if err := rm.Validate(v.Visible(), a.z.Limits); err != nil {
		return nil, err
	}
	if rm, err = v.Restrict(rm); err != nil {
		return nil, a.refused(ElementPermission(err))
	}
	for i := range rm.Mutations {
		m := &rm.Mutations[i]
		if m.Op == table.OpDeleteRow {
			for _, f := range s.Families {
				a.writes = append(a.writes, f.Name)
			}
		} else if n := len(a.writes); n == 0 || a.writes[n-1] != m.Family {
			a.writes = append(a.writes, m.Family)
		}
	}
	return rm, nil
}

// Modify implements tablet.Access.
func (a *Access) Modify(s *table.Schema, row []byte, rules []table.Rule) error {
	v, err := a.look(context.Background(), s)
	if err != nil {
		return err
	}
	for i := range rules {
		err := v.CheckPartColumn(row, rules[i].Family, rules[i].Qualifier)
		if err == nil {
			err = rules[i].Validate(v.Visible(), a.z.Limits)
		}
		if err == nil {
			err = v.CheckModify(rules[i].Family)
		}
		err = ElementPermission(err)
		if err != nil {
			return a.refused(&table.ElementError{What: "rule", Index: i, Err: err})
		}
	}
	a.reads = true
	return nil
}

// refused returns err, and logs it in the audit log if a right is missing.
func (a *Access) refused(err error) error {
	if err == nil {
		return nil
	}
	return a.auditRefusal(err) // separate, because it allocates
}

func (a *Access) auditRefusal(err error) error {
	var denied *api.PermissionError
	var at *acl.DeniedError
	if errors.As(err, &at) {
		denied = permission(at)
		err = denied
	}
	if (denied != nil || errors.As(err, &denied)) && a.caller.Restricted() {
		a.z.Audit.Refused(a.caller, a.method, "table "+a.table, err)
	}
	return err
}

// Settle returns nil if the result may be returned although rights have changed since. Errors: *api.PermissionError, marked as
// executed if something was written; api.ErrOutcomeUnknown and api.ErrUnavailable if the rights are unknown.
func (a *Access) Settle(ctx context.Context) error {
	if a == nil || a.Holds() {
		return nil
	}
	if a.view == nil { // of METADATA, which clients do not write: the operation restarts elsewhere
		return a.z.Rights.Recode(acl.ErrUncertain)
	}
	old, wrote := a.view, len(a.writes) > 0
	v, _, err := a.z.Rights.View(ctx, a.caller, old.Schema())
	if err == nil && a.part != "" {
		v, err = a.stillWithin(v)
	}
	switch {
	case err == nil:
	case errors.Is(err, api.ErrPermission): // no right within the view is left
		return a.refused(err)
	case wrote && errors.Is(err, api.ErrUnauthenticated):
		return &api.PermissionError{Table: a.table, Executed: true, Text: err.Error()}
	case wrote:
		return reply.Recode(api.ErrOutcomeUnknown, err)
	default:
		return err
	}
	for i, f := range old.Schema().Families {
		lostRead := a.reads && old.ReadMask().Has(i) && !v.ReadMask().Has(i)
		lostWrite := !v.CanWrite(f.Name) && slices.Contains(a.writes, f.Name)
		if lostRead || lostWrite {
			right := acl.Write
			if lostRead {
				right = acl.Read
			}
			name, _, _ := a.caller.Principal()
			return a.refused(&api.PermissionError{Right: right.String(), Table: a.table, Executed: wrote,
				Text: fmt.Sprintf("principal %q lost the right to %s on table %q during the request", name, right, a.table)})
		}
	}
	return nil
}

// stillWithin returns what v has in the view of the request, after rights have changed.
func (a *Access) stillWithin(v *acl.View) (*acl.View, error) {
	in, err := v.In(a.part)
	if err != nil { // all rights on it are lost
		err = &api.PermissionError{Table: a.table, Executed: len(a.writes) > 0, Text: err.Error()}
	}
	return in, err
}

// CheckTable returns nil if the table exists and the principal may see it. Errors: api.ErrNoTable, those of Rights.View.
func (a *Access) CheckTable(ctx context.Context) error {
	s, _, err := namespace.ReadSchema(ctx, a.z.Meta.Current(), a.table)
	if err != nil {
		if errors.Is(err, api.ErrNoTable) {
			return err
		}
		return a.z.Rights.Recode(err)
	}
	if !a.caller.Restricted() {
		return nil
	}
	v, _, err := a.z.Rights.View(ctx, a.caller, s)
	if err == nil && v.CheckSeen() != nil {
		err = namespace.NoSuchTable(a.table)
	}
	return err
}
