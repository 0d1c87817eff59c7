package bigtable

import "google.golang.org/grpc"

// Streams returns a registrar that registers unary methods at r as streams with one answer, which are
// the same to clients. So an interceptor runs before the request is received, which
// grpc-go offers for streams only.
func Streams(r grpc.ServiceRegistrar) grpc.ServiceRegistrar { return streams{r} }

type streams struct{ grpc.ServiceRegistrar }

// RegisterService implements grpc.ServiceRegistrar.
func (r streams) RegisterService(desc *grpc.ServiceDesc, service any) {
	d := *desc
	d.Methods, d.Streams = nil, append([]grpc.StreamDesc(nil), desc.Streams...)
	for _, m := range desc.Methods {
		d.Streams = append(d.Streams, grpc.StreamDesc{StreamName: m.MethodName, ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
			answer, err := m.Handler(srv, stream.Context(), stream.RecvMsg, nil)
			if err != nil {
				return err
			}
			return stream.SendMsg(answer)
		}})
	}
	r.ServiceRegistrar.RegisterService(&d, service)
}
