package bigtable

import (
	"context"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/table"
)

// execute executes a virtual RPC, with memory for its answer. Errors are statuses.
func (x *session) execute(req *bigtablepb.VirtualRpcRequest, memory *rowMemory) (a answer, err error) {
	began, m := time.Now(), &bigtablepb.TableRequest{}
	defer func() { x.count(m, began, err) }()
	ctx := x.stream.Context()
	release, err := decode(ctx, req.Payload, m, x.service.cfg.DecodedBytesMax, x.service.cfg.Reserve)
	if err != nil {
		return a, err
	}
	defer release()
	if req.Deadline != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, req.Deadline.AsDuration())
		defer cancel()
	}
	t, err := x.table(ctx)
	if err != nil {
		return a, err
	}
	switch p := m.GetPayload().(type) {
	case *bigtablepb.TableRequest_ReadRow:
		if x.permission == bigtablepb.OpenTableRequest_PERMISSION_WRITE {
			return a, status.Error(codes.PermissionDenied, "the session was opened for writes only")
		}
		if err = x.service.checkFilter(p.ReadRow.GetFilter()); err == nil {
			a.row, err = readRow(ctx, t, p.ReadRow, memory)
		}
		return a, err
	case *bigtablepb.TableRequest_MutateRow:
		if x.permission == bigtablepb.OpenTableRequest_PERMISSION_READ {
			return a, status.Error(codes.PermissionDenied, "the session was opened for reads only")
		}
		return answer{mutated: true}, x.service.mutateRow(ctx, t, p.MutateRow)
	}
	return a, errcode.Unimplemented("The virtual RPC is not supported: use plain calls.")
}

// readRow reads a row, with memory for it. It returns nil if the row does not exist. Errors are statuses.
func readRow(ctx context.Context, t Table, req *bigtablepb.SessionReadRowRequest, memory *rowMemory) (*table.Row, error) {
	filter, err := convertFilter(req.GetFilter())
	if err != nil {
		return nil, err
	}
	var options []client.ReadOption
	if filter != nil {
		options = []client.ReadOption{client.Filter(filter)}
	}
	row, err := memory.get(ctx, t, string(req.GetKey()), options...)
	if err != nil || row == nil || len(row.Cells) == 0 {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	return row, nil
}

// mutateRow applies mutations to a row. Errors are statuses.
func (s *Service) mutateRow(ctx context.Context, t Table, req *bigtablepb.SessionMutateRowRequest) error {
	if len(req.GetMutations()) == 0 {
		return errNoMutations
	}
	if err := s.checkRow(req.Key); err != nil {
		return err
	}
	m, repeat, err := rowMutation(req.Key, req.Mutations)
	if err != nil {
		return err
	}
	return errcode.Convert(t.Apply(ctx, m), repeat)
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
