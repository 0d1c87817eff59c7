package errkind

import (
	"errors"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// A Kind maps a code to a Go error.
type Kind struct {
	Code rpc.Code
	// Name is the code's name. It is empty for the codes of package rpc, which have names.
	Name string
	// Retryable means that the call was rejected before execution: the same request may succeed
	// later or on another server.
	Retryable bool
	// Target identifies the kind by errors.Is. If it is nil, the error type of Form identifies the
	// kind.
	Target error
	// Cause is the detail "cause", which distinguishes kinds of the same code. Empty for the first.
	Cause string
	// NotExecuted adds the detail "executed" with 0, for a code that leaves it open.
	NotExecuted bool
	// Form encodes the fields of the kind's errors, if they have any.
	Form *Form
}

func (k *Kind) matches(err error) bool {
	if k.Target == nil {
		return k.Form.is(err)
	}
	return errors.Is(err, k.Target)
}

// error returns the Go error for an answer of this kind.
func (k *Kind) error(a Answer) error {
	if k.Form != nil && k.Form.read != nil {
		return k.Form.read(a)
	}
	return k.Target
}

// A Table holds the kinds of errors of one API.
type Table struct {
	// Kinds is in the order in which ToRPC tries them: an error that wraps others comes before
	// them.
	Kinds []Kind
	// Also holds forms of errors that have no kind, but add fields to the errors that they wrap.
	Also []*Form
	// Meanings maps codes of other tables and of package rpc to Go errors for the caller. It takes
	// precedence over Kinds.
	Meanings map[rpc.Code]error
	// Relayed is for servers whose errors wrap answers of other servers. An *rpc.Error in the chain
	// is then not returned as the answer itself.
	Relayed bool
}

// Register names the codes. Call it from an init function.
func (t *Table) Register() {
	names := make(map[rpc.Code]string)
	for i := range t.Kinds {
		if k := &t.Kinds[i]; k.Name != "" {
			names[k.Code] = k.Name
		}
	}
	rpc.RegisterCodes(names)
}

// ToRPC returns the error that a server answers with for err. It has the code of the first kind
// that err matches, err's text as the message, and the fields of all typed errors in its chain as
// details. An *rpc.Error in the chain is returned unchanged, unless the table is Relayed. An err of
// no kind becomes CodeInternal.
func (t *Table) ToRPC(err error) *rpc.Error {
	var done *rpc.Error
	if !t.Relayed && errors.As(err, &done) {
		return done
	}
	for i := range t.Kinds {
		if k := &t.Kinds[i]; k.matches(err) {
			return &rpc.Error{Code: k.Code, Message: err.Error(), Retryable: k.Retryable, Details: t.details(k, err)}
		}
	}
	var bad *wire.FormatError
	if errors.As(err, &bad) {
		return &rpc.Error{Code: rpc.CodeBadRequest, Message: err.Error()}
	}
	return rpc.AsError(err)
}

// details returns the fields of the typed errors in err's chain and the details of the kind.
func (t *Table) details(k *Kind, err error) Details {
	var d Details
	if k.Cause != "" || k.NotExecuted {
		d.grow()
	}
	if k.Cause != "" {
		d["cause"] = k.Cause
	}
	if k.NotExecuted {
		d["executed"] = 0
	}
	for i := range t.Kinds {
		if f := t.Kinds[i].Form; f != nil {
			f.write(err, &d)
		}
	}
	for _, f := range t.Also {
		f.write(err, &d)
	}
	return d
}

// FromRPC wraps an *rpc.Error in err's chain in an error that also matches the Go error of its
// code. It returns any other error unchanged.
func (t *Table) FromRPC(err error) error {
	var e *rpc.Error
	if !errors.As(err, &e) {
		return err
	}
	if cause := t.Meaning(e); cause != nil {
		return &remoteError{e, cause}
	}
	return err
}

// Meaning returns the Go error for e, with its fields, or nil if its code has none.
func (t *Table) Meaning(e *rpc.Error) error {
	if err := t.Meanings[e.Code]; err != nil {
		return err
	}
	a := Answer{e}
	var first *Kind // for a cause that a later version added
	for i := range t.Kinds {
		k := &t.Kinds[i]
		if k.Code != e.Code {
			continue
		}
		if k.Cause == a.Text("cause") {
			return k.error(a)
		}
		if first == nil {
			first = k
		}
	}
	if first == nil {
		return nil
	}
	return first.error(a)
}

// remoteError is an error that a server returned. Its text is the server's. errors.Is and errors.As
// find both the *rpc.Error and the Go error of its code.
type remoteError struct {
	rpc   *rpc.Error
	cause error
}

func (e *remoteError) Error() string {
	if e.rpc.Message != "" {
		return e.rpc.Message
	}
	return e.rpc.Error()
}

func (e *remoteError) Unwrap() []error { return []error{e.cause, e.rpc} }
