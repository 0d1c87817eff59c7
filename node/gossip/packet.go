package gossip

import (
	"encoding/binary"
	"time"
)

const (
	// packetBytesMax bounds a packet, in bytes. Memberlist sends up to 1400 bytes of messages, and
	// 5 for a checksum.
	packetBytesMax = 2 << 10
	// requestsMax bounds indirect probe requests a second: memberlist runs a goroutine for each,
	// for 125 ms. Of 1000 nodes, a tenth of which die at once, one gets 2 in a second.
	requestsMax = 1000
)

// packetGate decides which packets are accepted.
type packetGate struct {
	decrypter *decrypter
	since     time.Time // start of the second in which requests are counted
	requests  int
}

// check returns why a packet is rejected, nil if it is accepted. Memberlist would execute any
// request, of a holder of the key if there is one.
func (g *packetGate) check(b []byte, now time.Time) error {
	if len(b) > packetBytesMax {
		return reject("packet has %d bytes, over %d", len(b), packetBytesMax)
	}
	if len(b) > 2 && b[0] == labelType {
		b = b[min(len(b), 2+int(b[1])):]
	}
	if g.decrypter != nil {
		plain, err := g.decrypter.open(nil, b)
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
			break // memberlist processes the messages before it
		}
		if length > 0 && messages[0] == manyType {
			return reject("nested packets are not supported")
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
		return reject("compressed messages are not supported")
	case b[0] == requestType:
		if g.requests++; g.requests > requestsMax {
			return reject("more than %d indirect probe requests in a second", requestsMax)
		}
	case b[0] == listType:
		return nil // memberlist rejects it in a packet
	}
	m := message{b: b}
	return m.read()
}
