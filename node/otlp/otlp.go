package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/trace"
)

const (
	queueMax   = 1024
	closeWait  = 2 * time.Second // for the last batch
	serverSpan = "github.com/steledb/stele/node"
)

// Config is the configuration of an Exporter.
type Config struct {
	Endpoint string // URL of the collector; without a path, /v1/traces
	Node     string // name
	Version  string
	Logger   *slog.Logger
}

// Exporter exports traces. It is safe for concurrent use.
type Exporter struct {
	provider *sdktrace.TracerProvider
	tracer   oteltrace.Tracer
}

// New returns an exporter, which connects when it has spans. Close it. The error is that of an invalid endpoint or environment.
func New(cfg Config) (*Exporter, error) {
	endpoint, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	if strings.Trim(endpoint.Path, "/") == "" {
		endpoint.Path = "/v1/traces"
	}
	sender, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(endpoint.String()))
	if err != nil {
		return nil, fmt.Errorf("export traces to %s: %w", cfg.Endpoint, err)
	}
	about := resource.NewSchemaless(attribute.String("service.name", "stele"), attribute.String("service.version", cfg.Version), attribute.String("service.instance.id", cfg.Node))
	p := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithIDGenerator(given{}), sdktrace.WithResource(about),
		sdktrace.WithBatcher(&reporting{SpanExporter: sender, log: cfg.Logger}, sdktrace.WithMaxQueueSize(queueMax)))
	return &Exporter{p, p.Tracer(serverSpan)}, nil
}

// Close sends what is left, for a short time.
func (x *Exporter) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	_ = x.provider.Shutdown(ctx) // the node stops whether or not the collector answers
}

// Export queues a request of a trace. It does not block.
func (x *Exporter) Export(t *api.Trace) {
	id, _ := trace.ParseID(t.Trace)
	ids := spanIDs{trace: oteltrace.TraceID(id)}
	ids.span, _ = oteltrace.SpanIDFromHex(t.Span)
	ctx := context.WithValue(context.Background(), idsKey{}, ids)
	if parent, err := oteltrace.SpanIDFromHex(t.Parent); err == nil {
		ctx = oteltrace.ContextWithRemoteSpanContext(ctx, oteltrace.NewSpanContext(oteltrace.SpanContextConfig{TraceID: ids.trace, SpanID: parent, TraceFlags: oteltrace.FlagsSampled, Remote: true}))
	}
	began := time.UnixMicro(t.BeganUS)
	ctx, span := x.tracer.Start(ctx, "stele "+t.Method, oteltrace.WithSpanKind(oteltrace.SpanKindServer), oteltrace.WithTimestamp(began), oteltrace.WithAttributes(attributes(t)...))
	if t.Error != "" {
		span.SetStatus(codes.Error, t.Error)
	}
	ctx = context.WithValue(ctx, idsKey{}, nil) // those of stages are random
	for i := range t.Stages {
		s := &t.Stages[i]
		_, stage := x.tracer.Start(ctx, s.Name, oteltrace.WithTimestamp(began.Add(s.After)), oteltrace.WithAttributes(attribute.Int64("stele.times", s.Times)))
		stage.End(oteltrace.WithTimestamp(began.Add(s.After + s.Took)))
	}
	span.End(oteltrace.WithTimestamp(began.Add(t.Took)))
}

// attributes describes a request, without its row key.
func attributes(t *api.Trace) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("db.system.name", "stele"), attribute.String("db.operation.name", t.Method), attribute.String("db.collection.name", t.Table), attribute.String("enduser.id", t.User),
		attribute.String("stele.kept", t.Kept), attribute.Int64("stele.tablet", int64(t.Tablet)), attribute.Int64("stele.request_bytes", t.Bytes), attribute.Float64("stele.waited_s", t.Waited.Seconds()),
	}
	for _, c := range t.Counts {
		all = append(all, attribute.Int64("stele."+c.Name, c.N))
	}
	return all
}

// spanIDs are the ids that a span gets.
type spanIDs struct {
	trace oteltrace.TraceID
	span  oteltrace.SpanID
}

type idsKey struct{}

// given generates ids: those in the context, or else random ones.
type given struct{}

// NewIDs implements sdktrace.IDGenerator.
func (given) NewIDs(ctx context.Context) (oteltrace.TraceID, oteltrace.SpanID) {
	if ids, ok := ctx.Value(idsKey{}).(spanIDs); ok {
		return ids.trace, ids.span
	}
	return oteltrace.TraceID(trace.NewID()), oteltrace.SpanID(trace.NewSpanID())
}

// NewSpanID implements sdktrace.IDGenerator.
func (g given) NewSpanID(ctx context.Context, _ oteltrace.TraceID) oteltrace.SpanID {
	_, id := g.NewIDs(ctx)
	return id
}

// reporting is an exporter that logs when it begins and ends to fail.
type reporting struct {
	sdktrace.SpanExporter
	log     *slog.Logger
	failing atomic.Bool
}

// ExportSpans implements sdktrace.SpanExporter. Its error is logged, and nil.
func (r *reporting) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	if failing := err != nil; r.failing.Swap(failing) != failing {
		if failing {
			r.log.Warn("traces are not exported", "err", err)
		} else {
			r.log.Info("traces are exported again")
		}
	}
	return nil
}
