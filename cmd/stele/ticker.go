package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
)

// startTicker shows, on a terminal, a line that changes while long work goes on.
// The line is gone after stop, which may be called more than once.
func (a *app) startTicker(line func() string) (stop func()) {
	if !a.errTTY {
		return func() {}
	}
	end, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		shown := false
		for {
			select {
			case <-tick.C:
				shown = true
				fmt.Fprint(a.err, "\r"+text.EraseLine.Sprint()+escapeText(line()))
			case <-end:
				if shown {
					fmt.Fprint(a.err, "\r"+text.EraseLine.Sprint())
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
