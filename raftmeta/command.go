package raftmeta

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/raftmeta/api"
)

// commandVersion is the newest version of commands in the log. Commands without a quota are encoded
// as version 2, which older programs can read.
const (
	commandVersion      = 3
	commandWithoutQuota = 2
)

// op is the number of an operation. Numbers are append-only.
type op uint8

const (
	opSet           op = 1
	opDelete        op = 2
	opOpenSession   op = 3
	opCloseSession  op = 4
	opExpireSession op = 5
	opAcquire       op = 6
	opRelease       op = 7
	opEndLockDelay  op = 8
	opMarkCached    op = 9
	opSetACL        op = 10

	opNewest = opSetACL
)

// command is one change of the state machine, as encoded in the log. doc.go lists the operands of
// each operation.
type command struct {
	op op
	// term is the term of the leader that proposed the command. In an entry of another term the
	// command has no effect, because that leader's view of leases and caches is out of date. Zero,
	// in commands of version 1 and in tests, matches any term.
	term       uint64
	path       string
	data       []byte // of a set; after decodeCommand it aliases the input
	generation uint64
	session    api.SessionID
	ephemeral  bool
	guard      api.Sequencer
	name       string // of a session, or of an ACL
	mode       api.Mode
	// duration is a lease or a lock-delay, in whole milliseconds.
	duration time.Duration
	hold     uint64
	sessions []api.SessionID
	delays   []delayRef
	// quota limits the user that the command is charged to; nil for the cluster itself.
	quota *Quota
	// final is not encoded. If set, only the state machine checks the quota. The caller may be
	// retrying a command of unknown outcome, and a rejection must then hold for both attempts.
	final bool
}

// delayRef identifies a lock-delay: that of the lock at path, begun by the command at index.
type delayRef struct {
	path  string
	index uint64
}

// owner returns the user that the command is charged to, empty for the cluster itself.
func (c *command) owner() string {
	if c.quota == nil {
		return ""
	}
	return c.quota.Owner
}

// batchMax bounds the sessions or lock-delays that one command ends.
const batchMax = 128

// commandOverhead bounds the encoded size of a command without its paths and data: the array,
// integers of at most 9 bytes, and headers of at most 5.
const commandOverhead = 128 + quotaBytesMax

// quotaBytesMax bounds the encoded size of a quota.
const quotaBytesMax = OwnerBytesMax + 64

// commandBytesMax bounds the encoded size of a command.
const commandBytesMax = commandOverhead + 2*PathBytesMax + FileBytesMax

// operands is the number of values after version, operation and term.
var operands = [opNewest + 1]int{
	opSet: 6, opDelete: 4, opOpenSession: 2, opCloseSession: 1, opExpireSession: 1,
	opAcquire: 4, opRelease: 3, opEndLockDelay: 1, opMarkCached: 2, opSetACL: 4,
}

// encode returns the command as specified in doc.go. The caller owns the slice.
func (c *command) encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	if c.op == 0 || c.op > opNewest {
		panic(fmt.Sprintf("BUG: encode command with operation %d", c.op))
	}
	if c.quota == nil {
		e.Array(3 + operands[c.op])
		e.Uint(commandWithoutQuota)
	} else {
		e.Array(4 + operands[c.op])
		e.Uint(commandVersion)
	}
	e.Uint(uint64(c.op))
	e.Uint(c.term)
	switch c.op {
	case opSet:
		e.Str(c.path)
		e.Bin(c.data)
		encodeGeneration(e, c.generation)
		e.Uint(uint64(c.session))
		e.Bool(c.ephemeral)
		encodeGuard(e, c.guard)
	case opDelete:
		e.Str(c.path)
		encodeGeneration(e, c.generation)
		e.Uint(uint64(c.session))
		encodeGuard(e, c.guard)
	case opSetACL:
		e.Str(c.path)
		e.Str(c.name)
		e.Uint(uint64(c.session))
		encodeGuard(e, c.guard)
	case opMarkCached:
		e.Str(c.path)
		e.Uint(c.generation)
	default:
		c.encodeSession(e)
	}
	if c.quota != nil {
		c.quota.encode(e)
	}
	return bytes.Clone(e.Bytes())
}

// encodeSession encodes the operands of operations on sessions and locks.
func (c *command) encodeSession(e *wire.Encoder) {
	switch c.op {
	case opOpenSession:
		e.Str(c.name)
		e.Uint(uint64(c.duration / time.Millisecond))
	case opCloseSession:
		e.Uint(uint64(c.session))
	case opExpireSession:
		e.Array(len(c.sessions))
		for _, s := range c.sessions {
			e.Uint(uint64(s))
		}
	case opAcquire:
		e.Uint(uint64(c.session))
		e.Str(c.path)
		e.Uint(uint64(c.mode))
		e.Uint(uint64(c.duration / time.Millisecond))
	case opRelease:
		e.Uint(uint64(c.session))
		e.Str(c.path)
		e.Uint(c.hold)
	case opEndLockDelay:
		e.Array(len(c.delays))
		for _, d := range c.delays {
			e.Array(2)
			e.Str(d.path)
			e.Uint(d.index)
		}
	}
}

func encodeGeneration(e *wire.Encoder, gen uint64) {
	if gen == AnyGeneration {
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

// decodeCommand reads the result of encode, and commands of version 1. The data of the command
// aliases b. The error is a *VersionError if a newer program wrote b, and otherwise wraps
// errBadCommand. Only the form is checked; the namespace validates paths.
func decodeCommand(b []byte) (command, error) {
	if len(b) > commandBytesMax {
		return command{}, fmt.Errorf("%w: %d bytes, at most %d", errBadCommand, len(b), commandBytesMax)
	}
	d := wire.NewDecoder(b)
	n := d.Array()
	version := d.Uint()
	number := d.Uint()
	switch {
	case d.Err() != nil || n < 2:
		return command{}, fmt.Errorf("%w: %w", errBadCommand, cause(d.Err()))
	case version == 0 || number == 0:
		return command{}, fmt.Errorf("%w: version %d, operation %d", errBadCommand, version, number)
	case version > commandVersion:
		return command{}, &VersionError{What: "command", Version: version, Known: commandVersion}
	case number > uint64(opNewest):
		return command{}, &VersionError{What: "operation", Version: number, Known: uint64(opNewest)}
	}
	c := command{op: op(number)}
	want := 3 + operands[c.op]
	if version == 1 {
		want = c.decodeVersion1(&d)
	} else {
		c.term = d.Uint()
		c.decode(&d)
		if version > commandWithoutQuota {
			want++
			c.quota = decodeQuota(&d)
		}
	}
	if d.Err() != nil || n != want || d.More() {
		return command{}, fmt.Errorf("%w: %w", errBadCommand, cause(d.Err()))
	}
	return c, nil
}

// decodeVersion1 reads the operands of version 1, which had two operations and neither terms nor
// sessions. It returns the expected length of the array.
func (c *command) decodeVersion1(d *wire.Decoder) int {
	if c.op > opDelete {
		return 0
	}
	want := 4
	c.path = d.Str()
	if c.op == opSet {
		want = 5
		c.data = d.Bytes()
	}
	c.generation = decodeGeneration(d)
	return want
}

func (c *command) decode(d *wire.Decoder) {
	switch c.op {
	case opSet:
		c.path, c.data = d.Str(), d.Bytes()
		c.generation = decodeGeneration(d)
		c.session, c.ephemeral = api.SessionID(d.Uint()), d.Bool()
		c.guard = decodeGuard(d)
	case opDelete:
		c.path = d.Str()
		c.generation = decodeGeneration(d)
		c.session = api.SessionID(d.Uint())
		c.guard = decodeGuard(d)
	case opSetACL:
		c.path, c.name = d.Str(), d.Str()
		c.session = api.SessionID(d.Uint())
		c.guard = decodeGuard(d)
	case opMarkCached:
		c.path, c.generation = d.Str(), d.Uint()
	default:
		c.decodeSession(d)
	}
}

// decodeSession reads the operands of operations on sessions and locks.
func (c *command) decodeSession(d *wire.Decoder) {
	switch c.op {
	case opOpenSession:
		c.name, c.duration = d.Str(), decodeMillis(d, api.LeaseMax)
	case opCloseSession:
		c.session = api.SessionID(d.Uint())
	case opExpireSession:
		for range d.ArrayMax(batchMax) {
			c.sessions = append(c.sessions, api.SessionID(d.Uint()))
		}
	case opAcquire:
		c.session, c.path = api.SessionID(d.Uint()), d.Str()
		c.mode = decodeMode(d)
		c.duration = decodeMillis(d, api.LockDelayMax)
	case opRelease:
		c.session, c.path, c.hold = api.SessionID(d.Uint()), d.Str(), d.Uint()
	case opEndLockDelay:
		for range d.ArrayMax(batchMax) {
			if d.Array() != 2 {
				d.Fail(errShape)
				return
			}
			c.delays = append(c.delays, delayRef{d.Str(), d.Uint()})
		}
	}
}

func decodeGeneration(d *wire.Decoder) uint64 {
	if d.IsNil() {
		return AnyGeneration
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
