package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress shows the progress of long-running work: as a bar on a terminal, else as a line every
// progressLines.
type progress struct {
	a     *app
	title string
	bars  *mpb.Progress
	bar   *mpb.Bar
	end   chan struct{}
	group sync.WaitGroup
	state func() (done int64, text string)
}

// progressLines is the interval of progress lines if standard error is not a terminal.
const progressLines = 5 * time.Second

func (a *app) newProgress(title string) *progress {
	return &progress{a: a, title: title, end: make(chan struct{})}
}

// start shows the progress of total units of work. state returns the number of units done and a text
// that counts the same units, so that bar and text agree.
func (p *progress) start(total int64, state func() (done int64, text string)) {
	p.state = state
	every := progressLines
	if p.a.errTTY {
		every = 100 * time.Millisecond
		p.bars = mpb.New(mpb.WithOutput(p.a.err), mpb.WithWidth(40), mpb.WithRefreshRate(every))
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

func (p *progress) run(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			done, text := p.state()
			if p.bar != nil {
				p.bar.SetCurrent(done)
			} else {
				p.a.notef("%s: %s", p.title, text)
			}
		case <-p.end:
			return
		}
	}
}

// notef prints a message above the bar.
func (p *progress) notef(format string, args ...any) {
	if p.bars == nil {
		p.a.notef(format, args...)
		return
	}
	fmt.Fprintln(p.bars, escapeLines(fmt.Sprintf(format, args...)))
}

// stop removes the bar.
func (p *progress) stop() {
	close(p.end)
	p.group.Wait()
	if p.bars != nil {
		p.bar.Abort(true)
		p.bars.Wait()
	}
}

// countingReader counts the bytes read.
type countingReader struct {
	r io.Reader
	n atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}
