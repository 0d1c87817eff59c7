package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/health"
)

// auditShown is the number of records that are shown.
const auditShown = 200

// auditLogs are the names of the audit logs, and what people call them.
var auditLogs = []auditChoice{{"audit", "changes"}, {"table-admins", "changes by administrators of tables"}, {"refusals", "rejected requests"}}

// auditChoice is an audit log to choose.
type auditChoice struct{ Name, Text string }

// auditView is what the page of audit logs shows.
type auditView struct {
	Log, Filter string
	Logs        []auditChoice
	Records     []auditRecord
	Hidden      int // records that the filter hides
	Unknown     []string
}

// auditRecord is a line of an audit log: the keys that package security/audit specifies.
type auditRecord struct {
	Time, Kind, Name, From, Action, On, Outcome, Code, Text string
	Repeated                                                int64
	Node                                                    string
}

// auditPage shows the last records of an audit log of all nodes, the newest first.
func auditPage(ctx context.Context, q *query) (*content, error) {
	x := &auditView{Log: q.r.URL.Query().Get("log"), Filter: q.r.URL.Query().Get("q"), Logs: auditLogs}
	if x.Log == "" {
		x.Log = auditLogs[0].Name
	}
	if !slices.ContainsFunc(auditLogs, func(c auditChoice) bool { return c.Name == x.Log }) {
		return nil, &pageError{http.StatusBadRequest, "There is no audit log " + x.Log + "."}
	}
	nodes, err := q.Nodes().List(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	err = eachNode(nodes, func(n *client.NodeInfo) error {
		a, err := q.Nodes().AuditLog(ctx, n.RPC, x.Log)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			x.Unknown = append(x.Unknown, health.NameOf(n)+": "+err.Error())
			return err
		}
		x.add(a)
		return nil
	})
	if errors.Is(err, client.ErrPermission) {
		return nil, onePermission(err)
	}
	slices.SortStableFunc(x.Records, func(a, b auditRecord) int { return strings.Compare(b.Time, a.Time) })
	x.Records = x.Records[:min(len(x.Records), auditShown)]
	slices.Sort(x.Unknown)
	return &content{Title: "Audit", Template: "audit.html", Section: "Audit", Data: x, Static: true}, nil
}

// add adds the records of a node.
func (x *auditView) add(a *client.AuditLines) {
	for _, line := range a.Lines {
		r := auditRecord{}
		if !strings.Contains(line, x.Filter) {
			x.Hidden++
		} else if json.Unmarshal([]byte(line), &r) == nil {
			r.Node = a.Node
			x.Records = append(x.Records, r)
		}
	}
}
