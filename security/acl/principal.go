package acl

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/security/pki"
)

// Principal is the stored record of a principal.
type Principal struct {
	Name string
	// Disabled rejects every certificate and token of the principal.
	Disabled bool
	// Generation is the lowest generation of certificates and tokens that is valid. It is set from
	// the epoch when the principal is created and at each revocation. It therefore only grows, also
	// if an earlier principal had the same name.
	Generation uint64
	Created    time.Time // millisecond precision
	// Until is the expiry of the last certificate that is not revoked, with millisecond precision.
	// It is zero if there is none, and UntilUnknown if it was not recorded. Tokens have records of
	// their own.
	Until time.Time
	// Lost lists the certificates that were revoked individually. A new generation revokes all.
	Lost []LostCertificate
}

// LostCertificate is an individually revoked certificate.
type LostCertificate struct {
	Serial string    // in hexadecimal, as in pki.Peer
	Ends   time.Time // upper bound of its expiry, millisecond precision
}

// LostMax bounds the individually revoked certificates of one principal.
const LostMax = 200

// serialBytesMax is the maximum length of a serial number in hexadecimal: RFC 5280 allows 20 bytes.
const serialBytesMax = 40

// CheckSerial returns an error unless s is a serial number in the form of pki.Peer.
func CheckSerial(s string) error {
	if len(s) == 0 || len(s) > serialBytesMax || strings.Trim(s, "0123456789abcdef") != "" {
		return fmt.Errorf("serial number %.50q: want 1 to %d hexadecimal digits in lower case", s, serialBytesMax)
	}
	return nil
}

// Lose revokes one certificate and drops revoked certificates that have expired. Errors:
// ErrTooMany, that of CheckSerial.
func (p *Principal) Lose(serial string, now time.Time) error {
	if err := CheckSerial(serial); err != nil {
		return err
	}
	p.Lost = slices.DeleteFunc(p.Lost, func(l LostCertificate) bool { return l.Ends.Before(now) })
	if p.Revoked(serial) {
		return nil
	}
	if len(p.Lost) >= LostMax {
		return fmt.Errorf("%w: user %s has %d individually revoked certificates, the maximum: revoke all of the user's certificates", ErrTooMany, p.Name, LostMax)
	}
	ends := p.Until // no certificate of the principal expires later
	if ends.IsZero() || ends.Equal(UntilUnknown) {
		ends = now.Add(pki.PrincipalLifeMax)
	}
	p.Lost = append(p.Lost, LostCertificate{serial, time.UnixMilli(ends.UnixMilli()).UTC()})
	return nil
}

// Revoked reports whether the certificate with that serial number was revoked individually.
func (p *Principal) Revoked(serial string) bool {
	for i := range p.Lost {
		if p.Lost[i].Serial == serial {
			return true
		}
	}
	return false
}

// UntilUnknown is the Until of a record without that element: as if a certificate never expired.
var UntilUnknown = time.UnixMilli(millisMax).UTC()

// Covers records that a certificate with that expiry was issued to the principal.
func (p *Principal) Covers(end time.Time) {
	if end.After(p.Until) {
		p.Until = time.UnixMilli(end.UnixMilli()).UTC()
	}
}

// Check returns nil if the principal is enabled and a certificate or token of that generation is
// valid. Errors: ErrDisabled, ErrRevoked.
func (p *Principal) Check(generation uint64) error {
	switch {
	case p.Disabled:
		return ErrDisabled
	case generation < p.Generation:
		return ErrRevoked
	}
	return nil
}

// Encode returns the encoded record.
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

// millisMax caps decoded times: milliseconds up to the year 10000.
const millisMax = 253402300800000

// DecodePrincipal decodes what Encode returns. Errors: *RecordError.
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
		p.decodeRevoked(&d)
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

func (p *Principal) decodeRevoked(d *wire.Decoder) {
	n := d.Array()
	if d.Err() == nil && n > LostMax {
		d.Fail(fmt.Errorf("%d revoked certificates, at most %d", n, LostMax))
	}
	for range n {
		if d.Err() != nil {
			return
		}
		if two := d.Array(); d.Err() == nil && two != 2 {
			d.Fail(fmt.Errorf("a revoked certificate has %d elements, expected 2", two))
		}
		l := LostCertificate{Serial: d.Str(), Ends: time.UnixMilli(int64(min(d.Uint(), millisMax))).UTC()}
		if err := CheckSerial(l.Serial); d.Err() == nil && err != nil {
			d.Fail(err)
		}
		p.Lost = append(p.Lost, l)
	}
}
