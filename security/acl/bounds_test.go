package acl

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// TestSerialBounds: a serial number of the maximum number of digits is valid; one more digit is
// not.
func TestSerialBounds(t *testing.T) {
	for n, valid := range map[int]bool{0: false, 1: true, serialBytesMax: true, serialBytesMax + 1: false} {
		if err := CheckSerial(strings.Repeat("a", n)); (err == nil) != valid {
			t.Errorf("%d digits: %v", n, err)
		}
	}
}

// TestRevokedCertificateExpiry: a revoked certificate is kept until the principal's last
// certificate expires. If that time is unknown, it is kept for the maximum lifetime of a
// certificate.
func TestRevokedCertificateExpiry(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000).UTC()
	longest := now.Add(pki.PrincipalLifeMax)
	for _, test := range []struct{ until, want time.Time }{
		{time.Time{}, longest}, {UntilUnknown, longest}, {now.Add(time.Hour), now.Add(time.Hour)},
	} {
		p := &Principal{Name: "ann", Until: test.until}
		if err := p.Lose("a", now); err != nil || !p.Lost[0].Ends.Equal(test.want) {
			t.Errorf("until %v: %+v, %v; want the end %v", test.until, p.Lost, err, test.want)
		}
		// A certificate that expires now may still be valid by a clock that lags.
		if err := p.Lose("b", p.Lost[0].Ends); err != nil || !p.Revoked("a") {
			t.Errorf("until %v: the certificate is dropped exactly at its expiry: %+v, %v", test.until, p.Lost, err)
		}
	}
}

// TestRevokedCertificateRecords: a record with too many revoked certificates, or with one that is
// not a pair, is rejected even if each value is valid.
func TestRevokedCertificateRecords(t *testing.T) {
	record := func(n, values int) []byte {
		e := wire.GetEncoder()
		defer e.Release()
		e.Array(7)
		e.Uint(recordVersion)
		e.Str("ann")
		e.Bool(false)
		e.Uint(1)
		e.Uint(1)
		e.Uint(1)
		e.Array(n)
		for i := range n {
			e.Array(values)
			e.Str(fmt.Sprintf("%x", i))
			e.Uint(1)
		}
		return append([]byte(nil), e.Bytes()...)
	}
	if p, err := DecodePrincipal(record(LostMax, 2)); err != nil || len(p.Lost) != LostMax {
		t.Errorf("%d certificates: %v", LostMax, err)
	}
	var bad *RecordError
	for what, b := range map[string][]byte{"too many": record(LostMax+1, 2), "three values": record(1, 3), "one value": record(1, 1)} {
		if _, err := DecodePrincipal(b); !errors.As(err, &bad) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestLargestNumbers: the largest family id round-trips. A larger number is rejected, not truncated
// to 32 bits, which would be another family's id.
func TestLargestNumbers(t *testing.T) {
	p := &Policy{Table: 16, Grants: []Grant{{"ann", math.MaxUint32, Read}}}
	if got, err := DecodePolicy(p.Encode()); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("the largest family: %+v, %v", got, err)
	}
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(3)
	e.Uint(recordVersion)
	e.Uint(16)
	e.Array(1)
	e.Array(3)
	e.Str("ann")
	e.Uint(math.MaxUint32 + 2)
	e.Uint(uint64(Read))
	var bad *RecordError
	if got, err := DecodePolicy(e.Bytes()); !errors.As(err, &bad) {
		t.Errorf("a family of 33 bits: %+v, %v", got, err)
	}
}

// TestReadableDropsUnknownFamilies: a row may have cells of dropped families. They are not
// returned, wherever they sort among readable ones.
func TestReadableDropsUnknownFamilies(t *testing.T) {
	s := schemaOf(t, 16, "b", "d", "f")
	v := NewView("ann", nil, &Policy{Table: 16, Grants: []Grant{{"ann", 1, Read}, {"ann", 2, Read}}}, s)
	var cells []table.Cell
	for _, f := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		cells = append(cells, table.Cell{Family: f})
	}
	got := v.Readable(cells)
	if len(got) != 2 || got[0].Family != "b" || got[1].Family != "d" {
		t.Errorf("cells of %+v are readable, want those of b and d", got)
	}
	for i, c := range cells[len(got):] {
		if c.Family != "" {
			t.Errorf("cell %d stays in memory behind the readable ones", len(got)+i)
		}
	}
}

// TestMaskEnds: indexes outside a mask are not in the set.
func TestMaskEnds(t *testing.T) {
	full := Mask{math.MaxUint64, math.MaxUint64}
	for index, want := range map[int]bool{-1: false, 0: true, 63: true, 64: true, 127: true, 128: false, 1000: false} {
		if full.Has(index) != want {
			t.Errorf("index %d is in the set: %v", index, !want)
		}
	}
	if (Mask{}).Has(0) {
		t.Error("an empty mask has a family")
	}
}

// TestViewOfOne: the rights of a principal with a right on one family, checked for each family.
func TestViewOfOne(t *testing.T) {
	s := schemaOf(t, 16, "a", "b", "c")
	v := NewView("ann", nil, &Policy{Table: 16, Grants: []Grant{{"ann", 1, Read}, {"ann", 2, Write}}}, s)
	for family, want := range map[string][2]bool{"a": {true, false}, "b": {false, true}, "c": {}, "": {}} {
		if v.CanRead(family) != want[0] || v.CanWrite(family) != want[1] {
			t.Errorf("family %q: read %v, write %v; want %v", family, v.CanRead(family), v.CanWrite(family), want)
		}
	}
	if v.SeesAll() || v.Principal() != "ann" {
		t.Errorf("%s sees all: %v", v.Principal(), v.SeesAll())
	}
	if all := NewView("ann", nil, &Policy{Table: 16, Grants: []Grant{{"ann", 0, Write}}}, s); !all.SeesAll() || all.ReadsAll() {
		t.Error("with write on all families: want all visible, not all readable")
	}
}

// TestSees: a right on a table, on one of its families, or on the cluster makes the table visible.
// Monitor on the cluster does not.
func TestSees(t *testing.T) {
	service := newLockService()
	for _, name := range []string{"whole", "family", "cluster", "monitor", "none", "disabled"} {
		service.put(PrincipalFile(name), (&Principal{Name: name, Disabled: name == "disabled"}).Encode())
	}
	service.put(ClusterFile, encoded(&Policy{}, Grant{"cluster", 0, Read}, Grant{"monitor", 0, Monitor}))
	service.put(TableFile(16), encoded(&Policy{Table: 16}, Grant{"whole", 0, Read}, Grant{"family", 9, Write}))
	c := NewCache(service.open())
	for range 2 { // uncached, then cached
		for name, want := range map[string]bool{"whole": true, "family": true, "cluster": true, "monitor": false, "none": false} {
			if sees, _, err := c.Sees(t.Context(), name, 0, 16); err != nil || sees != want {
				t.Errorf("%s sees the table: %v, %v; want %v", name, sees, err, want)
			}
			if sees, _, err := c.Sees(t.Context(), name, 0, 17); err != nil || sees != (name == "cluster") {
				t.Errorf("%s sees another table: %v, %v", name, sees, err)
			}
		}
		for name, want := range map[string]error{"disabled": ErrDisabled, "nobody": ErrUnknownPrincipal} {
			if sees, _, err := c.Sees(t.Context(), name, 0, 16); sees || !errors.Is(err, want) {
				t.Errorf("%s: %v, %v; want %v", name, sees, err, want)
			}
		}
	}
	broken := service.open()
	broken.fail = errors.New("no leader")
	if sees, _, err := NewCache(broken).Sees(t.Context(), "whole", 0, 16); sees || !errors.Is(err, broken.fail) {
		t.Errorf("without a leader: %v, %v", sees, err)
	}
}

// TestClusterRightFromMemory: a cached right on the cluster is known without a read until something
// changes. An uncached one is not.
func TestClusterRightFromMemory(t *testing.T) {
	service := newLockService()
	for _, name := range []string{"ann", "bob"} {
		service.put(PrincipalFile(name), (&Principal{Name: name, Generation: 5}).Encode())
	}
	service.put(ClusterFile, encoded(&Policy{}, Grant{"ann", 0, Read}))
	c := NewCache(service.open())
	if _, err := c.Check(t.Context(), "ann", 5); err != nil {
		t.Fatal(err)
	}
	if err, known := c.CheckClusterNow("ann", 5, Read); known {
		t.Errorf("the grants are known before they were read: %v", err)
	}
	if _, err := c.Check(t.Context(), "bob", 4); !errors.Is(err, ErrRevoked) {
		t.Errorf("an older certificate: %v", err)
	}
	if _, err := c.CheckCluster(t.Context(), "ann", 5, Read); err != nil {
		t.Fatal(err)
	}
	now := func(name string, right Rights, want error) {
		t.Helper()
		if err, known := c.CheckClusterNow(name, 5, right); !known || !errors.Is(err, want) {
			t.Errorf("%s, %v: known %v, %v; want %v", name, right, known, err, want)
		}
	}
	now("ann", Read, nil)
	now("ann", Write, ErrDenied)
	now("bob", Read, ErrDenied)
	service.change(ClusterFile, nil)
	if err, known := c.CheckClusterNow("ann", 5, Read); known {
		t.Errorf("a right is known after it was revoked: %v", err)
	}
}

// TestLargePoliciesAreBounded: the cache weighs a policy by its grants, so that large policies do
// not take more memory than other entries.
func TestLargePoliciesAreBounded(t *testing.T) {
	service := newLockService()
	c := NewCache(service.open())
	const grants = 400
	const tables = 3 * viewsMax * grantsPerView / grants
	for i := range uint64(tables) {
		p := &Policy{Table: 100 + i}
		for g := range grants {
			p.Grants = append(p.Grants, Grant{"ann", uint32(g + 1), Read})
		}
		service.put(TableFile(p.Table), p.Encode())
		if got, err := c.grants(t.Context(), p.Table, 1); err != nil || len(got.Grants) != grants {
			t.Fatal(got, err)
		}
		kept := 0
		for _, p := range c.mu.policies {
			kept += len(p.Grants)
		}
		if most := viewsMax * grantsPerView; kept > most || int(i) < most/grants/2 && len(c.mu.policies) != int(i)+1 {
			t.Fatalf("after %d policies, %d with %d grants are kept, at most %d grants may be", i+1, len(c.mu.policies), kept, most)
		}
	}
}
