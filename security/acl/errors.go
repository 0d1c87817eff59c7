package acl

import (
	"errors"
	"fmt"
)

var (
	// ErrHidden means that a principal has no right at all on a table or its families.
	// To him it is a table that does not exist.
	ErrHidden = errors.New("no right on the table")
	// ErrDenied means that a principal may see what he asks about and lacks the right
	// needed: a *DeniedError.
	ErrDenied = errors.New("right is missing")
	// ErrImplied means that a right cannot be taken away, since another that stays
	// implies it.
	ErrImplied = errors.New("right is implied by another")
	// ErrClusterRight means that a right was to be given on a table that there is on the cluster alone.
	ErrClusterRight = errors.New("monitor is a right on the cluster alone")
	// ErrNoGrant means that there is nothing to revoke.
	ErrNoGrant = errors.New("no such grant")
	// ErrTooMany means that a table, or the cluster, has as many grants as it may have.
	ErrTooMany = errors.New("too many grants")
	// ErrDisabled means that a principal is not let in at present.
	ErrDisabled = errors.New("principal is disabled")
	// ErrRevoked means that a certificate or token of a principal was revoked.
	ErrRevoked = errors.New("credential was revoked")
	// ErrUnknownPrincipal means that there is no such principal, or no longer.
	ErrUnknownPrincipal = errors.New("unknown principal")
	// ErrUncertain means that the rights are not known at present: too much changes, or
	// the lease is not sure.
	ErrUncertain = errors.New("rights are not known at present")
)

// DeniedError says which right is missing where.
type DeniedError struct {
	Principal string
	Right     Rights
	Table     string // empty: on the cluster
	Family    string // empty: on the table as a whole
}

func (e *DeniedError) Error() string {
	where := "the cluster"
	if e.Table != "" {
		where = fmt.Sprintf("table %q", e.Table)
	}
	if e.Family != "" {
		where = fmt.Sprintf("family %q of %s", e.Family, where)
	}
	return fmt.Sprintf("principal %q has no %s right on %s: ask its administrator", e.Principal, e.Right, where)
}

// Is makes the error match ErrDenied.
func (e *DeniedError) Is(target error) bool { return target == ErrDenied }

// RecordError is about bytes that are no record of rights.
type RecordError struct {
	What string // "grants" or "principal"
	Err  error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("read the record of a %s: %v", e.What, e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }
