package token

import (
	"crypto/sha256"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/security/pki"
)

func newJoin(t *testing.T, uses int) (Token, *JoinRecord) {
	t.Helper()
	tok := New(Join, pki.Fingerprint{1}, epoch, time.Hour)
	r, err := NewJoinRecord(tok, epoch, uses, "")
	if err != nil {
		t.Fatal(err)
	}
	return tok, r
}

func key(b byte) [sha256.Size]byte { return [sha256.Size]byte{b} }

func refused(t *testing.T, err, why error) {
	t.Helper()
	var r *RefusedError
	if !errors.As(err, &r) || !errors.Is(err, why) {
		t.Errorf("%v, want %v", err, why)
	}
}

// TestSpend: TK3 and TK4.
func TestSpend(t *testing.T) {
	tok, r := newJoin(t, 1)
	next, err := r.Spend(tok, "n1", key(1), epoch)
	if err != nil || next == r || next.Uses != 0 || r.Uses != 1 || len(r.Spent) != 0 {
		t.Fatalf("first use: %+v, %v", next, err)
	}
	if again, err := next.Spend(tok, "n1", key(1), epoch); err != nil || again != next {
		t.Errorf("the same node once more: %+v, %v", again, err)
	}
	for _, replay := range []Use{{"n2", key(2)}, {"n1", key(2)}, {"n2", key(1)}} {
		_, err := next.Spend(tok, replay.Node, replay.Key, epoch)
		refused(t, err, ErrSpent)
	}
	for after, good := range map[time.Duration]bool{0: true, time.Hour - time.Second: true, time.Hour: false, 24 * time.Hour: false} {
		_, err := r.Spend(tok, "n1", key(1), epoch.Add(after))
		if good && err != nil {
			t.Errorf("after %v: %v", after, err)
		} else if !good {
			refused(t, err, ErrExpired)
		}
	}
	_, err = next.Spend(tok, "n1", key(1), epoch.Add(time.Hour))
	refused(t, err, ErrExpired)

	wrong := tok
	secret := tok.secret()
	secret[15] ^= 1
	wrong.secret = seal(secret)
	otherID := tok
	otherID.id[0] ^= 1
	otherKind := tok
	otherKind.kind = Access
	for what, bad := range map[string]Token{"wrong secret": wrong, "other id": otherID, "other kind": otherKind, "none": {}, "another": New(Join, pki.Fingerprint{1}, epoch, time.Hour)} {
		for _, now := range []time.Time{epoch, epoch.Add(24 * time.Hour)} { // its expiry is not revealed either
			if _, err := r.Spend(bad, "n1", key(1), now); !errors.Is(err, ErrUnknown) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	_, unknown := (*JoinRecord)(nil).Spend(tok, "n1", key(1), epoch)
	refused(t, unknown, ErrUnknown)
	_, mistaken := r.Spend(wrong, "n1", key(1), epoch)
	if unknown.Error() != mistaken.Error() {
		t.Errorf("unknown: %v; wrong secret: %v", unknown, mistaken)
	}
	// A token that would match the empty record.
	if _, err := (*JoinRecord)(nil).Spend(Token{}, "", key(0), epoch); !errors.Is(err, ErrUnknown) {
		t.Errorf("no token, no record: %v", err)
	}
}

// TestSpendForOneNode: a token to renew one node does not admit another.
func TestSpendForOneNode(t *testing.T) {
	tok := New(Join, pki.Fingerprint{1}, epoch, time.Hour)
	r, err := NewJoinRecord(tok, epoch, 1, "n1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Spend(tok, "n2", key(1), epoch)
	refused(t, err, ErrOtherNode)
	next, err := r.Spend(tok, "n1", key(1), epoch)
	if err != nil || next.Node != "n1" {
		t.Fatal(next, err)
	}
	_, err = next.Spend(tok, "n1", key(2), epoch)
	refused(t, err, ErrSpent)
}

// TestConcurrentSpend: TK3, with a file changed by compare-and-set.
func TestConcurrentSpend(t *testing.T) {
	const uses, hosts = 3, 20
	tok, r := newJoin(t, uses)
	var mu sync.Mutex
	file, generation := r.Encode(), 1
	join := func(node string, k byte) error {
		for {
			mu.Lock()
			b, g := slices.Clone(file), generation
			mu.Unlock()
			r, err := DecodeJoin(b)
			if err != nil {
				return err
			}
			next, err := r.Spend(tok, node, key(k), epoch)
			if err != nil || next == r {
				return err
			}
			mu.Lock()
			won := g == generation
			if won {
				file, generation = next.Encode(), generation+1
			}
			mu.Unlock()
			if won {
				return nil
			}
		}
	}
	var wg sync.WaitGroup
	results := make([]error, hosts)
	for i := range hosts {
		wg.Go(func() { results[i] = join("n"+strings.Repeat("x", i+1), byte(i)) })
	}
	wg.Wait()
	in := 0
	for i, err := range results {
		switch {
		case err == nil:
			in++
			if err := join("n"+strings.Repeat("x", i+1), byte(i)); err != nil {
				t.Errorf("host %d once more: %v", i, err)
			}
		case !errors.Is(err, ErrSpent):
			t.Errorf("host %d: %v", i, err)
		}
	}
	if in != uses {
		t.Errorf("%d hosts are in, want %d", in, uses)
	}
}

func TestNewRecordRefuses(t *testing.T) {
	join, access := New(Join, pki.Fingerprint{}, epoch, time.Hour), New(Access, pki.Fingerprint{}, epoch, 0)
	for what, err := range map[string]error{
		"access as join": second(NewJoinRecord(access, epoch, 1, "")), "no uses": second(NewJoinRecord(join, epoch, 0, "")),
		"many uses": second(NewJoinRecord(join, epoch, UsesMax+1, "")), "no end": second(NewJoinRecord(New(Join, pki.Fingerprint{}, epoch, 0), epoch, 1, "")),
		"none": second(NewJoinRecord(Token{}, epoch, 1, "")), "many uses of one node": second(NewJoinRecord(join, epoch, 2, "n1")), "bad node": second(NewJoinRecord(join, epoch, 1, "a/b")),
		"join as access": second(NewAccessRecord(join, epoch, "ann", 1, "")),
		"bad name":       second(NewAccessRecord(access, epoch, "a/b", 1, "")), "comment": second(NewAccessRecord(access, epoch, "ann", 1, strings.Repeat("x", 257))),
	} {
		if err == nil {
			t.Errorf("%s: a record was created", what)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestAccess(t *testing.T) {
	tok := New(Access, pki.Fingerprint{1}, epoch, time.Hour)
	r, err := NewAccessRecord(tok, epoch, "ann", 3, "laptop")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(tok, epoch); err != nil || r.Principal != "ann" || r.Generation != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	refused(t, r.Check(tok, epoch.Add(time.Hour)), ErrExpired)
	refused(t, r.Valid(epoch.Add(time.Hour)), ErrExpired)
	if err := r.Valid(epoch.Add(time.Hour - 1)); err != nil {
		t.Error(err)
	}
	other := New(Access, pki.Fingerprint{1}, epoch, time.Hour)
	refused(t, r.Check(other, epoch), ErrUnknown)
	other.id = tok.id
	refused(t, r.Check(other, epoch), ErrUnknown)
	join := tok
	join.kind = Join
	refused(t, r.Check(join, epoch), ErrUnknown)
	refused(t, (*AccessRecord)(nil).Check(tok, epoch), ErrUnknown)
	refused(t, (*AccessRecord)(nil).Check(Token{kind: Access}, epoch), ErrUnknown)
	forever := New(Access, pki.Fingerprint{1}, epoch, 0)
	if r, err = NewAccessRecord(forever, epoch, "ann", 3, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.Check(forever, epoch.AddDate(100, 0, 0)); err != nil {
		t.Error(err)
	}
}

// TestRecordsContainNoSecret: TK1. No record contains any eight bytes of the secret.
func TestRecordsContainNoSecret(t *testing.T) {
	tok, r := newJoin(t, 1)
	access := New(Access, pki.Fingerprint{}, epoch, 0)
	a, err := NewAccessRecord(access, epoch, "ann", 0, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		record []byte
		secret [secretBytes]byte
	}{{r.Encode(), tok.secret()}, {a.Encode(), access.secret()}} {
		for i := range secretBytes - 8 {
			if strings.Contains(string(c.record), string(c.secret[i:i+8])) {
				t.Error("a part of the secret is in the record")
			}
		}
	}
	// The kind is part of the hashed data.
	same := access
	same.kind = Join
	if same.hash() == access.hash() {
		t.Error("a token of another kind has the same hash")
	}
}

func exampleRecords() (*JoinRecord, *AccessRecord) {
	join := &JoinRecord{ID: example(Join).id, Hash: example(Join).hash(), Created: epoch, Ends: epoch.Add(time.Hour), Uses: 2, Node: "n1", Spent: []Use{{"n1", key(0xee)}}}
	access := &AccessRecord{ID: example(Access).id, Hash: example(Access).hash(), Created: epoch, Principal: "ann", Generation: 300, Comment: "laptop"}
	return join, access
}

func TestGoldenRecords(t *testing.T) {
	join, access := exampleRecords()
	for _, test := range []struct {
		got    []byte
		want   string
		decode func([]byte) (any, error)
		record any
	}{
		{join.Encode(), goldenJoinRecord, func(b []byte) (any, error) { return DecodeJoin(b) }, join},
		{access.Encode(), goldenAccessRecord, func(b []byte) (any, error) { return DecodeAccess(b) }, access},
	} {
		if want := wiretest.Unhex(t, test.want); !slices.Equal(test.got, want) {
			t.Errorf("encoded %T:\n% x, want\n% x", test.record, test.got, want)
			continue
		}
		if back, err := test.decode(test.got); err != nil || !reflect.DeepEqual(back, test.record) {
			t.Errorf("decoded %+v, %v; want %+v", back, err, test.record)
		}
		for n := range test.got {
			if _, err := test.decode(test.got[:n]); err == nil {
				t.Errorf("%d of %d bytes of %T were read", n, len(test.got), test.record)
			}
		}
		newer := slices.Clone(test.got)
		newer[1] = 2
		var bad *RecordError
		if _, err := test.decode(newer); !errors.As(err, &bad) || !strings.Contains(err.Error(), "version 2") {
			t.Errorf("version 2: %v", err)
		}
		if _, err := test.decode(append(slices.Clone(test.got), 0)); !errors.As(err, &bad) {
			t.Errorf("with a byte more: %v", err)
		}
	}
}

const (
	goldenJoinRecord = `98 01 c4 08 01 02 03 04 05 06 07 08
		c4 20 e5 04 2a c6 7b 27 d6 0a 7d eb da 9d d6 ef be eb 29 bb 53 92 f4 d4 50 a3 64 52 0b c9 63 e6 5b 2e
		cf 00 00 01 a2 31 79 de 00 cf 00 00 01 a2 31 b0 cc 80 02 a2 6e 31
		91 92 a2 6e 31 c4 20 ee 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00`
	goldenAccessRecord = `98 01 c4 08 01 02 03 04 05 06 07 08
		c4 20 07 96 53 32 67 45 87 94 59 d1 7d 13 4f 58 1d 34 61 e0 2a b7 3d 0c 94 6d d8 90 db 21 5b 31 d3 8c
		cf 00 00 01 a2 31 79 de 00 00 a3 61 6e 6e cd 01 2c a6 6c 61 70 74 6f 70`
)

func FuzzRecords(f *testing.F) {
	join, access := exampleRecords()
	f.Add(join.Encode())
	f.Add(access.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = wiretest.RoundTrip(t, b, func(b []byte) ([]byte, error) {
			r, err := DecodeJoin(b)
			if err != nil {
				return nil, err
			}
			return r.Encode(), nil
		})
		_ = wiretest.RoundTrip(t, b, func(b []byte) ([]byte, error) {
			r, err := DecodeAccess(b)
			if err != nil {
				return nil, err
			}
			return r.Encode(), nil
		})
	})
}
