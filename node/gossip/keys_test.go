package gossip_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/node/gossip"
)

// TestKeysAreReplaced: members change keys while they gossip, and none is ever thought dead. A
// member that keeps the old key is then unknown to the others, receives nothing and can send
// nothing; one with the new key is known.
func TestKeysAreReplaced(t *testing.T) {
	oldKey, newKey, older := keys[0], []byte(strings.Repeat("n", 32)), []byte(strings.Repeat("o", 32))
	cfg := config("a", nil)
	cfg.Keys = [][]byte{older, oldKey} // a key of an earlier rotation
	a, b, kept := start(t, cfg), start(t, config("b", nil)), start(t, config("kept", nil))
	if err := a.SetKeys([][]byte{oldKey}); err != nil {
		t.Fatal(err)
	}
	join(t, b, a)
	join(t, kept, a)
	both := []*gossip.Ring{a, b}
	for _, r := range []*gossip.Ring{a, b, kept} {
		for _, id := range []string{"a", "b", "kept"} {
			within(t, 10*time.Second, r, id+" is not there", sees(r, id, gossip.Alive))
		}
	}
	began := time.Now()
	for _, now := range [][][]byte{{oldKey, newKey}, {newKey, oldKey}, {newKey}} {
		for _, r := range both {
			if err := r.SetKeys(now); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, r := range both {
		within(t, 20*time.Second, r, "the member with the old key is alive", sees(r, "kept", gossip.Dead))
	}
	for _, id := range []string{"a", "b"} {
		within(t, 20*time.Second, kept, id+" is alive to the member with the old key", sees(kept, id, gossip.Dead))
	}
	for _, r := range both {
		for _, id := range []string{"a", "b"} {
			if m, ok := r.Member(id); !ok || m.State != gossip.Alive || m.Since.After(began) {
				t.Errorf("a member with the new key was thought dead: %+v", m)
			}
		}
	}
	stranger, fresh := config("stranger", nil), config("fresh", nil)
	fresh.Keys = [][]byte{newKey}
	out, in := start(t, stranger), start(t, fresh)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, r := range both {
		if err := out.Join(ctx, []string{r.Address()}); err == nil {
			t.Error("a node with the old key joins")
		}
		if err := r.Join(ctx, []string{out.Address()}); err == nil {
			t.Error("a member joins a node with the old key")
		}
	}
	join(t, in, a)
	for _, r := range both {
		within(t, 10*time.Second, r, "the node with the new key is not there", sees(r, "fresh", gossip.Alive))
		if m, ok := r.Member("stranger"); ok {
			t.Errorf("a node with the old key is listed: %+v", m)
		}
	}
	if all := out.Members(); len(all) != 1 {
		t.Errorf("a node with the old key knows %+v", all)
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	a, open := start(t, config("a", nil)), config("b", nil)
	open.Keys = nil
	b := start(t, open)
	for what, err := range map[string]error{
		"none": a.SetKeys(nil), "a short one": a.SetKeys([][]byte{keys[0], []byte("short")}), "of open gossip": b.SetKeys(keys),
	} {
		if err == nil {
			t.Errorf("keys are taken: %s", what)
		}
	}
}
