package simnet

import "time"

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds of events.
const (
	PacketSent EventKind = iota + 1
	PacketDelivered
	PacketDropped
	PacketDuplicated
	Connecting    // a dial began
	Connected     // a dial succeeded
	Refused       // a dial was answered with a reset
	StreamSent    // bytes entered the send buffer
	StreamArrived // bytes can be read
	StreamEnded   // the end of a stream arrived
	StreamStalled // a segment did not arrive or was not acknowledged
	Reset         // a reset arrived
	TimedOut      // a connection or a dial failed by timeout
	LinkCut
	LinkHealed
	HostKilled // Bytes is 1 for a loss of power
	HostUp
)

var eventNames = [...]string{
	"", "packet-sent", "packet-delivered", "packet-dropped", "packet-duplicated", "connecting", "connected", "refused", "stream-sent",
	"stream-arrived", "stream-ended", "stream-stalled", "reset", "timed-out", "link-cut", "link-healed", "host-killed", "host-up",
}

// String returns the name of the kind.
func (k EventKind) String() string { return eventNames[k] }

// Event is something that happened in the network.
type Event struct {
	At       time.Duration // by Config.Now
	Sum      uint64        // xxHash of the payload of PacketSent and StreamSent
	Conn     uint64        // number of the connection; zero for packets
	Bytes    int32
	From, To uint16 // numbers of hosts: see Host.Number
	Kind     EventKind
}

// noHost is the number of an address that belongs to no host.
const noHost = ^uint16(0)

func (n *Network) emitLocked(kind EventKind, from, to *Host, conn uint64, bytes int, sum uint64) {
	if n.cfg.Events == nil {
		return
	}
	n.cfg.Events(Event{At: n.cfg.Now(), Sum: sum, Conn: conn, Bytes: int32(bytes), From: from.Number(), To: to.Number(), Kind: kind})
}
