package audit

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Sink is a second destination of records outside the log's directory, out of reach of rotation and
// of the node's own administrators.
type Sink interface {
	// Send writes complete lines. It may block for a short time.
	Send(lines []byte) error
	Close() error
}

// shipBytesMax bounds the bytes queued for a sink. Excess records are dropped and counted.
const shipBytesMax = 4 << 20

// shipper sends records to a sink in its own goroutine, so that a slow sink delays no action. A nil
// shipper does nothing.
type shipper struct {
	sink Sink
	log  *slog.Logger
	more chan struct{}

	// mu guards the fields in it and is never held across I/O.
	mu struct {
		sync.Mutex
		waiting []byte
		dropped int
	}
}

func newShipper(to Sink, log *slog.Logger) *shipper {
	return &shipper{sink: to, log: log, more: make(chan struct{}, 1)}
}

// add queues lines.
func (s *shipper) add(lines []byte) {
	if s == nil || len(lines) == 0 {
		return
	}
	s.mu.Lock()
	if len(s.mu.waiting)+len(lines) > shipBytesMax {
		s.mu.dropped += bytes.Count(lines, []byte("\n"))
	} else {
		s.mu.waiting = append(s.mu.waiting, lines...)
	}
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *shipper) run(ctx context.Context) {
	for {
		select {
		case <-s.more:
			s.send()
		case <-ctx.Done():
			return // close sends what is left
		}
	}
}

// send sends the queued lines. Lines that the sink rejects remain only in the log's own files.
func (s *shipper) send() {
	s.mu.Lock()
	lines, dropped := s.mu.waiting, s.mu.dropped
	s.mu.waiting, s.mu.dropped = nil, 0
	s.mu.Unlock()
	if dropped > 0 {
		s.log.Error("audit sink too slow: records dropped", "records", dropped)
	}
	if len(lines) == 0 {
		return
	}
	if err := s.sink.Send(lines); err != nil {
		s.log.Error("audit sink failed", "records", bytes.Count(lines, []byte("\n")), "err", err)
	}
}

func (s *shipper) close() error {
	if s == nil {
		return nil
	}
	s.send()
	return s.sink.Close()
}

// Journal is the name of the systemd journal for OpenSink.
const Journal = "journal"

// journalSocket is the datagram socket of the systemd journal.
const journalSocket = "/run/systemd/journal/socket"

// OpenSink opens the named sink: Journal, or the absolute path of a file to append to. If the file
// is renamed for rotation, a new one is created.
func OpenSink(name string) (Sink, error) {
	switch {
	case name == Journal:
		return openJournal(journalSocket)
	case filepath.IsAbs(name):
		s := &fileSink{path: name}
		return s, s.open()
	}
	return nil, fmt.Errorf("%q is neither %s nor the absolute path of a file", name, Journal)
}

// journalSink sends each line as a journal message with the identifier stele-audit.
type journalSink struct{ conn *net.UnixConn }

func openJournal(socket string) (*journalSink, error) {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("open systemd's journal: %w", err)
	}
	return &journalSink{conn}, nil
}

// journalTimeout bounds one message, so that a stuck journal cannot keep a node from stopping.
const journalTimeout = time.Second

// Send implements Sink. In the journal's protocol a value without line feeds needs no length
// prefix.
func (s *journalSink) Send(lines []byte) error {
	for line := range bytes.Lines(lines) {
		_ = s.conn.SetWriteDeadline(time.Now().Add(journalTimeout))
		if _, err := s.conn.Write(append([]byte("SYSLOG_IDENTIFIER=stele-audit\nPRIORITY=6\nMESSAGE="), line...)); err != nil {
			return err
		}
	}
	return nil
}

func (s *journalSink) Close() error { return s.conn.Close() }

// fileSink appends to a file that it never truncates or renames.
type fileSink struct {
	path string
	f    *os.File
}

func (s *fileSink) open() (err error) {
	s.f, err = os.OpenFile(s.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return err
}

// Send implements Sink.
func (s *fileSink) Send(lines []byte) error {
	if err := s.follow(); err != nil {
		return err
	}
	if _, err := s.f.Write(lines); err != nil {
		return err
	}
	return s.f.Sync()
}

// follow reopens the file if the path is missing or refers to another file.
func (s *fileSink) follow() error {
	var there, open fs.FileInfo
	var err error
	if s.f != nil {
		if there, err = os.Stat(s.path); err == nil {
			if open, err = s.f.Stat(); err == nil && os.SameFile(there, open) {
				return nil
			}
		}
		_ = s.f.Close()
		s.f = nil
	}
	return s.open()
}

func (s *fileSink) Close() error {
	if s.f == nil {
		return nil
	}
	return s.f.Close()
}
