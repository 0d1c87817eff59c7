package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/raftmeta/api"
)

// commandVersion is the newest version of commands in the log. Commands without From are encoded as version 4, those without
// AbsentSince too as version 3, and those without a quota too as version 2, which older programs can read.
const (
	commandVersion       = 5
	commandWithoutFrom   = 4
	commandWithoutAbsent = 3
	commandWithoutQuota  = 2
)

// Op is the number of an operation. Numbers are append-only.
type Op uint8

const (
	OpSet           Op = 1
	OpDelete        Op = 2
	OpOpenSession   Op = 3
	OpCloseSession  Op = 4
	OpExpireSession Op = 5
	OpAcquire       Op = 6
	OpRelease       Op = 7
	OpEndLockDelay  Op = 8
	OpMarkCached    Op = 9
	OpSetACL        Op = 10

	OpNewest = OpSetACL
)

// Command is one change of the state machine, as encoded in the log. doc.go lists the operands of
// each operation.
type Command struct {
	Op Op
	// Term is the term of the leader that proposed the command. In an entry of another term the
	// command has no effect, because that leader's view of leases and caches is out of date. Zero,
	// in commands of version 1 and in tests, matches any term.
	Term       uint64
	Path       string
	Data       []byte // of a set; after DecodeCommand it aliases the input
	Generation uint64
	Session    api.SessionID
	Ephemeral  bool
	// AbsentSince is the option of that name of a set; zero is none.
	AbsentSince uint64
	// From and FromGeneration are the options of these names of a set; an empty path is none.
	From           string
	FromGeneration uint64
	Guard          api.Sequencer
	Name           string // of a session, or of an ACL
	Mode           api.Mode
	// Duration is a lease or a lock-delay, in whole milliseconds.
	Duration time.Duration
	Hold     uint64
	Sessions []api.SessionID
	Delays   []DelayRef
	// Quota limits the user that the command is charged to; nil for the cluster itself.
	Quota *Quota
	// Final is not encoded. If set, only the state machine checks the quota. The caller may be
	// retrying a command of unknown outcome, and a rejection must then hold for both attempts.
	Final bool
}

// DelayRef identifies a lock-delay: that of the lock at path, begun by the command at index.
type DelayRef struct {
	Path  string
	Index uint64
}

// owner returns the user that the command is charged to, empty for the cluster itself.
func (c *Command) owner() string {
	if c.Quota == nil {
		return ""
	}
	return c.Quota.Owner
}

// BatchMax bounds the sessions or lock-delays that one command ends.
const BatchMax = 128

// commandOverhead bounds the encoded size of a command without its paths and data: the array,
// integers of at most 9 bytes, and headers of at most 5.
const commandOverhead = 128 + quotaBytesMax

// quotaBytesMax bounds the encoded size of a quota.
const quotaBytesMax = api.OwnerBytesMax + 64

// CommandBytesMax bounds the encoded size of a command.
const CommandBytesMax = commandOverhead + 3*PathBytesMax + api.FileBytesMax

// operands is the number of values after version, operation and term.
var operands = [OpNewest + 1]int{
	OpSet: 6, OpDelete: 4, OpOpenSession: 2, OpCloseSession: 1, OpExpireSession: 1,
	OpAcquire: 4, OpRelease: 3, OpEndLockDelay: 1, OpMarkCached: 2, OpSetACL: 4,
}

// Encode returns the command as specified in doc.go. The caller owns the slice.
func (c *Command) Encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	if c.Op == 0 || c.Op > OpNewest {
		panic(fmt.Sprintf("BUG: encode command with operation %d", c.Op))
	}
	version := c.version()
	e.Array(3 + operands[c.Op] + extraValues(version))
	e.Uint(uint64(version))
	e.Uint(uint64(c.Op))
	e.Uint(c.Term)
	switch c.Op {
	case OpSet:
		e.Str(c.Path)
		e.Bin(c.Data)
		encodeGeneration(e, c.Generation)
		e.Uint(uint64(c.Session))
		e.Bool(c.Ephemeral)
		encodeGuard(e, c.Guard)
	case OpDelete:
		e.Str(c.Path)
		encodeGeneration(e, c.Generation)
		e.Uint(uint64(c.Session))
		encodeGuard(e, c.Guard)
	case OpSetACL:
		e.Str(c.Path)
		e.Str(c.Name)
		e.Uint(uint64(c.Session))
		encodeGuard(e, c.Guard)
	case OpMarkCached:
		e.Str(c.Path)
		e.Uint(c.Generation)
	default:
		c.encodeSession(e)
	}
	switch {
	case c.Quota != nil:
		c.Quota.encode(e)
	case version > commandWithoutQuota:
		e.Nil()
	}
	if version > commandWithoutAbsent {
		e.Uint(c.AbsentSince)
	}
	if version > commandWithoutFrom {
		e.Str(c.From)
		e.Uint(c.FromGeneration)
	}
	return bytes.Clone(e.Bytes())
}

// extraValues returns the number of values that follow the operands. Each version has one more than the one before it, and version 5 two.
func extraValues(version int) int {
	n := max(0, version-commandWithoutQuota)
	if version > commandWithoutFrom {
		n++
	}
	return n
}

// version returns the oldest version that has all of the command.
func (c *Command) version() int {
	switch {
	case c.From != "":
		return commandVersion
	case c.AbsentSince != 0:
		return commandWithoutFrom
	case c.Quota != nil:
		return commandWithoutAbsent
	}
	return commandWithoutQuota
}

// encodeSession encodes the operands of operations on sessions and locks.
func (c *Command) encodeSession(e *wire.Encoder) {
	switch c.Op {
	case OpOpenSession:
		e.Str(c.Name)
		e.Uint(uint64(c.Duration / time.Millisecond))
	case OpCloseSession:
		e.Uint(uint64(c.Session))
	case OpExpireSession:
		e.Array(len(c.Sessions))
		for _, s := range c.Sessions {
			e.Uint(uint64(s))
		}
	case OpAcquire:
		e.Uint(uint64(c.Session))
		e.Str(c.Path)
		e.Uint(uint64(c.Mode))
		e.Uint(uint64(c.Duration / time.Millisecond))
	case OpRelease:
		e.Uint(uint64(c.Session))
		e.Str(c.Path)
		e.Uint(c.Hold)
	case OpEndLockDelay:
		e.Array(len(c.Delays))
		for _, d := range c.Delays {
			e.Array(2)
			e.Str(d.Path)
			e.Uint(d.Index)
		}
	}
}

func encodeGeneration(e *wire.Encoder, gen uint64) {
	if gen == api.AnyGeneration {
		e.Nil()
		return
	}
	e.Uint(gen)
}

func encodeGuard(e *wire.Encoder, q api.Sequencer) {
	if q.Path == "" {
		e.Nil()
		return
	}
	e.Array(4)
	e.Str(q.Path)
	e.Uint(uint64(q.Mode))
	e.Uint(q.Instance)
	e.Uint(q.LockGeneration)
}

// errBadCommand means that bytes are not a valid command of the version they declare.
var errBadCommand = errors.New("malformed command")

// DecodeCommand reads the result of Encode, and commands of version 1. The data of the command
// aliases b. The error is a *VersionError if a newer program wrote b, and otherwise wraps
// errBadCommand. Only the form is checked; the namespace validates paths.
func DecodeCommand(b []byte) (Command, error) {
	if len(b) > CommandBytesMax {
		return Command{}, fmt.Errorf("%w: %d bytes, at most %d", errBadCommand, len(b), CommandBytesMax)
	}
	d := wire.NewDecoder(b)
	n := d.Array()
	version := d.Uint()
	number := d.Uint()
	switch {
	case d.Err() != nil || n < 2:
		return Command{}, fmt.Errorf("%w: %w", errBadCommand, cause(d.Err()))
	case version == 0 || number == 0:
		return Command{}, fmt.Errorf("%w: version %d, operation %d", errBadCommand, version, number)
	case version > commandVersion:
		return Command{}, &VersionError{What: "command", Version: version, Known: commandVersion}
	case number > uint64(OpNewest):
		return Command{}, &VersionError{What: "operation", Version: number, Known: uint64(OpNewest)}
	}
	c := Command{Op: Op(number)}
	want := 3 + operands[c.Op] + extraValues(int(version))
	if version == 1 {
		want = c.decodeVersion1(&d)
	} else {
		c.Term = d.Uint()
		c.decode(&d)
		c.decodeExtra(&d, version)
	}
	if d.Err() != nil || n != want || d.More() {
		return Command{}, fmt.Errorf("%w: %w", errBadCommand, cause(d.Err()))
	}
	return c, nil
}

// decodeExtra reads the values that follow the operands in a version.
func (c *Command) decodeExtra(d *wire.Decoder, version uint64) {
	if version > commandWithoutQuota {
		c.Quota = decodeQuotaOf(d, version)
	}
	if version > commandWithoutAbsent {
		c.AbsentSince = d.Uint()
	}
	if version > commandWithoutFrom {
		if c.From, c.FromGeneration = d.Str(), d.Uint(); c.From == "" {
			d.Fail(errShape)
		}
	}
}

// decodeQuotaOf reads the quota of a command. Since version 4 it may be nil.
func decodeQuotaOf(d *wire.Decoder, version uint64) *Quota {
	if version > commandWithoutAbsent && d.IsNil() {
		return nil
	}
	return decodeQuota(d)
}

// decodeVersion1 reads the operands of version 1, which had two operations and neither terms nor
// sessions. It returns the expected length of the array.
func (c *Command) decodeVersion1(d *wire.Decoder) int {
	if c.Op > OpDelete {
		return 0
	}
	want := 4
	c.Path = d.Str()
	if c.Op == OpSet {
		want = 5
		c.Data = d.Bytes()
	}
	c.Generation = decodeGeneration(d)
	return want
}

func (c *Command) decode(d *wire.Decoder) {
	switch c.Op {
	case OpSet:
		c.Path, c.Data = d.Str(), d.Bytes()
		c.Generation = decodeGeneration(d)
		c.Session, c.Ephemeral = api.SessionID(d.Uint()), d.Bool()
		c.Guard = decodeGuard(d)
	case OpDelete:
		c.Path = d.Str()
		c.Generation = decodeGeneration(d)
		c.Session = api.SessionID(d.Uint())
		c.Guard = decodeGuard(d)
	case OpSetACL:
		c.Path, c.Name = d.Str(), d.Str()
		c.Session = api.SessionID(d.Uint())
		c.Guard = decodeGuard(d)
	case OpMarkCached:
		c.Path, c.Generation = d.Str(), d.Uint()
	default:
		c.decodeSession(d)
	}
}

// decodeSession reads the operands of operations on sessions and locks.
func (c *Command) decodeSession(d *wire.Decoder) {
	switch c.Op {
	case OpOpenSession:
		c.Name, c.Duration = d.Str(), decodeMillis(d, api.LeaseMax)
	case OpCloseSession:
		c.Session = api.SessionID(d.Uint())
	case OpExpireSession:
		for range d.ArrayMax(BatchMax) {
			c.Sessions = append(c.Sessions, api.SessionID(d.Uint()))
		}
	case OpAcquire:
		c.Session, c.Path = api.SessionID(d.Uint()), d.Str()
		c.Mode = decodeMode(d)
		c.Duration = decodeMillis(d, api.LockDelayMax)
	case OpRelease:
		c.Session, c.Path, c.Hold = api.SessionID(d.Uint()), d.Str(), d.Uint()
	case OpEndLockDelay:
		for range d.ArrayMax(BatchMax) {
			if d.Array() != 2 {
				d.Fail(errShape)
				return
			}
			c.Delays = append(c.Delays, DelayRef{d.Str(), d.Uint()})
		}
	}
}

func decodeGeneration(d *wire.Decoder) uint64 {
	if d.IsNil() {
		return api.AnyGeneration
	}
	return d.Uint()
}

func decodeGuard(d *wire.Decoder) (q api.Sequencer) {
	if d.IsNil() {
		return q
	}
	if d.Array() != 4 {
		d.Fail(errShape)
		return q
	}
	q.Path, q.Mode, q.Instance, q.LockGeneration = d.Str(), decodeMode(d), d.Uint(), d.Uint()
	if q.Path == "" {
		d.Fail(errShape)
	}
	return q
}

func decodeMode(d *wire.Decoder) api.Mode {
	m := d.Uint()
	if m != uint64(api.Exclusive) && m != uint64(api.Shared) {
		d.Fail(errShape)
	}
	return api.Mode(m)
}

// decodeMillis reads a duration in ms, from zero to limit.
func decodeMillis(d *wire.Decoder, limit time.Duration) time.Duration {
	ms := d.Uint()
	if ms > uint64(limit/time.Millisecond) {
		d.Fail(errShape)
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// errShape means that the values are well formed, but their number is wrong or one is out of range.
var errShape = errors.New("wrong number of values, or one out of range")

// cause returns err, or errShape if err is nil.
func cause(err error) error {
	if err == nil {
		return errShape
	}
	return err
}
