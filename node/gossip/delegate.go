package gossip

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/memberlist"
)

// delegate is what memberlist calls, in part with its lock held. So it never calls
// memberlist, and takes locks only that are held for moments.
type delegate struct{ r *Ring }

// instanceName names one run of a node in memberlist: a node that was started anew
// is another one there, which neither its old address nor what was said of its last
// run holds up.
func instanceName(id string, start uint64) string {
	return id + "#" + strconv.FormatUint(start, 36)
}

// NotifyAlive refuses those whose meta cannot be read.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	m, err := decodeMeta(n.Meta)
	if err == nil && instanceName(m.ID, m.Start) != n.Name {
		err = fmt.Errorf("it is of node %s", m.ID)
	}
	if err != nil {
		return fmt.Errorf("what it tells of itself: %w", err)
	}
	return nil
}

func (d delegate) NotifyJoin(n *memberlist.Node)   { d.r.table.alive(n) }
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.r.table.alive(n) }
func (d delegate) NotifyLeave(n *memberlist.Node)  { d.r.table.dead(n.Name) }

func (d delegate) NodeMeta(int) []byte {
	d.r.meta.Lock()
	defer d.r.meta.Unlock()
	return d.r.meta.encoded
}

func (d delegate) NotifyMsg(b []byte) {
	n, err := decodeNote(b)
	if err == nil && d.r.table.apply(n) {
		d.r.notes.spread(n)
	}
}

func (d delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.r.notes.queue.GetBroadcasts(overhead, limit)
}

func (d delegate) LocalState(bool) []byte { return encodeNotes(d.r.table.kept()) }

func (d delegate) MergeRemoteState(b []byte, _ bool) {
	for _, n := range decodeNotes(b) {
		if d.r.table.apply(n) {
			d.r.notes.spread(n)
		}
	}
}

// joinError says what a failed exchange most likely means.
func joinError(addr string, err error) error {
	text := err.Error()
	if i := strings.LastIndex(text, "EOF"); i >= 0 || strings.Contains(text, "reset by peer") || strings.Contains(text, "crypt") {
		return fmt.Errorf("gossip at %s ends the connection: it is of another cluster, has another gossip key, or has too many connections (%w)", addr, err)
	}
	return err
}
