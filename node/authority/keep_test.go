package authority

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/security/keydir"
	"github.com/steledb/stele/security/pki"
)

// stage is a node with certificates that may vote, beside nodes that answer as they are configured.
type stage struct {
	*Service
	sync.Mutex
	voting bool
	// answers has the answers of other nodes by id and method: nil for none, which fails the call.
	answers map[string]func(*wire.Encoder)
}

var errAway = errors.New("node does not answer")

func newStage(t *testing.T) *stage {
	t.Helper()
	keys := keydir.At(t.TempDir() + "/security")
	if _, err := keys.Init("n1", nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	have, err := keys.Load()
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{answers: map[string]func(*wire.Encoder){}}
	transport := certs.New(certs.Config{Log: slog.New(slog.DiscardHandler), Keys: keys, Credential: have.Credential})
	s.Service = New(Config{Ctx: t.Context(), Log: slog.New(slog.DiscardHandler), Transport: func() *certs.Transport { return transport },
		ID: func() string { return "n1" }, Peers: s, Voter: func() Voter { return s }, Issuers: func() []string { return []string{"n2", "n3"} }})
	s.Hold(have.Authority, nil)
	return s
}

func (s *stage) Votes() (bool, <-chan struct{}) { return s.voting, nil }
func (s *stage) VotesToo(string) bool           { return false }

func (s *stage) Call(_ context.Context, id, method string, params func(*wire.Encoder), result func(*wire.Decoder) error) error {
	answer := s.answers[id+" "+method]
	if answer == nil {
		return errAway
	}
	var e wire.Encoder
	params(&e)
	e = wire.Encoder{}
	answer(&e)
	d := wire.NewDecoder(e.Bytes())
	return result(&d)
}

// stored reports whether the key is on the disk.
func (s *stage) stored(t *testing.T) bool {
	t.Helper()
	c, err := s.keys().Load()
	if err != nil {
		t.Fatal(err)
	}
	return c.Authority != nil
}

// TestKeyIsDroppedOnlyIfAnotherNodeHasIt (AU1): a node that has stopped voting keeps the authority's key until the master confirms that it
// has the same key.
func TestKeyIsDroppedOnlyIfAnotherNodeHasIt(t *testing.T) {
	s := newStage(t)
	own := s.issuer.Load().Fingerprint()
	other, err := pki.NewAuthority("c1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	theirs := other.Fingerprint()
	for name, answer := range map[string]func(*wire.Encoder){
		"away": nil, "without a key": func(e *wire.Encoder) { e.Nil() }, "another key": func(e *wire.Encoder) { e.Bin(theirs[:]) },
	} {
		s.answers["n2 "+MethodIssuer] = answer
		if err := s.settle(); err == nil || !s.Holds() || !s.stored(t) {
			t.Errorf("%s: %v, holds the key: %v, on disk: %v", name, err, s.Holds(), s.stored(t))
		}
	}
	s.answers["n2 "+MethodIssuer] = func(e *wire.Encoder) { e.Bin(own[:]) }
	s.voting = true
	if err := s.settle(); err != nil || !s.Holds() {
		t.Errorf("a voter drops its key: %v", err)
	}
	s.voting = false
	if err := s.settle(); err != nil || s.Holds() || s.stored(t) {
		t.Errorf("%v, holds the key: %v, on disk: %v", err, s.Holds(), s.stored(t))
	}
}

// TestVoterTakesTheKey: from the first node that has it. Without one the error distinguishes nodes without a key from nodes that do not
// answer.
func TestVoterTakesTheKey(t *testing.T) {
	s := newStage(t)
	key, err := s.issuer.Load().PEM()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.keys().DropAuthority(); err != nil {
		t.Fatal(err)
	}
	s.Hold(nil, nil)
	s.voting = true
	if err := s.settle(); !errors.Is(err, errAway) || errors.Is(err, ErrNoKey) {
		t.Errorf("all nodes are away: %v", err)
	}
	s.answers["n2 "+MethodKey] = func(e *wire.Encoder) { e.Nil() }
	if err := s.settle(); !errors.Is(err, ErrNoKey) {
		t.Errorf("no node has the key: %v", err)
	}
	s.answers["n3 "+MethodKey] = func(e *wire.Encoder) { e.Bin(key) }
	if err := s.settle(); err != nil || !s.Holds() || !s.stored(t) || s.NodeSigner() == nil {
		t.Errorf("%v, holds the key: %v, on disk: %v", err, s.Holds(), s.stored(t))
	}
}

// TestPromotions: a node may have the key while any of its promotions lasts.
func TestPromotions(t *testing.T) {
	var p promotions
	first, second := p.begin("n2"), p.begin("n2")
	first()
	if !p.has("n2") || p.has("n3") {
		t.Error("the promotion of n2 alone has not ended")
	}
	if second(); p.has("n2") {
		t.Error("the promotion has ended")
	}
}
