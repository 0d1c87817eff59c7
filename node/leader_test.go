package node_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// TestQuorumLost: without a majority of the lock service's voters, calls that need it fail early with that reason, and succeed when the voters are back.
func TestQuorumLost(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 3)
	for i := range f.cfgs {
		f.cfgs[i].Expect, f.cfgs[i].Join = 3, f.addrs[:2]
	}
	f.startAll()
	f.await(0, "three voters", votersAlive(3))
	c := f.client(0)
	spec, err := table.ParseFamilySpec("f")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	if _, err := c.Tables().Create(ctx, "t", spec); err != nil {
		t.Fatal(err)
	}
	f.stop(1)
	f.stop(2)
	const patience = 20 * time.Second
	for _, test := range []struct {
		what string
		do   func(ctx context.Context, c *client.Client) error
	}{
		{"list tables", func(ctx context.Context, c *client.Client) error { _, err := c.Tables().List(ctx); return err }},
		{"read", func(ctx context.Context, c *client.Client) error { _, err := c.Table("t").Get(ctx, "r"); return err }},
		{"describe", func(ctx context.Context, c *client.Client) error { _, err := c.Tables().Describe(ctx, "t"); return err }},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		fresh, err := client.Open(ctx, f.addrs[0], client.Config{RetryTimeMax: time.Second}) // it knows of no places
		if err != nil {
			t.Fatal(err)
		}
		err = test.do(ctx, fresh)
		cancel()
		fresh.Close()
		if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the lock service has no leader: 1 of its 3 voters are alive, and 2 are needed") {
			t.Errorf("%s: %v", test.what, err)
		}
	}
	short, cancelShort := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancelShort()
	if _, err := f.client(0).Tables().Create(short, "u", spec); !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrAmbiguous) {
		t.Errorf("create a table: %v", err)
	}
	if s, err := c.Status(ctx); err != nil || s.Ready || !strings.Contains(s.Reason, "1 of its 3 voters") {
		t.Errorf("status: %+v, %v", s, err)
	}
	for i := range f.cfgs {
		f.cfgs[i].Expect = 0
	}
	f.startAll()
	if err := c.Table("t").Apply(ctx, client.NewRowMutation("r").Set("f:q", []byte("v"))); err != nil {
		t.Fatalf("write when they are back: %v", err)
	}
}
