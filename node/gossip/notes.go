package gossip

import (
	"fmt"
	"strings"

	"github.com/hashicorp/memberlist"
	"github.com/steledb/stele/internal/wire"
)

// noteKind is the subject of a note. Kinds travel on the wire: append only.
type noteKind uint8

const (
	// noteLeft: the run of the node ended in an orderly way.
	noteLeft noteKind = 1
	// noteForget: the node was removed; its runs up to that start are not listed.
	noteForget noteKind = 2
)

// note is information that memberlist does not distribute by itself.
type note struct {
	kind  noteKind
	id    string
	start uint64
	// reason of noteLeft is why the run ended by itself; empty: it was stopped.
	reason string
}

// notesVersion is the version of a note's encoding: [version, kind, id, start, reason?].
const notesVersion = 1

// reasonMax bounds the reason of a note, in bytes.
const reasonMax = 256

// reasonOf returns a text as the reason of a note: valid UTF-8 of at most reasonMax bytes. The middle of a longer text is left out, as an
// error begins with what failed and ends with the cause.
func reasonOf(s string) string {
	if len(s) > reasonMax {
		const gap, half = "…", (reasonMax - len("…")) / 2
		s = s[:half] + gap + s[len(s)-half:]
	}
	return strings.ToValidUTF8(s, "")
}

// notesMax bounds the notes that are stored and exchanged.
const notesMax = 1024

func (n note) append(e *wire.Encoder) {
	e.Array(4 + min(len(n.reason), 1))
	e.Uint(notesVersion)
	e.Uint(uint64(n.kind))
	e.Str(n.id)
	e.Uint(n.start)
	if n.reason != "" {
		e.Str(n.reason)
	}
}

func readNote(d *wire.Decoder) (n note) {
	fields, version := d.Array(), d.Uint()
	if d.Err() == nil && (fields < 4 || version < notesVersion) {
		d.Fail(fmt.Errorf("unknown note version %d with %d fields", version, fields))
	}
	n.kind, n.id, n.start = noteKind(min(d.Uint(), 255)), d.Str(), d.Uint()
	if fields > 4 { // nodes of older versions give no reason
		n.reason = reasonOf(d.Str())
	}
	for range fields - 5 {
		d.Skip()
	}
	return n
}

func decodeNote(b []byte) (note, error) {
	if _, err := wire.Check(b, wire.Limits{}); err != nil {
		return note{}, err
	}
	d := wire.NewDecoder(b)
	n := readNote(&d)
	return n, d.Err()
}

func encodeNotes(all []note) []byte {
	var e wire.Encoder
	e.Array(len(all))
	for _, n := range all {
		n.append(&e)
	}
	return e.Bytes()
}

func decodeNotes(b []byte) []note {
	if _, err := wire.Check(b, wire.Limits{}); err != nil {
		return nil
	}
	d := wire.NewDecoder(b)
	var all []note
	for range d.ArrayMax(notesMax) {
		if n := readNote(&d); d.Err() == nil {
			all = append(all, n)
		}
	}
	return all
}

// notes distributes notes along with memberlist's own messages.
type notes struct {
	queue memberlist.TransmitLimitedQueue
}

func (n *notes) init(nodes func() int) {
	n.queue.NumNodes, n.queue.RetransmitMult = nodes, timings(1).RetransmitMult
}

func (n *notes) enqueue(what note) {
	var e wire.Encoder
	what.append(&e)
	n.queue.QueueBroadcast(broadcast{what, e.Bytes()})
}

// broadcast is a queued note.
type broadcast struct {
	note
	message []byte
}

func (b broadcast) Invalidates(o memberlist.Broadcast) bool {
	other, ok := o.(broadcast)
	return ok && other.kind == b.kind && other.id == b.id
}

func (b broadcast) Message() []byte { return b.message }
func (b broadcast) Finished()       {}
