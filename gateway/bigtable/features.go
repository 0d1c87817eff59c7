package bigtable

import (
	"context"
	"encoding/base64"
	"strings"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Headers of requests.
const (
	headerFeatures = "bigtable-features" // base64 of a FeatureFlags message
	headerClient   = "x-goog-api-client" // such as "gl-go/1.26.0 gccl/1.58.0"
)

// header returns the first value of a header of a request, or "".
func header(ctx context.Context, name string) string {
	if values := metadata.ValueFromIncomingContext(ctx, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// featuresOf returns what the client of a request supports. A header that does not decode means
// nothing.
func featuresOf(ctx context.Context) *bigtablepb.FeatureFlags {
	f := &bigtablepb.FeatureFlags{}
	text := strings.TrimRight(header(ctx, headerFeatures), "=")
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		b, err = base64.RawStdEncoding.DecodeString(text)
	}
	if err != nil || proto.Unmarshal(b, f) != nil {
		return &bigtablepb.FeatureFlags{}
	}
	return f
}

// needsWholeRows reports whether the client of a request requires each row in one message: Google's
// Go client forgets an unfinished row at the end of a message.
func needsWholeRows(ctx context.Context) bool {
	return strings.Contains(header(ctx, headerClient), "gl-go/")
}
