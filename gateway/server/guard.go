package server

import (
	"log/slog"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/internal/invariant"
)

// guard surrounds the handlers of calls.
type guard struct{ log *slog.Logger }

// stream is a grpc.StreamServerInterceptor.
func (g guard) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = g.panicked(info.FullMethod, p)
		}
	}()
	return sentence(info.FullMethod, handler(srv, stream))
}

// panicked returns the status of a call whose handler panicked (GS1).
func (g guard) panicked(method string, p any) error {
	if broken, ok := p.(*invariant.Broken); ok {
		panic(broken) // going on would lose data silently
	}
	g.log.Error("handler panicked", "method", method, "panic", p, "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "handler panicked")
}

// sentence replaces the text of generated code for methods that are not implemented (GS4).
func sentence(method string, err error) error {
	if s, ok := status.FromError(err); ok && s.Code() == codes.Unimplemented && strings.HasSuffix(s.Message(), "not implemented") {
		return unsupported(method)
	}
	return err
}

func unsupported(method string) error {
	return errcode.Unimplemented("The method " + strings.TrimPrefix(method, "/") + " is not supported.")
}

// unknown answers methods of services that are not registered.
func unknown(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return unsupported(method)
}
