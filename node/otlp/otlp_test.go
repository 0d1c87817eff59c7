package otlp

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/client/api"
)

// TestExport: a collector receives a request as a span in its caller's trace, and its stages below it, without the row's key. A request without a
// caller's trace is the root of its own.
func TestExport(t *testing.T) {
	received := make(chan *collector.ExportTraceServiceRequest, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		p, err := io.ReadAll(body)
		m := &collector.ExportTraceServiceRequest{}
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(p, m) != nil || strings.Contains(string(p), "secret") {
			t.Errorf("%s: %v, %d bytes", r.URL.Path, err, len(p))
		}
		received <- m
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer server.Close()
	x, err := New(Config{Endpoint: server.URL, Node: "n1", Version: "v", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	request := api.Trace{
		SlowRequest: api.SlowRequest{Method: "read", Table: "web", Row: []byte("secret"), Took: time.Second, Error: "overloaded", Trace: "0af7651916cd43dd8448eb211c80319c"},
		Span:        "00f067aa0ba902b7", Parent: "b7ad6b7169203331", BeganUS: 1_700_000_000_000_000,
		Stages: []api.TraceStage{{Name: "disk", After: time.Millisecond, Took: 2 * time.Millisecond, Times: 3}}, Counts: []api.TraceCount{{Name: "blocks", N: 12}},
	}
	x.Export(&request)
	request.Parent, request.Stages, request.Span = "", nil, "00f067aa0ba902b8"
	x.Export(&request)
	x.Close()
	spans := (<-received).ResourceSpans[0].ScopeSpans[0].Spans
	if len(spans) != 3 {
		t.Fatalf("%d spans: %v", len(spans), spans)
	}
	disk, read, root := spans[0], spans[1], spans[2]
	if hex.EncodeToString(read.TraceId) != request.Trace || hex.EncodeToString(read.SpanId) != "00f067aa0ba902b7" || hex.EncodeToString(read.ParentSpanId) != "b7ad6b7169203331" ||
		read.Name != "stele read" || read.EndTimeUnixNano-read.StartTimeUnixNano != 1e9 || read.Status.Message != "overloaded" {
		t.Errorf("%v", read)
	}
	if string(disk.ParentSpanId) != string(read.SpanId) || disk.StartTimeUnixNano-read.StartTimeUnixNano != 1e6 || disk.EndTimeUnixNano-disk.StartTimeUnixNano != 2e6 {
		t.Errorf("%v", disk)
	}
	if hex.EncodeToString(root.TraceId) != request.Trace || hex.EncodeToString(root.SpanId) != request.Span || len(root.ParentSpanId) > 0 {
		t.Errorf("%v", root)
	}
}
