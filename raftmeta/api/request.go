package api

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

// request holds the parameters of any method. Its shape determines which fields are used.
type request struct {
	*shape
	timeout time.Duration // timeout_ms, of every method

	session                  SessionID
	name, path, acl, owner   string
	after                    string
	data                     []byte // aliases the message
	generation               uint64
	term, acked, watch, hold uint64
	seen, since, absentSince uint64
	from                     string
	fromGeneration           uint64
	mode                     Mode
	kinds                    EventKind
	sequencer, guard         Sequencer
	lease, hang, wait, delay time.Duration
	stale, ephemeral, node   bool
}

const (
	traceIDBytesMax = 64
	timeoutMax      = 24 * time.Hour
	// sequencerBytesMax is the length of mode, two numbers of 20 digits, three colons and the path.
	sequencerBytesMax = 9 + 2*20 + 3 + PathBytesMax
)

// append encodes the parameters.
func (r *request) append(e *wire.Encoder) {
	n := 0
	for _, f := range r.options {
		if r.isSet(f) {
			n++
		}
	}
	if r.timeout > 0 {
		n++
	}
	e.Array(len(r.params) + min(n, 1))
	for _, f := range r.params {
		r.appendField(e, f)
	}
	if n == 0 {
		return
	}
	e.Map(n)
	for _, f := range r.options {
		if r.isSet(f) {
			e.Str(optionNames[f])
			r.appendField(e, f)
		}
	}
	if r.timeout > 0 {
		e.Str("timeout_ms")
		e.Int(max(1, r.timeout.Milliseconds()))
	}
}

// isSet reports whether an option differs from its default.
func (r *request) isSet(f field) bool {
	switch f {
	case fieldOptSession:
		return r.session != 0
	case fieldLease:
		return r.lease > 0
	case fieldHang:
		return r.hang > 0
	case fieldStale:
		return r.stale
	case fieldEphemeral:
		return r.ephemeral
	case fieldGuard:
		return r.guard.Path != ""
	case fieldAbsentSince:
		return r.absentSince != 0
	case fieldFrom, fieldFromGeneration:
		return r.from != ""
	case fieldWait:
		return r.wait > 0
	case fieldDelay:
		return r.delay > 0
	case fieldHold:
		return r.hold != 0
	case fieldSeen:
		return r.seen != 0
	case fieldNode:
		return r.node
	case fieldOwner:
		return r.owner != ""
	case fieldSince:
		return r.since != 0
	case fieldAfter:
		return r.after != ""
	}
	return false
}

func (r *request) appendField(e *wire.Encoder, f field) {
	switch f {
	case fieldSession, fieldOptSession:
		e.Uint(uint64(r.session))
	case fieldName:
		e.Str(r.name)
	case fieldTerm:
		e.Uint(r.term)
	case fieldAcked:
		e.Uint(r.acked)
	case fieldPath:
		e.Str(r.path)
	case fieldData:
		e.Bin(r.data)
	case fieldGeneration:
		appendGeneration(e, r.generation)
	case fieldACL:
		e.Str(r.acl)
	case fieldMode:
		e.Str(r.mode.String())
	case fieldSequencer:
		e.Str(r.sequencer.String())
	case fieldKinds:
		e.Uint(uint64(r.kinds))
	case fieldWatch:
		e.Uint(r.watch)
	case fieldLease:
		appendMillis(e, r.lease)
	case fieldHang:
		appendMillis(e, r.hang)
	case fieldStale:
		e.Bool(r.stale)
	case fieldEphemeral:
		e.Bool(r.ephemeral)
	case fieldGuard:
		e.Str(r.guard.String())
	case fieldAbsentSince:
		e.Uint(r.absentSince)
	case fieldFrom:
		e.Str(r.from)
	case fieldFromGeneration:
		e.Uint(r.fromGeneration)
	case fieldWait:
		appendMillis(e, r.wait)
	case fieldDelay:
		appendMillis(e, r.delay)
	case fieldHold:
		e.Uint(r.hold)
	case fieldSeen:
		e.Uint(r.seen)
	case fieldNode:
		e.Bool(r.node)
	case fieldOwner:
		e.Str(r.owner)
	case fieldSince:
		e.Uint(r.since)
	case fieldAfter:
		e.Str(r.after)
	}
}

// decode reads the n parameters in d. The error is one that ToRPC knows. Only values that cost
// memory or have no Go representation are checked.
func (r *request) decode(d *wire.Decoder, n int) error {
	if least := len(r.params); n < least || n > least+1 {
		return rpc.Errorf(rpc.CodeBadRequest, "%s: %d parameters, want %d or %d", r.method, n, least, least+1)
	}
	for _, f := range r.params {
		if err := r.decodeField(d, f); err != nil {
			return err
		}
	}
	if n == len(r.params) || d.IsNil() {
		return d.Err()
	}
	for range d.Map() {
		key := d.Bytes()
		if err := r.decodeOption(key, d); err != nil {
			return optionError(key, err)
		}
	}
	return d.Err()
}

// optionError adds the name of the option to a type error of its value.
func optionError(key []byte, err error) error {
	var bad *wire.FormatError
	if errors.As(err, &bad) {
		return fmt.Errorf("option %.40s: %w", key, err)
	}
	return err
}

// decodeOption reads the value of an option. An unknown key is an error: a misspelt "hold" would
// release any lock. Keys that begin with "x_" are reserved for other programs and ignored.
func (r *request) decodeOption(key []byte, d *wire.Decoder) error {
	switch string(key) {
	case "timeout_ms":
		if !d.IsNil() {
			r.timeout = decodeMillis(d, "timeout_ms", 1)
		}
		return d.Err()
	case "trace_id":
		if d.IsNil() {
			return nil
		}
		if b := d.Bytes(); len(b) > traceIDBytesMax {
			return rpc.Errorf(rpc.CodeBadRequest, "option trace_id has %d bytes, at most %d", len(b), traceIDBytesMax)
		}
		return d.Err()
	}
	for _, f := range r.options {
		if string(key) == optionNames[f] {
			if d.IsNil() { // the default
				return nil
			}
			if err := r.decodeField(d, f); err != nil {
				return err
			}
			if f == fieldHold && r.hold == 0 || f == fieldOptSession && r.session == 0 {
				return rpc.Errorf(rpc.CodeBadRequest, "%s: option %s is 0, want at least 1: leave it out for none", r.method, key)
			}
			return nil
		}
	}
	if bytes.HasPrefix(key, []byte("x_")) {
		d.Skip()
		return d.Err()
	}
	if err := d.Err(); err != nil {
		return err
	}
	return rpc.Errorf(rpc.CodeBadRequest, "%s: unknown option %.40q", r.method, key)
}

func (r *request) decodeField(d *wire.Decoder, f field) (err error) {
	switch f {
	case fieldSession, fieldOptSession:
		r.session = SessionID(d.Uint())
	case fieldName:
		r.name, err = decodeText(d, LimitName, SessionNameBytesMax)
	case fieldTerm:
		r.term = d.Uint()
	case fieldAcked:
		r.acked = d.Uint()
	case fieldPath:
		r.path, err = decodePath(d)
	case fieldData:
		if r.data = d.Bytes(); len(r.data) > FileBytesMax {
			err = &TooLargeError{What: LimitFile, Limit: FileBytesMax, Got: int64(len(r.data))}
		}
	case fieldGeneration:
		r.generation = decodeGeneration(d)
	case fieldACL:
		r.acl, err = decodeText(d, LimitACL, ACLBytesMax)
	case fieldMode:
		r.mode, err = decodeMode(d)
	case fieldSequencer:
		r.sequencer, err = decodeSequencer(d)
	case fieldKinds:
		kinds := d.Uint()
		if r.kinds = EventKind(kinds & uint64(AllEvents)); uint64(r.kinds) != kinds || kinds == 0 && d.Err() == nil {
			err = rpc.Errorf(rpc.CodeBadRequest, "kinds of events are %d, want a sum of some of 1, 2, 4, 8, 16", kinds)
		}
	case fieldWatch:
		r.watch = d.Uint()
	case fieldLease:
		r.lease = decodeMillis(d, "lease_ms", 1)
	case fieldHang:
		r.hang = decodeMillis(d, "hang_ms", 0)
	case fieldStale:
		r.stale = d.Bool()
	case fieldEphemeral:
		r.ephemeral = d.Bool()
	case fieldGuard:
		r.guard, err = decodeSequencer(d)
	case fieldAbsentSince:
		r.absentSince = d.Uint()
	case fieldFrom:
		r.from, err = decodePath(d)
	case fieldFromGeneration:
		r.fromGeneration = d.Uint()
	case fieldWait:
		r.wait = decodeMillis(d, "wait_ms", 0)
	case fieldDelay:
		r.delay = decodeMillis(d, "delay_ms", 0)
	case fieldHold:
		r.hold = d.Uint()
	case fieldSeen:
		r.seen = d.Uint()
	case fieldNode:
		r.node = d.Bool()
	case fieldOwner:
		b := d.Bytes()
		if len(b) > OwnerBytesMax {
			return rpc.Errorf(rpc.CodeBadRequest, "option owner has %d bytes, at most %d", len(b), OwnerBytesMax)
		}
		r.owner = string(b)
	case fieldSince:
		r.since = d.Uint()
	case fieldAfter:
		r.after, err = decodeText(d, LimitName, PathBytesMax)
	}
	if d.Err() != nil { // it came first
		return d.Err()
	}
	return err
}

// appendGeneration encodes the generation of a compare-and-set: nil matches any.
func appendGeneration(e *wire.Encoder, gen uint64) {
	if gen == AnyGeneration {
		e.Nil()
		return
	}
	e.Uint(gen)
}

func decodeGeneration(d *wire.Decoder) uint64 {
	if d.IsNil() {
		return AnyGeneration
	}
	return d.Uint()
}

// appendMillis encodes a duration in ms, rounded up, so that the server waits at least as long as
// requested.
func appendMillis(e *wire.Encoder, t time.Duration) {
	e.Int(int64(min(max(t, 0), timeoutMax)+time.Millisecond-1) / int64(time.Millisecond))
}

// decodeMillis reads a duration in ms. name is used in the error for a value below least.
func decodeMillis(d *wire.Decoder, name string, least int64) time.Duration {
	ms := d.Int()
	if ms < least && d.Err() == nil {
		d.Fail(rpc.Errorf(rpc.CodeBadRequest, "%s is %d, want at least %d", name, ms, least))
		return 0
	}
	return time.Duration(min(ms, timeoutMax.Milliseconds())) * time.Millisecond
}

func decodeText(d *wire.Decoder, what string, limit int) (string, error) {
	b := d.Bytes()
	if len(b) > limit {
		return "", &TooLargeError{What: what, Limit: int64(limit), Got: int64(len(b))}
	}
	return string(b), nil
}

func decodePath(d *wire.Decoder) (string, error) {
	b := d.Bytes()
	if len(b) > PathBytesMax {
		return "", &PathError{string(b[:81]), fmt.Sprintf("is longer than %d bytes", PathBytesMax)}
	}
	return string(b), nil
}

func decodeMode(d *wire.Decoder) (Mode, error) {
	switch b := d.Bytes(); string(b) {
	case "exclusive":
		return Exclusive, nil
	case "shared":
		return Shared, nil
	default:
		return 0, rpc.Errorf(rpc.CodeBadRequest, "mode %.40q is neither exclusive nor shared", b)
	}
}

func decodeSequencer(d *wire.Decoder) (Sequencer, error) {
	b := d.Bytes()
	if len(b) > sequencerBytesMax {
		return Sequencer{}, rpc.Errorf(rpc.CodeBadRequest, "sequencer of %d bytes, at most %d", len(b), sequencerBytesMax)
	}
	q, err := ParseSequencer(string(b))
	if err != nil {
		return q, rpc.Errorf(rpc.CodeBadRequest, "%v", err)
	}
	return q, nil
}

// decodeInt reads a count into an int.
func decodeInt(d *wire.Decoder) int { return int(min(d.Uint(), math.MaxInt)) }
