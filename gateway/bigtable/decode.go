package bigtable

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/steledb/stele/gateway/buffers"
	"github.com/steledb/stele/gateway/errcode"
)

// Received is a message as it was received. Calls receive it in place of a message, which Decode then decodes with memory for it.
type Received struct {
	// Most bounds the number of bytes. Decode rejects a longer message, which is not kept. Zero means no bound.
	Most   int64
	bytes  int64
	buffer mem.Buffer // nil if it is too long
}

// receive keeps a message in one piece.
func (r *Received) receive(data mem.BufferSlice) {
	r.bytes = int64(data.Len())
	if r.Most == 0 || r.bytes <= r.Most {
		r.buffer = data.MaterializeToBuffer(buffers.Pool)
	}
}

// receivedPieces is a message in the buffers in which it was received. data must be freed.
type receivedPieces struct{ data mem.BufferSlice }

// Free frees the received bytes.
func (r *Received) Free() {
	if r.buffer != nil {
		r.buffer.Free()
	}
}

// Bytes returns the number of bytes that were received.
func (r *Received) Bytes() int64 { return r.bytes }

// Decode decodes the message with memory that reserve takes; the result releases it. See decode.
func (r *Received) Decode(ctx context.Context, to proto.Message, most int64, reserve Reserve) (release func(), err error) {
	if r.buffer == nil {
		return released, status.Errorf(codes.ResourceExhausted, "The request has %d KiB, more than %d KiB: send a smaller one, or raise the node's setting \"memory\".", r.bytes>>10, r.Most>>10)
	}
	return decode(ctx, r.buffer.ReadOnlyData(), to, most, reserve)
}

// Reserve waits for memory of a call. The result releases it. See Config.Reserve for the errors.
type Reserve = func(ctx context.Context, bytes int64) (release func(), err error)

// ReceivedCopies is how many bytes of memory are charged for each byte of a request when it is received: as it was received, in one piece, and decoded.
const ReceivedCopies = 3

// Memory of what a decoded message consists of, and is converted to. A message of a list may be received as 2 bytes, and takes a hundred times as many
// (TestDecodedBytes).
const (
	listedBytes = 256 // a message of a list, with its place there
	innerBytes  = 96  // any other message within one, with the oneof that it is in
	textBytes   = 64  // a text, or bytes, of a list, besides what it has
	valueBytes  = 16  // any other value, besides the bytes of a text
	numberBytes = 8   // a number of a list, of which some are one value
	// depthMax is how deep messages are nested that Protocol Buffers decode.
	depthMax = 10_000
	// decodedFree is how much of it the charge of a call covers.
	decodedFree = 16 << 10
)

func released() {}

// decode decodes a message with memory for it, besides what was charged when it was received. Errors are statuses: the message takes more than most bytes
// together with that; those of reserve; it is malformed.
func decode(ctx context.Context, b []byte, to proto.Message, most int64, reserve Reserve) (release func(), err error) {
	n := layoutOf(to.ProtoReflect().Descriptor()).decodedBytes(b, 0) - int64(len(b))
	if all := n + ReceivedCopies*int64(len(b)); most > 0 && n > decodedFree && all > most {
		return released, errTooMuchDecoded(all, most)
	}
	release = released
	if reserve != nil && n > decodedFree {
		if release, err = reserve(ctx, n); err != nil {
			return released, errcode.Convert(err, errcode.Once)
		}
	}
	if err := proto.Unmarshal(b, to); err != nil {
		release()
		return released, errcode.Invalid("The request is malformed: %v", err)
	}
	return release, nil
}

// errTooMuchDecoded returns the status of a request that takes more memory than there can be.
func errTooMuchDecoded(bytes, most int64) error {
	return errcode.Invalid("The request would take %d KiB of memory when it is decoded, more than %d KiB: send fewer entries, mutations, ranges or keys in one request, or raise the node's setting \"memory\".", bytes>>10, most>>10)
}

// layout has what decodedBytes must know of a type of messages. Looking fields up in the descriptor for each message took as long as decoding it.
type layout struct{ fields []fieldLayout } // by number

type fieldLayout struct {
	kind  byte // 0: there is no such field
	bytes int64
	of    *layout // of a message
}

// Kinds of fields whose values have a length.
const (
	unknownField = iota
	textField
	numbersField
	messageField
)

// fieldNumberMax is the largest number of a field that a layout has. Others are taken for unknown ones.
const fieldNumberMax = 1000

// layouts has the layouts of all types that were received, by descriptor.
var layouts struct {
	known sync.Map   // of *layout
	build sync.Mutex // held while layouts are added
}

func layoutOf(d protoreflect.MessageDescriptor) *layout {
	if l, ok := layouts.known.Load(d); ok {
		return l.(*layout)
	}
	layouts.build.Lock()
	defer layouts.build.Unlock()
	made := map[protoreflect.MessageDescriptor]*layout{}
	l := buildLayout(d, made)
	for d, l := range made { // now all are complete
		layouts.known.Store(d, l)
	}
	return l
}

// buildLayout builds the layout of a type and those of the types of its fields, which may contain it.
func buildLayout(d protoreflect.MessageDescriptor, made map[protoreflect.MessageDescriptor]*layout) *layout {
	if l := made[d]; l != nil {
		return l
	}
	l := &layout{}
	made[d] = l
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		n := int(f.Number())
		if n > fieldNumberMax {
			continue
		}
		for len(l.fields) <= n {
			l.fields = append(l.fields, fieldLayout{})
		}
		to := &l.fields[n]
		many := f.IsList() || f.IsMap()
		switch {
		case f.Message() != nil:
			to.kind, to.bytes = messageField, innerBytes
			if many {
				to.bytes = listedBytes
			}
			of := buildLayout(f.Message(), made)
			l.fields[n].of = of // to may have moved: a type may contain itself
		case f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind:
			to.kind, to.bytes = textField, valueBytes
			if many {
				to.bytes = textBytes
			}
		default:
			to.kind, to.bytes = numbersField, valueBytes
		}
	}
	return l
}

// decodedBytes returns about how much memory an encoded message takes when it is decoded and converted, from its fields alone.
func (l *layout) decodedBytes(b []byte, depth int) (n int64) {
	if depth > depthMax {
		return n
	}
	for len(b) > 0 {
		number, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return n
		}
		b = b[size:]
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(number, kind, b); size < 0 {
				return n
			}
			n += int64(valueBytes + size)
			b = b[size:]
			continue
		}
		value, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return n
		}
		b = b[size:]
		var f fieldLayout
		if int(number) < len(l.fields) {
			f = l.fields[number]
		}
		switch f.kind {
		case messageField:
			n += f.bytes + f.of.decodedBytes(value, depth+1)
		case numbersField:
			n += f.bytes + numberBytes*int64(len(value))
		default: // unknown fields are kept
			n += f.bytes + int64(len(value))
		}
	}
	return n
}
