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

// Reasons to reject a well-formed token. They are wrapped in a *RefusedError.
var (
	// ErrUnknown means that the token does not exist or that its secret is wrong. The two cases are
	// deliberately indistinguishable.
	ErrUnknown = errors.New("unknown token")
	// ErrExpired means that the token has expired.
	ErrExpired = errors.New("token has expired")
	// ErrSpent means that the token has no uses left.
	ErrSpent = errors.New("token is spent")
	// ErrOtherNode means that the token is restricted to another node.
	ErrOtherNode = errors.New("token is for another node")
)

// RefusedError reports which token was rejected, and why.
type RefusedError struct {
	ID  ID
	Why error // one of the above
}

func (e *RefusedError) Error() string {
	hint := "check that it belongs to this cluster and was not revoked"
	switch e.Why {
	case ErrExpired:
		hint = "create a new one"
	case ErrOtherNode:
		hint = "use it on the node that it was created for"
	case ErrSpent:
		hint = "another host has used it: create a new one, and investigate if that use was not expected"
	}
	return fmt.Sprintf("%v (id %s): %s", e.Why, e.ID, hint)
}

func (e *RefusedError) Unwrap() error { return e.Why }

// UsesMax bounds the uses of a join token, because its record lists them.
const UsesMax = 1000

// commentBytesMax bounds the comment of an access token.
const commentBytesMax = 256

// JoinRecord is what the cluster stores of a join token. It cannot be used in place of the token.
type JoinRecord struct {
	ID            ID
	Hash          [sha256.Size]byte
	Created, Ends time.Time // millisecond precision
	// Uses is the number of uses left.
	Uses int
	// Node, unless empty, is the id of the only node that may use the token: an existing node whose
	// certificate has expired. Other tokens are for new nodes. The signer must reject ids of
	// existing nodes for them, or a host could impersonate any node.
	Node string
	// Spent lists the uses so far.
	Spent []Use
}

// Use is one use of a join token.
type Use struct {
	Node string
	Key  [sha256.Size]byte // pki.KeyHash of the node's request
}

// NewJoinRecord returns the record of a new join token. node is as in JoinRecord.Node.
func NewJoinRecord(t Token, now time.Time, uses int, node string) (*JoinRecord, error) {
	switch {
	case t.kind != Join || t.secret == nil:
		return nil, errors.New("not a join token")
	case uses < 1 || uses > UsesMax:
		return nil, fmt.Errorf("join token with %d uses: want 1 to %d", uses, UsesMax)
	case t.ends.IsZero():
		return nil, errors.New("join token does not expire: set a time to live")
	case node != "" && uses != 1:
		return nil, fmt.Errorf("join token for node %s with %d uses: want 1", node, uses)
	}
	if node != "" {
		if err := pki.CheckName("id of a node", node); err != nil {
			return nil, err
		}
	}
	return &JoinRecord{ID: t.id, Hash: t.hash(), Created: millis(now), Ends: t.ends, Uses: uses, Node: node}, nil
}

// Spend uses the token for a node with a key. It returns the record to store by compare-and-set
// before the node gets anything, so that one of two concurrent uses fails. A repeated request with
// the same node and key succeeds without another use, because the first answer may have been lost.
// Spend then returns r itself. Errors: *RefusedError.
//
// A nil record represents an unknown token. It takes as long as a wrong secret.
func (r *JoinRecord) Spend(t Token, node string, key [sha256.Size]byte, now time.Time) (*JoinRecord, error) {
	kept := r
	if kept == nil {
		kept = &JoinRecord{}
	}
	good := matches(t, Join, kept.ID, kept.Hash)
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

// AccessRecord is what the cluster stores of an access token.
type AccessRecord struct {
	ID      ID
	Hash    [sha256.Size]byte
	Created time.Time // millisecond precision
	Ends    time.Time // zero means never
	// Principal is the principal that the token authenticates. Generation is the principal's when
	// the token was created, as in certificates.
	Principal  string
	Generation uint64
	// Comment is free text for operators.
	Comment string
}

// NewAccessRecord returns the record of a new access token.
func NewAccessRecord(t Token, now time.Time, principal string, generation uint64, comment string) (*AccessRecord, error) {
	if t.kind != Access || t.secret == nil {
		return nil, errors.New("not an access token")
	}
	if err := pki.CheckName("name of a principal", principal); err != nil {
		return nil, err
	}
	if len(comment) > commentBytesMax {
		return nil, fmt.Errorf("comment of %d bytes: want at most %d", len(comment), commentBytesMax)
	}
	return &AccessRecord{ID: t.id, Hash: t.hash(), Created: millis(now), Ends: t.ends, Principal: principal, Generation: generation, Comment: comment}, nil
}

// Check returns nil if t is the token of this record and has not expired. A nil record represents
// an unknown token. Errors: *RefusedError.
func (r *AccessRecord) Check(t Token, now time.Time) error {
	kept := r
	if kept == nil {
		kept = &AccessRecord{}
	}
	good := matches(t, Access, kept.ID, kept.Hash)
	if !good || r == nil {
		return &RefusedError{t.id, ErrUnknown}
	}
	return r.Valid(now)
}

// Valid returns nil if the token, which Check has accepted before, has not expired since.
func (r *AccessRecord) Valid(now time.Time) error {
	if !r.Ends.IsZero() && !now.Before(r.Ends) {
		return &RefusedError{r.ID, ErrExpired}
	}
	return nil
}

// matches reports in constant time whether t matches the stored kind, id and hash.
func matches(t Token, kind Kind, id ID, hash [sha256.Size]byte) bool {
	h := t.hash()
	equal := subtle.ConstantTimeCompare(h[:], hash[:]) & subtle.ConstantTimeCompare(t.id[:], id[:])
	return equal == 1 && t.kind == kind && t.secret != nil
}

// millis truncates a time to the precision of records.
func millis(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }

// recordVersion is the version of both kinds of record.
const recordVersion = 1

// RecordError means that stored bytes are not a valid token record.
type RecordError struct{ Err error }

func (e *RecordError) Error() string { return fmt.Sprintf("decode token record: %v", e.Err) }

func (e *RecordError) Unwrap() error { return e.Err }

// Encode returns the encoded record.
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

// DecodeJoin decodes what Encode returns. Errors: *RecordError.
func DecodeJoin(b []byte) (*JoinRecord, error) {
	d := wire.NewDecoder(b)
	r := &JoinRecord{}
	header(&d, 8)
	readFixed(&d, r.ID[:])
	readFixed(&d, r.Hash[:])
	r.Created, r.Ends = readTime(&d), readTime(&d)
	if n := d.Uint(); n > UsesMax {
		d.Fail(fmt.Errorf("%d uses left, at most %d", n, UsesMax))
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
			d.Fail(errors.New("a use is not a pair"))
		}
		u.Node = readName(&d)
		readFixed(&d, u.Key[:])
		if d.Err() != nil {
			break
		}
		r.Spent = append(r.Spent, u)
	}
	if d.Err() == nil && r.Ends.IsZero() {
		d.Fail(errors.New("the expiry is missing"))
	}
	return r, atEnd(&d)
}

// Encode returns the encoded record.
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

// DecodeAccess decodes what Encode returns. Errors: *RecordError.
func DecodeAccess(b []byte) (*AccessRecord, error) {
	d := wire.NewDecoder(b)
	r := &AccessRecord{}
	header(&d, 8)
	readFixed(&d, r.ID[:])
	readFixed(&d, r.Hash[:])
	r.Created, r.Ends = readTime(&d), readTime(&d)
	r.Principal, r.Generation, r.Comment = readName(&d), d.Uint(), d.Str()
	if len(r.Comment) > commentBytesMax {
		d.Fail(errors.New("the comment is too long"))
	}
	return r, atEnd(&d)
}

func header(d *wire.Decoder, values int) {
	n, v := d.Array(), d.Uint()
	switch {
	case d.Err() != nil:
	case v != recordVersion:
		d.Fail(fmt.Errorf("unsupported version %d: expected %d", v, recordVersion))
	case n != values:
		d.Fail(fmt.Errorf("%d elements, expected %d", n, values))
	}
}

func atEnd(d *wire.Decoder) error {
	if d.More() {
		d.Fail(errors.New("trailing bytes"))
	}
	if err := d.Err(); err != nil {
		return &RecordError{err}
	}
	return nil
}

func readFixed(d *wire.Decoder, to []byte) {
	if b := d.Bytes(); d.Err() == nil && copy(to, b) != len(b) || d.Err() == nil && len(b) != len(to) {
		d.Fail(fmt.Errorf("value of %d bytes, expected %d", len(b), len(to)))
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

// appendTime encodes milliseconds since 1970, or zero for the zero Time.
func appendTime(e *wire.Encoder, t time.Time) {
	if t.IsZero() {
		e.Uint(0)
		return
	}
	e.Uint(uint64(t.UnixMilli()))
}

// millisMax bounds decoded times: milliseconds up to the year 10000.
const millisMax = 253402300800000

func readTime(d *wire.Decoder) time.Time {
	ms := d.Uint()
	if ms > millisMax {
		d.Fail(errors.New("time is after the year 9999"))
	}
	if d.Err() != nil || ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms)).UTC()
}
