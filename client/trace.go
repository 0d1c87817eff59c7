package client

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/steledb/stele/internal/trace"
)

// tracer is the name of the instrumentation whose spans the client starts.
const tracer = "github.com/steledb/stele/client"

// WithTraceparent returns a context in which calls about rows belong to a trace, given in the form of the W3C's header traceparent. Nodes keep
// what they did for such calls if its flag sampled is set; see Nodes.Traces. Contexts with a span of OpenTelemetry need no
// traceparent. ok is false, and the context unchanged, if the text is not a traceparent.
func WithTraceparent(ctx context.Context, traceparent string) (_ context.Context, ok bool) {
	c, ok := trace.Parse(traceparent)
	if !ok {
		return ctx, false
	}
	cfg := oteltrace.SpanContextConfig{TraceID: oteltrace.TraceID(c.ID), SpanID: oteltrace.SpanID(c.Span), Remote: true}
	if c.Sampled {
		cfg.TraceFlags = oteltrace.FlagsSampled
	}
	return oteltrace.ContextWithRemoteSpanContext(ctx, oteltrace.NewSpanContext(cfg)), true
}

// begin makes k part of the trace of ctx, if that has one. If the span of ctx is recorded, the call gets a span of its own below it, from the same
// provider. end ends that span.
func (k *call) begin(ctx context.Context) (end func(error)) {
	*k.traceID = nil
	span := oteltrace.SpanFromContext(ctx)
	of := span.SpanContext()
	if !of.IsValid() {
		return func(error) {}
	}
	end = func(error) {}
	if span.IsRecording() {
		_, own := span.TracerProvider().Tracer(tracer).Start(ctx, "stele "+k.method, oteltrace.WithSpanKind(oteltrace.SpanKindClient))
		of = own.SpanContext()
		end = func(err error) {
			if err != nil {
				own.SetStatus(codes.Error, err.Error())
			}
			own.End()
		}
	}
	*k.traceID = []byte(trace.Context{ID: trace.ID(of.TraceID()), Span: trace.SpanID(of.SpanID()), Sampled: of.IsSampled()}.String())
	return end
}
