package gossip

import (
	"bufio"
	"errors"
	"net"
	"sync/atomic"
)

const (
	// readMax bounds one read, so that what is over a bound by then is little.
	readMax = 16 << 10
	// openingMax is what has to be seen of a stream before more is taken of it.
	openingMax = 512
)

// stream is a connection of memberlist's, bounded in what it takes.
type stream struct {
	net.Conn
	place  *place
	opener *opener
	ended  *atomic.Int64 // counts streams that were refused in their midst
	in     *bufio.Reader
	label  int    // bytes of the label that are to be handed on
	opened bool   // the label has been looked at
	begun  bool   // the message's beginning has been looked at
	held   []byte // the message, which has been looked at and not yet been handed on
	err    error
}

func newStream(conn net.Conn, p *place, o *opener, ended *atomic.Int64) *stream {
	s := &stream{Conn: conn, place: p, opener: o, ended: ended, opened: !p.inbound} // answers have no label
	s.in = bufio.NewReaderSize(counted{s}, openingMax)
	return s
}

// counted reads what a stream brings, and counts it.
type counted struct{ s *stream }

func (c counted) Read(p []byte) (int, error) {
	n, err := c.s.Conn.Read(p[:min(len(p), readMax)])
	if over := c.s.place.read(n); over != nil {
		return 0, c.s.end(over)
	}
	return n, err
}

// end keeps the error, which memberlist logs and tells its peer.
func (s *stream) end(err error) error {
	if s.err == nil {
		s.err = err
		if _, ok := errors.AsType[*refusal](err); ok {
			s.ended.Add(1)
		}
	}
	return s.err
}

// Read hands on the label first, and alone: what is wrong with what follows, memberlist then tells its peer, if the
// label is right. If it is not, nothing else is read.
func (s *stream) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if !s.opened {
		s.opened = true
		n, err := labelLength(s.in)
		if err != nil {
			return 0, err
		}
		s.label = n
	}
	if s.label > 0 {
		n, err := s.in.Read(p[:min(len(p), s.label)])
		s.label -= n
		return n, err
	}
	if !s.begun {
		s.begun = true
		if err := s.begin(); err != nil {
			return 0, s.end(err)
		}
	}
	if len(s.held) > 0 {
		n := copy(p, s.held)
		if s.held = s.held[n:]; len(s.held) == 0 {
			s.held = nil
		}
		return n, nil
	}
	return s.in.Read(p)
}

// begin looks at the message.
func (s *stream) begin() error {
	memory, err := announced(s.in, s.opener != nil)
	if err == nil {
		err = s.place.announced(memory)
	}
	if err != nil {
		return err
	}
	if s.opener == nil {
		m := message{in: s.in}
		err = m.take()
		s.held = m.b
		return err
	}
	if b, err := s.in.Peek(1); err != nil || b[0] != cryptType {
		return err // memberlist refuses it
	}
	if s.held, memory, err = s.opener.look(s.in); err != nil {
		return err
	}
	return s.place.announced(memory)
}

func (s *stream) Write(p []byte) (int, error) {
	if s.place.inbound {
		if err := s.place.wrote(len(p)); err != nil {
			return 0, s.end(err)
		}
	}
	return s.Conn.Write(p)
}

func (s *stream) Close() error {
	s.place.leave()
	return s.Conn.Close()
}
