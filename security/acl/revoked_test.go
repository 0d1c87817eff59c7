package acl

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// TestRevokedCertificates: revoked certificates are bounded, round-trip, and are dropped after they
// expire. A record without any keeps its old form.
func TestRevokedCertificates(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000).UTC()
	p := &Principal{Name: "ann", Generation: 7, Created: now, Until: now.Add(time.Hour)}
	before := len(p.Encode())
	if p.Encode()[0] != 0x96 {
		t.Errorf("a record without revoked certificates begins with %x", p.Encode()[0])
	}
	for _, bad := range []string{"", "0X", "AB", "ab c", fmt.Sprintf("%041x", 1)} {
		if err := p.Lose(bad, now); err == nil {
			t.Errorf("%q is accepted as a serial number", bad)
		}
	}
	for i := range LostMax {
		for range 2 {
			if err := p.Lose(fmt.Sprintf("%x", i), now); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.Lose("ffff", now); !errors.Is(err, ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	got, err := DecodePrincipal(p.Encode())
	if err != nil || !reflect.DeepEqual(got, p) || !got.Revoked("0") || !got.Revoked("c7") || got.Revoked("ffff") || got.Revoked("") {
		t.Errorf("read again: %+v, %v", got, err)
	}
	if n := len(p.Encode()); n < before || n > 32<<10 {
		t.Errorf("the record has %d bytes", n)
	}
	if err := p.Lose("ffff", now.Add(2*time.Hour)); err != nil || len(p.Lost) != 1 {
		t.Errorf("after the others expired there are %d, %v", len(p.Lost), err)
	}
	for what, lost := range map[string]func(e *wire.Encoder){
		"a long list":  func(e *wire.Encoder) { e.Array(LostMax + 1) },
		"bad serial":   func(e *wire.Encoder) { e.Array(1); e.Array(2); e.Str("X"); e.Uint(1) },
		"three values": func(e *wire.Encoder) { e.Array(1); e.Array(3); e.Str("a"); e.Uint(1); e.Uint(1) },
	} {
		e := wire.GetEncoder()
		e.Array(7)
		e.Uint(1)
		e.Str("ann")
		e.Bool(false)
		e.Uint(1)
		e.Uint(1)
		e.Uint(1)
		lost(e)
		if _, err := DecodePrincipal(e.Bytes()); err == nil {
			t.Errorf("%s: decoded", what)
		}
		e.Release()
	}
}
