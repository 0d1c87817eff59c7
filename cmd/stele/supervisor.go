package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// A supervisor is what started the process and watches it: systemd, or what speaks
// sd_notify(3) like it. Without one, telling it does nothing.
type supervisor struct {
	tell func(state string) (told bool, err error)
	// watchdog is how long it waits for a sign of life; 0 if it wants none.
	watchdog time.Duration
	listens  bool
	log      *slog.Logger

	once   sync.Once // a broken socket is told of once
	ended  chan struct{}
	joined sync.WaitGroup
	// mu guards the fields in it. Held while the supervisor is told.
	mu struct {
		sync.Mutex
		status   string
		stopping bool
	}
}

func newSupervisor(log *slog.Logger) *supervisor {
	s := &supervisor{log: log, listens: os.Getenv("NOTIFY_SOCKET") != "", ended: make(chan struct{})}
	s.tell = func(state string) (bool, error) { return daemon.SdNotify(false, state) }
	var err error
	if s.watchdog, err = daemon.SdWatchdogEnabled(false); err != nil {
		log.Warn("the supervisor's watchdog is not understood, and gets no signs of life", "error", err)
	}
	return s
}

// say sends variables of sd_notify(3).
func (s *supervisor) say(vars ...string) {
	if _, err := s.tell(strings.Join(vars, "\n")); err != nil {
		s.once.Do(func() { s.log.Warn("the supervisor cannot be told how the node is", "error", err) })
	}
}

// status tells people who ask the supervisor how the node is. After stopping it is silent.
func (s *supervisor) status(text string, vars ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopping || s.mu.status == text && len(vars) == 0 {
		return
	}
	s.mu.status = text
	s.say(append(vars, "STATUS="+strings.ReplaceAll(text, "\n", "; "))...)
}

// waiting tells what the start waits for.
func (s *supervisor) waiting(what string) { s.status("starts, and waits for " + what) }

// A living node can be asked for a sign of life, and how it is.
type living interface {
	Alive(context.Context) error
	// Health says why the node does not serve as it should; empty if it does.
	Health() string
}

// statusPeriod is how often the node's state is looked at, if the watchdog does not
// want to hear of it more often: 10 s.
const statusPeriod = 10 * time.Second

// ready tells that the node serves, and from then on that it lives, when it does. serves
// says where it serves.
func (s *supervisor) ready(n living, serves string) {
	s.status(serves, "READY=1")
	if !s.listens {
		return
	}
	period := statusPeriod
	if s.watchdog > 0 { // one that is late, and one that fails, leave a third
		period = min(period, s.watchdog/3)
	}
	s.joined.Go(func() {
		for ticks := time.Tick(period); ; {
			select {
			case <-s.ended:
				return
			case <-ticks:
				s.look(n, period, serves)
			}
		}
	})
}

// look asks the node for a sign of life, and passes it on. A node that stops has its own
// bound, and gives up its parts one by one: it is not asked any more.
func (s *supervisor) look(n living, patience time.Duration, serves string) {
	s.mu.Lock()
	stopping := s.mu.stopping
	s.mu.Unlock()
	if stopping {
		s.say("WATCHDOG=1")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Alive(ctx); err != nil {
		s.log.Error("the node does not live as it should", "error", err, "watchdog", s.watchdog)
		s.status("does not live as it should: " + err.Error())
		return
	}
	if s.watchdog > 0 {
		s.say("WATCHDOG=1")
	}
	text := serves
	if reason := n.Health(); reason != "" {
		text = "does not serve: " + reason
	}
	s.status(text)
}

// stopping tells that the node stops, and that it has for so long to do so.
func (s *supervisor) stopping(within time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopping {
		return
	}
	s.mu.stopping = true
	s.say("STOPPING=1", "STATUS=stops: requests under way may finish",
		fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (within+stopMargin).Microseconds()))
}

// stopMargin is what the process gets to end after its own bound: 5 s.
const stopMargin = 5 * time.Second

// close ends the signs of life.
func (s *supervisor) close() {
	close(s.ended)
	s.joined.Wait()
}
