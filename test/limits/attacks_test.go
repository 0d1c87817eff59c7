package limits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// The users of the attacks and their rights. None of them may read the innocent client's table.
const (
	noRights  = "norights"  // no rights
	oneFamily = "onefamily" // read family f of table attacked, whose family g is hidden
	scanner   = "scanner"   // as onefamily, but unaffected by earlier attacks
	disabled  = "disabled"  // as onefamily, but the user is disabled
	revoked   = "revoked"   // as onefamily, but the certificate is revoked
	writer    = "writer"    // write on the cluster
	filer     = "filer"     // as writer, but unaffected by earlier attacks
	splitter  = "splitter"  // admin on table scrap
	anonymous = "anonymous" // no certificate
)

const (
	attackedRows  = 2000
	slowValue     = 120 << 10
	splitRows     = 2000
	expandCopies  = 409
	lockFileBytes = 256 << 10
)

// attack is run by several users at once, each in a separate process.
type attack struct {
	name  string
	users []string
	// least is the minimum number of answers to all users; below it the attack tested nothing.
	least int
	do    func(ctx context.Context, a *attacker)
	// floods is set if the attack keeps so many goroutines of the node runnable that another user's
	// request waits in Go's run queue: see floodFactor.
	floods bool
	// meanwhile is a check during the attack; may be nil.
	meanwhile func(s *victims) error
	// after is a check after the attack; may be nil.
	after func(s *victims) error
}

// enough returns the number of answers that an attack needs in this run.
func (k *attack) enough() int {
	if testing.Short() {
		return min(k.least, 1)
	}
	return k.least
}

// attacks has all attacks. init sets it, because runAttacker refers to it.
var attacks []attack

func init() {
	attacks = []attack{
		{name: "expanding filters", users: []string{noRights, oneFamily, disabled}, least: 100, do: expandFilters, floods: true},
		{name: "slow patterns", users: []string{oneFamily}, least: 0, do: slowPatterns},
		{name: "cursors", users: []string{noRights, scanner}, least: 100, do: openCursors, floods: true},
		{name: "tiny batches", users: []string{scanner}, least: 100, do: tinyBatches},
		{name: "unread answers", users: []string{oneFamily}, least: 0, do: unreadAnswers, floods: true},
		{name: "garbage", users: []string{oneFamily}, least: 20, do: garbage, floods: true},
		{name: "disabled and revoked", users: []string{disabled, revoked}, least: 100, do: barred},
		{name: "junk tokens", users: []string{anonymous}, least: 100, do: junkTokens},
		{name: "refused grants", users: []string{noRights, oneFamily}, least: 1000, do: refusedGrants, meanwhile: (*victims).administer, after: (*victims).audited},
		{name: "split requests", users: []string{noRights, splitter}, least: 100, do: splitRequests},
		{name: "sessions, locks and watches", users: []string{noRights, writer}, least: 1000, do: lockSessions, meanwhile: (*victims).administer},
		{name: "lock service files", users: []string{noRights, filer}, least: 100, do: lockFiles, floods: true, meanwhile: (*victims).administer},
		{name: "unfinished uploads", users: []string{noRights, writer}, least: 10, do: uploads, meanwhile: (*victims).upload},
	}
}

func valueFilter(pattern string) map[string]any {
	return map[string]any{"filter": []any{"value", pattern}}
}

// field returns a decoder of a map's field: a number, or nil, which is decoded as 0.
func field(name string, to *uint64) func(*wire.Decoder) error {
	return func(d *wire.Decoder) error {
		*to = 0
		for range d.Map() {
			switch key := d.Str(); {
			case key != name:
				d.Skip()
			case !d.IsNil():
				*to = d.Uint()
			}
		}
		return d.Err()
	}
}

// expandFilters reads through filters of 4 KiB that expand to 400,000 nodes. No two are equal.
func expandFilters(ctx context.Context, a *attacker) {
	a.each(ctx, a.many(60), func(ctx context.Context, c *rpc.Conn, g int) {
		for i := 0; c.Err() == nil && ctx.Err() == nil; i++ {
			pattern := fmt.Sprintf("%s%d.%d", strings.Repeat("x{0,1000}", expandCopies), g, i)
			_ = a.call(ctx, c, nil, api.MethodRead, "attacked", row("small", i), valueFilter(pattern))
			_ = a.call(ctx, c, nil, api.MethodScanOpen, "attacked", valueFilter(pattern+"s"))
		}
	})
}

// slowPatterns makes 300 reads match a pattern of 1,800 instructions against a value of 120 KiB,
// and closes the connections meanwhile.
func slowPatterns(ctx context.Context, a *attacker) {
	a.each(ctx, 10, func(ctx context.Context, c *rpc.Conn, g int) {
		var wait sync.WaitGroup
		for range a.many(30) {
			wait.Go(func() { _ = a.call(ctx, c, nil, api.MethodRead, "attacked", "slow", valueFilter(".*(?:x?){900}y")) })
		}
		pause(ctx, 500*time.Millisecond)
		c.Close()
		wait.Wait()
	})
}

// openCursors opens scans with keys of 60 KiB and compiled filters, and leaves them open.
func openCursors(ctx context.Context, a *attacker) {
	start := []byte(strings.Repeat("\x01", 60<<10))
	a.each(ctx, 16, func(ctx context.Context, c *rpc.Conn, g int) {
		for i := 0; c.Err() == nil && ctx.Err() == nil; i++ {
			pattern := fmt.Sprintf("(?:%s|%d.%d)?q", strings.Repeat("[a-z]?x", 100), g, i)
			_ = a.call(ctx, c, nil, api.MethodScanOpen, "attacked", map[string]any{"start": start, "batch_rows": 1, "filter": []any{"qualifier", pattern}})
		}
	})
}

// tinyBatches scans a table by batches of one row.
func tinyBatches(ctx context.Context, a *attacker) {
	a.each(ctx, a.many(64), func(ctx context.Context, c *rpc.Conn, g int) {
		for c.Err() == nil && ctx.Err() == nil {
			var cursor uint64
			read := field("cursor", &cursor)
			err := a.call(ctx, c, read, api.MethodScanOpen, "attacked", map[string]any{"prefix": "small", "batch_rows": 1, "batch_bytes": 1})
			for err == nil && cursor != 0 {
				err = a.call(ctx, c, read, api.MethodScanNext, cursor)
			}
		}
	})
}

// unreadAnswers requests 50 large rows on each of 128 connections and reads nothing.
func unreadAnswers(ctx context.Context, a *attacker) {
	a.repeat(ctx, a.many(128), func(ctx context.Context, g int) error {
		conn, err := a.tls(ctx, g)
		if err != nil {
			return err
		}
		defer conn.Close()
		e := wire.GetEncoder()
		defer e.Release()
		for i := range 50 {
			wiretest.Any(e, []any{0, i, api.MethodRead, []any{"attacked", "slow"}})
		}
		if _, err := conn.Write(e.Bytes()); err != nil {
			return err
		}
		pause(ctx, 2*time.Second)
		return nil
	})
}

// garbage sends requests with some changed bytes, and bytes that are no requests.
func garbage(ctx context.Context, a *attacker) {
	a.repeat(ctx, a.many(16), func(ctx context.Context, g int) error {
		conn, err := a.tls(ctx, g)
		if err != nil {
			return err
		}
		defer conn.Close()
		r := rand.New(rand.NewPCG(uint64(g), uint64(time.Now().UnixNano())))
		e := wire.GetEncoder()
		defer e.Release()
		for i := range 20 {
			wiretest.Any(e, []any{0, i, api.MethodScanOpen, []any{"attacked", valueFilter("(a|b)*c{1,100}")}})
		}
		b := append([]byte(nil), e.Bytes()...)
		for range 1 + r.IntN(8) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
		if r.IntN(4) == 0 {
			b = append([]byte("STELE\x01\x00\n"), b...)
		}
		_, _ = conn.Write(b)
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		n, _ := conn.Read(make([]byte, 64<<10))
		if n > 0 {
			a.count(nil)
		}
		return nil
	})
}

// barred reads, and reconnects, as a user without access.
func barred(ctx context.Context, a *attacker) {
	a.each(ctx, a.many(32), func(ctx context.Context, c *rpc.Conn, g int) {
		for i := 0; i < 100 && c.Err() == nil && ctx.Err() == nil; i++ {
			_ = a.call(ctx, c, nil, api.MethodRead, "attacked", row("small", i%attackedRows))
		}
	})
}

// junkTokens presents well-formed access tokens and join tokens that were never issued.
func junkTokens(ctx context.Context, a *attacker) {
	authority := pki.FingerprintOf(a.endpoint.Credential().Trust().Authorities()[0])
	junk := func(kind token.Kind) string { return token.New(kind, authority, time.Now(), time.Hour).Reveal() }
	a.each(ctx, a.many(32), func(ctx context.Context, c *rpc.Conn, g int) {
		for i := 0; i < 100 && c.Err() == nil && ctx.Err() == nil; i++ {
			_ = a.call(ctx, c, nil, "auth", junk(token.Access))
			_ = a.call(ctx, c, nil, "security.join", junk(token.Join), make([]byte, 500), fmt.Sprintf("n%016x", rand.Uint64()), []any{"localhost"}, "")
		}
	})
}

// refusedGrants grants itself rights, and revokes those of others.
func refusedGrants(ctx context.Context, a *attacker) {
	a.each(ctx, 4, func(ctx context.Context, c *rpc.Conn, g int) {
		var wait sync.WaitGroup
		for w := range a.many(16) {
			wait.Go(func() {
				for i := w; c.Err() == nil && ctx.Err() == nil; i++ {
					_ = a.call(ctx, c, nil, api.MethodGrant, a.User, "admin")
					_ = a.call(ctx, c, nil, api.MethodGrant, a.User, "read", map[string]any{"table": fmt.Sprintf("no-%d", i)})
					_ = a.call(ctx, c, nil, api.MethodRevoke, "admin", "admin")
				}
			})
		}
		wait.Wait()
	})
}

// splitRequests splits the tablets of a table.
func splitRequests(ctx context.Context, a *attacker) {
	a.each(ctx, a.many(16), func(ctx context.Context, c *rpc.Conn, g int) {
		for i := g; c.Err() == nil && ctx.Err() == nil; i += 16 {
			_ = a.call(ctx, c, nil, api.MethodSplitTablet, "scrap", []byte(row("small", i*7919%splitRows)))
		}
	})
}

// lockSessions opens sessions and uses each to lock and watch paths.
func lockSessions(ctx context.Context, a *attacker) {
	a.each(ctx, a.many(32), func(ctx context.Context, c *rpc.Conn, g int) {
		for i := 0; c.Err() == nil && ctx.Err() == nil; i++ {
			var id uint64
			err := a.call(ctx, c, field("session", &id), metaapi.MethodOpenSession, "x", map[string]any{"lease_ms": 60_000})
			for k := 0; k < 10 && err == nil; k++ {
				path := fmt.Sprintf("/locks/%s/%d/%d/%d", a.User, g, i, k)
				_ = a.call(ctx, c, nil, metaapi.MethodAcquire, id, path, "exclusive", map[string]any{"delay_ms": 60_000})
				err = a.call(ctx, c, nil, metaapi.MethodWatch, id, path, 31)
			}
		}
	})
}

// lockFiles fills the lock service with files of the largest size.
func lockFiles(ctx context.Context, a *attacker) {
	b := make([]byte, lockFileBytes)
	a.each(ctx, a.many(16), func(ctx context.Context, c *rpc.Conn, g int) {
		for i := 0; c.Err() == nil && ctx.Err() == nil; i++ {
			_ = a.call(ctx, c, nil, metaapi.MethodSet, fmt.Sprintf("/locks/files-%s/%d/%d", a.User, g, i), b, nil)
		}
	})
}

// uploads begins blobs and does not finish them.
func uploads(ctx context.Context, a *attacker) {
	piece := make([]byte, 1<<20)
	a.each(ctx, a.many(32), func(ctx context.Context, c *rpc.Conn, g int) {
		for c.Err() == nil && ctx.Err() == nil {
			var id uint64
			err := a.call(ctx, c, field("upload", &id), api.MethodBlobOpen)
			for k := 0; k < 2 && err == nil; k++ {
				err = a.call(ctx, c, nil, api.MethodBlobWrite, id, k<<20, piece)
			}
		}
	})
}
