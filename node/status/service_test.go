package status

import (
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/node/identity"
)

// TestStarting: before the node serves, ping and status are answered with nothing but its identity.
func TestStarting(t *testing.T) {
	self := &identity.Self{}
	self.Open(&identity.Folders{Identity: identity.Identity{Node: "n1", Cluster: "c1"}})
	sv := New(Config{Name: "a", Version: "v1", Began: time.Now(), Self: self, Serving: func() bool { return false },
		Unready: func() string { return "starting: waiting for other nodes" }})
	var pong api.Pong
	d := wire.NewDecoder(wiretest.Encode(sv.ping()))
	if err := pong.Decode(&d); err != nil || pong != (api.Pong{Server: "stele", Version: "v1", Protocol: api.ProtocolVersion, Node: "a", Cluster: "c1"}) {
		t.Errorf("ping: %+v, %v", pong, err)
	}
	answer, err := sv.status(t.Context(), &api.NamesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var s api.Status
	d = wire.NewDecoder(wiretest.Encode(answer))
	if err := s.Decode(&d); err != nil || s.NodeID != "n1" || s.Node != "a" || s.Cluster != "c1" || s.Version != "v1" || s.Ready || s.Reason != "starting: waiting for other nodes" {
		t.Errorf("status: %+v, %v", s, err)
	}
}
