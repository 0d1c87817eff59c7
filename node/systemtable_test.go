package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client"
)

// TestMetadataByHand: what people ask of METADATA by name is done, or refused as what only the cluster does.
func TestMetadataByHand(t *testing.T) {
	t.Parallel()
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	makeTable(ctx, t, c)
	spec := familyF(t)
	const name = "METADATA"
	for what, do := range map[string]func() error{
		"split":       func() error { _, err := c.Tablets().Split(ctx, name, "a"); return err },
		"halve":       func() error { _, err := c.Tablets().Halve(ctx, name, client.TabletRef{Row: "a"}); return err },
		"merge":       func() error { _, err := c.Tablets().Merge(ctx, name, client.TabletRef{Row: "a"}); return err },
		"drop":        func() error { return c.Tables().Drop(ctx, name) },
		"set family":  func() error { _, err := c.Tables().SetFamily(ctx, name, spec); return err },
		"drop family": func() error { _, err := c.Tables().DropFamily(ctx, name, "loc"); return err },
		"write":       func() error { return c.Table(name).Apply(ctx, client.NewRowMutation("a").Set("loc:x", nil)) },
	} {
		if err := do(); !errors.Is(err, client.ErrSystemTable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := c.Tables().Create(ctx, name, spec); !errors.Is(err, client.ErrTableExists) {
		t.Errorf("create: %v", err)
	}
	if info, err := c.Tables().Describe(ctx, name); err != nil || len(info.Tablets) != 2 || info.Schema.Name != name {
		t.Errorf("describe: %+v, %v", info, err)
	}
	minor := func() int64 { return n.tabletServer.Current().Metadata.Stats().MinorCompactions }
	before := minor()
	if err := c.Tables().Compact(ctx, name, false); err != nil || minor() < before+2 { // the root tablet and the other
		t.Errorf("compact: %d minor compactions, %v", minor()-before, err)
	}
	if err := c.Tablets().Compact(ctx, name, client.TabletRef{Row: "z"}, true); err != nil {
		t.Errorf("compact a tablet: %v", err)
	}
	if got, err := c.Tablets().Move(ctx, name, client.TabletRef{Row: "z"}, n.cfg.Name); err != nil || got.Node != n.self.ID() {
		t.Errorf("move to where it is: %+v, %v", got, err)
	}
	if _, err := c.Table("t").Get(ctx, "r"); err != nil {
		t.Errorf("read a table then: %v", err)
	}
}
