package quota

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// Where quotas are kept in the namespace of the lock service.
const (
	Dir = "/quota"
	// EpochFile is written last by each change of what is below Dir. Its generation is the epoch.
	EpochFile     = Dir + "/epoch"
	TablesDir     = Dir + "/tables"
	PrincipalsDir = Dir + "/principals"
	OwnersDir     = Dir + "/owners"
)

// OwnerFile returns where it is kept whose a table is.
func OwnerFile(table uint64) string { return OwnersDir + "/" + strconv.FormatUint(table, 10) }

// TableFile returns where the quota of a table is.
func TableFile(id uint64) string { return TablesDir + "/" + strconv.FormatUint(id, 10) }

// PrincipalFile returns where the quota of a principal is.
func PrincipalFile(name string) string { return PrincipalsDir + "/" + name }

// Kind is what a rate is of. The numbers are kept in records.
type Kind uint8

// The kinds of rates. Operations on rows count, not requests.
const (
	ReadOps    Kind = 1
	ReadBytes  Kind = 2
	WriteOps   Kind = 3
	WriteBytes Kind = 4
)

// Kinds is how many there are.
const Kinds = 4

var kindNames = [Kinds]string{"read_ops", "read_bytes", "write_ops", "write_bytes"}

// index is the place of a kind in arrays.
func (k Kind) index() int { return int(k) - 1 }

// String returns the kind's name.
func (k Kind) String() string {
	if k < ReadOps || k > WriteBytes {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return kindNames[k.index()]
}

// Rate bounds one kind.
type Rate struct {
	PerSecond int64 // 0 is no bound
	// Burst is how long a bucket that nobody has used may be used at once: it holds so much of the rate.
	Burst time.Duration
}

// Bounds of rates.
const (
	BurstDefault = time.Second
	BurstMin     = 10 * time.Millisecond
	BurstMax     = time.Hour
	// PerSecondMax is far above what a cluster can do, and far below what arithmetic can.
	PerSecondMax = 1e15
)

// Record is a quota. The zero Record bounds nothing.
type Record struct {
	Name string // of the table or the principal
	// BytesMax bounds SSTables and memtables, without replicas; 0 is no bound.
	BytesMax int64
	Rates    [Kinds]Rate
}

// Rate returns the bound of a kind.
func (r *Record) Rate(k Kind) Rate { return r.Rates[k.index()] }

// Empty tells whether the quota bounds nothing.
func (r *Record) Empty() bool { return r.BytesMax == 0 && !r.hasRates() }

// EncodeOwner returns the bytes of an owner's file: [1, name].
func EncodeOwner(name string) []byte {
	e := wire.GetEncoder()
	defer e.Release()
	e.Array(2)
	e.Uint(recordVersion)
	e.Str(name)
	return slices.Clone(e.Bytes())
}

// DecodeOwner reads what EncodeOwner writes. Errors: *RecordError.
func DecodeOwner(b []byte) (name string, err error) {
	d := wire.NewDecoder(b)
	n, version := d.Array(), d.Uint()
	if name = d.Str(); d.Err() == nil && (n != 2 || version != recordVersion || name == "" || d.More()) {
		d.Fail(errors.New("it is not a version and a name"))
	}
	if d.Err() != nil {
		return "", &RecordError{d.Err()}
	}
	return name, nil
}

func (r *Record) hasRates() bool {
	return slices.ContainsFunc(r.Rates[:], func(x Rate) bool { return x.PerSecond != 0 })
}

// Check returns an error that says what is out of range.
func (r *Record) Check() error {
	if r.BytesMax < 0 {
		return fmt.Errorf("quota of %d bytes: it must not be negative", r.BytesMax)
	}
	for i, x := range r.Rates {
		switch {
		case x.PerSecond < 0 || x.PerSecond > PerSecondMax:
			return fmt.Errorf("quota of %d %s per second: it must be from 0 to %d", x.PerSecond, kindNames[i], int64(PerSecondMax))
		case x.PerSecond > 0 && (x.Burst < BurstMin || x.Burst > BurstMax):
			return fmt.Errorf("burst of %v: it must be from %v to %v", x.Burst, BurstMin, BurstMax)
		}
	}
	return nil
}

// RecordError means that a file does not hold a quota.
type RecordError struct{ Err error }

func (e *RecordError) Error() string { return "record of a quota: " + e.Err.Error() }
func (e *RecordError) Unwrap() error { return e.Err }

const recordVersion = 1

// Encode returns the record's bytes: [1, name, bytes, [[kind, per second, burst in ms]...]].
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

// Decode reads what Encode writes. A kind that this program does not know is an error: what it
// would leave out would be lost when it writes the record again. Errors: *RecordError.
func Decode(b []byte) (*Record, error) {
	d := wire.NewDecoder(b)
	r := &Record{}
	n, version := d.Array(), d.Uint()
	if d.Err() == nil && (n != 4 || version != recordVersion) {
		d.Fail(fmt.Errorf("it has %d values and version %d, this program knows 4 and version %d", n, version, recordVersion))
	}
	r.Name, r.BytesMax = d.Str(), d.Int()
	for range d.ArrayMax(Kinds) {
		if d.Array() != 3 {
			d.Fail(errors.New("a rate has not three values"))
		}
		k, x := d.Uint(), Rate{PerSecond: d.Int()}
		x.Burst = time.Duration(min(max(d.Int(), 0), BurstMax.Milliseconds()+1)) * time.Millisecond
		if d.Err() != nil {
			break
		}
		if k < 1 || k > Kinds || r.Rates[k-1].PerSecond != 0 || x.PerSecond == 0 {
			d.Fail(fmt.Errorf("rate of the kind %d is not known, or is there twice, or none", k))
			break
		}
		r.Rates[k-1] = x
	}
	if d.Err() == nil && d.More() {
		d.Fail(errors.New("bytes follow it"))
	}
	if err := errors.Join(d.Err(), r.Check()); err != nil {
		return nil, &RecordError{err}
	}
	return r, nil
}
