package stages

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"testing"

	"go.uber.org/goleak"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/raftmeta/session/sessiontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage is a change at one of its stages. It implements Record.
type stage string

func (s stage) IsDone(progress []byte) bool { return string(progress) == string(s) }
func (s stage) Done() []byte                { return []byte(s) }

func openMeta(t *testing.T) *namespace.Access {
	t.Helper()
	meta := &namespace.Access{Client: sessiontest.NewClient(t)}
	if err := meta.Open(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { meta.Close(context.Background(), slog.New(slog.DiscardHandler)) })
	return meta
}

// TestProgress: a node's file has the last stage that it has completed, and is written once for each. Only the node itself writes it, and
// other kinds of changes have files of their own.
func TestProgress(t *testing.T) {
	meta, ctx := openMeta(t), t.Context()
	of := func(id, dir string) *Progress {
		return &Progress{Dir: dir, ID: func() string { return id }, Meta: meta, Catalog: &namespace.Catalog{Meta: meta}}
	}
	one, two, gossip := of("n1", Dir), of("n2", Dir), of("n1", Dir+"/gossip")
	all := []string{"n1", "n2", "n3"}
	if got, err := one.Of(ctx, all); err != nil || len(got) != 0 {
		t.Errorf("before any stage: %q, %v", got, err)
	}
	generation := func() uint64 {
		t.Helper()
		f, err := meta.Get(ctx, Dir+"/n1")
		if err != nil {
			t.Fatal(err)
		}
		return f.Generation
	}
	for _, s := range []stage{"first", "second"} {
		if err := one.Report(ctx, s); err != nil {
			t.Fatal(err)
		}
		before := generation()
		if err := one.Report(ctx, s); err != nil || generation() != before {
			t.Errorf("%s: reported twice: %v, written again: %v", s, err, generation() != before)
		}
	}
	if err := errors.Join(two.Report(ctx, stage("first")), gossip.Report(ctx, stage("other"))); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*Progress{one, two} {
		if got, err := p.Of(ctx, all); err != nil || !reflect.DeepEqual(got, map[string][]byte{"n1": []byte("second"), "n2": []byte("first")}) {
			t.Errorf("progress: %q, %v", got, err)
		}
	}
	for range 2 {
		if err := one.Forget(ctx); err != nil {
			t.Error(err)
		}
	}
	if got, err := two.Of(ctx, all); err != nil || len(got) != 1 || got["n2"] == nil {
		t.Errorf("after a node has removed its file: %q, %v", got, err)
	}
	if got, err := gossip.Of(ctx, all); err != nil || string(got["n1"]) != "other" {
		t.Errorf("of another kind of change: %q, %v", got, err)
	}
}

// TestRead: a record is read with the generation of its file. Without a file there is none, and without a session it is unknown.
func TestRead(t *testing.T) {
	bad := errors.New("damaged")
	decode := func(b []byte) (*stage, error) {
		s := stage(b)
		if s == "x" {
			return nil, bad
		}
		return &s, nil
	}
	if _, _, err := Read(t.Context(), &namespace.Access{}, "/change", decode); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("without a session: %v", err)
	}
	meta, ctx := openMeta(t), t.Context()
	if r, gen, err := Read(ctx, meta, "/change", decode); r != nil || gen != 0 || err != nil {
		t.Errorf("without a file: %v, %d, %v", r, gen, err)
	}
	made, err := meta.Set(ctx, "/change", []byte("first"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if r, gen, err := Read(ctx, meta, "/change", decode); err != nil || *r != "first" || gen != made {
		t.Errorf("the record is %v at %d, %v; want generation %d", r, gen, err, made)
	}
	if _, err := meta.Set(ctx, "/change", []byte("x"), metaapi.AnyGeneration); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(ctx, meta, "/change", decode); !errors.Is(err, bad) {
		t.Errorf("a damaged file: %v", err)
	}
}
