package bigtable

import (
	"context"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/gateway/names"
)

// PingAndWarm implements bigtablepb.BigtableServer. Clients call it on each new connection, and do
// not start if it fails.
func (s *Service) PingAndWarm(ctx context.Context, req *bigtablepb.PingAndWarmRequest) (*bigtablepb.PingAndWarmResponse, error) {
	if _, err := names.ParseInstance(req.Name); err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	if err := s.profile(ctx, req.AppProfileId, useAny); err != nil {
		return nil, err
	}
	return &bigtablepb.PingAndWarmResponse{}, nil
}

const (
	// configurationPeriod is how often clients ask for their configuration again, and the shortest that
	// they accept; Google's Go client 1.58 asks for the second time after five minutes. If a client can
	// open no session, as while its only node restarts, calls may wait until then: see varied.
	configurationPeriod = time.Minute
	// sessionsMin and sessionsMax bound the sessions that a client opens for reads, and as many for
	// writes, of a table. The maximum is Google's; an idle table costs one session instead of five.
	sessionsMin, sessionsMax = 1, 400
)

// GetClientConfiguration implements bigtablepb.BigtableServer. With a session load of 1, clients make
// point reads and row mutations in sessions if they can; with 0, without Config.Sessions or if there is
// no memory for another session, by plain calls.
func (s *Service) GetClientConfiguration(ctx context.Context, req *bigtablepb.GetClientConfigurationRequest) (*bigtablepb.ClientConfiguration, error) {
	if _, err := names.ParseInstance(req.InstanceName); err != nil {
		return nil, errcode.Convert(err, errcode.Repeatable)
	}
	if err := s.profile(ctx, req.AppProfileId, useAny); err != nil {
		return nil, err
	}
	var load float32
	if s.cfg.Sessions {
		if release, ok := s.admit(ctx); ok {
			release()
			load = 1
		}
	}
	type (
		pool     = bigtablepb.SessionClientConfiguration_SessionPoolConfiguration
		channels = bigtablepb.SessionClientConfiguration_ChannelPoolConfiguration
	)
	return &bigtablepb.ClientConfiguration{
		SessionConfiguration: &bigtablepb.SessionClientConfiguration{SessionLoad: load,
			SessionPoolConfiguration: &pool{MinSessionCount: sessionsMin, MaxSessionCount: sessionsMax, Headroom: 0.5, NewSessionQueueLength: 10,
				NewSessionCreationBudget: 50, NewSessionCreationPenalty: durationpb.New(s.varied(time.Second)), ConsecutiveSessionFailureThreshold: 10,
				LoadBalancingOptions: &bigtablepb.LoadBalancingOptions{LoadBalancingStrategy: &bigtablepb.LoadBalancingOptions_LeastInFlight_{
					LeastInFlight: &bigtablepb.LoadBalancingOptions_LeastInFlight{}}}},
			ChannelConfiguration: &channels{MinServerCount: 2, MaxServerCount: 25, PerServerSessionCount: 10,
				Mode: &bigtablepb.SessionClientConfiguration_ChannelPoolConfiguration_CloudPathOnly_{
					CloudPathOnly: &bigtablepb.SessionClientConfiguration_ChannelPoolConfiguration_CloudPathOnly{}}},
		},
		Polling: &bigtablepb.ClientConfiguration_PollingConfiguration_{PollingConfiguration: &bigtablepb.ClientConfiguration_PollingConfiguration{
			PollingInterval: durationpb.New(configurationPeriod), ValidityDuration: durationpb.New(10 * configurationPeriod), MaxRpcRetryCount: 5}},
	}, nil
}

// varied returns a duration that differs from the last by 1 ns: Google's Go client 1.58 tries to open
// sessions for calls that wait for one only if another call begins, or the configuration of sessions changes.
func (s *Service) varied(d time.Duration) time.Duration {
	return d + time.Duration(s.configurations.Add(1)%1000)
}
