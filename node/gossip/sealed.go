package gossip

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
)

// opener decrypts what comes, to look at it before memberlist does, which trusts whoever has a key: it decompresses whatever that
// has sent, and panics at an encrypted message without bytes. Nil if there is none.
type opener struct {
	label   []byte
	ciphers atomic.Pointer[[]cipher.AEAD] // replaced as a whole
}

func newOpener(label string, keys [][]byte) (*opener, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	o := &opener{label: []byte(label)}
	return o, o.setKeys(keys)
}

// setKeys replaces the keys that messages are decrypted with.
func (o *opener) setKeys(keys [][]byte) error {
	var ciphers []cipher.AEAD
	for _, k := range keys {
		block, err := aes.NewCipher(k)
		if err != nil {
			return fmt.Errorf("gossip keys: %w", err)
		}
		c, err := cipher.NewGCM(block)
		if err != nil {
			return fmt.Errorf("gossip keys: %w", err)
		}
		ciphers = append(ciphers, c)
	}
	o.ciphers.Store(&ciphers)
	return nil
}

// sealedVersion is how memberlist encrypts: [version, nonce, message, tag], authenticated with what goes before it, and the label.
const sealedVersion = 1

// open returns what is encrypted in b, nil if that is not known here: memberlist refuses it, and says why.
func (o *opener) open(before, b []byte) ([]byte, error) {
	with := append(bytes.Clone(before), o.label...)
	ciphers := o.ciphers.Load()
	if ciphers == nil {
		return nil, nil
	}
	for _, c := range *ciphers {
		if len(b) < 1+c.NonceSize()+c.Overhead() {
			return nil, nil
		}
		plain, err := c.Open(nil, b[1:1+c.NonceSize()], b[1+c.NonceSize():], with)
		switch {
		case err != nil:
			continue
		case b[0] != sealedVersion: // memberlist would take off padding that may not be there
			return nil, refuse("encryption of version %d is not known", b[0])
		case len(plain) == 0:
			return nil, refuse("an encrypted message has no bytes")
		}
		return plain, nil
	}
	return nil, nil
}

// sealedHead is the type and length of an encrypted message.
const sealedHead = 1 + 4

// smallMax bounds messages that are no lists.
const smallMax = 4 << 10

// look takes all of an encrypted message from a stream, in memory for which there is room, and says what memory memberlist
// takes for what is in it.
func (o *opener) look(in *bufio.Reader) (whole []byte, memory int64, err error) {
	head, err := in.Peek(sealedHead)
	if err != nil {
		return nil, 0, err
	}
	whole = make([]byte, sealedHead+binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(in, whole); err != nil {
		return nil, 0, err
	}
	plain, err := o.open(whole[:sealedHead], whole[sealedHead:])
	if err != nil || plain == nil {
		return whole, 0, err
	}
	if plain[0] != listType && len(plain) > smallMax {
		return nil, 0, refuse("a message of type %d and %d bytes is over %d", plain[0], len(plain), smallMax)
	}
	if memory, err = announced(bufio.NewReaderSize(bytes.NewReader(plain), openingMax), false); err != nil {
		return nil, 0, err
	}
	return whole, memory, (&message{b: plain}).take()
}
