package gossip

import (
	"bufio"
	"errors"
	"net"
	"sync/atomic"
)

const (
	// readMax bounds one read, so that a bound is exceeded by little before it is noticed.
	readMax = 16 << 10
	// headerMax bounds the part of a stream that is buffered before its announced memory is
	// counted.
	headerMax = 512
)

// stream is a connection for memberlist with bounded memory.
type stream struct {
	net.Conn
	slot      *slot
	decrypter *decrypter
	ended     *atomic.Int64 // counts streams that were rejected after they began
	in        *bufio.Reader
	label     int    // bytes of the label not yet passed on
	labelSeen bool   // the label was parsed
	inspected bool   // the message was checked
	checked   []byte // the checked part of the message, not yet passed on
	err       error
}

func newStream(conn net.Conn, p *slot, o *decrypter, ended *atomic.Int64) *stream {
	s := &stream{Conn: conn, slot: p, decrypter: o, ended: ended, labelSeen: !p.inbound} // answers carry no label
	s.in = bufio.NewReaderSize(counted{s}, headerMax)
	return s
}

// counted reads from the connection and counts the bytes.
type counted struct{ s *stream }

func (c counted) Read(p []byte) (int, error) {
	n, err := c.s.Conn.Read(p[:min(len(p), readMax)])
	if over := c.s.slot.read(n); over != nil {
		return 0, c.s.end(over)
	}
	return n, err
}

// end stores the error, which memberlist logs and sends to its peer.
func (s *stream) end(err error) error {
	if s.err == nil {
		s.err = err
		if _, ok := errors.AsType[*rejection](err); ok {
			s.ended.Add(1)
		}
	}
	return s.err
}

// Read passes on the label first, and alone. If the label is right, memberlist reports an error in
// the following message to its peer. If it is wrong, nothing else is read.
func (s *stream) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if !s.labelSeen {
		s.labelSeen = true
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
	if !s.inspected {
		s.inspected = true
		if err := s.inspect(); err != nil {
			return 0, s.end(err)
		}
	}
	if len(s.checked) > 0 {
		n := copy(p, s.checked)
		if s.checked = s.checked[n:]; len(s.checked) == 0 {
			s.checked = nil
		}
		return n, nil
	}
	return s.in.Read(p)
}

// inspect checks the message before memberlist gets any of it.
func (s *stream) inspect() error {
	memory, err := announced(s.in, s.decrypter != nil)
	if err == nil {
		err = s.slot.announced(memory)
	}
	if err != nil {
		return err
	}
	if s.decrypter == nil {
		m := message{in: s.in}
		err = m.read()
		s.checked = m.b
		return err
	}
	if b, err := s.in.Peek(1); err != nil || b[0] != cryptType {
		return err // memberlist rejects it
	}
	if s.checked, memory, err = s.decrypter.inspect(s.in); err != nil {
		return err
	}
	return s.slot.announced(memory)
}

func (s *stream) Write(p []byte) (int, error) {
	if s.slot.inbound {
		if err := s.slot.wrote(len(p)); err != nil {
			return 0, s.end(err)
		}
	}
	return s.Conn.Write(p)
}

func (s *stream) Close() error {
	s.slot.release()
	return s.Conn.Close()
}
