package console

import (
	"context"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/internal/text"
)

// backupsPage lists backups.
func backupsPage(ctx context.Context, q *query) (*content, error) {
	all, err := q.Backups().List(ctx)
	return &content{Title: "Backups", Template: "backups.html", Section: "Backups", Data: all}, err
}

// usersView is what the page of users shows. A list is nil if the user has no right to see it.
type usersView struct {
	Me          *client.Whoami
	Users       []client.UserInfo
	UsersError  string
	Grants      []client.Grant
	GrantsError string
}

// usersPage shows users, their credentials and rights.
func usersPage(ctx context.Context, q *query) (*content, error) {
	me, err := q.Whoami(ctx)
	if err != nil {
		return nil, err
	}
	x := &usersView{Me: me}
	if me.Name != "" { // an open cluster has no users
		if x.Users, err = q.Users().List(ctx); err != nil {
			x.UsersError = err.Error()
		}
		if x.Grants, err = q.Grants().List(ctx, "", ""); err != nil {
			x.GrantsError = err.Error()
		}
	}
	return &content{Title: "Users", Template: "users.html", Section: "Users", Data: x, Static: true}, nil
}

// quotaRow is one bound of a quota.
type quotaRow struct {
	Of, Name, Kind, Limit, Burst string
	Used                         bar
	HasUsed                      bool
	Refused                      string // requests that a rate has rejected in the last minutes
}

// quotasPage lists quotas.
func quotasPage(ctx context.Context, q *query) (*content, error) {
	all, err := q.Quotas().List(ctx)
	if err != nil {
		return nil, err
	}
	refused := health.Refusals(ctx, q.Client)
	rows := []quotaRow{}
	for i := range all {
		for _, b := range all[i].Bounds {
			row := quotaRow{Of: all[i].Of, Name: all[i].Name, Kind: b.Kind, Refused: "–"}
			if b.Kind == api.QuotaBytes {
				row.Limit, row.Used, row.HasUsed = text.Size(b.Limit), usedBar(max(b.Used, 0), b.Limit), b.Used >= 0
			} else {
				row.Limit, row.Burst = text.Count(b.Limit)+"/s", text.Duration(time.Duration(b.BurstMS)*time.Millisecond)
				row.Refused = text.Count(refused[api.QuotaText(row.Of, row.Name, row.Kind)])
			}
			rows = append(rows, row)
		}
	}
	return &content{Title: "Quotas", Template: "quotas.html", Section: "Quotas", Data: rows}, nil
}
