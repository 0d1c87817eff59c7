package backups

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/steledb/stele/blobfs"
	blobapi "github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/backup"
	"github.com/steledb/stele/node/reply"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/tablet"
)

// files returns a page of the files of a backup, for copies outside the cluster.
func (s *Service) files(c *rpc.Call) {
	var r api.BackupFilesRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	page, err := s.filesFrom(c.Context(), r.ID, r.From)
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(page.Append)
}

// filesOfTablet bounds the files of one tablet. A position in the files of a backup is the offset of a tablet in the manifest, times filesOfTablet, and the
// number of a file of the tablet. So a page reads only its own part of the manifest.
const filesOfTablet = 1 << 13

// errPageFull ends the reading of a manifest.
var errPageFull = errors.New("the page is full")

// filesFrom returns the files from a position on. Tablets share files: a page has each once, and several pages may have it.
func (s *Service) filesFrom(ctx context.Context, id string, from int64) (page api.BackupFiles, err error) {
	rec, err := s.made(ctx, id)
	if err != nil {
		return page, err
	}
	if from == 0 {
		page.Files = append(page.Files, fileOf(rec.Manifest))
	}
	m, done, err := s.Roots.OpenManifest(ctx, rec.Manifest)
	if err != nil {
		return page, err
	}
	defer done()
	err = addFiles(ctx, &page, m, from, api.BackupFilesPageMax)
	return page, err
}

// addFiles adds the files of a manifest from a position on to a page, which has at most that many.
func addFiles(ctx context.Context, page *api.BackupFiles, m *backup.Manifest, from int64, most int) error {
	seen := map[blobfs.ID]bool{}
	err := m.TabletsFrom(from/filesOfTablet, func(at int64, t *tablet.Meta) error {
		n := int64(0)
		for g := range t.Groups {
			for k := range t.Groups[g].Files {
				h, position := t.Groups[g].Files[k].Handle, at*filesOfTablet+n
				switch n++; {
				case n > filesOfTablet:
					return fmt.Errorf("tablet %d has more than %d files", t.ID, filesOfTablet)
				case position < from || seen[h.ID]:
				case len(page.Files) >= most:
					page.Next = position
					return errPageFull
				default:
					seen[h.ID] = true
					page.Files = append(page.Files, fileOf(h))
				}
			}
		}
		return ctx.Err()
	})
	if errors.Is(err, errPageFull) {
		err = nil
	}
	return err
}

// made returns the record of a backup that is made.
func (s *Service) made(ctx context.Context, id string) (*backup.Record, error) {
	rec, _, err := s.Roots.Backup(ctx, id)
	if err == nil && rec.State != backup.Made {
		err = fmt.Errorf("backup %s: %w: its state is %q", id, api.ErrBackupNotMade, rec.State)
	}
	return rec, err
}

// fileOf describes a file. Its check is the checksum of those of its extents.
func fileOf(h blobfs.Handle) api.BackupFile {
	e := wire.GetEncoder()
	defer e.Release()
	blobfs.AppendHandle(e, h)
	sums := wire.GetEncoder()
	defer sums.Release()
	for i := range h.Extents {
		sums.Uint(uint64(h.Extents[i].CRC))
	}
	return api.BackupFile{ID: h.ID.String(), Bytes: h.Length, Check: fmt.Sprintf("%08x", crc.Sum(sums.Bytes())),
		Handle: append([]byte(nil), e.Bytes()...)}
}

// read reads a part of a file of a backup.
func (s *Service) read(c *rpc.Call) {
	var r api.ReadBackupRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	release, err := s.Results.Take(c.Context(), authz.SubjectOf(c).Owner(), int(r.Length))
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.OnSent(release)
	p, err := s.readFile(c.Context(), &r)
	if err != nil {
		reply.Fail(c, readError(err))
		return
	}
	c.Reply(func(e *wire.Encoder) { e.Bin(p) })
}

// readError is the API form of an error of readFile.
func readError(err error) error {
	var corrupt *blobfs.CorruptError
	switch {
	case errors.As(err, &corrupt):
	case errors.Is(err, blobfs.ErrNoBlob):
		return &api.CorruptError{Err: err}
	case errors.Is(err, blobapi.ErrUnreachable), errors.Is(err, blobfs.ErrClosed):
		return errors.Join(api.ErrUnavailable, err)
	}
	return err
}

func (s *Service) readFile(ctx context.Context, r *api.ReadBackupRequest) ([]byte, error) {
	if n, err := wire.Check(r.Handle, wire.Limits{}); err != nil || n != len(r.Handle) {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "the handle is not valid")
	}
	d := wire.NewDecoder(r.Handle)
	h := blobfs.DecodeHandle(&d)
	if d.Err() != nil {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "the handle is not valid")
	}
	if _, err := s.made(ctx, r.ID); err != nil {
		return nil, err
	}
	if r.Offset >= h.Length {
		return nil, nil
	}
	blob, err := s.Store().OpenBlob(ctx, h)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	p := make([]byte, min(r.Length, h.Length-r.Offset))
	_, err = blob.ReadAt(p, r.Offset)
	return p, err
}

// importBackup makes a backup of files that were uploaded.
func (s *Service) importBackup(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.NamesRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams, api.MethodImportBackup, 2), &r.Options) {
		return
	}
	id, caller := "", authz.SubjectOf(c)
	err := s.Changes.Do(c.Context(), authz.ChangeRequest{Caller: caller, Method: api.MethodImportBackup, Name: r.Names[0]}, func(ctx context.Context) (err error) {
		id, err = s.importNow(ctx, r.Names[0], r.Names[1], caller.Owner())
		return err
	})
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(func(e *wire.Encoder) { e.Str(id) })
}

// importNow writes the record of a backup whose manifest names the uploaded files instead of those of the other cluster, within a change. The
// names of the uploads must exist until the record does (BU5).
func (s *Service) importNow(ctx context.Context, manifest, files, by string) (id string, err error) {
	staged, err := s.staged(ctx, files)
	if err != nil {
		return "", err
	}
	rec := &backup.Record{State: backup.Made, Created: time.Now(), By: by, Imported: true}
	rec.Expires = rec.Created.Add(api.ImportedKeep)
	if err := s.importManifest(ctx, manifest, staged, rec); err != nil {
		return "", err
	}
	defer s.Store().Release(rec.Manifest.ID)
	rec.Ended, id = time.Now(), newID(rec.Created)
	gen, err := s.Catalog.Set(ctx, backup.Path(id), rec.Encode(), 0)
	if err != nil {
		return "", err
	}
	for _, h := range staged {
		if _, _, err := s.Roots.Stored(ctx, h.ID); err != nil {
			return "", errors.Join(fmt.Errorf("an uploaded file: %w", err), s.Catalog.Remove(ctx, backup.Path(id), gen))
		}
	}
	s.Log.Info("backup imported", "backup", id, "tablets", rec.Tablets, "bytes", rec.Bytes)
	return id, nil
}

// fileMapMax is the most files of an imported backup.
const fileMapMax = 1 << 20

// staged reads the blob that names the uploads: for each file its former id and that of the staged blob.
func (s *Service) staged(ctx context.Context, files string) (map[blobfs.ID]blobfs.Handle, error) {
	blob, err := s.openStaged(ctx, files)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	const each = 2 * int64(len(blobfs.ID{}))
	if n := blob.Size(); n%each != 0 || n > fileMapMax*each {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "the list of files has %d bytes", n)
	}
	r, all := bufio.NewReader(io.NewSectionReader(blob, 0, blob.Size())), map[blobfs.ID]blobfs.Handle{}
	for range blob.Size() / each {
		var pair [2]blobfs.ID
		for i := range pair {
			if _, err := io.ReadFull(r, pair[i][:]); err != nil {
				return nil, err
			}
		}
		f, _, err := s.Roots.Stored(ctx, pair[1])
		if err != nil {
			return nil, err
		}
		if !f.Staged {
			return nil, rpc.Errorf(rpc.CodeBadRequest, "blob %s is not staged", pair[1])
		}
		all[pair[0]] = f.Handle
	}
	return all, nil
}

func (s *Service) openStaged(ctx context.Context, text string) (*blobfs.Reader, error) {
	id, err := blobfs.ParseID(text)
	if err != nil {
		return nil, rpc.Errorf(rpc.CodeBadRequest, "%v", err)
	}
	f, _, err := s.Roots.Stored(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.Store().OpenBlob(ctx, f.Handle)
}

// importManifest seals a manifest that is like an uploaded one, but names staged blobs.
func (s *Service) importManifest(ctx context.Context, text string, staged map[blobfs.ID]blobfs.Handle, rec *backup.Record) error {
	from, err := s.openStaged(ctx, text)
	if err != nil {
		return err
	}
	defer from.Close()
	m, err := backup.OpenManifest(from, from.Size())
	if err != nil {
		return rpc.Errorf(rpc.CodeBadRequest, "%v", err)
	}
	return s.sealManifest(ctx, rec, func(to *bufio.Writer) ([]backup.Table, error) {
		w := backup.NewWriter(to)
		for i := range m.Tables {
			if err := importTable(w, m, i, staged); err != nil {
				return nil, rpc.Errorf(rpc.CodeBadRequest, "%v", err)
			}
			rec.Tables = append(rec.Tables, m.Tables[i].Schema.Name)
		}
		return w.Finish()
	})
}

func importTable(w *backup.Writer, m *backup.Manifest, i int, staged map[blobfs.ID]blobfs.Handle) error {
	err := m.Tablets(i, func(_ int64, t *tablet.Meta) error {
		for g := range t.Groups {
			for k := range t.Groups[g].Files {
				f := &t.Groups[g].Files[k]
				h, ok := staged[f.Handle.ID]
				if !ok || h.Length != f.Handle.Length {
					return fmt.Errorf("file %s of table %q was not uploaded with its %d bytes", f.Handle.ID, m.Tables[i].Schema.Name, f.Handle.Length)
				}
				f.Handle, f.Shared = h, true
			}
		}
		return w.Add(t)
	})
	if err != nil {
		return err
	}
	return w.EndTable(m.Tables[i].Schema)
}
