package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
)

// startTicker reports the progress of long-running work until stop is called. On a terminal it updates
// one line, which stop erases; elsewhere it prints a line every progressLines. stop may be called more
// than once.
func (a *app) startTicker(line func() string) (stop func()) {
	every := 200 * time.Millisecond
	if !a.errTTY {
		every = progressLines
	}
	return a.startTickerEvery(every, line)
}

func (a *app) startTickerEvery(every time.Duration, line func() string) (stop func()) {
	end, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(every)
		defer tick.Stop()
		shown := false
		for {
			select {
			case <-tick.C:
				if !a.errTTY {
					a.notef("%s", line())
					continue
				}
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
