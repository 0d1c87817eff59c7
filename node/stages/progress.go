package stages

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// Dir is the directory of the lock service with the progress of nodes.
const Dir = "/rollover"

// Progress has the progress of the nodes with one kind of change. It is safe for concurrent use.
type Progress struct {
	Dir     string        // Dir, or a directory below it
	ID      func() string // this node's
	Meta    *namespace.Access
	Catalog *namespace.Catalog
}

// Record is a change at one of its stages.
type Record interface {
	// IsDone reports whether the content of a node's file states that it has completed the stage. Done returns such a content.
	IsDone(progress []byte) bool
	Done() []byte
}

func (p *Progress) own() string { return path.Join(p.Dir, p.ID()) }

// Report records in this node's file that it has completed the stage, unless the file states that already.
func (p *Progress) Report(ctx context.Context, rec Record) error {
	f, err := p.Meta.Current().Get(ctx, p.own())
	if err == nil && rec.IsDone(f.Data) {
		return nil
	}
	if err != nil && !errors.Is(err, metaapi.ErrNotFound) {
		return err
	}
	_, err = p.Catalog.Set(ctx, p.own(), rec.Done(), metaapi.AnyGeneration)
	return err
}

// Of returns the progress of those of the nodes that have recorded any.
func (p *Progress) Of(ctx context.Context, ids []string) (map[string][]byte, error) {
	progress := map[string][]byte{}
	for _, id := range ids {
		f, err := p.Meta.Current().Get(ctx, path.Join(p.Dir, id))
		if err == nil {
			progress[id] = f.Data
		} else if !errors.Is(err, metaapi.ErrNotFound) {
			return nil, err
		}
	}
	return progress, nil
}

// Forget removes this node's file, if there is one.
func (p *Progress) Forget(ctx context.Context) error {
	err := p.Catalog.Remove(ctx, p.own(), metaapi.AnyGeneration)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil
	}
	return err
}

// Read returns the record of a change, decoded, and the generation of its file; nil and 0 if there is none. It reads through the node's
// session, which has the file in its cache. The error is api.ErrUnavailable without a session, decode's, or the lock service's.
func Read[R any](ctx context.Context, meta *namespace.Access, file string, decode func([]byte) (*R, error)) (*R, uint64, error) {
	current := meta.Current()
	if current == nil {
		return nil, 0, fmt.Errorf("%w: the node has no session with the lock service", api.ErrUnavailable)
	}
	f, err := current.Get(ctx, file)
	if errors.Is(err, metaapi.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	r, err := decode(f.Data)
	return r, f.Generation, err
}
