package token

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/security/pki"
)

// record returns the encoded record with these elements.
func record(values ...any) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(len(values))
	for _, v := range values {
		switch v := v.(type) {
		case int:
			e.Uint(uint64(v))
		case string:
			e.Str(v)
		case []byte:
			e.Bin(v)
		case [][]any:
			e.Array(len(v))
			for _, use := range v {
				e.Array(len(use))
				for _, u := range use {
					switch u := u.(type) {
					case string:
						e.Str(u)
					case []byte:
						e.Bin(u)
					}
				}
			}
		}
	}
	return bytes.Clone(e.Bytes())
}

// TestRecordBounds: records at the limits decode. A record with one element beyond a limit is
// rejected even if all others are valid.
func TestRecordBounds(t *testing.T) {
	id, hash := make([]byte, len(ID{})), make([]byte, sha256.Size)
	spent := func(n int) (all [][]any) {
		for range n {
			all = append(all, []any{"n1", hash})
		}
		return all
	}
	join := func(change func(v []any)) []byte {
		v := []any{recordVersion, id, hash, 1, millisMax, UsesMax, "n1", spent(1)}
		change(v)
		return record(v...)
	}
	for what, test := range map[string]struct {
		valid  bool
		change func(v []any)
	}{
		"most of all":           {true, func(v []any) { v[7] = spent(UsesMax) }},
		"for new nodes":         {true, func(v []any) { v[6] = "" }},
		"no uses left":          {true, func(v []any) { v[5] = 0 }},
		"a newer version":       {false, func(v []any) { v[0] = recordVersion + 1 }},
		"a short id":            {false, func(v []any) { v[1] = id[1:] }},
		"a long id":             {false, func(v []any) { v[1] = append(bytes.Clone(id), 0) }},
		"a short hash":          {false, func(v []any) { v[2] = hash[1:] }},
		"created in 10000":      {false, func(v []any) { v[3] = millisMax + 1 }},
		"it ends in 10000":      {false, func(v []any) { v[4] = millisMax + 1 }},
		"it has no end":         {false, func(v []any) { v[4] = 0 }},
		"too many uses":         {false, func(v []any) { v[5] = UsesMax + 1 }},
		"a bad node":            {false, func(v []any) { v[6] = "a/b" }},
		"used too often":        {false, func(v []any) { v[7] = spent(UsesMax + 1) }},
		"a use without a key":   {false, func(v []any) { v[7] = [][]any{{"n1"}} }},
		"a use with two keys":   {false, func(v []any) { v[7] = [][]any{{"n1", hash, hash}} }},
		"a use without a node":  {false, func(v []any) { v[7] = [][]any{{"", hash}} }},
		"a use with short hash": {false, func(v []any) { v[7] = [][]any{{"n1", hash[1:]}} }},
	} {
		var bad *RecordError
		if r, err := DecodeJoin(join(test.change)); (err == nil) != test.valid || err != nil && !errors.As(err, &bad) {
			t.Errorf("join token: %s: %+v, %v", what, r, err)
		}
	}
	access := func(change func(v []any)) []byte {
		v := []any{recordVersion, id, hash, 1, 0, "ann", 1, strings.Repeat("x", commentBytesMax)}
		change(v)
		return record(v...)
	}
	for what, test := range map[string]struct {
		valid  bool
		change func(v []any)
	}{
		"most of all":        {true, func(v []any) { v[4] = millisMax }},
		"for ever":           {true, func([]any) {}},
		"a newer version":    {false, func(v []any) { v[0] = recordVersion + 1 }},
		"no name":            {false, func(v []any) { v[5] = "" }},
		"a bad name":         {false, func(v []any) { v[5] = "a/b" }},
		"too long a comment": {false, func(v []any) { v[7] = strings.Repeat("x", commentBytesMax+1) }},
	} {
		var bad *RecordError
		if r, err := DecodeAccess(access(test.change)); (err == nil) != test.valid || err != nil && !errors.As(err, &bad) {
			t.Errorf("access token: %s: %+v, %v", what, r, err)
		}
	}
	nine := record(recordVersion, id, hash, 1, 0, "ann", 1, "", 1)
	if _, err := DecodeAccess(nine); err == nil || !strings.Contains(err.Error(), "9 elements") {
		t.Errorf("a record with one value more: %v", err)
	}
}

// TestNewRecordLimits: records can be created up to their limits.
func TestNewRecordLimits(t *testing.T) {
	access := New(Access, pki.Fingerprint{}, epoch, 0)
	r, err := NewAccessRecord(access, epoch, "ann", 1, strings.Repeat("x", commentBytesMax))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeAccess(r.Encode()); err != nil {
		t.Error(err)
	}
	join := New(Join, pki.Fingerprint{}, epoch, time.Hour)
	for _, uses := range []int{1, UsesMax} {
		r, err := NewJoinRecord(join, epoch, uses, "")
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeJoin(r.Encode()); err != nil || back.Uses != uses {
			t.Errorf("%d uses: %+v, %v", uses, back, err)
		}
	}
}

// TestRefusalsHint: each reason has its own hint for the operator.
func TestRefusalsHint(t *testing.T) {
	for why, want := range map[error]string{
		ErrUnknown: "not revoked", ErrExpired: "create a new one", ErrOtherNode: "the node that it was created for", ErrSpent: "another host has used it",
	} {
		err := &RefusedError{ID{1}, why}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "0100000000000000") || !errors.Is(err, why) {
			t.Errorf("%v: %v", why, err)
		}
	}
}

// TestLateEnds: an expiry after 2106, whose seconds exceed 32 bits, round-trips.
func TestLateEnds(t *testing.T) {
	late := time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)
	tok := New(Access, pki.Fingerprint{}, epoch, 0)
	tok.ends = late
	if got, err := Parse(tok.Reveal()); err != nil || !got.Ends().Equal(late) {
		t.Errorf("read as %v, %v", got.Ends(), err)
	}
}

// TestTextLimits: a text is accepted up to a length, white space included; a prefix alone is not a
// token.
func TestTextLimits(t *testing.T) {
	text := example(Join).Reveal()
	long := text + strings.Repeat(" ", textBytesMax-len(text))
	if got, err := Parse(long); err != nil || !equal(got, example(Join)) {
		t.Errorf("%d bytes: %v", len(long), err)
	}
	if _, err := Parse(long + " "); err == nil {
		t.Errorf("%d bytes were read", len(long)+1)
	}
	for _, prefix := range []string{"stele-join-", "stele-access-"} {
		if _, err := Parse(prefix); err == nil || !strings.Contains(err.Error(), "0 characters") {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

// TestBase32: bytes of each length have the shortest encoding and decode again.
func TestBase32(t *testing.T) {
	for n := range 12 {
		b := bytes.Repeat([]byte{0xff}, n)
		s := encodeText(b)
		if len(s) != (8*n+4)/5 {
			t.Errorf("%d bytes are written as %q", n, s)
		}
		if back, ok := decodeText(s); !ok || !bytes.Equal(back, b) {
			t.Errorf("%d bytes are read as % x, %v", n, back, ok)
		}
	}
	if _, ok := decodeText("zz"); ok { // ten bits, the last two unused
		t.Error("unused bits are ignored: one token would have two texts")
	}
}

// TestBadIDNamesItsLength: the error names the number of digits of an id.
func TestBadIDNamesItsLength(t *testing.T) {
	if _, err := ParseID("12"); err == nil || !strings.Contains(err.Error(), "16 hexadecimal digits") {
		t.Error(err)
	}
}
