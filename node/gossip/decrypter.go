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

// decrypter decrypts messages so that they can be checked before memberlist gets them. Memberlist
// trusts every holder of a key: it decompresses whatever arrives, and panics at an empty encrypted
// message. Nil without keys.
type decrypter struct {
	label   []byte
	ciphers atomic.Pointer[[]cipher.AEAD] // replaced as a whole by setKeys
}

func newDecrypter(label string, keys [][]byte) (*decrypter, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	o := &decrypter{label: []byte(label)}
	return o, o.setKeys(keys)
}

// setKeys replaces the decryption keys.
func (o *decrypter) setKeys(keys [][]byte) error {
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

// encryptionVersion is memberlist's format [version, nonce, message, tag], authenticated with the
// preceding bytes and the label.
const encryptionVersion = 1

// open returns the decrypted message, nil if no key fits: then memberlist rejects the message and
// logs why.
func (o *decrypter) open(before, b []byte) ([]byte, error) {
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
		case b[0] != encryptionVersion: // memberlist would strip padding that may not be there
			return nil, reject("unknown encryption version %d", b[0])
		case len(plain) == 0:
			return nil, reject("empty encrypted message")
		}
		return plain, nil
	}
	return nil, nil
}

// encryptedHeader is the type and length of an encrypted message.
const encryptedHeader = 1 + 4

// smallMax bounds messages that are not lists, in bytes.
const smallMax = 4 << 10

// inspect reads a whole encrypted message, for which memory is already counted. It returns the
// message and the memory that memberlist will allocate for its content.
func (o *decrypter) inspect(in *bufio.Reader) (whole []byte, memory int64, err error) {
	head, err := in.Peek(encryptedHeader)
	if err != nil {
		return nil, 0, err
	}
	whole = make([]byte, encryptedHeader+binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(in, whole); err != nil {
		return nil, 0, err
	}
	plain, err := o.open(whole[:encryptedHeader], whole[encryptedHeader:])
	if err != nil || plain == nil {
		return whole, 0, err
	}
	if plain[0] != listType && len(plain) > smallMax {
		return nil, 0, reject("message of type %d has %d bytes, over %d", plain[0], len(plain), smallMax)
	}
	if memory, err = announced(bufio.NewReaderSize(bytes.NewReader(plain), headerMax), false); err != nil {
		return nil, 0, err
	}
	return whole, memory, (&message{b: plain}).read()
}
