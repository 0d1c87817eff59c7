package roots

import (
	"context"
	"errors"
	"path"
	"slices"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/tablet/sortedrun"
)

// recoveryFiles are the recoveries in the lock service, by server.
type recoveryFiles struct {
	namespace.Files
	byServer map[string]*master.Recovery
}

func (f recoveryFiles) List(_ context.Context, dir string) (all []metaapi.Stat, err error) {
	for server := range f.byServer {
		all = append(all, metaapi.Stat{Path: path.Join(dir, server)})
	}
	return all, nil
}

func (f recoveryFiles) Get(_ context.Context, p string) (metaapi.File, error) {
	r := f.byServer[path.Base(p)]
	if r == nil {
		return metaapi.File{}, metaapi.ErrNotFound
	}
	return metaapi.File{Data: master.EncodeRecovery(r)}, nil
}

// A run is a root from when the recovery names it, not only once all pieces are sorted.
func TestRunsOfUnfinishedRecoveryAreRoots(t *testing.T) {
	var want []blobfs.ID
	run := func() []byte {
		h := blobfs.Handle{ID: blobfs.NewID(), Length: 1, Extents: []blobfs.ExtentRef{{Length: 1, Replicas: []string{"n1"}}}}
		m := sortedrun.Meta{Handle: h, Entries: 1}
		want = append(want, m.Handle.ID)
		return sortedrun.EncodeAll([]sortedrun.Meta{m})
	}
	files := recoveryFiles{byServer: map[string]*master.Recovery{
		"n1#1": {Server: "n1#1", Pieces: []master.Piece{{Log: blobfs.NewID(), End: 1}, {Log: blobfs.NewID(), End: 1, Run: run()}, {Log: blobfs.NewID(), End: 1}}},
		"n2#1": {Server: "n2#1", Pieces: []master.Piece{{Log: blobfs.NewID(), End: 1, Run: run()}}},
	}}
	r := &Reader{Catalog: &namespace.Catalog{Meta: files}}
	none := func(*sortedrun.Meta) error { return nil }
	if err := r.Runs(t.Context(), "n1#1", none); !errors.Is(err, ErrNotSorted) {
		t.Fatalf("runs of an unfinished recovery: %v", err)
	}
	if err := r.Runs(t.Context(), "n3#1", none); !errors.Is(err, ErrNotSorted) {
		t.Fatalf("runs without a recovery: %v", err)
	}
	var got []blobfs.ID
	if err := r.runsOfAll(t.Context(), func(id blobfs.ID, _ Use) { got = append(got, id) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) || !slices.Contains(got, want[0]) || !slices.Contains(got, want[1]) {
		t.Errorf("roots are %v, want %v", got, want)
	}
}
