package bigtable

import (
	"context"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/errcode"
)

// execute executes a virtual RPC. Errors are statuses.
func (x *session) execute(req *bigtablepb.VirtualRpcRequest) (*bigtablepb.TableResponse, error) {
	m := &bigtablepb.TableRequest{}
	if err := proto.Unmarshal(req.Payload, m); err != nil {
		return nil, errcode.Invalid("virtual_rpc.payload must be a TableRequest")
	}
	ctx := x.stream.Context()
	if req.Deadline != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, req.Deadline.AsDuration())
		defer cancel()
	}
	t, err := x.table(ctx)
	if err != nil {
		return nil, err
	}
	switch p := m.GetPayload().(type) {
	case *bigtablepb.TableRequest_ReadRow:
		if x.request.Permission == bigtablepb.OpenTableRequest_PERMISSION_WRITE {
			return nil, status.Error(codes.PermissionDenied, "the session was opened for writes only")
		}
		return readRow(ctx, t, p.ReadRow)
	case *bigtablepb.TableRequest_MutateRow:
		if x.request.Permission == bigtablepb.OpenTableRequest_PERMISSION_READ {
			return nil, status.Error(codes.PermissionDenied, "the session was opened for reads only")
		}
		return mutateRow(ctx, t, p.MutateRow)
	}
	return nil, errcode.Unimplemented("The virtual RPC is not supported: use plain calls.")
}

// readRow reads a row. The answer has none if the row does not exist.
func readRow(ctx context.Context, t Table, req *bigtablepb.SessionReadRowRequest) (*bigtablepb.TableResponse, error) {
	filter, err := convertFilter(req.GetFilter())
	if err != nil {
		return nil, err
	}
	var options []client.ReadOption
	if filter != nil {
		options = []client.ReadOption{client.Filter(filter)}
	}
	row, err := t.Get(ctx, string(req.GetKey()), options...)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	answer := &bigtablepb.SessionReadRowResponse{}
	if row != nil && len(row.Cells) > 0 {
		answer.Row = convertRow(row)
	}
	return &bigtablepb.TableResponse{Payload: &bigtablepb.TableResponse_ReadRow{ReadRow: answer}}, nil
}

// mutateRow applies mutations to a row.
func mutateRow(ctx context.Context, t Table, req *bigtablepb.SessionMutateRowRequest) (*bigtablepb.TableResponse, error) {
	if len(req.GetMutations()) == 0 {
		return nil, errNoMutations
	}
	m, repeat, err := rowMutation(req.Key, req.Mutations)
	if err != nil {
		return nil, err
	}
	if err := t.Apply(ctx, m); err != nil {
		return nil, errcode.Convert(err, repeat)
	}
	return &bigtablepb.TableResponse{Payload: &bigtablepb.TableResponse_MutateRow{MutateRow: &bigtablepb.SessionMutateRowResponse{}}}, nil
}

// failure returns the answer of a virtual RPC that failed. Clients expect a RetryInfo beside the status
// instead of in it.
func (x *session) failure(id int64, err error) *bigtablepb.SessionResponse {
	s := errcode.Status(err, errcode.Repeatable)
	answer := &bigtablepb.ErrorResponse{RpcId: id, ClusterInfo: x.service.peer.cluster,
		Status: &statuspb.Status{Code: int32(s.Code()), Message: s.Message()}}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			answer.RetryInfo = info
		}
	}
	return &bigtablepb.SessionResponse{Payload: &bigtablepb.SessionResponse_Error{Error: answer}}
}
