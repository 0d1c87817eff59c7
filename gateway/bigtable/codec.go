package bigtable

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// encoded is an answer that is encoded already. Its buffer has one reference, which the send releases.
type encoded struct{ buffer mem.Buffer }

// codec sends encoded answers as they are, leaves messages that are decoded later as they were received, and all others to the codec of Protocol Buffers.
type codec struct{ encoding.CodecV2 }

// Codec returns the codec of a server with this service, for grpc.ForceServerCodecV2.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch r := v.(type) {
	case *Received:
		r.receive(data)
		return nil
	case *receivedPieces:
		data.Ref()
		r.data = data
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(*encoded); ok {
		return mem.BufferSlice{e.buffer}, nil
	}
	return c.CodecV2.Marshal(v)
}
