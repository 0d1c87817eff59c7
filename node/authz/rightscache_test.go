package authz

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz/authztest"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// led reports a lock service that has a leader.
func led() error { return nil }

// put writes a file of the lock service.
func put(t *testing.T, m *namespace.Access, path string, data []byte) {
	t.Helper()
	if _, err := m.Set(t.Context(), path, data, metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
}

// nextEpoch begins another epoch of rights.
func nextEpoch(t *testing.T, m *namespace.Access) {
	t.Helper()
	f, err := m.Get(t.Context(), acl.EpochFile)
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		t.Fatal(err)
	}
	put(t, m, acl.EpochFile, namespace.EpochBytes(f.Generation))
}

// wantReason fails the test unless err rejects a user for that reason; an empty reason is none.
func wantReason(t *testing.T, what string, err error, reason string) {
	t.Helper()
	var e *api.IdentityError
	if reason == "" && err != nil || reason != "" && (!errors.As(err, &e) || e.Reason != reason) {
		t.Errorf("%s: %v, want reason %q", what, err, reason)
	}
}

// userWith returns a user with an access token of the lock service.
func userWith(t *testing.T, m *namespace.Access, ends time.Duration) (*Subject, *token.AccessRecord) {
	t.Helper()
	now := time.Now()
	rec, err := token.NewAccessRecord(token.New(token.Access, pki.Fingerprint{}, now, ends), now, "ann", 0, "for the test")
	if err != nil {
		t.Fatal(err)
	}
	put(t, m, TokenPath(rec.ID), rec.Encode())
	caller := &Subject{From: "127.0.0.1:1"}
	caller.CredentialToken.Store(&CredentialToken{Record: rec})
	return caller, rec
}

// TestRightsOfLockService (Z2): rights are those of the files in the lock service as of an epoch, and hold until another begins.
func TestRightsOfLockService(t *testing.T) {
	m, ctx := openMeta(t), t.Context()
	r := NewRights(m, led)
	ann := &acl.Principal{Name: "ann", Created: time.Now()}
	put(t, m, acl.PrincipalFile("ann"), ann.Encode())
	nextEpoch(t, m)
	caller := userNamed("ann")
	caller.Peer.Serial, caller.Peer.Ends = "ab", time.Now().Add(time.Hour)
	ticket, err := r.Known(ctx, caller)
	if err != nil || !r.Holds(caller, ticket) {
		t.Fatalf("a user: %v, holds %v", err, r.Holds(caller, ticket))
	}
	_, err = r.Known(ctx, userNamed("bob"))
	wantReason(t, "a user that does not exist", err, api.IdentityUnknown)
	if _, err := r.Check(ctx, caller, acl.Read); !errors.Is(err, api.ErrPermission) {
		t.Errorf("without rights: %v", err)
	}
	for _, c := range []struct {
		what   string
		change func() error
		reason string
	}{
		{"another certificate revoked", func() error { return ann.Lose("cd", time.Now()) }, ""},
		{"its certificate revoked", func() error { return ann.Lose("ab", time.Now()) }, api.IdentityRevoked},
		{"disabled as well", func() error { ann.Disabled = true; return nil }, api.IdentityDisabled},
		{"disabled", func() error { ann.Lost = nil; return nil }, api.IdentityDisabled},
		{"enabled", func() error { ann.Disabled = false; return nil }, ""},
		{"all certificates revoked", func() error { ann.Generation = 1; return nil }, api.IdentityRevoked},
	} {
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		put(t, m, acl.PrincipalFile("ann"), ann.Encode())
		nextEpoch(t, m)
		if r.Holds(caller, ticket) {
			t.Errorf("%s: rights of the epoch before hold", c.what)
		}
		ticket, err = r.Known(ctx, caller)
		wantReason(t, c.what, err, c.reason)
		refused, err := r.Refuses(ctx, CredentialOf(caller.Peer))
		if err != nil || refused != (c.reason != "") {
			t.Errorf("%s: the credential is refused: %v, %v", c.what, refused, err)
		}
	}
	put(t, m, acl.PrincipalFile("ann"), []byte{0xc1})
	nextEpoch(t, m)
	if refused, err := r.Refuses(ctx, CredentialOf(caller.Peer)); refused || err != nil {
		t.Errorf("a damaged record refuses the credential: %v, %v", refused, err)
	}
}

// TestRightsByToken (Z2): an access token counts until it expires or its record is removed, as of an epoch.
func TestRightsByToken(t *testing.T) {
	m, ctx := openMeta(t), t.Context()
	r := NewRights(m, led)
	put(t, m, acl.PrincipalFile("ann"), (&acl.Principal{Name: "ann", Created: time.Now()}).Encode())
	nextEpoch(t, m)
	caller, rec := userWith(t, m, 0)
	if got := caller.Identity(); got.Kind != pki.Principal || got.Name != "ann" || got.Serial != rec.ID.String() {
		t.Errorf("the caller is %+v", got)
	}
	credential := CredentialOf(caller.Identity())
	for range 2 { // the second time by the ticket of the first
		ticket, err := r.Known(ctx, caller)
		if err != nil || !r.Holds(caller, ticket) {
			t.Fatalf("a token: %v, holds %v", err, r.Holds(caller, ticket))
		}
	}
	if refused, err := r.Refuses(ctx, credential); refused || err != nil {
		t.Errorf("a token is refused: %v, %v", refused, err)
	}
	if err := m.Delete(ctx, TokenPath(rec.ID), metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	nextEpoch(t, m)
	_, err := r.Known(ctx, caller)
	wantReason(t, "a token that was revoked", err, api.IdentityRevoked)
	if refused, err := r.Refuses(ctx, credential); !refused || err != nil {
		t.Errorf("a token that was revoked is refused: %v, %v", refused, err)
	}
	short, rec := userWith(t, m, time.Hour)
	ticket, err := r.Known(ctx, short)
	if err != nil || !r.Holds(short, ticket) {
		t.Errorf("a token: %v", err)
	}
	rec.Ends = time.Now().Add(-time.Second)
	if r.Holds(short, ticket) {
		t.Error("the rights of a token that has expired hold")
	}
	_, err = r.Known(ctx, short)
	wantReason(t, "a token that has expired", err, api.IdentityExpired)
	ended, _ := userWith(t, m, time.Hour)
	ended.CredentialToken.Load().Record.Ends = time.Now().Add(-time.Second)
	_, err = r.Known(ctx, ended)
	wantReason(t, "a token that had expired before", err, api.IdentityExpired)
}

// TestRightsInDoubt (Z3): before the first session, and without a leader, no user is admitted.
func TestRightsInDoubt(t *testing.T) {
	r := NewRights(&namespace.Access{}, led)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Known(ctx, userNamed("ann")); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("before the first session: %v", err)
	}
	if r.Files.Holds(0) {
		t.Error("an epoch holds without a session")
	}
	if b, err := r.Files.Get(ctx, acl.ClusterFile); b != nil || err == nil {
		t.Errorf("a file without a session: %q, %v", b, err)
	}
	none := errors.New("no leader")
	r.CheckLeader = func() error { return none }
	if _, err := r.Known(t.Context(), userNamed("ann")); err != none {
		t.Errorf("without a leader: %v", err)
	}
	if err := r.Recode(acl.ErrUncertain); err != none {
		t.Errorf("rights that became uncertain without a leader: %v", err)
	}
}

// changing are rights whose epoch is uncertain for so many reads.
type changing struct {
	authztest.Rights
	reads int
}

func (c *changing) Epoch(ctx context.Context) (uint64, error) {
	if c.reads > 0 {
		c.reads--
		return 0, acl.ErrUncertain
	}
	return c.Rights.Epoch(ctx)
}

// TestRightsBeingChanged: a lookup waits while rights are being changed.
func TestRightsBeingChanged(t *testing.T) {
	files := &changing{reads: 3}
	files.Set(t, map[string]acl.Rights{"ann": acl.Read})
	r := &Rights{Cache: acl.NewCache(files), CheckLeader: led}
	if _, err := r.Check(t.Context(), userNamed("ann"), acl.Read); err != nil || files.reads != 0 {
		t.Errorf("rights that were being changed: %v, %d reads left", err, files.reads)
	}
}

// TestEpochHolds: only the epoch that the session has in its cache holds.
func TestEpochHolds(t *testing.T) {
	m := openMeta(t)
	files := NewRights(m, led).Files
	if files.Holds(0) {
		t.Error("an epoch holds before there is one")
	}
	nextEpoch(t, m)
	epoch, err := files.Epoch(t.Context())
	if err != nil || !files.Holds(epoch) || files.Holds(epoch+1) || files.Holds(0) {
		t.Errorf("epoch %d, %v: holds %v, the next %v, none %v", epoch, err, files.Holds(epoch), files.Holds(epoch+1), files.Holds(0))
	}
}

// TestRequestBytes: clients without a valid credential send small requests only. While it is unknown whether a credential is valid, the
// node's bound applies.
func TestRequestBytes(t *testing.T) {
	m, ctx := openMeta(t), t.Context()
	r := NewRights(m, led)
	ann := &acl.Principal{Name: "ann", Created: time.Now()}
	if err := ann.Lose("ab", time.Now()); err != nil {
		t.Fatal(err)
	}
	put(t, m, acl.PrincipalFile("ann"), ann.Encode())
	nextEpoch(t, m)
	const most = 1 << 20
	bound := r.RequestBytes(most)
	lost := &Subject{Peer: pki.Peer{Kind: pki.Principal, Name: "ann", Serial: "ab"}}
	for _, known := range []bool{false, true} {
		for _, c := range []struct {
			what   string
			caller any
			small  bool
		}{
			{"a client of an open node", nil, true}, {"an anonymous client", &Subject{}, true}, {"a node", nodeNamed("n2"), false},
			{"a user", userNamed("ann"), false}, {"a user that does not exist", userNamed("bob"), known}, {"a revoked certificate", lost, known},
		} {
			want := most
			if c.small {
				want = strangerBytesMax
			}
			if got := bound(&rpc.Peer{Identity: c.caller}); got != want {
				t.Errorf("%s, rights known %v: %d bytes, want %d", c.what, known, got, want)
			}
		}
		for _, caller := range []*Subject{userNamed("ann"), userNamed("bob")} {
			_, _ = r.Known(ctx, caller)
		}
	}
}

// TestSubjectInContext: only subjects whose rights are checked are carried by a context.
func TestSubjectInContext(t *testing.T) {
	caller := userNamed("ann")
	if got := SubjectIn(WithSubject(t.Context(), caller)); got != caller {
		t.Errorf("a user: %+v", got)
	}
	if got := SubjectIn(WithSubject(t.Context(), nodeNamed("n2"))); got != nil {
		t.Errorf("a node: %+v", got)
	}
	request := ChangeRequest{Caller: caller, Method: api.MethodGrant, Name: "t"}
	if got := RequestIn(WithRequest(t.Context(), request)); got != request {
		t.Errorf("the request is %+v, want %+v", got, request)
	}
	if got := RequestIn(t.Context()); got != (ChangeRequest{}) {
		t.Errorf("without a request: %+v", got)
	}
}
