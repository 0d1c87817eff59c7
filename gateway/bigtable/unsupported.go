package bigtable

import (
	"context"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/steledb/stele/gateway/errcode"
)

// OpenMaterializedView implements bigtablepb.BigtableServer.
func (s *Service) OpenMaterializedView(bigtablepb.Bigtable_OpenMaterializedViewServer) error {
	return errNoMaterializedViews
}

// PrepareQuery implements bigtablepb.BigtableServer.
func (s *Service) PrepareQuery(context.Context, *bigtablepb.PrepareQueryRequest) (*bigtablepb.PrepareQueryResponse, error) {
	return nil, errNoSQL
}

// ExecuteQuery implements bigtablepb.BigtableServer.
func (s *Service) ExecuteQuery(*bigtablepb.ExecuteQueryRequest, bigtablepb.Bigtable_ExecuteQueryServer) error {
	return errNoSQL
}

var (
	errNoMaterializedViews = errcode.Unimplemented("Materialized views are not supported: name the table.")
	errNoSQL               = errcode.Unimplemented("SQL queries are not supported: use ReadRows.")
)
