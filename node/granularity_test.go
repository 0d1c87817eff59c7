package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// TestTableOfMilliseconds: a client creates a table of milliseconds, sees that it is one, and gets and may set only such timestamps, also
// after a restart.
func TestTableOfMilliseconds(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 120*time.Second)
	c := f.client(0)
	s, err := c.Tables().CreateFrom(ctx, "t", &client.TableSpec{Families: []table.FamilySpec{{Name: "f"}}, SplitAt: []string{"m"}, Granularity: table.GranularityMillis})
	if err != nil || s.Granularity != table.GranularityMillis {
		t.Fatal(s, err)
	}
	if s, err = c.Tables().SetFamily(ctx, "t", table.FamilySpec{Name: "g"}); err != nil || s.Granularity != table.GranularityMillis {
		t.Fatal(s, err)
	}
	check := func() {
		t.Helper()
		var ts int64
		if err := c.Table("t").Apply(ctx, client.NewRowMutation("r").Set("f:q", []byte("v")), client.ReturnTimestamp(&ts)); err != nil || ts == 0 || ts%1000 != 0 {
			t.Fatal(ts, err)
		}
		err := c.Table("t").Apply(ctx, client.NewRowMutation("r").SetAt("f:q", 1_000_001, []byte("v")))
		var bad *table.TimestampError
		if !errors.As(err, &bad) || bad.Got != 1_000_001 {
			t.Errorf("a timestamp of microseconds: %v", err)
		}
	}
	check()
	f.stop(0)
	f.start(0)
	c = f.client(0)
	check()
	if info, err := c.Tables().Describe(ctx, "t"); err != nil || info.Schema.Granularity != table.GranularityMillis {
		t.Error(info, err)
	}
}
