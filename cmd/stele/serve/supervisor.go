package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// A supervisor sends notifications to systemd, or another program that supports sd_notify(3). Without
// one, it does nothing.
type supervisor struct {
	notify func(state string) (sent bool, err error)
	// watchdog is the timeout of the watchdog; 0 if it is off.
	watchdog time.Duration
	listens  bool // NOTIFY_SOCKET is set
	log      *slog.Logger

	once   sync.Once // a failing socket is logged once
	ended  chan struct{}
	joined sync.WaitGroup
	// mu guards the fields in it. It is held while a status is sent.
	mu struct {
		sync.Mutex
		status   string
		stopping bool
	}
}

func newSupervisor(log *slog.Logger) *supervisor {
	s := &supervisor{log: log, listens: os.Getenv("NOTIFY_SOCKET") != "", ended: make(chan struct{})}
	s.notify = notify
	var err error
	if s.watchdog, err = daemon.SdWatchdogEnabled(false); err != nil {
		log.Warn("watchdog disabled: WATCHDOG_USEC is invalid", "err", err)
	}
	return s
}

// notifyTimeout bounds the wait for a supervisor that does not read: the node goes on without it, and stops within stopMargin.
const notifyTimeout = time.Second

// notify sends a message as in sd_notify(3), if there is a supervisor. It is daemon.SdNotify with a bound: the socket's buffer may be full.
func notify(state string) (sent bool, err error) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return false, nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return false, err
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return false, err
	}
	_, err = c.Write([]byte(state))
	return err == nil, err
}

// send sends variables by sd_notify(3).
func (s *supervisor) send(vars ...string) {
	if _, err := s.notify(strings.Join(vars, "\n")); err != nil {
		s.once.Do(func() { s.log.Warn("sd_notify failed", "err", err) })
	}
}

// status sends vars and STATUS=text. It sends nothing after stopping, or if the text is unchanged and
// vars is empty.
func (s *supervisor) status(text string, vars ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopping || s.mu.status == text && len(vars) == 0 {
		return
	}
	s.mu.status = text
	s.send(append(vars, "STATUS="+strings.ReplaceAll(text, "\n", "; "))...)
}

// waiting sends what the start waits for.
func (s *supervisor) waiting(what string) { s.status("starting: waiting for " + what) }

// healthSource is the part of node.Node that the supervisor polls.
type healthSource interface {
	Alive(context.Context) error
	// Health returns why the node does not serve; empty if it does.
	Health() string
}

// statusPeriod is the maximum interval between polls of the node: 10 s. A short watchdog timeout makes
// it shorter.
const statusPeriod = 10 * time.Second

// ready sends READY=1 with the status serves. From then on it polls the node, and sends WATCHDOG=1
// while the node is alive.
func (s *supervisor) ready(n healthSource, serves string) {
	s.status(serves, "READY=1")
	if !s.listens {
		return
	}
	period := statusPeriod
	if s.watchdog > 0 { // a third, so that one late and one failed poll are tolerated
		period = min(period, s.watchdog/3)
	}
	s.joined.Go(func() {
		for ticks := time.Tick(period); ; {
			select {
			case <-s.ended:
				return
			case <-ticks:
				s.poll(n, period, serves)
			}
		}
	})
}

// poll polls the node and sends its state. A stopping node is not polled: it closes its services one
// by one, and its stop has a bound of its own.
func (s *supervisor) poll(n healthSource, timeout time.Duration, serves string) {
	s.mu.Lock()
	stopping := s.mu.stopping
	s.mu.Unlock()
	if stopping {
		s.send("WATCHDOG=1")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := n.Alive(ctx); err != nil {
		s.log.Error("health check failed", "err", err, "watchdog", s.watchdog)
		s.status("failed: " + err.Error())
		return
	}
	if s.watchdog > 0 {
		s.send("WATCHDOG=1")
	}
	text := serves
	if reason := n.Health(); reason != "" {
		text = "not serving: " + reason
	}
	s.status(text)
}

// stopping sends STOPPING=1, and extends the supervisor's timeout to within and stopMargin.
func (s *supervisor) stopping(within time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.stopping {
		return
	}
	s.mu.stopping = true
	s.send("STOPPING=1", "STATUS=stopping: finishing requests",
		fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (within+stopMargin).Microseconds()))
}

// stopMargin is the time for the process to exit after its own bound: 5 s.
const stopMargin = 5 * time.Second

// close stops the polling goroutine and waits for it.
func (s *supervisor) close() {
	close(s.ended)
	s.joined.Wait()
}
