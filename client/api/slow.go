package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
)

// SlowRequests is the result of slow_requests: the last requests of a node that took long.
type SlowRequests struct {
	Node      string        // its name
	Threshold time.Duration // requests that took less are not listed; seconds on the wire
	Total     int64         // since the start of the node
	Requests  []SlowRequest // the newest first, at most SlowRequestsMax
	// Slow are the requests that took long in the last ErrorMinutes minutes, those first that took the most time together, at most ErrorsMax.
	Slow []SlowCount
	// Errors are the requests that failed in the last ErrorMinutes minutes, the most frequent first, at most ErrorsMax.
	Errors []ErrorCount
}

// ErrorCount is the number of requests that failed alike.
type ErrorCount struct {
	Method string `json:"method"`
	Code   string `json:"code"` // its name
	// Table is empty for requests about no table, and User on an open cluster. Both are ErrorsOther if there were too many different ones.
	Table   string `json:"table"`
	User    string `json:"user"`
	N       int64  `json:"n"`
	LastMS  int64  `json:"last_ms"` // when the last was answered, in ms since 1970
	Message string `json:"message"` // of the last, its first 200 bytes
}

// SlowCount is the number of requests of one kind that took long. Unlike a SlowRequest, no flood of others displaces it.
type SlowCount struct {
	Method string `json:"method"`
	// Table and User are those of an ErrorCount.
	Table  string `json:"table"`
	User   string `json:"user"`
	N      int64  `json:"n"`
	LastMS int64  `json:"last_ms"` // when the last was answered, in ms since 1970
	// Took is the time that all took together, Longest that of the longest; Row and Trace are the longest's, as in a SlowRequest.
	Took    time.Duration `json:"-"`
	Longest time.Duration `json:"-"`
	Row     []byte        `json:"-"`
	Trace   string        `json:"trace"`
}

// ErrorsOther stands for tables and users above the number that is counted one by one.
const ErrorsOther = "(others)"

// SlowRequest is a request that took long.
type SlowRequest struct {
	EndMS  int64  `json:"end_ms"` // when it was answered, in ms since 1970
	Method string `json:"method"`
	// Table and Row are the first parameters of a method about tables or rows; empty for others. Row has
	// at most SlowRowBytesMax bytes.
	Table string `json:"table"`
	Row   []byte `json:"-"`
	User  string `json:"user"` // empty on an open cluster
	From  string `json:"from"` // address
	// Took is the time from arrival to answer, Waited the part of it before the request began, for
	// lack of workers.
	Took   time.Duration `json:"-"`
	Waited time.Duration `json:"-"`
	Bytes  int64         `json:"bytes"` // of the request
	Error  string        `json:"error"` // name of the error's code; empty: it succeeded
	// Trace identifies the trace of the request: 32 hexadecimal digits.
	Trace string `json:"trace"`
}

// Bounds of SlowRequests.
const (
	SlowRequestsMax = 256
	SlowRowBytesMax = 256
	ErrorMinutes    = 10
	ErrorsMax       = 1000
)

func (s *SlowRequests) fields() fields {
	return fields{
		{"node", &s.Node}, {"threshold_s", &s.Threshold}, {"total", &s.Total},
		{"requests", &list[SlowRequest]{all: &s.Requests, fields: (*SlowRequest).fields, what: "requests", max: SlowRequestsMax}},
		{"slow", &list[SlowCount]{all: &s.Slow, fields: (*SlowCount).fields, what: "slow requests", max: ErrorsMax}},
		{"errors", &list[ErrorCount]{all: &s.Errors, fields: (*ErrorCount).fields, what: "errors", max: ErrorsMax}},
	}
}

func (c *ErrorCount) fields() fields {
	return fields{{"method", &c.Method}, {"code", &c.Code}, {"table", &c.Table}, {"user", &c.User}, {"n", &c.N}, {"last_ms", &c.LastMS}, {"message", &c.Message}}
}

func (c *SlowCount) fields() fields {
	return fields{
		{"method", &c.Method}, {"table", &c.Table}, {"user", &c.User}, {"n", &c.N}, {"last_ms", &c.LastMS},
		{"took_s", &c.Took}, {"longest_s", &c.Longest}, {"row", &c.Row}, {"trace", &c.Trace},
	}
}

func (r *SlowRequest) fields() fields {
	return fields{
		{"end_ms", &r.EndMS}, {"method", &r.Method}, {"table", &r.Table}, {"row", &r.Row}, {"user", &r.User}, {"from", &r.From},
		{"took_s", &r.Took}, {"waited_s", &r.Waited}, {"bytes", &r.Bytes}, {"error", &r.Error}, {"trace", &r.Trace},
	}
}

// Append encodes the result.
func (s *SlowRequests) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode decodes the result.
func (s *SlowRequests) Decode(d *wire.Decoder) error {
	*s = SlowRequests{}
	return s.fields().decode(d)
}
