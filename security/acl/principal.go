package acl

import (
	"slices"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/security/pki"
)

// Principal is what the cluster keeps of one.
type Principal struct {
	Name string
	// Disabled keeps him out, whatever he shows.
	Disabled bool
	// Generation is the least of his certificates and tokens that are good. It is taken
	// from the epoch when he is made and at each revocation, so it only grows, also
	// when one of his name was there before.
	Generation uint64
	Created    time.Time // in milliseconds
	// Until is when the last of his certificates ends that were not revoked, in milliseconds: zero if there
	// is none, UntilUnknown if that was not noted. His tokens have records of their own.
	Until time.Time
}

// UntilUnknown is the Until of a record that does not tell: as if there was a certificate for ever.
var UntilUnknown = time.UnixMilli(millisMax).UTC()

// Covers notes a certificate that he is given, which ends then.
func (p *Principal) Covers(end time.Time) {
	if end.After(p.Until) {
		p.Until = time.UnixMilli(end.UnixMilli()).UTC()
	}
}

// Check returns nil if a certificate or token of that generation lets the principal in.
// Errors: ErrDisabled, ErrRevoked.
func (p *Principal) Check(generation uint64) error {
	switch {
	case p.Disabled:
		return ErrDisabled
	case generation < p.Generation:
		return ErrRevoked
	}
	return nil
}

// Encode returns the record's bytes.
func (p *Principal) Encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(6)
	e.Uint(recordVersion)
	e.Str(p.Name)
	e.Bool(p.Disabled)
	e.Uint(p.Generation)
	e.Uint(uint64(max(0, p.Created.UnixMilli())))
	e.Uint(uint64(max(0, p.Until.UnixMilli())))
	return slices.Clone(e.Bytes())
}

// millisMax bounds times that are read: milliseconds up to the year 10000.
const millisMax = 253402300800000

// DecodePrincipal reads what Encode writes. Errors: *RecordError.
func DecodePrincipal(b []byte) (*Principal, error) {
	d := wire.NewDecoder(b)
	p := &Principal{}
	n := header(&d, 5, 6)
	p.Name, p.Disabled, p.Generation = d.Str(), d.Bool(), d.Uint()
	p.Created = time.UnixMilli(int64(min(d.Uint(), millisMax))).UTC()
	p.Until = UntilUnknown
	if n == 6 {
		if ms := d.Uint(); ms == 0 {
			p.Until = time.Time{}
		} else {
			p.Until = time.UnixMilli(int64(min(ms, millisMax))).UTC()
		}
	}
	if d.Err() == nil {
		if err := pki.CheckName("name of a principal", p.Name); err != nil {
			d.Fail(err)
		}
	}
	if err := atEnd(&d); err != nil {
		return nil, &RecordError{"principal", err}
	}
	return p, nil
}
