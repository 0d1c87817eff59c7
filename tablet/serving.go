package tablet

import "fmt"

// UnknownOutcomeError means that a mutation is in the commit log, but the server lost the proof that the
// tablet is its own before it answered. The next server of the tablet may or may not find the
// mutation in the log.
//
// It does not match its cause, which as an answer would mean that nothing was executed.
type UnknownOutcomeError struct{ Cause error }

func (e *UnknownOutcomeError) Error() string {
	return fmt.Sprintf("mutation logged, but its outcome is unknown: %v", e.Cause)
}

// checkServing returns nil while the server provably holds the right to serve its tablets. It is
// called before an operation begins and before its answer is given. The second call is the one that
// counts: an operation may take any time, and the process may be suspended (I4).
func (s *Server) checkServing() error {
	if f := s.cfg.Serving; f != nil {
		return f()
	}
	return nil
}
