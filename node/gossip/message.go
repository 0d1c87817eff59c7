package gossip

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/steledb/stele/internal/wire"
)

// message is one of memberlist's messages: a type byte and a MessagePack map, or a list, which is a
// header, a map for each node, and notes. Memberlist's decoder allocates as much as a value claims,
// 4 GiB for an extension in a message of 20 bytes. So it only gets messages that are complete.
type message struct {
	b     []byte        // the bytes received so far
	at    int           // offset of the next part
	in    *bufio.Reader // the remaining bytes; nil if b is everything
	limit int           // bound on the length, in bytes
}

// read reads the message up to its end. Errors: those of the stream, a *rejection.
func (m *message) read() error {
	m.limit = smallMax
	if err := m.need(1); err != nil {
		return err
	}
	m.at = 1
	switch m.b[0] {
	case listType:
		m.limit = streamBytesMax
		return m.list()
	case pingType, requestType, ackType, suspectType, aliveType, deadType, nackType, errorType:
		return m.value()
	}
	return nil // memberlist decodes none of it
}

func (m *message) list() error {
	if err := m.value(); err != nil {
		return err
	}
	nodes, notes, err := listHeader(m.b[1:m.at])
	if err != nil {
		return err
	}
	for range nodes {
		if err := m.value(); err != nil {
			return err
		}
	}
	return m.need(m.at + int(notes))
}

// value skips the next value.
func (m *message) value() error {
	var w wire.Walker
	w.Reset(wire.Limits{Bytes: streamBytesMax})
	for {
		n, err := w.Walk(m.b[m.at:])
		switch {
		case err == nil:
			m.at += n
			return nil
		case !errors.Is(err, wire.ErrIncomplete):
			return reject("decode message of type %d: %v", m.b[0], err)
		}
		if err := m.need(m.at + w.Need()); err != nil {
			return err
		}
	}
}

// need reads until n bytes are there. It allocates as they arrive.
func (m *message) need(n int) error {
	if n > m.limit {
		return m.tooLong(n)
	}
	for len(m.b) < n {
		if m.in == nil {
			return reject("message claims more than its %d bytes", len(m.b))
		}
		from := len(m.b)
		m.b = slices.Grow(m.b, min(n-from, readMax))[:from+min(n-from, readMax)]
		got, err := io.ReadFull(m.in, m.b[from:])
		if m.b = m.b[:from+got]; err != nil {
			return err
		}
	}
	return nil
}

func (m *message) tooLong(n int) error {
	if m.limit == streamBytesMax {
		return errTooLong(int64(n))
	}
	return reject("message of type %d has %d bytes, over %d", m.b[0], n, m.limit)
}

// listHeaderMax bounds the header of a list: {Nodes, UserStateLen, Join}, which holds no strings.
const listHeaderMax = 64

// listHeader returns the number of nodes and the bytes of notes that a list's header announces.
func listHeader(b []byte) (nodes, notes int64, err error) {
	d := wire.NewDecoder(b)
	seen := map[string]bool{}
	for range d.Map() {
		switch key := d.Str(); {
		case seen[key]:
			d.Fail(fmt.Errorf("repeated key %q", key))
		case key == "Nodes":
			nodes = d.Int()
			seen[key] = true
		case key == "UserStateLen":
			notes = d.Int()
			seen[key] = true
		case key == "Join":
			d.Bool()
		default:
			d.Fail(fmt.Errorf("unknown key %q", key))
		}
	}
	if d.Err() != nil {
		return 0, 0, reject("decode list header: %v", d.Err())
	}
	// A node's state has at least 20 bytes.
	if nodes < 0 || notes < 0 || nodes > streamBytesMax/20 || notes > streamBytesMax {
		return 0, 0, reject("list of %d nodes and %d bytes of notes is over %d bytes", nodes, notes, streamBytesMax)
	}
	return nodes, notes, nil
}
