package formation

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// TestSenderIsChecked: messages of a node in the name of another one than its certificate names are
// rejected.
func TestSenderIsChecked(t *testing.T) {
	a, b := newHost(t, "n1"), newHost(t, "n2")
	caller := ""
	a.start(t, func(c *Config) { c.Caller = func(*rpc.Call) string { return caller } })
	a.wait(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	self := Peer{ID: "n2", Name: "name-n2", RPC: b.addr, Gossip: "g" + b.addr}
	say := func(method string) error {
		c, err := rpc.Dial(ctx, a.addr, rpc.ConnConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.Call(ctx, method, func(e *wire.Encoder) {
			e.Array(1)
			switch method {
			case MethodHello:
				(&hello{Peer: self, cluster: a.outcome.Cluster}).append(e)
			case MethodPromise:
				(&promiseRequest{founder: self, expect: 2, attempt: 1}).append(e)
			case MethodJoin:
				(&joinRequest{Peer: self, cluster: a.outcome.Cluster}).append(e)
			}
		}, func(d *wire.Decoder) error { d.Skip(); return d.Err() })
	}
	knows := func() bool {
		for _, s := range a.service.Seeds() {
			if s == self.Gossip {
				return true
			}
		}
		return false
	}
	for _, method := range []string{MethodHello, MethodPromise, MethodJoin} {
		caller = "n3"
		if err := say(method); !errors.Is(err, rpc.CodePermissionDenied) {
			t.Errorf("%s of another: %v", method, err)
		}
	}
	if knows() {
		t.Error("what another node has said is believed")
	}
	for _, name := range []string{"n2", ""} {
		caller = name
		for _, method := range []string{MethodHello, MethodPromise, MethodJoin} {
			if err := say(method); err != nil {
				t.Errorf("%s of node %q: %v", method, name, err)
			}
		}
	}
	if !knows() {
		t.Error("what a node has said of itself is not believed")
	}
	var refused *RefusedError
	if err := a.service.checkSender("n3", self); !errors.As(err, &refused) {
		t.Errorf("an answer of node n3 as n2: %v", err)
	}
}
