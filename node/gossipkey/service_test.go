package gossipkey

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/rollover"
)

// stage is a node beside others, of which holders have the keys by id.
type stage struct {
	*Service
	calls   []string // what the service did, in order
	failing error    // of the disk
	holders map[string][]byte
	removed map[string]bool
}

func newStage(t *testing.T, keys ...[]byte) *stage {
	t.Helper()
	s := &stage{holders: map[string][]byte{}, removed: map[string]bool{}}
	s.Service = New(Config{Ctx: t.Context(), Log: slog.New(slog.DiscardHandler), ID: func() string { return "n1" }, Peers: s, Removed: s,
		Issuers: func() []string { return []string{"n2"} },
		Nodes: func(context.Context) ([]Node, error) {
			return []Node{{ID: "n1", Alive: true}, {ID: "n2", Alive: true}, {ID: "n3"}}, nil
		},
		Write: func([][]byte) error { s.calls = append(s.calls, "write"); return s.failing },
		Apply: func([][]byte) error { s.calls = append(s.calls, "apply"); return nil }})
	s.Hold(keys)
	return s
}

func (s *stage) All() map[string]bool                            { return s.removed }
func (s *stage) Marked(context.Context) (map[string]bool, error) { return s.removed, nil }
func (s *stage) Check(_ context.Context, id string) error {
	if s.removed[id] {
		return removal.ErrorOf(id)
	}
	return nil
}

func (s *stage) Call(_ context.Context, id, _ string, _ func(*wire.Encoder), result func(*wire.Decoder) error) error {
	key, ok := s.holders[id]
	if !ok {
		return rpc.ErrConnLost
	}
	var e wire.Encoder
	if key == nil {
		e.Nil()
	} else {
		e.Bin(key)
	}
	d := wire.NewDecoder(e.Bytes())
	return result(&d)
}

var oldKey, newKey = bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)

// TestKeysAreDurableFirst (GK2): the node writes keys before it uses them, and keeps the old ones if the disk fails. Keys that it uses already
// are not written again.
func TestKeysAreDurableFirst(t *testing.T) {
	s := newStage(t, oldKey)
	s.failing = errors.New("disk is full")
	if err := s.Use([][]byte{oldKey, newKey}); !errors.Is(err, s.failing) || len(s.Keys()) != 1 || !slices.Equal(s.calls, []string{"write"}) {
		t.Errorf("%v, %d keys, %v", err, len(s.Keys()), s.calls)
	}
	s.failing, s.calls = nil, nil
	for range 2 {
		if err := s.Use([][]byte{oldKey, newKey}); err != nil || len(s.Keys()) != 2 || !slices.Equal(s.calls, []string{"write", "apply"}) {
			t.Errorf("%v, %d keys, %v", err, len(s.Keys()), s.calls)
		}
	}
}

// TestRemovedNodeGetsNoKey (GK1): others get the key with the id, if the node has it.
func TestRemovedNodeGetsNoKey(t *testing.T) {
	s := newStage(t, oldKey)
	s.removed["n3"] = true
	if _, err := s.KeyFor(t.Context(), pki.Peer{Kind: pki.Node, Name: "n3"}, rollover.IDOfKey(oldKey)); !errors.Is(err, rpc.CodePermissionDenied) {
		t.Errorf("a removed node: %v", err)
	}
	member := pki.Peer{Kind: pki.Node, Name: "n2"}
	if key, err := s.KeyFor(t.Context(), member, rollover.IDOfKey(oldKey)); err != nil || !bytes.Equal(key, oldKey) {
		t.Errorf("a member: %x, %v", key, err)
	}
	if key, err := s.KeyFor(t.Context(), member, rollover.IDOfKey(newKey)); err != nil || key != nil {
		t.Errorf("a key that the node does not have: %x, %v", key, err)
	}
}

// TestMissingKeyIsFetched: from any node that has it. A node that sends another key is as one that does not answer. While a key is being
// installed, its loss restarts the rotation; later only if all nodes answer that they do not have it.
func TestMissingKeyIsFetched(t *testing.T) {
	s := newStage(t, oldKey)
	rec := &rollover.KeyRecord{Stage: rollover.Install, Old: rollover.IDOfKey(oldKey), New: rollover.IDOfKey(newKey)}
	s.holders["n2"] = oldKey
	var lost *lostError
	if err := s.followStage(t.Context(), rec); !errors.As(err, &lost) || !slices.Equal(lost.unreachable, []string{"n2", "n3"}) {
		t.Fatalf("%v", err)
	}
	if !lost.forGood(rollover.Install) || lost.forGood(rollover.Retire) || !(&lostError{}).forGood(rollover.Retire) {
		t.Error("the rotation restarts although nodes may be using the key, or does not although none can")
	}
	if len(s.Keys()) != 1 {
		t.Errorf("%d keys after a loss", len(s.Keys()))
	}
	s.holders["n3"] = newKey
	if err := s.followStage(t.Context(), rec); err != nil || !slices.EqualFunc(s.Keys(), [][]byte{oldKey, newKey}, bytes.Equal) {
		t.Errorf("%v, keys %x", err, s.Keys())
	}
}
