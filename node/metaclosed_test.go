package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/tabletadmin"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/tablet"
)

// Once the node has closed its client, changes of METADATA have no outcome, and no goroutine waits for one: a running split ends.
func TestMetadataClosesWithTheNode(t *testing.T) {
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	row := servedTable(ctx, t, n, c)
	n.stopMaster(ctx)
	s := n.tabletServer.Current()
	m, err := tablet.DecodeMeta(row.Meta)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.client.Close(); err != nil {
		t.Fatal(err)
	}
	// The requester of the split does not get a refusal: the split may have been made.
	conn, err := rpc.Dial(ctx, n.RPCAddr(), rpc.ConnConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := ask(conn, tabletadmin.MethodSplit, split{row.Key()}, nil); api.ToRPC(err).Code != api.CodeOutcomeUnknown || api.ToRPC(err).Retryable {
		t.Errorf("a split: %v", err)
	}
	lower := &tablet.Meta{ID: 1000, Table: row.Table, End: []byte("g")}
	_, loadErr := s.Rows.Load(ctx, row.Table, row.End)
	for what, err := range map[string]error{"load": loadErr, "save": s.Rows.Save(ctx, m), "split": s.Rows.Split(ctx, lower, m), "remove": s.Rows.Remove(ctx, m)} {
		if !errors.Is(err, tablet.ErrClosed) || errors.Is(err, tablet.ErrMetaChanged) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A server that has lost its lock does not attempt changes of METADATA, and reports that files written for them can be deleted.
func TestChangeWithoutLockIsUnsent(t *testing.T) {
	n, c := startInternal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	row := servedTable(ctx, t, n, c)
	n.stopMaster(ctx)
	s := n.tabletServer.Current()
	m, err := tablet.DecodeMeta(row.Meta)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.rows.Replace(ctx, row, "changed elsewhere"); err != nil {
		t.Fatal(err)
	}
	m.Stamped++
	if err := s.Rows.Save(ctx, m); !errors.Is(err, tablet.ErrMetaChanged) || errors.Is(err, tablet.ErrMetaUnsent) {
		t.Errorf("save of a row that was changed elsewhere: %v", err)
	}
	other := *m
	other.Table++
	for what, err := range map[string]error{"save": s.Rows.Save(ctx, &other), "split": s.Rows.Split(ctx, m, &other), "remove": s.Rows.Remove(ctx, &other)} {
		if !errors.Is(err, tablet.ErrMetaChanged) {
			t.Errorf("%s of a tablet of another table with that id: %v", what, err)
		}
	}
	if err := n.LoseLock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Rows.Save(ctx, m); !errors.Is(err, tablet.ErrMetaChanged) || !errors.Is(err, tablet.ErrMetaUnsent) {
		t.Errorf("save without the lock: %v", err)
	}
}

// split is a request of another node to split a tablet of table t at row g.
type split struct{ key []byte }

func (s split) Append(e *wire.Encoder) {
	e.Array(3)
	e.Str("t")
	e.Bin(s.key)
	e.Bin([]byte("g"))
}
