package tablet

import "fmt"

// UnsureError means that a mutation is in the commit log, but that the server could
// not prove any more, before it answered, that the tablet is its own: whoever serves
// the tablet next may or may not find the mutation in the log.
//
// It does not match its cause, which as an answer would say that nothing was executed.
type UnsureError struct{ Cause error }

func (e *UnsureError) Error() string {
	return fmt.Sprintf("mutation logged, and the right to acknowledge it lost meanwhile: %v", e.Cause)
}

// provable returns nil while the server is provably the one that serves its tablets.
// It is asked before an operation begins and, what counts, before its answer is
// given: an operation may take any time, and so may the process sleep (I4).
func (s *Server) provable() error {
	if f := s.cfg.Serving; f != nil {
		return f()
	}
	return nil
}
