package gossip

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/memberlist"
)

// delegate receives memberlist's callbacks, some with its lock held. It never calls memberlist, and
// takes only locks that are held for moments.
type delegate struct{ r *Ring }

// instanceName returns the memberlist name of one run of a node. A restarted node has another name,
// so neither its old address nor its last run's state delays it.
func instanceName(id string, start uint64) string {
	return id + "#" + strconv.FormatUint(start, 36)
}

// NotifyAlive rejects nodes whose meta is invalid.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	m, err := decodeMeta(n.Meta)
	if err == nil && instanceName(m.ID, m.Start) != n.Name {
		err = fmt.Errorf("belongs to node %s", m.ID)
	}
	if err != nil {
		return fmt.Errorf("node meta: %w", err)
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
		d.r.notes.enqueue(n)
	}
}

func (d delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.r.notes.queue.GetBroadcasts(overhead, limit)
}

func (d delegate) LocalState(bool) []byte { return encodeNotes(d.r.table.removals()) }

func (d delegate) MergeRemoteState(b []byte, _ bool) {
	for _, n := range decodeNotes(b) {
		if d.r.table.apply(n) {
			d.r.notes.enqueue(n)
		}
	}
}

// joinError adds the likely causes to the error of a failed exchange.
func joinError(addr string, err error) error {
	text := err.Error()
	if i := strings.LastIndex(text, "EOF"); i >= 0 || strings.Contains(text, "reset by peer") || strings.Contains(text, "crypt") {
		return fmt.Errorf("gossip at %s closed the connection: it is in another cluster, has another gossip key, or has too many connections: %w", addr, err)
	}
	return err
}
