package tables

import (
	"context"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// alterTable makes a list of changes of a schema at once, or none of them.
func (tb *Service) alterTable(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.AlterTableRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	var s *table.Schema
	err := tb.Changes.Do(c.Context(), authz.ChangeRequest{Caller: authz.SubjectOf(c), Method: api.MethodAlterTable, Name: r.Table}, func(ctx context.Context) (err error) {
		s, err = tb.alterNow(ctx, r.Table, func(old *table.Schema) (*table.Schema, error) { return old.Alter(r.Changes...) })
		if err == nil {
			tb.Users.PruneGrants(ctx, s) // on families that were dropped
		}
		return err
	})
	if err != nil {
		reply.Fail(c, err)
		return
	}
	tb.Log.Info("table altered", "table", r.Table)
	c.Reply(schemaAnswer(s))
}
