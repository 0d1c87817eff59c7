package gossip

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/steledb/stele/internal/wire"
)

// message is one of memberlist's: a byte that is its type and a MessagePack map, or a list: its header, a map for each node, and
// notes. Its decoder takes memory for what a value claims to be long, 4 GiB for an extension in a message of 20 bytes, so it gets
// what is whole alone.
type message struct {
	b    []byte        // what has come of it
	at   int           // where the next part begins
	in   *bufio.Reader // what follows; nil if b is all there is
	most int           // bytes
}

// take reads the message, up to its end. Errors: those of the stream, a *refusal.
func (m *message) take() error {
	m.most = smallMax
	if err := m.more(1); err != nil {
		return err
	}
	m.at = 1
	switch m.b[0] {
	case listType:
		m.most = streamBytesMax
		return m.list()
	case pingType, requestType, ackType, suspectType, aliveType, deadType, nackType, errorType:
		return m.value()
	}
	return nil // nothing of it is decoded
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
	return m.more(m.at + int(notes))
}

// value goes past the next value.
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
			return refuse("a message of type %d: %v", m.b[0], err)
		}
		if err := m.more(m.at + w.Need()); err != nil {
			return err
		}
	}
}

// more has n bytes come. Memory is taken as they do.
func (m *message) more(n int) error {
	if n > m.most {
		return m.tooLong(n)
	}
	for len(m.b) < n {
		if m.in == nil {
			return refuse("a message claims more than its %d bytes", len(m.b))
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
	if m.most == streamBytesMax {
		return errTooLong(int64(n))
	}
	return refuse("a message of type %d and %d bytes is over %d", m.b[0], n, m.most)
}

// listHeaderMax is the most that the header of a list takes: {Nodes, UserStateLen, Join}, which are no texts.
const listHeaderMax = 64

// listHeader reads the header of a list: how many nodes it has, and bytes of notes.
func listHeader(b []byte) (nodes, notes int64, err error) {
	d := wire.NewDecoder(b)
	seen := map[string]bool{}
	for range d.Map() {
		switch key := d.Str(); {
		case seen[key]:
			d.Fail(fmt.Errorf("a list says twice what its %q is", key))
		case key == "Nodes":
			nodes = d.Int()
			seen[key] = true
		case key == "UserStateLen":
			notes = d.Int()
			seen[key] = true
		case key == "Join":
			d.Bool()
		default:
			d.Fail(fmt.Errorf("a list with %q is not known", key))
		}
	}
	if d.Err() != nil {
		return 0, 0, refuse("header of a list: %v", d.Err())
	}
	// A node's state has 20 bytes at least.
	if nodes < 0 || notes < 0 || nodes > streamBytesMax/20 || notes > streamBytesMax {
		return 0, 0, refuse("a list of %d nodes and %d bytes of notes is over %d bytes", nodes, notes, streamBytesMax)
	}
	return nodes, notes, nil
}
