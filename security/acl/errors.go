package acl

import (
	"errors"
	"fmt"
)

var (
	// ErrHidden means that a principal has no right on a table or on any of its families. The table
	// then appears not to exist.
	ErrHidden = errors.New("no right on the table")
	// ErrDenied means that the object is visible to the principal but the required right is
	// missing: a *DeniedError.
	ErrDenied = errors.New("right is missing")
	// ErrImplied means that a right cannot be revoked because a remaining right implies it.
	ErrImplied = errors.New("right is implied by another")
	// ErrClusterRight means that a grant on a table includes a right that exists only on the
	// cluster.
	ErrClusterRight = errors.New("monitor is a right on the cluster only")
	// ErrNoGrant means that there is no such grant to revoke.
	ErrNoGrant = errors.New("no such grant")
	// ErrChanged means that a policy has other grants than those to replace.
	ErrChanged = errors.New("grants have changed")
	// ErrTooMany means that a table or the cluster has the maximum number of grants, or a principal
	// the maximum number of individually revoked certificates.
	ErrTooMany = errors.New("limit reached")
	// ErrDisabled means that the principal is disabled.
	ErrDisabled = errors.New("principal is disabled")
	// ErrRevoked means that the principal's certificate or token was revoked.
	ErrRevoked = errors.New("credential was revoked")
	// ErrUnknownPrincipal means that the principal does not exist, or no longer exists.
	ErrUnknownPrincipal = errors.New("unknown principal")
	// ErrUncertain means that the rights cannot be determined now: they keep changing, or the
	// session's lease may have expired.
	ErrUncertain = errors.New("rights are unknown at present")
)

// DeniedError reports which right is missing, and on what.
type DeniedError struct {
	Principal string
	Right     Rights
	Table     string // empty for the cluster
	Family    string // empty for the table as a whole
	View      string // if set, the request is about what this view does not have
}

func (e *DeniedError) Error() string {
	if e.View != "" {
		return fmt.Sprintf("row or column is outside of view %q of table %q, or a deletion covers more than the view", e.View, e.Table)
	}
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

// RecordError means that stored bytes are not a valid record of rights.
type RecordError struct {
	What string // "grants" or "principal"
	Err  error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("decode %s record: %v", e.What, e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }
