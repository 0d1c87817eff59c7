package replication

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/internal/timing"
)

// pages reads the change stream of a source, and makes its changes. Small pages are waited for, by all tables of the replication at once. If there
// are more changes, the table takes one of the places for large pages, and if a change is larger than such a page, the place for large changes.
type pages struct {
	*follower
	stream *client.Changes
	more   bool // the last small page was full
}

// begin begins at a token.
func (p *pages) begin(token string) (err error) {
	p.stream, err = p.from.Table(p.table).Changes(client.ChangesFrom{Token: token, Clears: true})
	return p.ofRequest("read changes", err)
}

// next makes the next changes, and returns their number. It waits for them, for at most about two seconds, unless the table is urgent. When it returns nil, all are made.
func (p *pages) next(ctx context.Context) (n int, err error) {
	if p.more {
		return p.page(ctx)
	}
	p.stream.Bound(idleBytes)
	read := p.stream.Next
	urgent := p.urgent.holds()
	if urgent {
		read = p.stream.Poll
	}
	got, err := read(ctx)
	if urgent && err == nil && len(got) == 0 {
		err = timing.Sleep(ctx, urgentPause)
	}
	if errors.Is(err, client.ErrRowTooLarge) {
		return p.page(ctx)
	}
	if err != nil {
		return 0, p.ofRequest("read changes", err)
	}
	bytes := 0
	for i := range got {
		bytes += changeBytes(&got[i])
	}
	p.more = bytes >= idleBytes/4
	return len(got), p.make(ctx, got)
}

// page is next for a large page. It does not wait for changes.
func (p *pages) page(ctx context.Context) (n int, err error) {
	free, err := p.run.take(ctx)
	if err != nil {
		return 0, err
	}
	defer free()
	p.stream.Bound(pageBytes)
	got, err := p.stream.Poll(ctx)
	if errors.Is(err, client.ErrRowTooLarge) {
		return p.large(ctx)
	}
	if err != nil {
		return 0, p.ofRequest("read changes", err)
	}
	p.more = len(got) > 0
	return len(got), p.make(ctx, got)
}

// large is page for changes of any size.
func (p *pages) large(ctx context.Context) (n int, err error) {
	var got []client.Change
	var stream *client.Changes
	err = p.withLarge(ctx, func(ctx context.Context, c *client.Client) (err error) {
		if stream, err = c.Table(p.table).Changes(client.ChangesFrom{Token: p.stream.Token(), Clears: true}); err == nil {
			got, err = stream.Poll(ctx)
		}
		return err
	}, func(*client.Client) error {
		if _, err := p.syncFamilies(ctx, stream.Families()); err != nil {
			return err
		}
		return p.makeChecked(ctx, got)
	})
	if err == nil {
		err = p.begin(stream.Token())
	}
	return len(got), err
}

// make makes changes of the stream.
func (p *pages) make(ctx context.Context, got []client.Change) error {
	if _, err := p.syncFamilies(ctx, p.stream.Families()); err != nil {
		return err
	}
	if planted.On(planted.PositionBeforeData) {
		if err := p.savePosition(ctx); err != nil {
			return err
		}
	}
	return p.makeChecked(ctx, got)
}

// savePosition saves the position after the changes that were returned, all of which are made (RE4).
func (p *pages) savePosition(ctx context.Context) error {
	moment.Pass("before the position of a replication is saved", "")
	p.st.token, p.st.saved = p.stream.Token(), time.Now()
	return p.save(ctx)
}

func (f *follower) makeChecked(ctx context.Context, got []client.Change) error {
	if err := f.checkChanges(got); err != nil {
		return err
	}
	return f.makeAll(ctx, got)
}
