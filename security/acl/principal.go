package acl

import (
	"fmt"
	"slices"
	"strings"
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
	// Lost are the certificates that were revoked one by one, by their serial numbers. A new generation revokes all.
	Lost []LostCertificate
}

// LostCertificate is a certificate that was revoked.
type LostCertificate struct {
	Serial string    // in hexadecimal, as pki.Peer has it
	Ends   time.Time // in milliseconds; after it the certificate is of no use anyway
}

// LostMax bounds the certificates of one principal that are revoked one by one.
const LostMax = 200

// serialBytesMax bounds a serial number in hexadecimal: RFC 5280 has 20 bytes.
const serialBytesMax = 40

// CheckSerial returns an error unless s is a serial number as pki.Peer has it.
func CheckSerial(s string) error {
	if len(s) == 0 || len(s) > serialBytesMax || strings.Trim(s, "0123456789abcdef") != "" {
		return fmt.Errorf("serial number %.50q: want 1 to %d hexadecimal digits in lower case", s, serialBytesMax)
	}
	return nil
}

// Lose revokes one certificate, and forgets those that have ended. Errors: ErrTooMany, that of CheckSerial.
func (p *Principal) Lose(serial string, now time.Time) error {
	if err := CheckSerial(serial); err != nil {
		return err
	}
	p.Lost = slices.DeleteFunc(p.Lost, func(l LostCertificate) bool { return l.Ends.Before(now) })
	if p.Revoked(serial) {
		return nil
	}
	if len(p.Lost) >= LostMax {
		return fmt.Errorf("%w: %d certificates of user %s are revoked one by one, the most: revoke all of them", ErrTooMany, LostMax, p.Name)
	}
	ends := p.Until // none of the certificates is good for longer
	if ends.IsZero() || ends.Equal(UntilUnknown) {
		ends = now.Add(pki.PrincipalLifeMax)
	}
	p.Lost = append(p.Lost, LostCertificate{serial, time.UnixMilli(ends.UnixMilli()).UTC()})
	return nil
}

// Revoked reports whether the certificate with that serial number was revoked by itself.
func (p *Principal) Revoked(serial string) bool {
	for i := range p.Lost {
		if p.Lost[i].Serial == serial {
			return true
		}
	}
	return false
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
	e.Array(6 + min(len(p.Lost), 1))
	e.Uint(recordVersion)
	e.Str(p.Name)
	e.Bool(p.Disabled)
	e.Uint(p.Generation)
	e.Uint(uint64(max(0, p.Created.UnixMilli())))
	e.Uint(uint64(max(0, p.Until.UnixMilli())))
	if len(p.Lost) > 0 {
		e.Array(len(p.Lost))
		for _, l := range p.Lost {
			e.Array(2)
			e.Str(l.Serial)
			e.Uint(uint64(max(0, l.Ends.UnixMilli())))
		}
	}
	return slices.Clone(e.Bytes())
}

// millisMax bounds times that are read: milliseconds up to the year 10000.
const millisMax = 253402300800000

// DecodePrincipal reads what Encode writes. Errors: *RecordError.
func DecodePrincipal(b []byte) (*Principal, error) {
	d := wire.NewDecoder(b)
	p := &Principal{}
	n := header(&d, 5, 6, 7)
	p.Name, p.Disabled, p.Generation = d.Str(), d.Bool(), d.Uint()
	p.Created = time.UnixMilli(int64(min(d.Uint(), millisMax))).UTC()
	p.Until = UntilUnknown
	if n >= 6 {
		if ms := d.Uint(); ms == 0 {
			p.Until = time.Time{}
		} else {
			p.Until = time.UnixMilli(int64(min(ms, millisMax))).UTC()
		}
	}
	if n == 7 {
		p.decodeLost(&d)
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

func (p *Principal) decodeLost(d *wire.Decoder) {
	n := d.Array()
	if d.Err() == nil && n > LostMax {
		d.Fail(fmt.Errorf("%d certificates are revoked, at most %d", n, LostMax))
	}
	for range n {
		if d.Err() != nil {
			return
		}
		if two := d.Array(); d.Err() == nil && two != 2 {
			d.Fail(fmt.Errorf("a revoked certificate has %d values, want 2", two))
		}
		l := LostCertificate{Serial: d.Str(), Ends: time.UnixMilli(int64(min(d.Uint(), millisMax))).UTC()}
		if err := CheckSerial(l.Serial); d.Err() == nil && err != nil {
			d.Fail(err)
		}
		p.Lost = append(p.Lost, l)
	}
}
