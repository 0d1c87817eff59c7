package console

import (
	"context"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/health"
)

// clientsShown is the number of client processes that are shown.
const clientsShown = 500

// clientsView is what the page of client processes shows.
type clientsView struct {
	Processes []client.ClientProcess
	Hidden    int
	Rejected  int64
	Unknown   []string
}

// clientsPage shows what client processes report about themselves.
func clientsPage(ctx context.Context, q *query) (*content, error) {
	l, err := health.ReadClients(ctx, q.Client)
	if err != nil {
		return nil, err
	}
	n := min(len(l.All), clientsShown)
	x := &clientsView{Processes: l.All[:n], Hidden: len(l.All) - n, Rejected: l.Rejected, Unknown: l.Unknown}
	return &content{Title: "Clients", Template: "clients.html", Section: "Clients", Data: x}, nil
}
