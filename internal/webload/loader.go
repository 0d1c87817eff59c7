package webload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/webtable"
	"github.com/steledb/stele/table"
)

// The families of a Webtable. Contents and language have a single column with an empty qualifier.
const (
	contentsFamily = "contents"
	languageFamily = "language"
	anchorFamily   = "anchor"
)

// Families are the column families of a Webtable that Prepare creates. Pages have their own
// locality group, so that reading links does not read pages.
var Families = []string{"contents:versions=3,group=pages,compression=zstd", anchorFamily, "language:versions=1"}

// DefaultLanguage is the language of pages that declare none: "und", which is BCP 47 for
// undetermined.
const DefaultLanguage = "und"

const (
	// pagesBytesMax bounds the memory of pages. The text, links and mutations of a page together
	// take about twice its size.
	pagesBytesMax = 2 * webtable.PageBytesMax
	pageFactor    = 2
	// groupBytesMax is the size of the pages in a group: 4 MiB. That compresses well in one block,
	// and an interrupted load repeats little.
	groupBytesMax = 4 << 20
	groupPagesMax = 256
	sendersMax    = 2
	// findPages is the number of pages looked up in the table at once.
	findPages = 200
)

// A Config configures a Loader.
type Config struct {
	Table *client.Table
	Site  *webtable.Site
	// Language is the language of pages that declare none. Default DefaultLanguage.
	Language string
	// Force also writes pages that are already loaded.
	Force bool
	// Acks gets the acknowledgement file. Nil writes none.
	Acks *AckWriter
	// Warn is called for each file that is skipped because of an error, one call at a time. It may
	// be nil.
	Warn func(error)
}

// Prepare creates the Webtable and reports whether it did. An existing table must have the
// families. Errors: client.ErrNoFamily, and those of the client.
func Prepare(ctx context.Context, c *client.Client, name string) (created bool, err error) {
	var specs []table.FamilySpec
	for _, text := range Families {
		spec, err := table.ParseFamilySpec(text)
		if err != nil {
			return false, err
		}
		specs = append(specs, spec)
	}
	_, err = c.Tables().Create(ctx, name, specs...)
	if !errors.Is(err, client.ErrTableExists) {
		return err == nil, err
	}
	info, err := c.Tables().Describe(ctx, name)
	if err != nil {
		return false, err
	}
	for _, spec := range specs {
		if info.Schema.Family(spec.Name) == nil {
			return false, &table.NoFamilyError{Table: name, Family: spec.Name}
		}
	}
	return false, nil
}

// Stats is the progress of a load.
type Stats struct {
	Pages     int64 `json:"pages"`             // written
	Skipped   int64 `json:"pages_skipped"`     // already loaded
	Failed    int64 `json:"pages_failed"`      // skipped because of an error, reported to Warn
	PageBytes int64 `json:"page_bytes"`        // size of the pages written and skipped
	Links     int64 `json:"links"`             // link elements that make up Anchors
	Anchors   int64 `json:"anchors"`           // anchor cells written
	Rows      int64 `json:"rows_acknowledged"` // row mutations acknowledged
}

// A Loader loads a site. It can be used only once.
type Loader struct {
	cfg     Config
	memory  *semaphore.Weighted
	warning sync.Mutex // held around calls of Warn
	stats   struct{ pages, skipped, failed, pageBytes, links, anchors, rows atomic.Int64 }
}

// New returns a Loader.
func New(cfg Config) *Loader {
	if cfg.Language == "" {
		cfg.Language = DefaultLanguage
	}
	if cfg.Warn == nil {
		cfg.Warn = func(error) {}
	}
	return &Loader{cfg: cfg, memory: semaphore.NewWeighted(pagesBytesMax)}
}

// Stats returns the progress of the load. It may be called at any time.
func (l *Loader) Stats() Stats {
	s := &l.stats
	return Stats{
		Pages: s.pages.Load(), Skipped: s.skipped.Load(), Failed: s.failed.Load(), PageBytes: s.pageBytes.Load(),
		Links: s.links.Load(), Anchors: s.anchors.Load(), Rows: s.rows.Load(),
	}
}

// Run loads the site. When it returns nil, every page is durable in the table except those counted
// in Stats.Failed. After an error, another Loader can continue the load. Errors: those of the
// client, ctx.Err(), those of writing the acknowledgement file.
func (l *Loader) Run(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	found := make(chan webtable.Page)
	read := make(chan *readPage)
	work.Go(func() error {
		defer close(found)
		return l.find(ctx, found)
	})
	work.Go(func() error {
		defer close(read)
		readers, ctx := errgroup.WithContext(ctx)
		for range runtime.GOMAXPROCS(0) {
			readers.Go(func() error { return l.read(ctx, found, read) })
		}
		return readers.Wait()
	})
	work.Go(func() error { return l.send(ctx, read) })
	return work.Wait()
}

// find passes on the pages that the table does not have.
func (l *Loader) find(ctx context.Context, found chan<- webtable.Page) error {
	var pages []webtable.Page
	for p, err := range l.cfg.Site.Pages() {
		if err != nil {
			l.skip(err)
			continue
		}
		if pages = append(pages, p); len(pages) < findPages {
			continue
		}
		if err := l.findAmong(ctx, pages, found); err != nil {
			return err
		}
		pages = pages[:0]
	}
	return l.findAmong(ctx, pages, found)
}

func (l *Loader) skip(err error) {
	l.stats.failed.Add(1)
	l.warning.Lock()
	defer l.warning.Unlock()
	l.cfg.Warn(err)
}

func (l *Loader) findAmong(ctx context.Context, pages []webtable.Page, found chan<- webtable.Page) error {
	loaded := make([]*table.Row, len(pages))
	if !l.cfg.Force && len(pages) > 0 {
		rows := make([]string, len(pages))
		for i := range pages {
			rows[i] = pages[i].Row
		}
		var err error
		loaded, err = l.cfg.Table.GetAll(ctx, rows, client.Columns(contentsFamily+":"), client.Filter(table.StripValue{}))
		if err != nil {
			return fmt.Errorf("look up loaded pages: %w", err)
		}
	}
	for i := range pages {
		if hasVersion(loaded[i], pages[i].Timestamp) {
			l.stats.skipped.Add(1)
			l.stats.pageBytes.Add(pages[i].Size)
			continue
		}
		select {
		case found <- pages[i]:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func hasVersion(row *table.Row, timestamp int64) bool {
	if row == nil {
		return false
	}
	for i := range row.Cells {
		if row.Cells[i].Timestamp == timestamp {
			return true
		}
	}
	return false
}

// A readPage is a page with its contents and extracted data. It holds a share of the memory.
type readPage struct {
	webtable.Page
	contents []byte
	doc      *webtable.Document
	memory   int64
}

// read reads and parses pages.
func (l *Loader) read(ctx context.Context, found <-chan webtable.Page, read chan<- *readPage) error {
	for p := range found {
		r := &readPage{Page: p, memory: min(max(p.Size, 1)*pageFactor, pagesBytesMax)}
		if err := l.memory.Acquire(ctx, r.memory); err != nil {
			return err
		}
		var err error
		if r.contents, err = l.cfg.Site.Read(&r.Page); err != nil {
			l.memory.Release(r.memory)
			l.skip(err)
			continue
		}
		r.doc = l.cfg.Site.Extract(&r.Page, r.contents)
		select {
		case read <- r:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// send writes pages in groups. A group is sent as soon as a sender is free, and grows until then.
// So pages never wait for others that wait for their memory.
func (l *Loader) send(ctx context.Context, read <-chan *readPage) error {
	senders, sending := errgroup.WithContext(ctx)
	places := make(chan struct{}, sendersMax)
	g := &group{}
	start := func() {
		full := g
		g = &group{}
		senders.Go(func() error {
			defer func() { <-places }()
			return l.write(sending, full)
		})
	}
	for open := true; open && sending.Err() == nil; {
		place := places
		if len(g.pages) == 0 {
			place = nil
		}
		next := read
		if g.full() {
			next = nil
		}
		select {
		case r, ok := <-next:
			if open = ok; ok {
				g.add(r)
			}
		case place <- struct{}{}:
			start()
		case <-sending.Done():
		}
	}
	if len(g.pages) > 0 && sending.Err() == nil {
		places <- struct{}{}
		start()
	}
	if err := senders.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}
