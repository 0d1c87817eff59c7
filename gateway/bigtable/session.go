package bigtable

import (
	"context"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/gateway/names"
)

// PingAndWarm implements bigtablepb.BigtableServer. Clients call it on each new connection, and do
// not start if it fails.
func (s *Service) PingAndWarm(_ context.Context, req *bigtablepb.PingAndWarmRequest) (*bigtablepb.PingAndWarmResponse, error) {
	if _, err := names.ParseInstance(req.Name); err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	return &bigtablepb.PingAndWarmResponse{}, nil
}

// GetClientConfiguration implements bigtablepb.BigtableServer. A session load of 0 makes clients use
// plain calls instead of sessions.
func (s *Service) GetClientConfiguration(_ context.Context, req *bigtablepb.GetClientConfigurationRequest) (*bigtablepb.ClientConfiguration, error) {
	if _, err := names.ParseInstance(req.InstanceName); err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	return &bigtablepb.ClientConfiguration{
		SessionConfiguration: &bigtablepb.SessionClientConfiguration{SessionLoad: 0},
		Polling:              &bigtablepb.ClientConfiguration_StopPolling{StopPolling: true},
	}, nil
}

// OpenTable implements bigtablepb.BigtableServer.
func (s *Service) OpenTable(bigtablepb.Bigtable_OpenTableServer) error { return errNoSessions }

// OpenAuthorizedView implements bigtablepb.BigtableServer.
func (s *Service) OpenAuthorizedView(bigtablepb.Bigtable_OpenAuthorizedViewServer) error {
	return errNoSessions
}

// OpenMaterializedView implements bigtablepb.BigtableServer.
func (s *Service) OpenMaterializedView(bigtablepb.Bigtable_OpenMaterializedViewServer) error {
	return errNoSessions
}

// GenerateInitialChangeStreamPartitions implements bigtablepb.BigtableServer.
func (s *Service) GenerateInitialChangeStreamPartitions(*bigtablepb.GenerateInitialChangeStreamPartitionsRequest, bigtablepb.Bigtable_GenerateInitialChangeStreamPartitionsServer) error {
	return errNoChangeStreams
}

// ReadChangeStream implements bigtablepb.BigtableServer.
func (s *Service) ReadChangeStream(*bigtablepb.ReadChangeStreamRequest, bigtablepb.Bigtable_ReadChangeStreamServer) error {
	return errNoChangeStreams
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
	errNoSessions      = errcode.Unimplemented("Sessions are not supported: use ReadRows and MutateRow.")
	errNoChangeStreams = errcode.Unimplemented("Change streams are not supported.")
	errNoSQL           = errcode.Unimplemented("SQL queries are not supported: use ReadRows.")
)
