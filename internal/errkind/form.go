package errkind

import (
	"errors"

	"github.com/steledb/stele/rpc"
)

// Details holds the fields of errors, as in rpc.Error.
type Details map[string]any

func (d *Details) grow() {
	if *d == nil {
		*d = make(Details)
	}
}

// A Form defines how the fields of one error type are encoded.
type Form struct {
	is    func(error) bool
	write func(error, *Details) // into a map, which it allocates if it is nil
	read  func(Answer) error
}

// FormOf returns the Form of errors of type E. write stores the fields of an error in details; read
// makes an error from a server's answer. A nil read means that only the fields are sent and no
// error of type E is made.
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

// Answer is an error that a server returned.
type Answer struct{ *rpc.Error }

// Text returns the detail with that key, or "" if it is missing or not a string.
func (a Answer) Text(key string) string {
	s, _ := a.Details[key].(string)
	return s
}

// Int returns the detail with that key, or 0 if it is missing or not an integer.
func (a Answer) Int(key string) int64 {
	n, _ := integer(a.Details[key])
	return n
}

// HasInt reports whether the detail with that key is an integer.
func (a Answer) HasInt(key string) bool {
	_, ok := integer(a.Details[key])
	return ok
}

// integer returns an integer detail, either decoded or not yet encoded.
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
