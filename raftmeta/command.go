package raftmeta

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/steledb/stele/internal/wire"
)

// commandVersion is the version of the commands in the log that this program
// writes, and the newest that it reads.
const commandVersion = 1

// op is the number of an operation in a command. Numbers are append-only.
type op uint8

const (
	opSet    op = 1
	opDelete op = 2

	opNewest = opDelete
)

// command is one change of the namespace, as it stands in the log.
type command struct {
	op         op
	path       string
	data       []byte // of a set; decodeCommand makes it alias its input
	generation uint64
}

// commandOverhead bounds the bytes of an encoded command beside its path and
// data: headers of the array, the path and the data, version, op, generation.
const commandOverhead = 1 + 3 + 5 + 1 + 1 + 9

// commandBytesMax bounds an encoded command.
const commandBytesMax = commandOverhead + PathBytesMax + FileBytesMax

// encode returns the command in the form that doc.go lays out, in a slice of
// its own.
func (c *command) encode() []byte {
	e := wire.GetEncoder()
	defer e.Release()
	switch c.op {
	case opSet:
		e.Array(5)
	case opDelete:
		e.Array(4)
	default:
		panic(fmt.Sprintf("BUG: encode command with operation %d", c.op))
	}
	e.Uint(commandVersion)
	e.Uint(uint64(c.op))
	e.Str(c.path)
	if c.op == opSet {
		e.Bin(c.data)
	}
	if c.generation == AnyGeneration {
		e.Nil()
	} else {
		e.Uint(c.generation)
	}
	return bytes.Clone(e.Bytes())
}

// errBadCommand means that bytes are no command of the version they claim.
var errBadCommand = errors.New("malformed command")

// decodeCommand reads what encode wrote. The command's data aliases b. The
// error is a *VersionError when a newer program wrote b, and otherwise wraps
// errBadCommand. It checks form only: whether the path may be used is for the
// namespace to say.
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
	fields := 4
	c.path = d.Str()
	if c.op == opSet {
		fields = 5
		c.data = d.Bytes()
	}
	if d.IsNil() {
		c.generation = AnyGeneration
	} else {
		c.generation = d.Uint()
	}
	if d.Err() != nil || n != fields || d.More() {
		return command{}, fmt.Errorf("%w: %w", errBadCommand, cause(d.Err()))
	}
	return c, nil
}

// errShape means that the values are well formed but not those wanted.
var errShape = errors.New("wrong number of values")

// cause is err, or errShape when there is none.
func cause(err error) error {
	if err == nil {
		return errShape
	}
	return err
}
