// Package wiretest is what tests of messages share. Nothing but tests imports it.
package wiretest

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/wire"
)

// Encode returns what f writes.
func Encode(f func(*wire.Encoder)) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	f(e)
	return bytes.Clone(e.Bytes())
}

// Unhex returns the bytes that s shows, with white space wherever it likes.
func Unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// RoundTrip has pass read a request and write what it read. It returns the error of that;
// what was accepted must be written in about as many bytes, be accepted again, and be
// written the same the second time.
func RoundTrip(t testing.TB, b []byte, pass func([]byte) ([]byte, error)) error {
	t.Helper()
	return roundTrip(t, b, 2*len(b)+64, pass)
}

func roundTrip(t testing.TB, b []byte, bytesMax int, pass func([]byte) ([]byte, error)) error {
	t.Helper()
	once, err := pass(b)
	if err != nil {
		return err
	}
	if len(once) > bytesMax {
		t.Fatalf("%d bytes became %d", len(b), len(once))
	}
	twice, err := pass(once)
	if err != nil {
		t.Fatalf("what was decoded from %x is written as %x: %v", b, once, err)
	}
	if !bytes.Equal(once, twice) {
		t.Fatalf("%x is written as %x, then as %x", b, once, twice)
	}
	return nil
}

// FuzzResult feeds bytes to a decoder of results, and makes the round trip of what it
// accepts. An empty element of a list may grow by the keys that are always written.
func FuzzResult[R any](f *testing.F, read func(*wire.Decoder, *R), write func(*wire.Encoder, *R)) {
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = roundTrip(t, b, math.MaxInt, func(b []byte) ([]byte, error) {
			var r R
			d := wire.NewDecoder(b)
			if read(&d, &r); d.Err() != nil {
				return nil, d.Err()
			}
			return Encode(func(e *wire.Encoder) { write(e, &r) }), nil
		})
	})
}
