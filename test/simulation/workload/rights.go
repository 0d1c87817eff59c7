package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// quotaKinds returns the kinds of quotas that bound rates of operations.
func quotaKinds() []string { return []string{api.QuotaReadOps, api.QuotaWriteOps} }

// useRights gives rights to a new user, uses them as the user, revokes them, and uses them again.
// While rights are granted and revoked, the user makes operations, too.
func (c *operator) useRights(all context.Context) {
	t := c.table()
	if t.Renamed { // the judge knows grants by the name in the plan
		return
	}
	ctx, cancel := c.timeout(all)
	defer cancel()
	name := fmt.Sprintf("user-%d-%d", c.number, c.history.number())
	db, withdraw, err := c.openUser(ctx, name)
	if err != nil {
		return
	}
	defer db.Close()
	user := c.Workload.worker(c.number) // with random numbers of its own
	user.r, user.db, user.user = c.fork(), db, name
	grant := client.Grant{Principal: name, Table: t.Name, Rights: []string{"read", "write", "read,write"}[c.r.IntN(3)]}
	user.rows.tryRights(ctx, t, 2)
	c.changeRight(all, t, grant, Grant, user)
	user.rows.tryRights(ctx, t, 3)
	ways := append(slices.Clone(revocations), withdraw)
	revoke := c.r.IntN(2 * len(ways))
	for range 5 {
		if c.revoke(all, t, grant, user, ways, revoke).Outcome == OK || all.Err() != nil {
			break
		}
	}
	for range 3 {
		ctx, cancel := c.timeout(all)
		user.rows.tryRights(ctx, t, 2)
		cancel()
		c.pause(all, time.Second)
	}
}

// openUser creates a user and connects as it, with a certificate or an access token. The error is
// that of a call; the operation is not recorded. withdraw revokes the certificate or the token.
func (c *operator) openUser(ctx context.Context, name string) (db *client.Client, withdraw revocation, err error) {
	if c.r.IntN(2) == 0 {
		credential, _, err := c.db.Users().Add(ctx, name, time.Hour)
		if err != nil {
			return nil, nil, err
		}
		db, err = c.cluster.Open(ctx, c.number, credential)
		return db, func(u client.Users, ctx context.Context, name string) error {
			return u.RevokeCertificate(ctx, name, credential.Peer().Serial)
		}, err
	}
	text, _, err := c.db.Users().AddToken(ctx, name, time.Hour, "")
	if err != nil {
		return nil, nil, err
	}
	db, err = c.cluster.OpenToken(ctx, c.number, text)
	return db, func(u client.Users, ctx context.Context, name string) error {
		return u.RevokeToken(ctx, name, text.ID().String())
	}, err
}

// A revocation takes all rights from a user.
type revocation func(u client.Users, ctx context.Context, name string) error

// revocations are the ways to take all rights from a user, besides the revocation of a grant.
var revocations = []revocation{client.Users.Revoke, client.Users.Disable, client.Users.Remove}

// revoke takes the user's rights: with how below the number of ways, those of all tables.
func (c *operator) revoke(all context.Context, t *TablePlan, g client.Grant, user *worker, ways []revocation, how int) Op {
	if how >= len(ways) {
		return c.changeRight(all, t, g, Revoke, user)
	}
	g.Rights = "read,write"
	return c.change(all, t, g, Revoke, user, func(ctx context.Context) error {
		err := ways[how](c.db.Users(), ctx, g.Principal)
		if errors.Is(err, client.ErrNoUser) { // removed by an attempt of unknown outcome
			err = nil
		}
		return err
	})
}

// fork returns a stream of random numbers that follows from the client's.
func (c *operator) fork() *rand.Rand { return rand.New(rand.NewPCG(c.r.Uint64(), 7)) }

// changeRight grants or revokes while the user makes operations.
func (c *operator) changeRight(all context.Context, t *TablePlan, g client.Grant, kind Kind, user *worker) Op {
	return c.change(all, t, g, kind, user, func(ctx context.Context) error {
		if kind == Grant {
			return c.db.Grants().Add(ctx, g)
		}
		return c.db.Grants().Revoke(ctx, g)
	})
}

// change makes a change of rights while the user makes operations.
func (c *operator) change(all context.Context, t *TablePlan, g client.Grant, kind Kind, user *worker, do func(context.Context) error) Op {
	ctx, cancel := c.timeout(all)
	defer cancel()
	trying, stop := context.WithCancel(ctx)
	var tries sync.WaitGroup
	tries.Go(func() {
		for trying.Err() == nil {
			user.rows.tryRights(trying, t, 1)
			user.pause(trying, 20*time.Millisecond)
		}
	})
	op := c.begin(Op{Kind: kind, Table: t.Name, Right: &Right{g.Principal, g.Rights}})
	op = c.history.End(op, do(ctx))
	stop()
	tries.Wait()
	return op
}

// tryRights makes n operations on rows as a user.
func (c *rowClient) tryRights(ctx context.Context, t *TablePlan, n int) {
	for range n {
		switch c.r.IntN(3) {
		case 0:
			c.read(ctx, t, c.row(), false)
		case 1:
			c.write(ctx, t, c.row(), c.sets(t, 1))
		case 2:
			c.scan(ctx, t, &Scan{Limit: 3}, false)
		}
	}
}
