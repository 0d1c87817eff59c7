package lockserver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/raftmeta"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
)

// silent is a lock service that does not answer. It implements acl.Files.
type silent struct{ changeRequest atomic.Int64 }

func (s *silent) Epoch(ctx context.Context) (uint64, error) {
	s.changeRequest.Add(1)
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
		var background sync.WaitGroup
		sv := New(Config{Ctx: t.Context(), Background: &background,
			Authz: &authz.Authorizer{Rights: &authz.Rights{Cache: acl.NewCache(files), CheckLeader: func() error { return nil }}}})
		caller := &authz.Subject{Peer: pki.Peer{Kind: pki.Principal, Name: "ann"}}
		for round := int64(1); round <= 2; round++ {
			for range 100 {
				if _, err := sv.forUser(caller, metaapi.MethodKeepAlive, nil); !errors.Is(err, metaapi.ErrNotReady) {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if got := files.changeRequest.Load(); got != round {
				t.Errorf("rights were asked for %d times at once, want once", got-round+1)
			}
			background.Wait() // until it is given up
		}
	})
}

type metaService = metaapi.Service

// lagging is a leader that has not come to where a session was opened until something is read of it. It implements userGroup, and
// what of metaapi.Service closing a session takes.
type lagging struct {
	metaService
	opened metaapi.SessionID // 0: none ever was
	fails  error             // of reads
	caught bool
	closed metaapi.SessionID
}

func (l *lagging) ServiceFor(raftmeta.Quota) metaapi.Service { return l }
func (l *lagging) Sessions() int                             { return 0 }

func (l *lagging) SessionName(id metaapi.SessionID) (name string, known bool) {
	return "user ann: job", l.caught && id == l.opened
}

func (l *lagging) Stat(context.Context, string) (metaapi.Stat, error) {
	if l.fails != nil {
		return metaapi.Stat{}, l.fails
	}
	l.caught = true
	return metaapi.Stat{}, metaapi.ErrNotFound
}

func (l *lagging) CloseSession(_ context.Context, id metaapi.SessionID) error {
	l.closed = id
	return nil
}

// TestSessionIsClosedByNewLeader: it is not taken for gone because the leader has not come to it yet.
func TestSessionIsClosedByNewLeader(t *testing.T) {
	for _, c := range []struct {
		name   string
		leader lagging
		want   error
		closes bool
	}{
		{"behind", lagging{opened: 7}, nil, true},
		{"gone", lagging{}, nil, false},
		{"cannot tell", lagging{opened: 7, fails: &metaapi.NotLeaderError{}}, metaapi.ErrNotReady, false},
	} {
		l := c.leader
		s := userService{clientService: clientService{&l, &l, nil}, group: &l, prefix: "user ann: "}
		if err := s.CloseSession(t.Context(), 7); !errors.Is(err, c.want) || l.closed == 7 != c.closes {
			t.Errorf("%s: %v, closed %v, want %v, %v", c.name, err, l.closed == 7, c.want, c.closes)
		}
	}
}
