package backupdir

import (
	"context"
	"errors"
	"io"
)

// Verify reads each byte of backups. Each object is read once, whichever backups have it. It calls bad for each damaged or missing file, also
// for a damaged ID.json. Errors: ErrNoBackup, *FormatError, *KeyError, the file system's, ctx's.
func (d *Dir) Verify(ctx context.Context, ids []string, p *Progress, bad func(id string, err *CorruptError)) error {
	var all []*Backup
	for _, id := range ids {
		b, err := d.Find(ctx, id)
		var corrupt *CorruptError
		if errors.As(err, &corrupt) {
			bad(id, corrupt)
			continue
		}
		if err != nil {
			return err
		}
		for i := range b.Files {
			p.total.Add(b.Files[i].Bytes)
		}
		all = append(all, b)
	}
	return d.verifyObjects(ctx, all, p, bad)
}

// verifyObjects verifies the objects of backups.
func (d *Dir) verifyObjects(ctx context.Context, all []*Backup, p *Progress, bad func(id string, err *CorruptError)) error {
	verified := map[string]error{}
	for _, b := range all {
		for i := range b.Files {
			x := &b.Files[i]
			err, ok := verified[x.SHA256]
			if ok {
				p.done.Add(x.Bytes)
			} else {
				err = d.verifyObject(ctx, x, p)
				verified[x.SHA256] = err
			}
			var corrupt *CorruptError
			switch {
			case errors.As(err, &corrupt):
				bad(b.ID, corrupt)
			case err != nil:
				return err
			}
		}
	}
	return nil
}

func (d *Dir) verifyObject(ctx context.Context, x *File, p *Progress) error {
	r, err := d.openObject(ctx, x, p.add)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, make([]byte, pieceBytes))
	return err
}
