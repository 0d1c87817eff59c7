package node_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// TestTokensOfThoseWhoLeft: a join token is in the audit log, by its id, also if who asked for it has left before it was made.
func TestTokensOfThoseWhoLeft(t *testing.T) {
	t.Parallel()
	f, _, _ := secureFleet(t, 1)
	f.startAll()
	admin, ctx := f.impatient(0), within(t, 60*time.Second)
	answered := map[string]bool{}
	left := func() (ids []string) {
		t.Helper()
		for _, x := range good(admin.Tokens(ctx)) {
			if !answered[x.ID] {
				ids = append(ids, x.ID)
			}
		}
		return ids
	}
	for patience := 100 * time.Microsecond; len(left()) < 3; patience = patience%(20*time.Millisecond) + 200*time.Microsecond {
		if ctx.Err() != nil {
			t.Fatal("nobody has left in time")
		}
		short, cancel := context.WithTimeout(ctx, patience)
		made, err := admin.CreateToken(short, client.TokenRequest{Kind: api.TokenJoin})
		cancel()
		if err == nil {
			answered[made.Info.ID] = true
		}
	}
	ids := left()
	f.stop(0) // when what was begun is made
	log := string(good(os.ReadFile(filepath.Join(f.cfgs[0].Security, "audit", "audit.log"))))
	for _, id := range ids {
		if !strings.Contains(log, `"action":"create_token","on":"token `+id+` for 1 hosts","outcome":"done"`) {
			t.Errorf("the audit log has no token %s:\n%s", id, log)
		}
	}
}
