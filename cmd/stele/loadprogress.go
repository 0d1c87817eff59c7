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

// progress shows how far long work is: as a bar on a terminal, and elsewhere as a line
// now and then.
type progress struct {
	a     *app
	title string
	bars  *mpb.Progress
	bar   *mpb.Bar
	end   chan struct{}
	group sync.WaitGroup
	state func() (done int64, text string)
}

// progressLines is how often a line comes where there is no terminal.
const progressLines = 5 * time.Second

func (a *app) newProgress(title string) *progress {
	return &progress{a: a, title: title, end: make(chan struct{})}
}

// start shows the progress of work of total units. state returns how many of them are
// done, and a text that counts in the same unit: the bar and the text must agree.
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
				p.a.talk("%s: %s", p.title, text)
			}
		case <-p.end:
			return
		}
	}
}

// talk says something while the bar is there.
func (p *progress) talk(format string, args ...any) {
	if p.bars == nil {
		p.a.talk(format, args...)
		return
	}
	fmt.Fprintln(p.bars, escapeLines(fmt.Sprintf(format, args...)))
}

// stop takes the bar away.
func (p *progress) stop() {
	close(p.end)
	p.group.Wait()
	if p.bars != nil {
		p.bar.Abort(true)
		p.bars.Wait()
	}
}

// countingReader counts what is read.
type countingReader struct {
	r io.Reader
	n atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}
