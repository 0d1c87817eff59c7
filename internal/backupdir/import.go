package backupdir

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
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

// staging is an import at work.
type staging struct {
	d  *Dir
	to Target
	b  *Backup
	p  *Progress
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		staged []string // blobs to delete
	}
}

// Import copies a backup into a cluster, for a day, and returns its id there. Errors: ErrNoBackup, *CorruptError, *FormatError, those of
// client.Blobs.PutStaged and client.Backups.Import, ctx's. After an error the cluster has none of it.
func (d *Dir) Import(ctx context.Context, to Target, id string, p *Progress) (imported string, err error) {
	b, err := d.Find(ctx, id)
	if err != nil {
		return "", err
	}
	for i := range b.Files {
		p.total.Add(b.Files[i].Bytes)
	}
	s := &staging{d: d, to: to, b: b, p: p}
	defer s.clear(ctx)
	pairs, manifest, err := s.files(ctx)
	if err != nil {
		return "", err
	}
	list, err := s.put(ctx, bytes.NewReader(pairs))
	if err != nil {
		return "", err
	}
	return to.Import(ctx, manifest, list)
}

// files uploads all files. It returns the pairs of the ids that they had and have.
func (s *staging) files(ctx context.Context) (pairs []byte, manifest string, err error) {
	staged := make([]string, len(s.b.Files))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for i := range s.b.Files {
		g.Go(func() (err error) {
			staged[i], err = s.file(ctx, &s.b.Files[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, "", err
	}
	for i := range staged {
		for _, id := range []string{s.b.Files[i].ID, staged[i]} {
			raw, err := hex.DecodeString(id)
			if err != nil {
				return nil, "", fmt.Errorf("id of a blob: %w", err)
			}
			pairs = append(pairs, raw...)
		}
	}
	return pairs, staged[0], nil
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
	info, err := s.to.PutStaged(ctx, "backup "+s.b.ID, r)
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
