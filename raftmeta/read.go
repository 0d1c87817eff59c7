package raftmeta

import (
	"context"
	"fmt"

	"github.com/steledb/stele/raftmeta/fsm"
)

// File is a file as returned by Get.
type File struct {
	Path string
	// Data is the content, at most api.FileBytesMax bytes. The caller owns it.
	Data []byte
	// Generation is the content generation. It grows with each Set, and is never reused, even if
	// the file is deleted and created again.
	Generation uint64
	// Instance grows each time that a node is created at this path.
	Instance uint64
}

// Get returns the file at path. It is linearizable: it sees every Set and Delete that was
// acknowledged before it began. The error is a *PathError, ErrNotFound, ErrIsDirectory,
// ErrNotReady, ErrClosed or ctx's. Cancelling has no side effects.
func (g *Group) Get(ctx context.Context, path string) (File, error) {
	g.count.gets.Add(1)
	f, err := g.get(ctx, path)
	if err != nil {
		return File{}, fmt.Errorf("get %s: %w", path, err)
	}
	return f, nil
}

func (g *Group) get(ctx context.Context, path string) (File, error) {
	if err := fsm.CheckDir(path); err != nil {
		return File{}, err
	}
	if err := g.verifier.linearize(ctx); err != nil {
		return File{}, err
	}
	var n *fsm.NodeView
	g.machine.View(func(ns *fsm.Namespace, _ uint64) { n = ns.Lookup(path) })
	f, err := n.File()
	if err != nil {
		return File{}, err
	}
	return File{Path: f.Path, Data: f.Data, Generation: f.Generation, Instance: f.Instance}, nil
}

// List returns the names of the files and directories in the directory dir, in byte order, without
// the path of dir. It is linearizable, as Get is. The error is a *PathError, ErrNotFound,
// ErrNotDirectory, ErrNotReady, ErrClosed or ctx's. Cancelling has no side effects.
func (g *Group) List(ctx context.Context, dir string) ([]string, error) {
	g.count.lists.Add(1)
	names, err := g.list(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	return names, nil
}

func (g *Group) list(ctx context.Context, dir string) ([]string, error) {
	if err := fsm.CheckDir(dir); err != nil {
		return nil, err
	}
	if err := g.verifier.linearize(ctx); err != nil {
		return nil, err
	}
	var names []string
	err := ErrNotFound
	g.machine.View(func(ns *fsm.Namespace, _ uint64) {
		switch n := ns.Get(dir); {
		case n == nil:
		case !n.Dir:
			err = ErrNotDirectory
		default:
			names, err = ns.List(n), nil
		}
	})
	return names, err
}
