package quota

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// Paths of quotas in the lock service's namespace.
const (
	Dir = "/quota"
	// EpochFile is written last by each change below Dir. Its generation is the epoch.
	EpochFile     = Dir + "/epoch"
	TablesDir     = Dir + "/tables"
	PrincipalsDir = Dir + "/principals"
	OwnersDir     = Dir + "/owners"
)

// OwnerFile returns the path of the file that names a table's owner.
func OwnerFile(table uint64) string { return OwnersDir + "/" + strconv.FormatUint(table, 10) }

// TableFile returns the path of a table's quota.
func TableFile(id uint64) string { return TablesDir + "/" + strconv.FormatUint(id, 10) }

// PrincipalFile returns the path of a principal's quota.
func PrincipalFile(name string) string { return PrincipalsDir + "/" + name }

// Kind is the kind of a rate. The numbers are stored in records: append only.
type Kind uint8

// The kinds of rates. Operations count rows, not requests.
const (
	ReadOps    Kind = 1
	ReadBytes  Kind = 2
	WriteOps   Kind = 3
	WriteBytes Kind = 4
)

// Kinds is the number of kinds.
const Kinds = 4

var kindNames = [Kinds]string{"read_ops", "read_bytes", "write_ops", "write_bytes"}

// index returns the kind's index in arrays.
func (k Kind) index() int { return int(k) - 1 }

// String returns the kind's name.
func (k Kind) String() string {
	if k < ReadOps || k > WriteBytes {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return kindNames[k.index()]
}

// Rate limits one kind.
type Rate struct {
	PerSecond int64 // 0 means no limit
	// Burst is the capacity of a bucket, as the time in which the rate fills it.
	Burst time.Duration
}

// Bounds of rates.
const (
	BurstDefault = time.Second
	BurstMin     = 10 * time.Millisecond
	BurstMax     = time.Hour
	// PerSecondMax is far above what a cluster can do, and far below overflow.
	PerSecondMax = 1e15
)

// Record is a quota. The zero Record limits nothing.
type Record struct {
	Name string // of the table or the principal
	// BytesMax limits the bytes of SSTables and memtables, not counting replicas; 0 means no limit.
	BytesMax int64
	Rates    [Kinds]Rate
}

// Rate returns the limit of a kind.
func (r *Record) Rate(k Kind) Rate { return r.Rates[k.index()] }

// Empty reports whether the quota limits nothing.
func (r *Record) Empty() bool { return r.BytesMax == 0 && !r.hasRates() }

// EncodeOwner encodes an owner's file: [1, name].
func EncodeOwner(name string) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(2)
	e.Uint(recordVersion)
	e.Str(name)
	return slices.Clone(e.Bytes())
}

// DecodeOwner decodes the output of EncodeOwner. Errors: *RecordError.
func DecodeOwner(b []byte) (name string, err error) {
	d := wire.NewDecoder(b)
	n, version := d.Array(), d.Uint()
	if name = d.Str(); d.Err() == nil && (n != 2 || version != recordVersion || name == "" || d.More()) {
		d.Fail(errors.New("not a version and a name"))
	}
	if d.Err() != nil {
		return "", &RecordError{d.Err()}
	}
	return name, nil
}

func (r *Record) hasRates() bool {
	return slices.ContainsFunc(r.Rates[:], func(x Rate) bool { return x.PerSecond != 0 })
}

// Check returns an error that names the value out of range.
func (r *Record) Check() error {
	if r.BytesMax < 0 {
		return fmt.Errorf("quota of %d bytes: must not be negative", r.BytesMax)
	}
	for i, x := range r.Rates {
		switch {
		case x.PerSecond < 0 || x.PerSecond > PerSecondMax:
			return fmt.Errorf("quota of %d %s per second: must be 0 to %d", x.PerSecond, kindNames[i], int64(PerSecondMax))
		case x.PerSecond > 0 && (x.Burst < BurstMin || x.Burst > BurstMax):
			return fmt.Errorf("burst of %v: must be %v to %v", x.Burst, BurstMin, BurstMax)
		}
	}
	return nil
}

// RecordError means that a file does not hold a valid quota or owner.
type RecordError struct{ Err error }

func (e *RecordError) Error() string { return "decode quota: " + e.Err.Error() }
func (e *RecordError) Unwrap() error { return e.Err }

const recordVersion = 1

// Encode returns the record's encoding: [1, name, bytes, [[kind, per second, burst in ms]...]].
func (r *Record) Encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(4)
	e.Uint(recordVersion)
	e.Str(r.Name)
	e.Int(r.BytesMax)
	n := 0
	for _, x := range r.Rates {
		if x.PerSecond != 0 {
			n++
		}
	}
	e.Array(n)
	for i, x := range r.Rates {
		if x.PerSecond != 0 {
			e.Array(3)
			e.Int(int64(i + 1))
			e.Int(x.PerSecond)
			e.Int(x.Burst.Milliseconds())
		}
	}
	return slices.Clone(e.Bytes())
}

// Decode decodes the output of Encode. An unknown kind is an error: it would be lost when the
// record is written again. Errors: *RecordError.
func Decode(b []byte) (*Record, error) {
	d := wire.NewDecoder(b)
	r := &Record{}
	n, version := d.Array(), d.Uint()
	if d.Err() == nil && (n != 4 || version != recordVersion) {
		d.Fail(fmt.Errorf("%d values and version %d, want 4 values and version %d", n, version, recordVersion))
	}
	r.Name, r.BytesMax = d.Str(), d.Int()
	for range d.ArrayMax(Kinds) {
		if d.Array() != 3 {
			d.Fail(errors.New("rate does not have three values"))
		}
		k, x := d.Uint(), Rate{PerSecond: d.Int()}
		x.Burst = time.Duration(min(max(d.Int(), 0), BurstMax.Milliseconds()+1)) * time.Millisecond
		if d.Err() != nil {
			break
		}
		if k < 1 || k > Kinds || r.Rates[k-1].PerSecond != 0 || x.PerSecond == 0 {
			d.Fail(fmt.Errorf("rate of kind %d is unknown, repeated or zero", k))
			break
		}
		r.Rates[k-1] = x
	}
	if d.Err() == nil && d.More() {
		d.Fail(errors.New("trailing bytes"))
	}
	if err := errors.Join(d.Err(), r.Check()); err != nil {
		return nil, &RecordError{err}
	}
	return r, nil
}
