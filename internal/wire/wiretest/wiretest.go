// Package wiretest holds helpers for tests of messages. Only tests import it.
package wiretest

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/steledb/stele/internal/wire"
)

// Encode returns the bytes that f writes.
func Encode(f func(*wire.Encoder)) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	f(e)
	return bytes.Clone(e.Bytes())
}

// Any appends v, a value of any type that the msgpack package encodes, for messages that no encoder
// of this repository writes. It panics if v cannot be encoded.
func Any(e *wire.Encoder, v any) {
	var b bytes.Buffer
	theirs := msgpack.NewEncoder(&b)
	theirs.UseCompactInts(true)
	theirs.SetSortMapKeys(true)
	if err := theirs.Encode(v); err != nil {
		panic(err)
	}
	e.Raw(b.Bytes())
}

// Unhex decodes hex digits, which may contain white space anywhere.
func Unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// RoundTrip decodes a request and encodes it again with pass, twice. It returns the error of the
// first pass. The encoding of an accepted request must not be much larger than b, must itself be
// accepted, and must not change in the second pass.
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

// FuzzResult fuzzes a decoder of results and round-trips what it accepts. The encoding may be
// larger than the input, because keys that are always written may be missing in it.
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
