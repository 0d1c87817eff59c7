package gossip

import (
	"encoding/binary"
	"time"
)

const (
	// packetBytesMax bounds a packet. Memberlist sends up to 1400 bytes of messages, and 5 for a checksum.
	packetBytesMax = 2 << 10
	// requestsMax bounds requests to ask others in a second: memberlist has a goroutine for each, for 125 ms. Of
	// 1000 nodes, a tenth of which die at once, one gets 2 in a second.
	requestsMax = 1000
)

// packetGate says which packets are taken.
type packetGate struct {
	opener   *opener
	since    time.Time // of the second that requests are counted in
	requests int
}

// check tells why a packet is not to be taken, if so: memberlist would do what anybody asks, who has the key if there is one.
func (g *packetGate) check(b []byte, now time.Time) error {
	if len(b) > packetBytesMax {
		return refuse("%d bytes are over %d", len(b), packetBytesMax)
	}
	if len(b) > 2 && b[0] == labelType {
		b = b[min(len(b), 2+int(b[1])):]
	}
	if g.opener != nil {
		plain, err := g.opener.open(nil, b)
		if err != nil || plain == nil {
			return err
		}
		b = plain
	}
	if now.Sub(g.since) >= time.Second {
		g.since, g.requests = now, 0
	}
	if len(b) >= 5 && b[0] == crcType {
		b = b[5:]
	}
	if len(b) < 2 || b[0] != manyType {
		return g.message(b)
	}
	// [type, count, length of each: 2 bytes, messages]
	n := int(b[1])
	lengths, messages := b[2:], b[min(len(b), 2+2*n):]
	for ; n > 0 && len(lengths) >= 2; n, lengths = n-1, lengths[2:] {
		length := int(binary.BigEndian.Uint16(lengths))
		if length > len(messages) {
			break // memberlist takes what is before
		}
		if length > 0 && messages[0] == manyType {
			return refuse("packets within packets are not known")
		}
		if err := g.message(messages[:length]); err != nil {
			return err
		}
		messages = messages[length:]
	}
	return nil
}

func (g *packetGate) message(b []byte) error {
	switch {
	case len(b) == 0:
		return nil
	case b[0] == compressType:
		return refuse("nothing is compressed here")
	case b[0] == requestType:
		if g.requests++; g.requests > requestsMax {
			return refuse("more than %d requests to ask others came in a second", requestsMax)
		}
	case b[0] == listType:
		return nil // in a packet it is none
	}
	m := message{b: b}
	return m.take()
}
