package acl

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// random returns a generator with the seed of the test.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(testseed.New(t), 0))
}

// soak multiplies the duration of random tests.
func soak(n int) int {
	if k, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil && k > 1 {
		return n * k
	}
	return n
}

func TestRights(t *testing.T) {
	for text, want := range map[string]Rights{"read": Read, "Write": Write, "admin": Admin, "read,write": Read | Write, " write , read": Read | Write} {
		if got, err := ParseRights(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "reads", "read,", "all", "read write"} {
		if got, err := ParseRights(text); err == nil {
			t.Errorf("%q was parsed as %v", text, got)
		}
	}
	for r := range all + 1 {
		if r == 0 {
			continue
		}
		if back, err := ParseRights(r.String()); err != nil || back != r {
			t.Errorf("%v is read as %v, %v", r, back, err)
		}
	}
	for _, c := range []struct {
		has, want Rights
		ok        bool
	}{
		{Read, Read, true}, {Read, Write, false}, {Write, Read, false}, {Read | Write, Admin, false},
		{Admin, Read, true}, {Admin, Write, true}, {Admin, Read | Write | Admin, true}, {Read, Read | Write, false}, {0, Read, false},
	} {
		if c.has.Has(c.want) != c.ok {
			t.Errorf("%v has %v: %v", c.has, c.want, !c.ok)
		}
	}
}

func TestGrantAndRevoke(t *testing.T) {
	p := &Policy{Table: 16}
	grant := func(principal string, family uint32, r Rights) {
		t.Helper()
		next, err := p.Grant(Grant{principal, family, r})
		if err != nil {
			t.Fatal(err)
		}
		p = next
	}
	grant("bob", 2, Read)
	grant("ann", 0, Read)
	grant("bob", 0, Write)
	grant("ann", 0, Write)
	grant(Everyone, 1, Read)
	grant("cleo", 0, Admin)
	want := []Grant{{"*", 1, Read}, {"ann", 0, Read | Write}, {"bob", 0, Write}, {"bob", 2, Read}, {"cleo", 0, Admin}}
	if !slices.Equal(p.Grants, want) {
		t.Fatalf("grants are %v, want %v", p.Grants, want)
	}
	before := slices.Clone(p.Grants)
	for _, c := range []struct {
		g    Grant
		err  error
		left []Grant
	}{
		{Grant{"ann", 0, Read}, nil, []Grant{{"ann", 0, Write}}},
		{Grant{"ann", 0, Read | Write}, nil, nil},
		{Grant{"ann", 0, Read | Admin}, nil, []Grant{{"ann", 0, Write}}},
		{Grant{"ann", 0, Admin}, ErrNoGrant, nil},
		{Grant{"ann", 1, Read}, ErrNoGrant, nil},
		{Grant{"nobody", 0, Read}, ErrNoGrant, nil},
		{Grant{"cleo", 0, Read}, ErrImplied, nil},
		{Grant{"cleo", 0, Admin}, nil, nil},
		{Grant{"cleo", 0, Admin | Read}, nil, nil},
	} {
		next, err := p.Revoke(c.g)
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("revoke %v: %v, want %v", c.g, err, c.err)
			continue
		}
		if err != nil {
			continue
		}
		var left []Grant
		for _, g := range next.Grants {
			if g.Principal == c.g.Principal {
				left = append(left, g)
			}
		}
		if !slices.Equal(left, c.left) || len(next.Grants)-len(left) != len(p.Grants)-1 {
			t.Errorf("revoke %v leaves %v", c.g, next.Grants)
		}
	}
	if more, err := p.Grant(Grant{"ann", 0, Admin}); err != nil || more.Rights("ann") != all {
		t.Errorf("ann has %v, %v", more, err)
	}
	if !slices.Equal(p.Grants, before) {
		t.Error("a policy was changed")
	}
	if f := p.Forget("bob"); len(f.Grants) != 3 || f.Table != 16 {
		t.Errorf("without bob: %v", f)
	}
	s := schemaOf(t, 16, "a") // id 1
	if f := p.Prune(s); !slices.Equal(f.Grants, []Grant{{"*", 1, Read}, {"ann", 0, Read | Write}, {"bob", 0, Write}, {"cleo", 0, Admin}}) {
		t.Errorf("without family 2: %v", f)
	}
}

func TestGrantRefuses(t *testing.T) {
	for what, c := range map[string]struct {
		p *Policy
		g Grant
	}{
		"no rights":             {&Policy{Table: 16}, Grant{"ann", 0, 0}},
		"rights of none":        {&Policy{Table: 16}, Grant{"ann", 0, 16}},
		"monitor on a table":    {&Policy{Table: 16}, Grant{"ann", 0, Read | Monitor}},
		"family on the cluster": {&Policy{}, Grant{"ann", 1, Read}},
		"bad name":              {&Policy{Table: 16}, Grant{"a/b", 0, Read}},
		"no name":               {&Policy{Table: 16}, Grant{"", 0, Read}},
	} {
		if next, err := c.p.Grant(c.g); err == nil {
			t.Errorf("%s: %v", what, next)
		}
	}
	full := &Policy{Table: 16}
	for i := range GrantsMax {
		full.Grants = append(full.Grants, Grant{fmt.Sprintf("p%063d", i), 1<<32 - 1, Read | Write | Admin})
	}
	if _, err := full.Grant(Grant{"ann", 0, Read}); !errors.Is(err, ErrTooMany) {
		t.Errorf("one grant more: %v", err)
	}
	if _, err := full.Grant(full.Grants[7]); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	if n := len(full.Encode()); n > 256<<10 {
		t.Errorf("%d bytes for the maximum number of grants; a file holds 256 KiB", n)
	}
}

// TestGolden pins the example of the package doc.
func TestGolden(t *testing.T) {
	policy := &Policy{Table: 16, Grants: []Grant{{"ann", 0, Read | Write}, {"bob", 2, Read}}}
	const example = "93 01 10 92 93 a3 61 6e 6e 00 03 93 a3 62 6f 62 02 01"
	principal := &Principal{Name: "ann", Disabled: true, Generation: 300, Created: time.UnixMilli(1_796_126_400_000).UTC(), Until: time.UnixMilli(1_827_662_400_000).UTC()}
	const examplePrincipal = "96 01 a3 61 6e 6e c3 cd 01 2c cf 00 00 01 a2 31 79 de 00 cf 00 00 01 a9 89 2b 0a 00"
	decodePolicy := func(b []byte) (any, error) { return DecodePolicy(b) }
	decodePrincipal := func(b []byte) (any, error) { return DecodePrincipal(b) }
	for _, c := range []struct {
		got    []byte
		want   string
		decode func([]byte) (any, error)
		record any
	}{
		{policy.Encode(), example, decodePolicy, policy},
		{(&Policy{Grants: []Grant{{"*", 0, Admin}}}).Encode(), "93 01 00 91 93 a1 2a 00 04", decodePolicy, &Policy{Grants: []Grant{{"*", 0, Admin}}}},
		{principal.Encode(), examplePrincipal, decodePrincipal, principal},
	} {
		if want := wiretest.Unhex(t, c.want); !slices.Equal(c.got, want) {
			t.Errorf("encoded\n% x, want\n% x", c.got, want)
		}
		if back, err := c.decode(c.got); err != nil || !reflect.DeepEqual(back, c.record) {
			t.Errorf("decoded %+v, %v; want %+v", back, err, c.record)
		}
		var bad *RecordError
		for n := range c.got {
			if _, err := c.decode(c.got[:n]); !errors.As(err, &bad) {
				t.Errorf("%d of %d bytes: %v", n, len(c.got), err)
			}
		}
		if _, err := c.decode(append(slices.Clone(c.got), 0)); !errors.As(err, &bad) {
			t.Errorf("a byte more: %v", err)
		}
		newer := slices.Clone(c.got)
		newer[1] = 2
		if _, err := c.decode(newer); !errors.As(err, &bad) || !strings.Contains(err.Error(), "version 2") {
			t.Errorf("version 2: %v", err)
		}
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), example) || !strings.Contains(string(doc), examplePrincipal) {
		t.Error("doc.go has a different example")
	}
	for what, hex := range map[string]string{
		"not sorted":            "93 01 10 92 93 a3 62 6f 62 00 03 93 a3 61 6e 6e 02 01",
		"twice":                 "93 01 10 92 93 a3 61 6e 6e 00 03 93 a3 61 6e 6e 00 01",
		"an unknown right":      "93 01 10 91 93 a3 61 6e 6e 00 09",
		"rights of more bits":   "93 01 10 91 93 a3 61 6e 6e 00 cd 01 01",
		"a family over 32 bits": "93 01 10 91 93 a3 61 6e 6e cf 00 00 00 01 00 00 00 01 01",
		"no rights":             "93 01 10 91 93 a3 61 6e 6e 00 00",
		"family of the cluster": "93 01 00 91 93 a3 61 6e 6e 01 01",
		"many":                  "93 01 10 dd 00 0f ff ff" + strings.Repeat("00", 100),
	} {
		var bad *RecordError
		if p, err := DecodePolicy(wiretest.Unhex(t, hex)); !errors.As(err, &bad) {
			t.Errorf("%s: %v, %v", what, p, err)
		}
	}
}

func TestPrincipal(t *testing.T) {
	p := &Principal{Name: "ann", Generation: 5}
	for generation, want := range map[uint64]error{4: ErrRevoked, 0: ErrRevoked, 5: nil, 6: nil} {
		if err := p.Check(generation); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("generation %d: %v", generation, err)
		}
	}
	p.Disabled = true
	if err := p.Check(6); !errors.Is(err, ErrDisabled) {
		t.Errorf("disabled: %v", err)
	}
	for end, want := range map[int64]int64{7000: 9000, 9000: 9000, 9001: 9001} {
		p := &Principal{Name: "ann", Until: time.UnixMilli(9000).UTC()}
		p.Covers(time.UnixMilli(end))
		if p.Until.UnixMilli() != want {
			t.Errorf("until 9000, and by another certificate until %d: %d", end, p.Until.UnixMilli())
		}
	}
	// A record written by an earlier version has no until.
	five := wiretest.Unhex(t, "95 01 a3 61 6e 6e c3 cd 01 2c cf 00 00 01 a2 31 79 de 00")
	if p, err := DecodePrincipal(five); err != nil || p.Generation != 300 || !p.Until.Equal(UntilUnknown) {
		t.Errorf("a record of five values: %+v, %v", p, err)
	}
	if p, err := DecodePrincipal((&Principal{Name: "ann"}).Encode()); err != nil || !p.Until.IsZero() {
		t.Errorf("without a certificate: %+v, %v", p, err)
	}
	if _, err := DecodePrincipal((&Principal{Name: "a/b"}).Encode()); err == nil {
		t.Error("a bad name was read")
	}
	if err := pki.CheckName("", Everyone); err == nil {
		t.Error("a principal may have the name of everyone")
	}
}

func FuzzRecords(f *testing.F) {
	f.Add((&Policy{Table: 16, Grants: []Grant{{"*", 3, Admin}, {"ann", 0, Read | Write}, {"bob", 2, Read}}}).Encode())
	f.Add((&Principal{Name: "ann", Disabled: true, Generation: 300, Created: time.UnixMilli(1).UTC()}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = wiretest.RoundTrip(t, b, func(b []byte) ([]byte, error) {
			p, err := DecodePolicy(b)
			if err != nil {
				return nil, err
			}
			return p.Encode(), nil
		})
		_ = wiretest.RoundTrip(t, b, func(b []byte) ([]byte, error) {
			p, err := DecodePrincipal(b)
			if err != nil {
				return nil, err
			}
			return p.Encode(), nil
		})
	})
}

// schemaOf returns a table with families, with ids from 1 in this order.
func schemaOf(t testing.TB, id uint64, families ...string) *table.Schema {
	t.Helper()
	s := table.NewSchema("t", id)
	for _, f := range families {
		var err error
		if s, err = s.AddFamily(table.Family{Name: f}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}
