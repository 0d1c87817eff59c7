package bigtable

import (
	"context"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/steledb/stele/gateway/errcode"
)

// Received is a message as it was received. Calls receive it in place of a message, which Decode then decodes with memory for it.
type Received struct{ buffer mem.Buffer }

// Free frees the received bytes.
func (r *Received) Free() {
	if r.buffer != nil {
		r.buffer.Free()
	}
}

// Decode decodes a received message. See decode.
func (r *Received) Decode(ctx context.Context, to proto.Message, most int64, reserve Reserve) (release func(), err error) {
	return decode(ctx, r.buffer.ReadOnlyData(), to, most, reserve)
}

// Reserve waits for memory of a call. The result releases it. See Config.Reserve for the errors.
type Reserve = func(ctx context.Context, bytes int64) (release func(), err error)

// Memory of decoded messages, which were received as few bytes as 2 each.
const (
	// innerBytes is what a message within another takes: itself, its place in a list, the value of a oneof, and what it is converted to.
	innerBytes = 320
	// valueBytes is what any other value takes, besides its bytes.
	valueBytes = 32
	// depthMax is how deep messages are nested that Protocol Buffers decode.
	depthMax = 10_000
	// decodedFree is how much memory the charge of a call covers.
	decodedFree = 16 << 10
)

// decode decodes a message with memory for it, besides as many bytes as it was received in, which are charged already. Errors are statuses: too large for
// most bytes; those of reserve; malformed.
func decode(ctx context.Context, b []byte, to proto.Message, most int64, reserve Reserve) (release func(), err error) {
	release = func() {}
	n := decodedBytes(b, to.ProtoReflect().Descriptor(), 0) - int64(len(b))
	if most > 0 && n > most {
		return release, errcode.Invalid("The request would take %d MiB of memory when it is decoded, more than %d MiB: send fewer entries, mutations, ranges or keys in one request.", n>>20, most>>20)
	}
	if reserve != nil && n > decodedFree {
		if release, err = reserve(ctx, n); err != nil {
			return func() {}, errcode.Convert(err, errcode.Once)
		}
	}
	if err := proto.Unmarshal(b, to); err != nil {
		release()
		return func() {}, errcode.Invalid("The request is malformed: %v", err)
	}
	return release, nil
}

// decodedBytes returns about how much memory an encoded message takes when it is decoded and converted, from its fields alone.
func decodedBytes(b []byte, of protoreflect.MessageDescriptor, depth int) (n int64) {
	if depth > depthMax {
		return n
	}
	fields := of.Fields()
	for len(b) > 0 {
		number, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return n
		}
		b = b[size:]
		n += valueBytes
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(number, kind, b); size < 0 {
				return n
			}
			b = b[size:]
			continue
		}
		value, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return n
		}
		b = b[size:]
		switch field := fields.ByNumber(number); {
		case field == nil: // unknown, but kept
			n += int64(len(value))
		case field.Message() != nil:
			n += innerBytes + decodedBytes(value, field.Message(), depth+1)
		case field.Kind() == protoreflect.StringKind || field.Kind() == protoreflect.BytesKind:
			n += int64(len(value))
		default: // numbers in one value
			n += 8 * int64(len(value))
		}
	}
	return n
}
