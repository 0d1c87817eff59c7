package gossip

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
)

// TestKeyHolders (I11, G5): a holder of the key is trusted no more than others. Messages that
// memberlist would decompress, or panics at, are rejected, in streams and in packets. Messages
// encrypted with another key are left to memberlist.
func TestKeyHolders(t *testing.T) {
	keys := [][]byte{bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)}
	o, err := newDecrypter("c1", keys)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := newDecrypter("c1", [][]byte{bytes.Repeat([]byte{3}, 32)})
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := newDecrypter("c2", keys)
	if err != nil {
		t.Fatal(err)
	}
	list := func(nodes uint64, states int) []byte {
		return append([]byte{listType}, wiretest.Encode(func(e *wire.Encoder) {
			e.Map(2)
			e.Str("Nodes")
			e.Uint(nodes)
			e.Str("UserStateLen")
			e.Uint(2)
			for range states {
				e.Map(0)
			}
			e.Bool(true) // the notes
			e.Bool(true)
		})...)
	}
	// A decoder allocates as much for a value that it does not know.
	huge := func(kind byte) []byte { return []byte{kind, 0x81, 0xa1, 'x', 0xc9, 0x7f, 0xff, 0xff, 0xff, 1} }
	for what, c := range map[string]struct {
		by             *decrypter
		key            int
		version        byte
		message        []byte
		stream, packet bool // taken
		memory         int64
	}{
		"a ping":                      {o, 0, 1, []byte{pingType, 0x80}, true, true, 0},
		"by the other key":            {o, 1, 1, []byte{pingType, 0x80}, true, true, 0},
		"a list":                      {o, 1, 1, list(10, 10), true, true, 10*memoryPerState + 2},
		"a list of too many":          {o, 0, 1, list(1<<30, 0), false, true, 0}, // a packet is no list: memberlist rejects it
		"a list that is cut":          {o, 0, 1, list(10, 9)[:len(list(10, 9))-1], false, true, 0},
		"a list with a huge value":    {o, 0, 1, append(list(1, 0)[:len(list(1, 0))-2], huge(0x80)[1:]...), false, true, 0},
		"a ping with a huge value":    {o, 0, 1, huge(pingType), false, false, 0},
		"a death with a huge value":   {o, 0, 1, huge(deadType), false, false, 0}, // no stream brings it
		"many, one with a huge value": {o, 0, 1, append([]byte{manyType, 2, 0, 2, 0, 10, pingType, 0x80}, huge(aliveType)...), false, false, 0},
		"nothing":                     {o, 0, 1, nil, false, false, 0},
		"compressed":                  {o, 0, 1, []byte{compressType, 0x80}, false, false, 0},
		"many, of which one is":       {o, 0, 1, []byte{manyType, 1, 0, 2, compressType, 0x80}, false, false, 0},
		"a ping that is long":         {o, 0, 1, []byte(strings.Repeat("\x00", smallMax+1)), false, false, 0},
		"padded, perhaps":             {o, 0, 0, []byte{pingType, 0x80}, false, false, 0},
		"of a version to come":        {o, 0, 2, []byte{pingType, 0x80}, false, false, 0},
		"by a key that is not ours":   {stranger, 0, 1, nil, true, true, 0},
		"for a cluster that is not":   {elsewhere, 0, 1, nil, true, true, 0},
		"by a key, of another kind":   {stranger, 0, 9, []byte{compressType}, true, true, 0},
		"many packets within packets": {o, 0, 1, []byte{manyType, 1, 0, 2, manyType, 0}, false, false, 0},
	} {
		seal := func(head []byte) []byte {
			nonce := bytes.Repeat([]byte{7}, 12)
			return (*c.by.ciphers.Load())[c.key].Seal(append([]byte{c.version}, nonce...), nonce, c.message, append(bytes.Clone(head), c.by.label...))
		}
		head := binary.BigEndian.AppendUint32([]byte{cryptType}, uint32(len(seal(nil))))
		sent := append(head, seal(head)...)
		held, memory, err := o.inspect(bufio.NewReaderSize(bytes.NewReader(sent), headerMax))
		if (err == nil) != c.stream || err == nil && (!bytes.Equal(held, sent) || memory != c.memory) {
			t.Errorf("%s, by a stream: %d bytes more, %v", what, memory, err)
		}
		if len(c.message) > packetBytesMax {
			continue
		}
		g := packetGate{decrypter: o}
		packet := append([]byte{labelType, 2, 'c', '1'}, seal(nil)...)
		if err := g.check(packet, time.Now()); (err == nil) != c.packet {
			t.Errorf("%s, by a packet: %v", what, err)
		}
	}
	for _, cut := range [][]byte{nil, {cryptType, 0, 0}, {cryptType, 0, 0, 1, 0, 9}} {
		if _, _, err := o.inspect(bufio.NewReaderSize(bytes.NewReader(cut), headerMax)); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%x: %v", cut, err)
		}
	}
	if o, err := newDecrypter("c1", nil); o != nil || err != nil {
		t.Errorf("without a key: %v, %v", o, err)
	}
}
