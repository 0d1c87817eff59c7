package cli

import (
	"fmt"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
)

// StartTicker reports the progress of long-running work until stop is called. On a terminal it updates
// one line, which stop erases; elsewhere it prints a line every ProgressLines. stop may be called more
// than once.
func (a *App) StartTicker(line func() string) (stop func()) {
	every := 200 * time.Millisecond
	if !a.ErrTTY {
		every = ProgressLines
	}
	return a.startTickerEvery(every, line)
}

func (a *App) startTickerEvery(every time.Duration, line func() string) (stop func()) {
	end, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(every)
		defer tick.Stop()
		shown := false
		for {
			select {
			case <-tick.C:
				if !a.ErrTTY {
					a.Notef("%s", line())
					continue
				}
				shown = true
				fmt.Fprint(a.Err, "\r"+text.EraseLine.Sprint()+EscapeText(line()))
			case <-end:
				if shown {
					fmt.Fprint(a.Err, "\r"+text.EraseLine.Sprint())
				}
				return
			}
		}
	}()
	var once sync.Once
	return func() {
		once.Do(func() {
			close(end)
			<-gone
		})
	}
}
