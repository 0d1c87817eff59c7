package errkind

import (
	"errors"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// A Kind ties a code to the Go error that it stands for.
type Kind struct {
	Code rpc.Code
	// Name is the code's. Empty for the codes of package rpc, which have names.
	Name string
	// Retryable means that the call was refused before execution: the same request
	// may succeed later or elsewhere.
	Retryable bool
	// Target is what errors.Is tells the kind by. Nil: it is told by the type of Form.
	Target error
	// Cause tells the kinds of one code apart, as the detail "cause". Empty for the
	// first.
	Cause string
	// NotExecuted says so in the detail "executed", for a code that leaves it open.
	NotExecuted bool
	// Form is that of the kind's errors, if they have fields.
	Form *Form
}

func (k *Kind) matches(err error) bool {
	if k.Target == nil {
		return k.Form.is(err)
	}
	return errors.Is(err, k.Target)
}

// error returns the Go error that an answer of this kind stands for.
func (k *Kind) error(a Answer) error {
	if k.Form != nil && k.Form.read != nil {
		return k.Form.read(a)
	}
	return k.Target
}

// A Table is the kinds of errors of one API.
type Table struct {
	// Kinds is in the order in which ToRPC tries them: what wraps comes before what it
	// may wrap.
	Kinds []Kind
	// Also has forms of errors that are of no kind, but add fields to those that they
	// wrap.
	Also []*Form
	// Meanings are the Go errors that codes of other tables, and of package rpc, have for
	// who calls, where that is not their kind's.
	Meanings map[rpc.Code]error
	// Relayed is for servers whose errors tell what other servers answered: an *rpc.Error in
	// the chain is then part of the error, not the whole answer.
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

// ToRPC returns the error that a server answers with for err: the code of the first
// kind that err matches, err's text as the message, and the fields of all typed errors
// in its chain as details. An err that is an *rpc.Error already stays as it is, unless
// the table is Relayed. An err of no kind is CodeInternal.
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

// details returns the fields of the typed errors in err's chain, and what the kind adds.
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

// FromRPC turns an *rpc.Error in err's chain into one that matches the Go error that
// its code stands for as well. Any other error is returned as it is.
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

// Meaning returns the Go error that e stands for, with its fields; nil for a code that
// has none.
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

// remoteError is an error that a server answered with. Its text is the server's;
// errors.Is and errors.As find both the *rpc.Error and the Go error that its code
// stands for.
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
