// Package otlp exports the traces that a node keeps to a collector of OpenTelemetry, by OTLP over HTTP: the protocol's default, which passes proxies,
// and leaves gRPC to the gateway.
//
// A request is a span, and each of its stages one below it; a stage that a request was in several times is one span, from its first
// beginning on. Spans have no row keys: the right to read a cluster's row keys ends at the collector. The exporter reads further standard settings,
// such as OTEL_EXPORTER_OTLP_HEADERS, from the environment.
//
// One goroutine, of the SDK, sends batches until Close. Spans that wait are at most queueMax, about 2 MiB; more are dropped.
package otlp
