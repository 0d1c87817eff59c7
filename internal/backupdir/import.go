package backupdir

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/steledb/stele/client"
)

// Target is the cluster that gets a backup. TargetOf returns it.
type Target interface {
	PutStaged(ctx context.Context, name string, r io.Reader) (client.BlobInfo, error)
	Delete(ctx context.Context, id string) error
	Import(ctx context.Context, manifest, files string) (id string, err error)
}

// TargetOf returns a cluster as a target.
func TargetOf(c *client.Client) Target { return target{c.Blobs(), c.Backups()} }

type target struct {
	client.Blobs
	backups client.Backups
}

func (t target) Import(ctx context.Context, manifest, files string) (string, error) {
	return t.backups.Import(ctx, manifest, files)
}

const (
	// deleteTimeout bounds the deletion of staged blobs, which expire otherwise.
	deleteTimeout = 30 * time.Second
	deletions     = 8 // at once
)

// Selection selects tables of a backup: it reads its manifest, which has size bytes, writes one that has only these tables, and returns the ids of their
// files.
type Selection func(manifest io.ReaderAt, size int64, w io.Writer) (files map[string]bool, err error)

// staging is an import at work.
type staging struct {
	d     *Dir
	to    Target
	id    string
	files []File // to upload, besides the manifest
	p     *Progress
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		staged []string // blobs to delete
	}
}

// Import copies a backup into a cluster, for a day, and returns its id there: all of it, or of some tables if selected is not nil. Errors: ErrNoBackup,
// *CorruptError, *FormatError, those of client.Blobs.PutStaged and client.Backups.Import, and of selected, ctx's. After an error the cluster has none of it.
func (d *Dir) Import(ctx context.Context, to Target, id string, selected Selection, p *Progress) (imported string, err error) {
	b, err := d.Find(ctx, id)
	if err != nil {
		return "", err
	}
	s := &staging{d: d, to: to, id: id, files: b.Files[1:], p: p}
	defer s.clear(ctx)
	p.total.Add(b.Files[0].Bytes)
	manifest, err := s.manifest(ctx, &b.Files[0], selected)
	if err != nil {
		return "", err
	}
	for i := range s.files {
		p.total.Add(s.files[i].Bytes)
	}
	pairs, err := s.all(ctx)
	if err != nil {
		return "", err
	}
	list, err := s.put(ctx, bytes.NewReader(pairs))
	if err != nil {
		return "", err
	}
	return to.Import(ctx, manifest, list)
}

// manifest uploads the manifest, with the selected tables alone if there is a selection. Then it leaves out of s.files what they do not need.
func (s *staging) manifest(ctx context.Context, x *File, selected Selection) (staged string, err error) {
	if selected == nil {
		return s.file(ctx, x)
	}
	all, err := newSpool()
	if err != nil {
		return "", err
	}
	defer all.Close()
	some, err := newSpool()
	if err != nil {
		return "", err
	}
	defer some.Close()
	if err := s.read(ctx, x, all); err != nil {
		return "", err
	}
	w := bufio.NewWriter(some)
	needed, err := selected(all, x.Bytes, w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		_, err = some.Seek(0, io.SeekStart)
	}
	if err != nil {
		return "", fmt.Errorf("select tables of the backup: %w", err)
	}
	var files []File
	for i := range s.files {
		if needed[s.files[i].ID] {
			files = append(files, s.files[i])
		}
	}
	s.files = files
	return s.put(ctx, some)
}

// newSpool creates a temporary file that has no name: it ends with the process.
func newSpool() (*os.File, error) {
	f, err := os.CreateTemp("", "stele-backup-")
	if err != nil {
		return nil, fmt.Errorf("create a temporary file: %w", err)
	}
	return f, os.Remove(f.Name())
}

// read copies a file of the backup.
func (s *staging) read(ctx context.Context, x *File, to io.Writer) error {
	r, err := s.d.openObject(ctx, x, s.p.add)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(to, r)
	return err
}

// all uploads the files. It returns the pairs of the ids that they had and have.
func (s *staging) all(ctx context.Context) (pairs []byte, err error) {
	staged := make([]string, len(s.files))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for i := range s.files {
		g.Go(func() (err error) {
			staged[i], err = s.file(ctx, &s.files[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i := range staged {
		for _, id := range []string{s.files[i].ID, staged[i]} {
			raw, err := hex.DecodeString(id)
			if err != nil {
				return nil, fmt.Errorf("id of a blob: %w", err)
			}
			pairs = append(pairs, raw...)
		}
	}
	return pairs, nil
}

func (s *staging) file(ctx context.Context, x *File) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	r, err := s.d.openObject(ctx, x, s.p.add)
	if err != nil {
		return "", err
	}
	defer r.Close()
	return s.put(ctx, r)
}

func (s *staging) put(ctx context.Context, r io.Reader) (string, error) {
	info, err := s.to.PutStaged(ctx, "backup "+s.id, r)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.staged = append(s.mu.staged, info.ID)
	return info.ID, nil
}

// clear deletes the staged blobs: those that the backup names are kept by it. What it cannot delete expires.
func (s *staging) clear(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(deletions)
	for _, id := range s.mu.staged {
		g.Go(func() error { return s.to.Delete(ctx, id) })
	}
	_ = g.Wait()
}
