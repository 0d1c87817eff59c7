package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/steledb/stele/test/simulation/machine"
	"github.com/steledb/stele/test/simulation/simdisk"
	"github.com/steledb/stele/test/simulation/simnet"
)

// shared is what the clusters of a run have in common.
type shared struct {
	cfg       Config
	trace     *trace
	ambush    *ambush
	net       *simnet.Network
	clusters  []*World
	clients   []*simnet.Host
	processes int
	counts    map[string]int64
	r         *rand.Rand
	failed    string
	failedAt  time.Duration
	broken    chan struct{} // closed at the first violation
	stacks    []byte        // of the first violation, if goroutines matter
	done      chan struct{} // closed at the end of the run
}

func (s *shared) count(name string) { s.counts[name]++ }

// fail records the first violation.
func (s *shared) fail(format string, args ...any) { s.failAt(machine.Now(), format, args...) }

// failAt is fail for a violation that is found later than it happened.
func (s *shared) failAt(at time.Duration, format string, args ...any) {
	if s.failed == "" {
		s.failed, s.failedAt = fmt.Sprintf(format, args...), at
		close(s.broken)
		s.trace.addf("world", "VIOLATION %s", s.failed)
	}
}

// clientProcess is the process of all clients.
const clientProcess = 1

// inClients starts f in the process of the clients.
func (s *shared) inClients(f func()) { machine.Start(clientProcess, f) }

// clientsDo runs f in the process of the clients, and reports whether it returned nil in time.
func (s *shared) clientsDo(limit time.Duration, f func() error) bool {
	done := make(chan error, 1)
	s.inClients(func() { done <- f() })
	select {
	case err := <-done:
		if err != nil {
			s.trace.addf("world", "error: %v", err)
		}
		return err == nil
	case <-time.After(limit):
		return false
	}
}

// eventsOfCollection is the number of events after which memory is freed. It is a count of events, not of bytes: what else the program
// allocates, to print the events for example, must not change when finalizers run.
const eventsOfCollection = 40_000

// collect frees memory when much has happened since the last time.
func (s *shared) collect(done <-chan struct{}) {
	last := int64(0)
	for {
		select {
		case <-time.After(50 * time.Millisecond):
			if s.trace.events-last > eventsOfCollection {
				last = s.trace.events
				machine.Collect()
			}
		case <-done:
			return
		}
	}
}

func (s *shared) netEvent(e simnet.Event) {
	s.trace.numbers("net", func() string { return netLine(e) }, uint64(e.Kind), uint64(e.From)<<16|uint64(e.To), e.Conn, uint64(e.Bytes), e.Sum)
}

func netLine(e simnet.Event) string {
	return fmt.Sprintf("%v %d > %d, connection %d, %d bytes", e.Kind, e.From, e.To, e.Conn, e.Bytes)
}

func (s *shared) diskEvent(host string) func(simdisk.Event) {
	return func(e simdisk.Event) {
		failed := uint64(0)
		if e.Failed {
			failed = 1
		}
		s.trace.numbers(host, func() string { return diskLine(e) }, uint64(e.Kind), hashText(e.Name), hashText(e.To), uint64(e.Off), uint64(e.Len), e.Sum, failed)
		s.ambush.stored(host, e)
	}
}

func diskLine(e simdisk.Event) string {
	line := fmt.Sprintf("%v %s", e.Kind, e.Name)
	if e.To != "" {
		line += " to " + e.To
	}
	if e.Len > 0 {
		line += fmt.Sprintf(", %d bytes at %d", e.Len, e.Off)
	}
	if e.Failed {
		line += ", failed"
	}
	return line
}

// between returns a random time.
func (s *shared) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(s.r.Int64N(int64(high-low)))
}

// sleep waits for a random time.
func (s *shared) sleep(low, high time.Duration) { time.Sleep(s.between(low, high)) }

// hold waits for the time of a fault, which is mostly short and ends before the limit.
func (s *shared) hold(limit, low, high time.Duration) {
	if s.r.IntN(3) > 0 {
		high = low + (high-low)/8
	}
	time.Sleep(min(s.between(low, high), limit))
}

// hostOf returns the host with a name; nil if there is none.
func (s *shared) hostOf(name string) *host {
	return s.find(func(h *host) bool { return h.name == name })
}

// hostOfProcess returns the host that runs a process; nil if there is none.
func (s *shared) hostOfProcess(process int) *host {
	return s.find(func(h *host) bool { return h.process == process && h.state != down })
}

func (s *shared) find(is func(h *host) bool) *host {
	for _, w := range s.clusters {
		if i := slices.IndexFunc(w.hosts, is); i >= 0 {
			return w.hosts[i]
		}
	}
	return nil
}
