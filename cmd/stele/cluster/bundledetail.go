package cluster

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/cmd/stele/cli"
)

// hiddenUser stands for the name of a user in a bundle.
const hiddenUser = "(user)"

// quotas returns the quotas, without names of users.
func (b *bundle) quotas(ctx context.Context) (any, error) {
	all, err := b.client.Quotas().List(ctx)
	if err != nil {
		return nil, err
	}
	quotas := []quotaJSON{}
	for i := range all {
		q := quotaJSON{Of: all[i].Of, Name: all[i].Name, Bounds: []quotaBoundJSON{}}
		if q.Of == api.QuotaOfUser {
			q.Name = hiddenUser
		}
		for _, x := range all[i].Bounds {
			q.Bounds = append(q.Bounds, quotaBoundJSON(x))
		}
		quotas = append(quotas, q)
	}
	return quotas, nil
}

// quotaJSON is a quota in a bundle.
type quotaJSON struct {
	Of     string           `json:"of"` // table or user
	Name   string           `json:"name"`
	Bounds []quotaBoundJSON `json:"bounds"`
}

type quotaBoundJSON struct {
	Kind    string `json:"kind"`
	Limit   int64  `json:"limit"`
	BurstMS int64  `json:"burst_ms"`
	Used    int64  `json:"used"` // -1: unknown
}

// failures returns the counts of failed requests of a node, without names of users.
func (b *bundle) failures(ctx context.Context, n *client.NodeInfo) (any, error) {
	s, err := b.client.Nodes().SlowRequests(ctx, n.RPC)
	if err != nil {
		return nil, err
	}
	all := append([]client.ErrorCount{}, s.Errors...)
	for i := range all {
		e := &all[i]
		e.Message = withoutQuotes(e.Message)
		if e.User != "" {
			e.User = hiddenUser
		}
	}
	return all, nil
}

// traces returns the traces of a node, without users and their addresses.
func (b *bundle) traces(ctx context.Context, n *client.NodeInfo) (any, error) {
	x, err := b.client.Nodes().Traces(ctx, n.RPC, "")
	if err != nil {
		return nil, err
	}
	all := []spanJSON{}
	for i := range x.Traces {
		t := &x.Traces[i]
		t.User, t.From, t.Row = "", "", b.key(t.Row)
		all = append(all, spanOf(x.Node, t))
	}
	return all, nil
}

// logLines returns the last lines of a node's log, without what may name users and rows.
func (b *bundle) logLines(ctx context.Context, n *client.NodeInfo) (any, error) {
	x, err := b.client.Nodes().LogLines(ctx, n.RPC, "info")
	if err != nil {
		return nil, err
	}
	for i := range x.Lines {
		if l := &x.Lines[i]; !b.keys {
			l.Details = withoutNames(l.Details)
		}
	}
	return x.Lines, nil
}

// detail is a key of a line of the log, and its value.
var detail = regexp.MustCompile(`([A-Za-z0-9_.]+)=("(?:[^"\\]|\\.)*"|\S*)`)

// bundledDetails are the keys of log lines whose values name no user and no row. Errors may quote them.
var bundledDetails = []string{
	"backup", "blob", "bytes", "cause", "cluster", "connections", "count", "drain_timeout", "entry", "epoch", "err", "extents", "extent", "files", "file", "folder",
	"garbage", "grace", "id", "kind", "leader", "listed", "log", "memtables", "method", "missing_nodes", "nodes", "node", "offset", "old_epoch", "panic", "part", "pause",
	"reason", "records", "remedy", "removed_nodes", "retry_in", "round", "rpc", "runs", "seq", "server", "session", "stack", "stage", "step", "suppressed", "table_id",
	"tablets", "tablet", "table", "term", "took", "write_pause",
}

// withoutNames returns the details of a log line without values that may name users and rows.
func withoutNames(details string) string {
	return detail.ReplaceAllStringFunc(details, func(one string) string {
		m := detail.FindStringSubmatch(one)
		if !slices.Contains(bundledDetails, m[1]) {
			return m[1] + "=…"
		}
		if text, err := strconv.Unquote(m[2]); err == nil {
			return m[1] + "=" + strconv.Quote(withoutQuotes(text))
		}
		return one
	})
}

// heatTablets is the number of tablets in a bundle's list of the hottest.
const heatTablets = 50

// hotTabletJSON is one of the hottest tablets in a bundle.
type hotTabletJSON struct {
	client.HotTablet
	Start string `json:"start"`
	End   string `json:"end"`
}

// hottest returns the tablets with the most operations of the last hour.
func (b *bundle) hottest(ctx context.Context) (any, error) {
	l, err := b.client.Tables().Hot(ctx, &client.HotTabletsRequest{Since: time.Hour, Most: heatTablets})
	if err != nil {
		return nil, err
	}
	tablets := []hotTabletJSON{}
	for i := range l.Tablets {
		t := &l.Tablets[i]
		tablets = append(tablets, hotTabletJSON{*t, cli.EscapeBytes(b.key(t.Start)), cli.EscapeBytes(b.key(t.End))})
	}
	return map[string]any{"start_ms": l.StartMS, "end_ms": l.EndMS, "ops": l.Ops, "tablets": tablets, "silent": l.Silent}, nil
}

// historyJSON is a tablet's history in a bundle.
type historyJSON struct {
	TableID uint64        `json:"table_id"`
	End     string        `json:"end"`
	Events  []tabletEvent `json:"events"` // the newest first
}

type tabletEvent struct {
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// histories returns the histories of all tablets.
func (b *bundle) histories(ctx context.Context) (any, error) {
	all := []historyJSON{}
	s := b.client.Table(metadata.Name).Scan(ctx, client.Filter(metadata.RowsWithEvents()))
	defer s.Close()
	for s.Next() {
		r, err := metadata.Decode(s.Row())
		if err != nil {
			b.missing("history of a tablet", err)
			continue
		}
		h := historyJSON{TableID: r.Table, End: cli.EscapeBytes(b.key(r.End)), Events: []tabletEvent{}}
		for _, e := range metadata.Events(s.Row()) {
			h.Events = append(h.Events, tabletEvent{time.UnixMicro(e.Time).UTC(), b.eventText(e.Text)})
		}
		all = append(all, h)
	}
	return all, s.Err()
}

// eventText returns the text of an event without what it quotes, which may be a row.
func (b *bundle) eventText(text string) string {
	if b.keys {
		return text
	}
	return withoutQuotes(text)
}
