package webload

import (
	"context"
	"errors"
	"fmt"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// A group is the pages that are written together.
type group struct {
	pages []*readPage
	bytes int64
}

func (g *group) add(r *readPage) {
	g.pages = append(g.pages, r)
	g.bytes += int64(len(r.contents))
}

func (g *group) full() bool { return len(g.pages) == groupPagesMax || g.bytes >= groupBytesMax }

// A rowChange is the cells to set in one row.
type rowChange struct {
	row  string
	sets []table.Mutation
}

// anchors returns the links of all pages, one change per target.
func (g *group) anchors() []*rowChange {
	var all []*rowChange
	byRow := map[string]*rowChange{}
	for _, p := range g.pages {
		qualifier := []byte(p.URL)
		for _, link := range p.doc.Links {
			c := byRow[link.Row]
			if c == nil {
				c = &rowChange{row: link.Row}
				byRow[link.Row] = c
				all = append(all, c)
			}
			c.sets = append(c.sets, table.Set(anchorFamily, qualifier, p.Timestamp, []byte(link.Text)))
		}
	}
	return all
}

// rows returns the pages' own rows.
func (g *group) rows(language string) []*rowChange {
	all := make([]*rowChange, len(g.pages))
	for i, p := range g.pages {
		lang := p.doc.Language
		if lang == "" {
			lang = language
		}
		all[i] = &rowChange{row: p.Row, sets: []table.Mutation{
			table.Set(contentsFamily, nil, p.Timestamp, p.contents),
			table.Set(languageFamily, nil, p.Timestamp, []byte(lang)),
		}}
	}
	return all
}

// write writes a group: the links and, once they are durable, the pages (WL1).
func (l *Loader) write(ctx context.Context, g *group) error {
	if err := l.apply(ctx, g.anchors()); err != nil {
		return fmt.Errorf("write links: %w", err)
	}
	for _, p := range g.pages {
		l.stats.anchors.Add(int64(len(p.doc.Links)))
		l.stats.links.Add(int64(p.doc.Elements))
	}
	if err := l.apply(ctx, g.rows(l.cfg.Language)); err != nil {
		return fmt.Errorf("write pages: %w", err)
	}
	for _, p := range g.pages {
		l.stats.pages.Add(1)
		l.stats.pageBytes.Add(p.Size)
		l.memory.Release(p.memory)
	}
	return nil
}

// apply applies changes and records those that are acknowledged. All have timestamps, so they may
// be retried if an answer is lost.
func (l *Loader) apply(ctx context.Context, changes []*rowChange) error {
	ms := make([]*client.RowMutation, len(changes))
	for i, c := range changes {
		ms[i] = client.NewRowMutation(c.row).Add(c.sets...)
	}
	err := l.cfg.Table.ApplyAll(ctx, ms, client.WithReplay(client.ReplayIdempotent))
	acked := changes
	if err != nil {
		acked = nil
		var failed *client.BatchError
		if errors.As(err, &failed) {
			for i, c := range changes {
				if failed.Errs[i] == nil {
					acked = append(acked, c)
				}
			}
			err = firstOf(failed)
		}
	}
	l.stats.rows.Add(int64(len(acked)))
	return errors.Join(err, l.cfg.Acks.write(acked))
}

// firstOf returns the first error of a batch; the errors of other rows are usually the same.
func firstOf(failed *client.BatchError) error {
	for _, err := range failed.Errs {
		if err != nil {
			if failed.Failed == 1 {
				return err
			}
			return fmt.Errorf("%d rows not acknowledged, the first: %w", failed.Failed, err)
		}
	}
	return failed
}
