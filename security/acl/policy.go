package acl

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/table"
)

// Everyone as the principal of a grant stands for every registered principal.
const Everyone = "*"

// Cluster is the Policy.Table of grants on the cluster. They apply to all tables.
const Cluster uint64 = 0

// GrantsMax bounds the grants of one policy, so that its record fits in a file of the lock service:
// 3000 grants of 80 bytes in 256 KiB.
const GrantsMax = 3000

// Grant gives rights to a principal.
type Grant struct {
	// Principal is a name, or Everyone.
	Principal string
	// Family is the id of a column family or of a view of the table, or 0 for all present and future families.
	Family uint32
	Rights Rights
}

// Policy is the set of grants on the cluster or on one table. It is immutable: methods that alter a
// policy return a new one. The zero Policy grants nothing on the cluster.
type Policy struct {
	// Table is the table's id, or Cluster.
	Table uint64
	// Grants is sorted by principal, then family, with one grant for each pair.
	Grants []Grant
}

func compareGrants(a, b Grant) int {
	return cmp.Or(cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Family, b.Family))
}

// find returns the index of the grant to a principal on a family, or where it would be inserted.
func (p *Policy) find(principal string, family uint32) (int, bool) {
	return slices.BinarySearchFunc(p.Grants, Grant{Principal: principal, Family: family}, compareGrants)
}

// Grant returns the policy with the rights of g added to the existing ones. Errors:
// ErrClusterRight, ErrTooMany, *pki.NameError, and an error for rights or a family that do not
// apply.
func (p *Policy) Grant(g Grant) (*Policy, error) {
	if err := p.check(g); err != nil {
		return nil, err
	}
	next := &Policy{Table: p.Table, Grants: slices.Clone(p.Grants)}
	if i, ok := p.find(g.Principal, g.Family); ok {
		next.Grants[i].Rights |= g.Rights
	} else if len(p.Grants) >= GrantsMax {
		return nil, fmt.Errorf("%w: at most %d grants", ErrTooMany, GrantsMax)
	} else {
		next.Grants = slices.Insert(next.Grants, i, g)
	}
	return next, nil
}

// check rejects invalid grants.
func (p *Policy) check(g Grant) error {
	switch {
	case g.Rights == 0 || g.Rights&^all != 0:
		return fmt.Errorf("bad rights %#x in a grant", uint8(g.Rights))
	case p.Table != Cluster && g.Rights&Monitor != 0:
		return ErrClusterRight
	case p.Table == Cluster && g.Family != 0:
		return errors.New("grant on the cluster names a family")
	case g.Principal == Everyone:
		return nil
	}
	return pki.CheckName("name of a principal", g.Principal)
}

// Revoke returns the policy with rights removed from the grant to g.Principal on g.Family. Grants
// to the same principal with a wider or narrower scope are unchanged. Errors: ErrNoGrant if the
// grant has none of the rights, ErrImplied if one of the rights would remain in effect because a
// remaining right implies it.
func (p *Policy) Revoke(g Grant) (*Policy, error) {
	i, ok := p.find(g.Principal, g.Family)
	if !ok || p.Grants[i].Rights.implied()&g.Rights == 0 {
		return nil, ErrNoGrant
	}
	left := p.Grants[i].Rights &^ g.Rights
	if still := left.implied() & g.Rights; still != 0 {
		return nil, fmt.Errorf("%w: %s is implied by %s: revoke that too", ErrImplied, still, left)
	}
	next := &Policy{Table: p.Table, Grants: slices.Clone(p.Grants)}
	if left == 0 {
		next.Grants = slices.Delete(next.Grants, i, i+1)
	} else {
		next.Grants[i].Rights = left
	}
	return next, nil
}

// Replace returns the policy with the grants to, instead of from, on a family or view, or on the whole scope of the policy if family is 0. Both have
// a grant for each principal, whose Family is not used. Errors: ErrChanged if the policy has others than from; those of Grant.
func (p *Policy) Replace(family uint32, from, to []Grant) (next *Policy, err error) {
	next = p.filter(func(g Grant) bool { return g.Family != family })
	if len(p.Grants)-len(next.Grants) != len(from) {
		return nil, ErrChanged
	}
	for _, g := range from {
		if i, ok := p.find(g.Principal, family); !ok || p.Grants[i].Rights != g.Rights {
			return nil, ErrChanged
		}
	}
	for _, g := range to {
		g.Family = family
		if next, err = next.Grant(g); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// Forget returns the policy without the grants to a principal.
func (p *Policy) Forget(principal string) *Policy {
	return p.filter(func(g Grant) bool { return g.Principal != principal })
}

// Prune returns the policy without grants on families and views that the table no longer has.
func (p *Policy) Prune(s *table.Schema) *Policy {
	return p.filter(func(g Grant) bool {
		return g.Family == 0 || slices.ContainsFunc(s.Families, func(f table.Family) bool { return f.ID == g.Family }) ||
			slices.ContainsFunc(s.Views, func(v table.View) bool { return v.ID == g.Family })
	})
}

func (p *Policy) filter(keep func(Grant) bool) *Policy {
	next := &Policy{Table: p.Table}
	for _, g := range p.Grants {
		if keep(g) {
			next.Grants = append(next.Grants, g)
		}
	}
	return next
}

// visit calls f for the grants to a principal, including those to everyone.
func (p *Policy) visit(principal string, f func(Grant)) {
	for _, name := range [...]string{Everyone, principal} {
		for i, _ := p.find(name, 0); i < len(p.Grants) && p.Grants[i].Principal == name; i++ {
			f(p.Grants[i])
		}
		if name == principal {
			return // the principal is Everyone itself: visit its grants once
		}
	}
}

// Rights returns the principal's rights on the whole scope of the policy, including implied ones.
func (p *Policy) Rights(principal string) Rights {
	var r Rights
	p.visit(principal, func(g Grant) {
		if g.Family == 0 {
			r |= g.Rights
		}
	})
	return r.implied()
}

// Check returns nil if the policy is that of the cluster and the principal has the right on it, and
// otherwise a *DeniedError.
func (p *Policy) Check(principal string, right Rights) error {
	if p.Table == Cluster && p.Rights(principal).Has(right) {
		return nil
	}
	return &DeniedError{Principal: principal, Right: right}
}

const recordVersion = 1

// Encode returns the encoded record.
func (p *Policy) Encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(3)
	e.Uint(recordVersion)
	e.Uint(p.Table)
	e.Array(len(p.Grants))
	for _, g := range p.Grants {
		e.Array(3)
		e.Str(g.Principal)
		e.Uint(uint64(g.Family))
		e.Uint(uint64(g.Rights))
	}
	return slices.Clone(e.Bytes())
}

// DecodePolicy decodes what Encode returns. An unknown right is an error, because it might restrict
// others. Errors: *RecordError.
func DecodePolicy(b []byte) (*Policy, error) {
	d := wire.NewDecoder(b)
	p := &Policy{}
	header(&d, 3)
	p.Table = d.Uint()
	n := d.ArrayMax(GrantsMax)
	p.Grants = make([]Grant, 0, n)
	for range n {
		if d.Array() != 3 {
			d.Fail(errors.New("a grant does not have 3 elements"))
		}
		g := Grant{Principal: d.Str(), Family: readUint32(&d), Rights: Rights(min(d.Uint(), 255))}
		if d.Err() != nil {
			break
		}
		if err := p.check(g); err != nil {
			d.Fail(err)
		} else if k := len(p.Grants); k > 0 && compareGrants(p.Grants[k-1], g) >= 0 {
			d.Fail(errors.New("grants are not sorted or have duplicates"))
		}
		p.Grants = append(p.Grants, g)
	}
	if err := atEnd(&d); err != nil {
		return nil, &RecordError{"grants", err}
	}
	return p, nil
}

// header reads the number of elements of a record, which must be one of values, and its version.
func header(d *wire.Decoder, values ...int) int {
	n, v := d.Array(), d.Uint()
	switch {
	case d.Err() != nil:
	case v != recordVersion:
		d.Fail(fmt.Errorf("unsupported version %d: expected %d", v, recordVersion))
	case !slices.Contains(values, n):
		d.Fail(fmt.Errorf("%d elements, expected %d", n, values[len(values)-1]))
	}
	return n
}

func atEnd(d *wire.Decoder) error {
	if d.More() {
		d.Fail(errors.New("trailing bytes"))
	}
	return d.Err()
}

func readUint32(d *wire.Decoder) uint32 {
	n := d.Uint()
	if n > 1<<32-1 {
		d.Fail(errors.New("number is over 32 bits"))
	}
	return uint32(n)
}
