package gossip

import "time"

// Bounds of streams, as in room.go.
const (
	StrangersMax   = strangersMax
	OneHostMax     = oneHostMax
	StreamBytesMax = streamBytesMax
	NotesMax       = notesMax
	RequestsMax    = requestsMax
)

// Slower makes all of gossip that many times slower.
func (c *Config) Slower(times int) { c.slower = times }

// Streams is how many streams that came in are open. When none is left, nothing of the room may be taken.
func (r *Ring) Streams() int {
	room := r.transport.room
	room.mu.Lock()
	defer room.mu.Unlock()
	if n := room.mu.all.streams; n > 0 {
		return n
	}
	if room.mu.strangers != (use{}) || len(room.mu.hosts) > 0 {
		return -1
	}
	return 0
}

// CheckPacket tells why a packet is not taken, if so.
func CheckPacket(b []byte, keyed bool) error {
	g := packetGate{}
	if keyed {
		g.opener = &opener{}
	}
	return g.check(b, time.Now())
}
