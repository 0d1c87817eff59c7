package rpc

import (
	"time"

	"github.com/steledb/stele/internal/wire"
)

// SlowCall is a call that took long: see ServerConfig.Slow. It and all that it points to are valid only until Slow returns.
type SlowCall struct {
	Method   string
	Peer     *Peer
	Identity any // as Call.Identity
	// Params reads the parameters from the first one; see Call.Params.
	Params    wire.Decoder
	NumParams int
	Bytes     int // of the parameters
	// Took is the time from the arrival of the request to its answer, Waited the part of it before its handler was called.
	Took, Waited time.Duration
	Err          *Error // nil: it succeeded
}
