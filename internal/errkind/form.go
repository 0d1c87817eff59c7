package errkind

import (
	"errors"

	"github.com/steledb/stele/rpc"
)

// Details are the fields of errors, as rpc.Error has them.
type Details map[string]any

func (d *Details) grow() {
	if *d == nil {
		*d = make(Details)
	}
}

// A Form is how the fields of one type of errors travel.
type Form struct {
	is    func(error) bool
	write func(error, *Details) // into a map that it makes if there is none
	read  func(Answer) error
}

// FormOf returns the form of errors of type E: write puts the fields of one into
// details, read makes one of what a server answered. Read is nil for a type that
// is not made again: only its fields travel.
func FormOf[E error](write func(E, Details), read func(Answer) error) *Form {
	return &Form{
		is: func(err error) bool {
			var e E
			return errors.As(err, &e)
		},
		write: func(err error, d *Details) {
			var e E
			if errors.As(err, &e) {
				d.grow()
				write(e, *d)
			}
		},
		read: read,
	}
}

// Answer is an error that a server answered with.
type Answer struct{ *rpc.Error }

// Text returns the detail of that key; empty if there is none, or it is no text.
func (a Answer) Text(key string) string {
	s, _ := a.Details[key].(string)
	return s
}

// Int returns the detail of that key; 0 if there is none, or it is no integer.
func (a Answer) Int(key string) int64 {
	n, _ := integer(a.Details[key])
	return n
}

// HasInt tells whether there is an integer of that key.
func (a Answer) HasInt(key string) bool {
	_, ok := integer(a.Details[key])
	return ok
}

// integer returns a detail that came over the wire, or is on its way there.
func integer(v any) (n int64, ok bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int:
		return int64(v), true
	case uint64:
		return int64(v), true
	}
	return 0, false
}
