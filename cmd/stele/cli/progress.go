package cli

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Progress shows the progress of long-running work: as a bar on a terminal, else as a line every
// ProgressLines.
type Progress struct {
	a     *App
	title string
	bars  *mpb.Progress
	bar   *mpb.Bar
	end   chan struct{}
	group sync.WaitGroup
	state func() (done int64, text string)
}

// ProgressLines is the interval of progress lines if standard error is not a terminal.
const ProgressLines = 5 * time.Second

// NewProgress returns a Progress with a title. It shows nothing before Start.
func (a *App) NewProgress(title string) *Progress {
	return &Progress{a: a, title: title, end: make(chan struct{})}
}

// Start shows the progress of total units of work. state returns the number of units done and a text
// that counts the same units, so that bar and text agree.
func (p *Progress) Start(total int64, state func() (done int64, text string)) {
	p.state = state
	every := ProgressLines
	if p.a.ErrTTY {
		every = 100 * time.Millisecond
		p.bars = mpb.New(mpb.WithOutput(p.a.Err), mpb.WithWidth(40), mpb.WithRefreshRate(every))
		p.bar = p.bars.New(total, mpb.BarStyle().Rbound("|").Lbound("|"),
			mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name(p.title+" ")),
			mpb.AppendDecorators(decor.Percentage(), decor.Any(func(decor.Statistics) string {
				_, text := state()
				return "  " + text
			})))
	}
	p.group.Go(func() { p.run(every) })
}

func (p *Progress) run(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			done, text := p.state()
			if p.bar != nil {
				p.bar.SetCurrent(done)
			} else {
				p.a.Notef("%s: %s", p.title, text)
			}
		case <-p.end:
			return
		}
	}
}

// Notef prints a message above the bar.
func (p *Progress) Notef(format string, args ...any) {
	if p.bars == nil {
		p.a.Notef(format, args...)
		return
	}
	fmt.Fprintln(p.bars, EscapeLines(fmt.Sprintf(format, args...)))
}

// Stop removes the bar.
func (p *Progress) Stop() {
	close(p.end)
	p.group.Wait()
	if p.bars != nil {
		p.bar.Abort(true)
		p.bars.Wait()
	}
}

// A CountingReader counts the bytes read from Reader.
type CountingReader struct {
	Reader io.Reader
	n      atomic.Int64
}

func (c *CountingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// Count returns the number of bytes read so far.
func (c *CountingReader) Count() int64 { return c.n.Load() }
