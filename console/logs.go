package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/health"
)

// logsShown is the number of lines that are shown.
const logsShown = 200

// logLevels are the levels to choose.
var logLevels = []string{"info", "warn", "error"}

// logsView is what the page of logs shows.
type logsView struct {
	Level, Filter, Node string
	Levels              []string
	Nodes               []client.NodeInfo // to choose
	Lines               []logRow
	Hidden              int // lines that the filter hides
	Unknown             []string
}

// logRow is a line of a node's log.
type logRow struct {
	client.LogLine
	Node, NodeID string
}

// logsPage shows the last lines of the logs of all nodes, or of one, the newest first.
func logsPage(ctx context.Context, q *query) (*content, error) {
	values := q.r.URL.Query()
	x := &logsView{Level: values.Get("level"), Filter: values.Get("q"), Node: values.Get("node"), Levels: logLevels}
	if x.Level == "" {
		x.Level = logLevels[0]
	}
	if !slices.Contains(logLevels, x.Level) {
		return nil, &pageError{http.StatusBadRequest, "There is no level " + x.Level + "."}
	}
	nodes, err := q.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	x.Nodes = nodes
	var mu sync.Mutex
	err = eachNode(nodes, func(n *client.NodeInfo) error {
		if x.Node != "" && n.ID != x.Node {
			return nil
		}
		l, err := q.Nodes().LogLines(ctx, n.RPC, x.Level)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			x.Unknown = append(x.Unknown, health.NameOf(n)+": "+err.Error())
			return err
		}
		x.add(n, l)
		return nil
	})
	if errors.Is(err, client.ErrPermission) {
		return nil, onePermission(err)
	}
	slices.SortStableFunc(x.Lines, func(a, b logRow) int { return int(b.TimeMS - a.TimeMS) })
	x.Lines = x.Lines[:min(len(x.Lines), logsShown)]
	slices.Sort(x.Unknown)
	return &content{Title: "Logs", Template: "logs.html", Section: "Logs", Data: x}, nil
}

// add adds the lines of a node.
func (x *logsView) add(n *client.NodeInfo, l *client.LogLines) {
	for _, line := range l.Lines {
		if strings.Contains(line.Message, x.Filter) || strings.Contains(line.Details, x.Filter) {
			x.Lines = append(x.Lines, logRow{line, health.NameOf(n), n.ID})
		} else {
			x.Hidden++
		}
	}
}
