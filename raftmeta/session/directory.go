package session

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// Directory is a copy of the files in a directory. Each Read brings it up to date: the leader sends only what has changed since the
// Read before, and keeps no state for it. Unlike the cache, it delays no writes.
type Directory struct {
	client *Client
	path   string

	// mu guards the field in it. Never held during a call.
	mu struct {
		sync.Mutex
		last copied
	}
}

// copied is a copy of a directory. It is replaced, never changed.
type copied struct {
	index uint64     // at which it was read; changes up to it are in files
	files []api.File // ordered by path
}

// Directory returns a Directory that has not been read yet.
func (c *Client) Directory(path string) *Directory { return &Directory{client: c, path: path} }

// Read returns the files and directories in the directory, in byte order of their names: each as it was at some moment during the call.
// ACLs and locks may be out of date. The caller must not change the result. The error is api.ErrNotFound, api.ErrNotDirectory, or one
// that means that there was no answer.
func (d *Directory) Read(ctx context.Context) ([]api.File, error) {
	d.mu.Lock()
	last := d.mu.last
	d.mu.Unlock()
	next, err := d.read(ctx, last)
	if errors.Is(err, rpc.CodeUnknownMethod) {
		next, err = d.readEach(ctx, last)
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if next.index >= d.mu.last.index {
		d.mu.last = next
	}
	return next.files, nil
}

// read returns what last becomes by the changes since it was read.
func (d *Directory) read(ctx context.Context, last copied) (copied, error) {
	next := copied{}
	from := 0 // of last.files, what the pages have not covered yet
	for o := (api.DirectoryOptions{Since: last.index}); ; {
		p, err := d.client.readDirectory(ctx, d.path, o)
		if err != nil {
			return copied{}, err
		}
		if next.index == 0 {
			next.index = p.Index
		}
		end := len(last.files)
		if p.More {
			if len(p.Files) == 0 {
				return copied{}, fmt.Errorf("read directory %s: an empty page before the last one", d.path)
			}
			through := p.Files[len(p.Files)-1].Path
			end, _ = slices.BinarySearchFunc(last.files, through+"\x00", byPath)
			o.After = path.Base(through)
		}
		if next.files, err = merge(next.files, last.files[from:max(from, end)], p); err != nil {
			return copied{}, err
		}
		if from = max(from, end); !p.More {
			return next, nil
		}
	}
}

func byPath(f api.File, path string) int { return strings.Compare(f.Path, path) }

// merge appends to files what a page makes of old, the files in the page's range.
func merge(files, old []api.File, p api.DirectoryPage) ([]api.File, error) {
	for _, f := range p.Files {
		i, known := slices.BinarySearchFunc(old, f.Path, byPath)
		if !p.Whole {
			files = append(files, old[:i]...)
		}
		if f.Generation == 0 { // not written since
			if !known {
				return nil, fmt.Errorf("file %s has no content in a directory's page", f.Path)
			}
			f = old[i]
		}
		if files = append(files, f); known {
			i++
		}
		old = old[i:]
	}
	if !p.Whole {
		files = append(files, old...)
	}
	return files, nil
}

// readEach is read with a leader of an earlier version, which cannot read directories.
func (d *Directory) readEach(ctx context.Context, last copied) (copied, error) {
	all, err := d.client.List(ctx, d.path)
	if err != nil {
		return copied{}, err
	}
	next := copied{index: last.index}
	for _, s := range all {
		f, err := api.File{Stat: s}, error(nil)
		i, known := slices.BinarySearchFunc(last.files, s.Path, byPath)
		switch {
		case known && last.files[i].Generation == s.Generation:
			f = last.files[i]
		case !s.Dir:
			f, err = d.client.Get(ctx, s.Path)
		}
		switch {
		case errors.Is(err, api.ErrNotFound): // deleted meanwhile
			continue
		case err != nil:
			return copied{}, err
		}
		next.files = append(next.files, f)
	}
	return next, nil
}
