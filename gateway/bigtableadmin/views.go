package bigtableadmin

import (
	"context"
	"slices"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/gateway/names"
	"github.com/steledb/stele/table"
)

// errNarrower is the status of an update that a client may not have meant.
var errNarrower = status.Error(codes.FailedPrecondition,
	"The update removes rows or columns from the authorized view, and so from all that use it: set ignore_warnings to do that.")

// openView returns the administration of tables for a request about a view.
func (s *Service) openView(ctx context.Context, name string) (Tables, names.View, error) {
	v, err := names.ParseView(name)
	if err != nil {
		return nil, v, errcode.Convert(err, errcode.Repeatable)
	}
	t, err := s.open(ctx)
	return t, v, err
}

// viewOf returns a view that the caller may see. Its errors are statuses.
func viewOf(ctx context.Context, t Tables, name names.View) (*table.View, error) {
	schema, err := schemaOf(ctx, t, name.Table)
	if err != nil {
		return nil, err
	}
	v := schema.View(name.ID)
	if v == nil {
		err = &table.NoViewError{Table: schema.Name, View: name.ID}
	}
	return v, errcode.Convert(err, errcode.Repeatable)
}

// alterView changes a view, and returns it as it is then, or nil. Its errors are statuses.
func alterView(ctx context.Context, t Tables, name names.View, op table.ChangeOp, c *table.ViewChange) (*table.View, error) {
	schema, err := t.Alter(ctx, name.Table.ID, table.Change{Op: op, View: c})
	if err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	return schema.View(name.ID), nil
}

// subsetOf converts the definition of a view, unless it is too large for any. The error is a status.
func subsetOf(name string, from *adminpb.AuthorizedView) (*table.View, error) {
	subset := from.GetSubsetView()
	if subset == nil {
		return nil, errcode.Invalid("authorized_view.subset_view must be set")
	}
	if n := proto.Size(subset); n > table.ViewBytesMax {
		return nil, errcode.Invalid("authorized_view.subset_view has %d bytes, want at most %d", n, table.ViewBytesMax)
	}
	var families []table.ViewFamily
	for family, f := range subset.FamilySubsets {
		families = append(families, table.ViewFamily{Name: family, Qualifiers: f.GetQualifiers(), Prefixes: f.GetQualifierPrefixes()})
	}
	return table.NewView(name, subset.RowPrefixes, families...), nil
}

// describeView returns what a response has of a view.
func describeView(name names.View, v *table.View, detail adminpb.AuthorizedView_ResponseView) *adminpb.AuthorizedView {
	to := &adminpb.AuthorizedView{Name: name.String()}
	if detail == adminpb.AuthorizedView_NAME_ONLY {
		return to
	}
	to.Etag, to.DeletionProtection = v.Etag(), v.Protected
	if detail == adminpb.AuthorizedView_BASIC {
		return to
	}
	subset := &adminpb.AuthorizedView_SubsetView{RowPrefixes: v.Rows, FamilySubsets: map[string]*adminpb.AuthorizedView_FamilySubsets{}}
	for i := range v.Families {
		f := &v.Families[i]
		subset.FamilySubsets[f.Name] = &adminpb.AuthorizedView_FamilySubsets{Qualifiers: f.Qualifiers, QualifierPrefixes: f.Prefixes}
	}
	to.AuthorizedView = &adminpb.AuthorizedView_SubsetView_{SubsetView: subset}
	return to
}

// CreateAuthorizedView implements adminpb.BigtableTableAdminServer. The operation that it returns is done.
func (s *Service) CreateAuthorizedView(ctx context.Context, req *adminpb.CreateAuthorizedViewRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.Now()
	t, of, err := s.openTable(ctx, req.Parent)
	if err != nil {
		return nil, err
	}
	if err := (names.Limits{Strict: s.cfg.StrictLimits}).CheckViewID(req.AuthorizedViewId); err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	v, err := subsetOf(req.AuthorizedViewId, req.AuthorizedView)
	if err != nil {
		return nil, err
	}
	v.Protected = req.AuthorizedView.DeletionProtection
	name := of.View(v.Name)
	made, err := alterView(ctx, t, name, table.ChangeAddView, &table.ViewChange{View: *v})
	if err != nil {
		return nil, err
	}
	return done(name.String(), describeView(name, made, adminpb.AuthorizedView_FULL), &adminpb.CreateAuthorizedViewMetadata{OriginalRequest: req, RequestTime: began, FinishTime: timestamppb.Now()})
}

// ListAuthorizedViews implements adminpb.BigtableTableAdminServer. A page token is the id of the last view of the page before.
func (s *Service) ListAuthorizedViews(ctx context.Context, req *adminpb.ListAuthorizedViewsRequest) (*adminpb.ListAuthorizedViewsResponse, error) {
	t, name, err := s.openTable(ctx, req.Parent)
	if err != nil {
		return nil, err
	}
	if req.PageSize < 0 {
		return nil, errcode.Invalid("page_size must not be negative")
	}
	schema, err := schemaOf(ctx, t, name)
	if err != nil {
		return nil, err
	}
	detail := req.View
	if detail == adminpb.AuthorizedView_RESPONSE_VIEW_UNSPECIFIED {
		detail = adminpb.AuthorizedView_NAME_ONLY
	}
	answer := &adminpb.ListAuthorizedViewsResponse{}
	for i := range schema.Views {
		v := &schema.Views[i]
		if v.Name <= req.PageToken {
			continue
		}
		if n := len(answer.AuthorizedViews); req.PageSize > 0 && n == int(req.PageSize) {
			answer.NextPageToken = schema.Views[i-1].Name
			break
		}
		answer.AuthorizedViews = append(answer.AuthorizedViews, describeView(name.View(v.Name), v, detail))
	}
	return answer, nil
}

// GetAuthorizedView implements adminpb.BigtableTableAdminServer. Without a requested detail the response has all: Google's Go client does not request
// any, and needs the definition.
func (s *Service) GetAuthorizedView(ctx context.Context, req *adminpb.GetAuthorizedViewRequest) (*adminpb.AuthorizedView, error) {
	t, name, err := s.openView(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	v, err := viewOf(ctx, t, name)
	if err != nil {
		return nil, err
	}
	return describeView(name, v, req.View), nil
}

// UpdateAuthorizedView implements adminpb.BigtableTableAdminServer. The operation that it returns is done. An update that removes rows or columns needs
// ignore_warnings.
func (s *Service) UpdateAuthorizedView(ctx context.Context, req *adminpb.UpdateAuthorizedViewRequest) (*longrunningpb.Operation, error) {
	began := timestamppb.Now()
	t, name, err := s.openView(ctx, req.GetAuthorizedView().GetName())
	if err != nil {
		return nil, err
	}
	old, err := viewOf(ctx, t, name)
	if err != nil {
		return nil, err
	}
	v, err := updatedView(old, req)
	if err != nil {
		return nil, err
	}
	etag := req.AuthorizedView.Etag
	if etag == "" {
		etag = old.Etag() // what the mask leaves out stays as it is
	}
	if etag == old.Etag() && !req.IgnoreWarnings && !v.Covers(old) {
		return nil, errNarrower
	}
	made, err := alterView(ctx, t, name, table.ChangeView, &table.ViewChange{View: *v, Etag: etag})
	if err != nil {
		return nil, err
	}
	return done(name.String(), describeView(name, made, adminpb.AuthorizedView_FULL), &adminpb.UpdateAuthorizedViewMetadata{OriginalRequest: req, RequestTime: began, FinishTime: timestamppb.Now()})
}

// updatedView returns a view with the fields of a request that its mask has; without a mask, with those that are set. The error is a status.
func updatedView(old *table.View, req *adminpb.UpdateAuthorizedViewRequest) (*table.View, error) {
	from, paths := req.AuthorizedView, slices.Clone(req.GetUpdateMask().GetPaths())
	switch {
	case slices.Contains(paths, "*"):
		paths = []string{"subset_view", "deletion_protection"}
	case len(paths) == 0:
		if from.GetSubsetView() != nil {
			paths = append(paths, "subset_view")
		}
		if from.DeletionProtection {
			paths = append(paths, "deletion_protection")
		}
	}
	v := *old
	for _, path := range paths {
		switch path {
		case "subset_view":
			subset, err := subsetOf(old.Name, from)
			if err != nil {
				return nil, err
			}
			v.Rows, v.Families = subset.Rows, subset.Families
		case "deletion_protection":
			v.Protected = from.DeletionProtection
		default:
			return nil, errcode.Invalid("update_mask has %.200q, which cannot be updated: want subset_view, deletion_protection or *", path)
		}
	}
	return &v, nil
}

// DeleteAuthorizedView implements adminpb.BigtableTableAdminServer.
func (s *Service) DeleteAuthorizedView(ctx context.Context, req *adminpb.DeleteAuthorizedViewRequest) (*emptypb.Empty, error) {
	t, name, err := s.openView(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	if _, err := alterView(ctx, t, name, table.ChangeDropView, &table.ViewChange{View: table.View{Name: name.ID}, Etag: req.Etag}); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}
