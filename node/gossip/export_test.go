package gossip

import "time"

// Bounds of streams, as in budget.go.
const (
	UnknownStreamsMax = unknownStreamsMax
	HostStreamsMax    = hostStreamsMax
	StreamBytesMax    = streamBytesMax
	NotesMax          = notesMax
	RequestsMax       = requestsMax
)

// Slower multiplies all times.
func (c *Config) Slower(times int) { c.slower = times }

// Streams returns the number of open inbound streams. It returns -1 if none is open and the budget
// is still in use.
func (r *Ring) Streams() int {
	budget := r.transport.budget
	budget.mu.Lock()
	defer budget.mu.Unlock()
	if n := budget.mu.all.streams; n > 0 {
		return n
	}
	if budget.mu.unknown != (usage{}) || len(budget.mu.hosts) > 0 {
		return -1
	}
	return 0
}

// CheckPacket returns why a packet is rejected, nil if it is accepted.
func CheckPacket(b []byte, keyed bool) error {
	g := packetGate{}
	if keyed {
		g.decrypter = &decrypter{}
	}
	return g.check(b, time.Now())
}
