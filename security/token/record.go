package token

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/security/pki"
)

// Why a token that can be read is refused: a *RefusedError.
var (
	// ErrUnknown means that there is no such token, or that its secret is wrong: which
	// of the two is not told.
	ErrUnknown = errors.New("unknown token")
	// ErrExpired means that the token has ended.
	ErrExpired = errors.New("token has expired")
	// ErrSpent means that the token was used as often as it may be.
	ErrSpent = errors.New("token is spent")
	// ErrOtherNode means that the token is for one node, and not for the one that uses it.
	ErrOtherNode = errors.New("token is for another node")
)

// RefusedError says which token is refused, and why.
type RefusedError struct {
	ID  ID
	Why error // one of the above
}

func (e *RefusedError) Error() string {
	hint := "see that it is of this cluster and was not revoked"
	switch e.Why {
	case ErrExpired:
		hint = "have a new one made"
	case ErrOtherNode:
		hint = "use it on the node that it was made for"
	case ErrSpent:
		hint = "another host has used it: have a new one made, and find out who did if nobody should have"
	}
	return fmt.Sprintf("%v (id %s): %s", e.Why, e.ID, hint)
}

func (e *RefusedError) Unwrap() error { return e.Why }

// UsesMax bounds how often a join token may be used: its record keeps who did.
const UsesMax = 1000

// commentBytesMax bounds what people say of a token.
const commentBytesMax = 256

// JoinRecord is what the cluster keeps of a join token: nothing that could be used in
// its place.
type JoinRecord struct {
	ID            ID
	Hash          [sha256.Size]byte
	Created, Ends time.Time // in milliseconds
	// Uses is how often the token may still be used.
	Uses int
	// Node, unless empty, is the id of the only node that may use it: one that the cluster
	// has and whose certificate has expired. Others are for nodes that are new: whoever
	// signs must refuse the ids of those that there are, or a host could become any node.
	Node string
	// Spent is who has used it.
	Spent []Use
}

// Use is one use of a join token.
type Use struct {
	Node string
	Key  [sha256.Size]byte // pki.KeyHash of the node's request
}

// NewJoinRecord returns the record of a join token that was just made. Node is as in the
// record: empty for new nodes.
func NewJoinRecord(t Token, now time.Time, uses int, node string) (*JoinRecord, error) {
	switch {
	case t.kind != Join || t.secret == nil:
		return nil, errors.New("not a join token")
	case uses < 1 || uses > UsesMax:
		return nil, fmt.Errorf("join token for %d hosts: want 1 to %d", uses, UsesMax)
	case t.ends.IsZero():
		return nil, errors.New("join token without an end: give it a time to live")
	case node != "" && uses != 1:
		return nil, fmt.Errorf("join token for node %s that is used %d times", node, uses)
	}
	if node != "" {
		if err := pki.CheckName("id of a node", node); err != nil {
			return nil, err
		}
	}
	return &JoinRecord{ID: t.id, Hash: t.hash(), Created: millis(now), Ends: t.ends, Uses: uses, Node: node}, nil
}

// Spend uses the token for a node with a key. It returns the record as it must be kept
// before the node gets anything, by a compare-and-set, so that of two uses at once one
// fails. A node that asks again with the same key, since the answer to it was lost, is let
// in without another use: the record is r itself then. Errors: *RefusedError.
//
// A nil record stands for a token that is not known. It takes as long as a wrong secret.
func (r *JoinRecord) Spend(t Token, node string, key [sha256.Size]byte, now time.Time) (*JoinRecord, error) {
	kept := r
	if kept == nil {
		kept = &JoinRecord{}
	}
	good := same(t, Join, kept.ID, kept.Hash)
	switch {
	case !good || r == nil:
		return nil, &RefusedError{t.id, ErrUnknown}
	case !now.Before(r.Ends):
		return nil, &RefusedError{t.id, ErrExpired}
	case r.Node != "" && r.Node != node:
		return nil, &RefusedError{t.id, ErrOtherNode}
	case slices.Contains(r.Spent, Use{node, key}):
		return r, nil
	case r.Uses <= 0:
		return nil, &RefusedError{t.id, ErrSpent}
	}
	next := *r
	next.Uses--
	next.Spent = append(slices.Clone(r.Spent), Use{node, key})
	return &next, nil
}

// AccessRecord is what the cluster keeps of an access token.
type AccessRecord struct {
	ID      ID
	Hash    [sha256.Size]byte
	Created time.Time // in milliseconds
	Ends    time.Time // the zero Time is never
	// Principal is whom the token makes its bearer. Generation is the principal's when
	// the token was made, as in certificates.
	Principal  string
	Generation uint64
	// Comment is for people.
	Comment string
}

// NewAccessRecord returns the record of an access token that was just made.
func NewAccessRecord(t Token, now time.Time, principal string, generation uint64, comment string) (*AccessRecord, error) {
	if t.kind != Access || t.secret == nil {
		return nil, errors.New("not an access token")
	}
	if err := pki.CheckName("name of a principal", principal); err != nil {
		return nil, err
	}
	if len(comment) > commentBytesMax {
		return nil, fmt.Errorf("comment of %d bytes, at most %d are kept", len(comment), commentBytesMax)
	}
	return &AccessRecord{ID: t.id, Hash: t.hash(), Created: millis(now), Ends: t.ends, Principal: principal, Generation: generation, Comment: comment}, nil
}

// Check returns nil if the token is the record's, and has not ended. Errors:
// *RefusedError. A nil record stands for a token that is not known.
func (r *AccessRecord) Check(t Token, now time.Time) error {
	kept := r
	if kept == nil {
		kept = &AccessRecord{}
	}
	good := same(t, Access, kept.ID, kept.Hash)
	if !good || r == nil {
		return &RefusedError{t.id, ErrUnknown}
	}
	return r.Valid(now)
}

// Valid returns nil if the token, which Check has seen, has not ended since.
func (r *AccessRecord) Valid(now time.Time) error {
	if !r.Ends.IsZero() && !now.Before(r.Ends) {
		return &RefusedError{r.ID, ErrExpired}
	}
	return nil
}

// same compares a token with what was kept of one, in constant time.
func same(t Token, kind Kind, id ID, hash [sha256.Size]byte) bool {
	h := t.hash()
	equal := subtle.ConstantTimeCompare(h[:], hash[:]) & subtle.ConstantTimeCompare(t.id[:], id[:])
	return equal == 1 && t.kind == kind && t.secret != nil
}

// millis is a time as records keep it.
func millis(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }

// recordVersion is that of both records.
const recordVersion = 1

// RecordError is about bytes that are no record of a token.
type RecordError struct{ Err error }

func (e *RecordError) Error() string { return fmt.Sprintf("read the record of a token: %v", e.Err) }

func (e *RecordError) Unwrap() error { return e.Err }

// Encode returns the record's bytes.
func (r *JoinRecord) Encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(8)
	e.Uint(recordVersion)
	e.Bin(r.ID[:])
	e.Bin(r.Hash[:])
	appendTime(e, r.Created)
	appendTime(e, r.Ends)
	e.Uint(uint64(r.Uses))
	e.Str(r.Node)
	e.Array(len(r.Spent))
	for _, u := range r.Spent {
		e.Array(2)
		e.Str(u.Node)
		e.Bin(u.Key[:])
	}
	return slices.Clone(e.Bytes())
}

// DecodeJoin reads what Encode writes. Errors: *RecordError.
func DecodeJoin(b []byte) (*JoinRecord, error) {
	d := wire.NewDecoder(b)
	r := &JoinRecord{}
	header(&d, 8)
	readFixed(&d, r.ID[:])
	readFixed(&d, r.Hash[:])
	r.Created, r.Ends = readTime(&d), readTime(&d)
	if n := d.Uint(); n > UsesMax {
		d.Fail(fmt.Errorf("%d uses are left", n))
	} else {
		r.Uses = int(n)
	}
	if r.Node = d.Str(); r.Node != "" && d.Err() == nil {
		if err := pki.CheckName("id of a node", r.Node); err != nil {
			d.Fail(err)
		}
	}
	for range d.ArrayMax(UsesMax) {
		var u Use
		if d.Array() != 2 {
			d.Fail(errors.New("a use is no pair"))
		}
		u.Node = readName(&d)
		readFixed(&d, u.Key[:])
		if d.Err() != nil {
			break
		}
		r.Spent = append(r.Spent, u)
	}
	if d.Err() == nil && r.Ends.IsZero() {
		d.Fail(errors.New("it has no end"))
	}
	return r, atEnd(&d)
}

// Encode returns the record's bytes.
func (r *AccessRecord) Encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(8)
	e.Uint(recordVersion)
	e.Bin(r.ID[:])
	e.Bin(r.Hash[:])
	appendTime(e, r.Created)
	appendTime(e, r.Ends)
	e.Str(r.Principal)
	e.Uint(r.Generation)
	e.Str(r.Comment)
	return slices.Clone(e.Bytes())
}

// DecodeAccess reads what Encode writes. Errors: *RecordError.
func DecodeAccess(b []byte) (*AccessRecord, error) {
	d := wire.NewDecoder(b)
	r := &AccessRecord{}
	header(&d, 8)
	readFixed(&d, r.ID[:])
	readFixed(&d, r.Hash[:])
	r.Created, r.Ends = readTime(&d), readTime(&d)
	r.Principal, r.Generation, r.Comment = readName(&d), d.Uint(), d.Str()
	if len(r.Comment) > commentBytesMax {
		d.Fail(errors.New("its comment is too long"))
	}
	return r, atEnd(&d)
}

func header(d *wire.Decoder, values int) {
	n, v := d.Array(), d.Uint()
	switch {
	case d.Err() != nil:
	case v != recordVersion:
		d.Fail(fmt.Errorf("it is of version %d, this program knows %d", v, recordVersion))
	case n != values:
		d.Fail(fmt.Errorf("it has %d values, not %d", n, values))
	}
}

func atEnd(d *wire.Decoder) error {
	if d.More() {
		d.Fail(errors.New("bytes follow it"))
	}
	if err := d.Err(); err != nil {
		return &RecordError{err}
	}
	return nil
}

func readFixed(d *wire.Decoder, to []byte) {
	if b := d.Bytes(); d.Err() == nil && copy(to, b) != len(b) || d.Err() == nil && len(b) != len(to) {
		d.Fail(fmt.Errorf("a value has %d bytes, not %d", len(b), len(to)))
	}
}

func readName(d *wire.Decoder) string {
	s := d.Str()
	if d.Err() == nil {
		if err := pki.CheckName("name", s); err != nil {
			d.Fail(err)
		}
	}
	return s
}

// appendTime writes milliseconds since 1970; zero for the zero Time.
func appendTime(e *wire.Encoder, t time.Time) {
	if t.IsZero() {
		e.Uint(0)
		return
	}
	e.Uint(uint64(t.UnixMilli()))
}

// millisMax bounds times that are read: milliseconds up to the year 10000.
const millisMax = 253402300800000

func readTime(d *wire.Decoder) time.Time {
	ms := d.Uint()
	if ms > millisMax {
		d.Fail(errors.New("a time is after the year 9999"))
	}
	if d.Err() != nil || ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms)).UTC()
}
