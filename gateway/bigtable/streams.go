package bigtable

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/gateway/buffers"
	"github.com/steledb/stele/gateway/errcode"
)

// Streams returns a registrar that registers unary methods at r as streams with one answer, which are
// the same to clients. So an interceptor runs before the request is received, which
// grpc-go offers for streams only. Large answers are sent with memory that reserve takes, until grpc-go has written them.
func Streams(r grpc.ServiceRegistrar, reserve Reserve) grpc.ServiceRegistrar {
	return streams{r, reserve}
}

type streams struct {
	grpc.ServiceRegistrar
	reserve Reserve
}

// RegisterService implements grpc.ServiceRegistrar.
func (r streams) RegisterService(desc *grpc.ServiceDesc, service any) {
	d := *desc
	d.Methods, d.Streams = nil, append([]grpc.StreamDesc(nil), desc.Streams...)
	for _, m := range desc.Methods {
		d.Streams = append(d.Streams, grpc.StreamDesc{StreamName: m.MethodName, ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
			var rows rowMemory
			defer func() { rows.end(stream.Context()) }()
			answer, err := m.Handler(srv, context.WithValue(stream.Context(), rowsKey{}, &rows), stream.RecvMsg, nil)
			if err != nil {
				return err
			}
			return r.send(stream, m.MethodName, answer.(proto.Message), rows.row)
		}})
	}
	r.ServiceRegistrar.RegisterService(&d, service)
}

// rowsKey is the key of the rowMemory of an answer, in the context of its call.
type rowsKey struct{}

// answerMemory returns the memory of the row that a call answers with. It is held until the answer is written.
func answerMemory(ctx context.Context, s *Service) *rowMemory {
	m, _ := ctx.Value(rowsKey{}).(*rowMemory)
	if m == nil { // without memory to reserve
		m = &rowMemory{}
	}
	m.service, m.bytes = s, pointRowBytes
	return m
}

// send sends the answer of a method with the memory that is held for its row, or reserves some, and waits until a large one is written.
func (r streams) send(stream grpc.ServerStream, method string, answer proto.Message, h *held) error {
	n := proto.Size(answer)
	if n <= firstBytes || r.reserve == nil {
		return stream.SendMsg(answer)
	}
	if h == nil {
		ctx := stream.Context()
		release, err := r.reserve(ctx, int64(n))
		if err != nil {
			return unsent(method, err)
		}
		h = hold(release)
		defer h.end(ctx)
	}
	var err error
	pool := buffers.Pool
	buffer := pool.Get(n)
	*buffer, err = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*buffer)[:0], answer)
	if err != nil {
		pool.Put(buffer)
		return status.Error(codes.Internal, err.Error())
	}
	return stream.SendMsg(h.message(buffer, pool))
}

// unsent returns the status of a call that was executed, and whose answer there is no memory for. Only methods that read may be sent again.
func unsent(method string, err error) error {
	if strings.HasPrefix(method, "Get") || strings.HasPrefix(method, "List") {
		return errcode.Convert(err, errcode.Repeatable)
	}
	return status.Error(codes.Unknown, "The request was executed, but there is no memory for its answer: read what it has changed.")
}
