package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// TestTokensOfThoseWhoLeft: the audit log has a join token, by its id, even if the caller left before it was created.
func TestTokensOfThoseWhoLeft(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	admin, ctx := f.impatient(0), within(t, 60*time.Second)
	answered := map[string]bool{}
	left := func() (ids []string) {
		t.Helper()
		for _, x := range good(admin.JoinTokens().List(ctx)) {
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
		made, err := admin.JoinTokens().Create(short, client.TokenRequest{Kind: api.TokenJoin})
		cancel()
		if err == nil {
			answered[made.Info.ID] = true
		}
	}
	ids := left()
	log := f.audited("audit.log")
	for _, id := range ids {
		if !strings.Contains(log, `"action":"create_token","on":"token `+id+` for 1 hosts","outcome":"done"`) {
			t.Errorf("the audit log has no token %s:\n%s", id, log)
		}
	}
}

// audited returns a log of node 0, which is stopped for that.
func (f *testCluster) audited(name string) string {
	f.t.Helper()
	f.stop(0) // when what was begun is done, and written
	return string(good(os.ReadFile(filepath.Join(f.cfgs[0].Security, "audit", name))))
}

// TestChangesSayWhatTheyAreAbout: each change of an administrator is in the audit log with what it is about, also one that
// fails, and no row is.
func TestChangesSayWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	f, _, _ := secureTestCluster(t, 1)
	f.startAll()
	admin, ctx, self := f.client(0), within(t, 60*time.Second), f.nodes[0].ID()
	good(admin.Tables().Create(ctx, "web", table.FamilySpec{Name: "f"}))
	good(admin.Tables().SetFamily(ctx, "web", table.FamilySpec{Name: "g"}))
	good(admin.Tables().DropFamily(ctx, "web", "g"))
	const row = "secret-row"
	split := good(admin.Tablets().Split(ctx, "web", row))
	if _, err := admin.Tablets().Split(ctx, "web", row); !errors.Is(err, client.ErrBadSplit) {
		t.Errorf("split twice: %v", err)
	}
	if _, err := admin.Tablets().Halve(ctx, "web", client.TabletRef{ID: 1 << 40}); !errors.Is(err, client.ErrNoTablet) {
		t.Errorf("split of a tablet that is not there: %v", err)
	}
	if err := errors.Join(admin.Tablets().Compact(ctx, "web", client.TabletRef{Row: row}, true), admin.Tables().Compact(ctx, "web", false)); err != nil {
		t.Error(err)
	}
	good(admin.Tablets().Move(ctx, "web", client.TabletRef{ID: split.ID}, self))
	good(admin.Tablets().Merge(ctx, "web", client.TabletRef{Row: row}))
	const id = "00112233445566778899aabbccddeeff"
	_, revived := admin.BlockStore().Revive(ctx, id)
	if gone := admin.Blobs().Delete(ctx, id); gone == nil || revived == nil {
		t.Errorf("a blob that is not there: %v, %v", gone, revived)
	}
	if err := admin.BlockStore().ResumeSweep(ctx); err != nil {
		t.Error(err)
	}
	good(admin.BlockStore().Fsck(ctx, "", false))
	good(admin.Users().List(ctx))
	good(admin.JoinTokens().List(ctx))
	good(admin.Authority().RotateGossipKey(ctx))
	if _, err := admin.Authority().Finish(ctx); !errors.Is(err, client.ErrRollover) {
		t.Errorf("a replacement of the authority that never began is finished: %v", err)
	}
	if _, err := admin.JoinTokens().Create(ctx, client.TokenRequest{Kind: "odd"}); err == nil {
		t.Error("a token of an odd kind")
	}
	log := f.audited("audit.log")
	for _, want := range []string{
		`"action":"create_table","on":"table web","outcome":"done"`,
		`"action":"set_family","on":"family g of table web","outcome":"done"`,
		`"action":"drop_family","on":"family g of table web","outcome":"done"`,
		fmt.Sprintf(`"action":"split_tablet","on":"tablet %d of table web","outcome":"done"`, split.ID),
		fmt.Sprintf(`"action":"split_tablet","on":"tablet %d of table web","outcome":"failed","code":"bad_split"`, split.Lower),
		fmt.Sprintf(`"action":"split_tablet","on":"tablet %d of table web","outcome":"failed","code":"tablet_not_found"`, 1<<40),
		fmt.Sprintf(`"action":"compact_tablet","on":"tablet %d of table web","outcome":"done"`, split.Lower),
		`"action":"compact_table","on":"table web","outcome":"done"`,
		fmt.Sprintf(`"action":"move_tablet","on":"tablet %d of table web to node %s","outcome":"done"`, split.ID, self),
		fmt.Sprintf(`"action":"merge_tablets","on":"tablets %d and %d of table web","outcome":"done"`, split.Lower, split.ID),
		`"action":"blob_delete","on":"blob ` + id + `","outcome":"failed"`,
		`"action":"blob_revive","on":"blob ` + id + `","outcome":"failed"`,
		`"action":"blob_resume_sweep","on":"the sweep","outcome":"done"`,
		`"action":"blob_fsck","on":"all blobs","outcome":"done"`,
		`"action":"list_users","on":"all users","outcome":"done"`,
		`"action":"list_tokens","on":"all tokens","outcome":"done"`,
		`"action":"rotate_authority","on":"the gossip key","outcome":"done"`,
		`"action":"rotate_authority","on":"the authority","outcome":"failed"`,
		`"action":"create_token","on":"token","outcome":"failed"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("the audit log has no %s", want)
		}
	}
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `"on":"`) || strings.Contains(line, row) {
			t.Errorf("it says not what it is about, or a row: %s", line)
		}
	}
	if t.Failed() {
		t.Log(log)
	}
}
