package api

import (
	"time"

	"github.com/steledb/stele/internal/wire"
)

// Traces is the result of traces: requests of a node whose traces are kept.
type Traces struct {
	Node string // its name
	// Every is the setting trace_sample: one request of so many is kept, besides slow ones and those that their callers sample. 0: tracing is
	// off.
	Every  int64
	Traces []Trace // the newest first, at most 3 * TracesMax
}

// TracesMax is the number of traces that a node keeps for each reason.
const TracesMax = 256

// Reasons for which a trace is kept.
const (
	TraceSlow      = "slow"      // the request took long
	TraceSampled   = "sampled"   // the node has chosen it at random
	TraceRequested = "requested" // its caller has
)

// Trace is what a node did for one request.
type Trace struct {
	SlowRequest
	Kept string `json:"kept"` // the reason
	// Span identifies the request in its trace, Parent the caller's span that caused it; empty if the caller sent none. 16 hexadecimal digits.
	Span   string `json:"span"`
	Parent string `json:"parent"`
	// BeganUS is when the request arrived, in µs since 1970.
	BeganUS int64  `json:"began_us"`
	Tablet  uint64 `json:"tablet"` // the first tablet that it used; 0: none
	// Stages are those that the request was in, Counts what it looked at. docs/rpc.md has the names.
	Stages []TraceStage `json:"stages"`
	Counts []TraceCount `json:"counts"`
}

// TraceStage is the time that a request spent in one stage.
type TraceStage struct {
	Name  string        `json:"name"`
	After time.Duration `json:"-"` // from the request's arrival to the first time in the stage
	Took  time.Duration `json:"-"` // the sum of all times
	Times int64         `json:"times"`
	// Node is, of the stage "log replicas", the id of the node whose replica was the last; empty otherwise, or if it is unknown.
	Node string `json:"node,omitempty"`
}

// TraceCount is how many of something a request looked at.
type TraceCount struct {
	Name string `json:"name"`
	N    int64  `json:"n"`
}

// traceListMax bounds the stages and counts of a trace that a client accepts.
const traceListMax = 64

func (s *Traces) fields() fields {
	return fields{
		{"node", &s.Node}, {"every", &s.Every},
		{"traces", &list[Trace]{all: &s.Traces, fields: (*Trace).fields, what: "traces", max: 3 * TracesMax}},
	}
}

func (t *Trace) fields() fields {
	return append(t.SlowRequest.fields(), fields{
		{"kept", &t.Kept}, {"span", &t.Span}, {"parent", &t.Parent}, {"began_us", &t.BeganUS}, {"tablet", &t.Tablet},
		{"stages", &list[TraceStage]{all: &t.Stages, fields: (*TraceStage).fields, what: "stages", max: traceListMax}},
		{"counts", &list[TraceCount]{all: &t.Counts, fields: (*TraceCount).fields, what: "counts", max: traceListMax}},
	}...)
}

func (s *TraceStage) fields() fields {
	return fields{{"name", &s.Name}, {"after_s", &s.After}, {"took_s", &s.Took}, {"times", &s.Times}, {"node", &s.Node}}
}

func (c *TraceCount) fields() fields { return fields{{"name", &c.Name}, {"n", &c.N}} }

// Append encodes the result.
func (s *Traces) Append(e *wire.Encoder) { s.fields().append(e) }

// Decode decodes the result.
func (s *Traces) Decode(d *wire.Decoder) error {
	*s = Traces{}
	return s.fields().decode(d)
}
