package backupdir

import (
	"context"
	"errors"
	"io"
)

// Verify reads each byte of backups. Each object is read once, whichever backups have it. It calls bad for each damaged or missing file.
// The error is ErrNoBackup, *CorruptError or *FormatError of a backup itself, the file system's, or ctx's.
func (d *Dir) Verify(ctx context.Context, ids []string, p *Progress, bad func(id string, err *CorruptError)) error {
	verified := map[string]error{}
	var all []*Backup
	for _, id := range ids {
		b, err := d.Find(id)
		if err != nil {
			return err
		}
		for i := range b.Files {
			p.total.Add(b.Files[i].Bytes)
		}
		all = append(all, b)
	}
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
