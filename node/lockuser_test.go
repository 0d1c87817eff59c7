package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
)

// silent is a lock service that does not answer. It implements acl.Files.
type silent struct{ asked atomic.Int64 }

func (s *silent) Epoch(ctx context.Context) (uint64, error) {
	s.asked.Add(1)
	<-ctx.Done()
	return 0, ctx.Err()
}

func (s *silent) Holds(uint64) bool { return false }

func (s *silent) Get(ctx context.Context, _ string) ([]byte, error) { return nil, ctx.Err() }

// TestKeepAlivesOfTheUnknown: however many come of one connection while its rights are not known, those
// are asked for once at a time.
func TestKeepAlivesOfTheUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := &silent{}
		n := &Node{rights: &rights{cache: acl.NewCache(files), unled: func() error { return nil }}, ctx: t.Context()}
		who := &subject{peer: pki.Peer{Kind: pki.Principal, Name: "ann"}}
		for round := int64(1); round <= 2; round++ {
			for range 100 {
				if _, err := n.lockServiceFor(who, metaapi.MethodKeepAlive, nil); !errors.Is(err, metaapi.ErrNotReady) {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if got := files.asked.Load(); got != round {
				t.Errorf("rights were asked for %d times at once, want once", got-round+1)
			}
			n.background.Wait() // until it is given up
		}
	})
}
