package raftmeta

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/steledb/stele/raftmeta/storage"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/crc"
	"github.com/steledb/stele/internal/wire"
)

// doc.go specifies the messages between servers.
const (
	helloName    = "stele raft"
	helloVersion = 1

	messageHeaderBytes = 4 + 4
	// appendBytesMax is the size from which a message takes no further entry; one entry always
	// fits.
	appendBytesMax = 4 << 20
	// messageBytesMax bounds a message: all entries but the last have less than appendBytesMax, and
	// the largest entry has a file and a path.
	messageBytesMax = appendBytesMax + 1<<20
	// entryCost bounds the encoded size of an entry's fields without its data.
	entryCost = 48
	// keptBytesMax bounds the buffer that an idle connection keeps.
	keptBytesMax = 64 << 10
)

// kind is the number of a message type. Numbers are append-only.
type kind uint8

const (
	kindError     kind = 0
	kindAppend    kind = 1
	kindHeartbeat kind = 2
	kindVote      kind = 3
	kindPreVote   kind = 4
	kindSnapshot  kind = 5
	kindElect     kind = 6 // raft's TimeoutNow: call an election
	kindTerm      kind = 7 // request the server's term
)

// kindNames has the kinds in words.
var kindNames = [...]string{kindError: "error", kindAppend: "append", kindHeartbeat: "heartbeat", kindVote: "vote", kindPreVote: "pre-vote",
	kindSnapshot: "snapshot", kindElect: "elect", kindTerm: "term"}

// parts is the number of values in a request of each kind, including the kind itself.
var parts = [...]int{kindAppend: 6, kindHeartbeat: 2, kindVote: 5, kindPreVote: 4, kindSnapshot: 8, kindElect: 1, kindTerm: 1}

// Codes of an error answer.
const (
	codeRefused   = 1
	codeNotMember = 2
)

// notMemberError is the answer of a server whose group has committed, at index, a configuration
// without the sender of the request.
type notMemberError struct {
	from  string // the server that reports it
	index uint64
}

func (e *notMemberError) Error() string {
	return fmt.Sprintf("%s reports that this server has not been a member of the group since entry %d", e.from, e.index)
}

// frames reads and writes messages on one connection. It is not safe for concurrent use.
type frames struct {
	net.Conn
	r    *bufio.Reader
	w    *bufio.Writer
	head [messageHeaderBytes]byte
	buf  []byte
}

func newFrames(c net.Conn) *frames {
	return &frames{Conn: c, r: bufio.NewReaderSize(c, 32<<10), w: bufio.NewWriterSize(c, 32<<10)}
}

// send writes the message in e.
func (f *frames) send(e *wire.Encoder) error {
	binary.BigEndian.PutUint32(f.head[:], uint32(e.Len()))
	binary.BigEndian.PutUint32(f.head[4:], crc.Sum(f.head[:4], e.Bytes()))
	if _, err := f.w.Write(f.head[:]); err != nil {
		return err
	}
	if _, err := f.w.Write(e.Bytes()); err != nil {
		return err
	}
	return f.w.Flush()
}

// recv reads a message. The result is valid until the next recv. begun, if not nil, is called once
// the header has arrived.
func (f *frames) recv(begun func()) ([]byte, error) {
	if _, err := io.ReadFull(f.r, f.head[:]); err != nil {
		return nil, err
	}
	if begun != nil {
		begun()
	}
	n := binary.BigEndian.Uint32(f.head[:])
	if n > messageBytesMax {
		return nil, fmt.Errorf("message of %d bytes, at most %d", n, messageBytesMax)
	}
	if cap(f.buf) > keptBytesMax {
		f.buf = nil
	}
	f.buf = slices.Grow(f.buf[:0], int(n))[:n]
	if _, err := io.ReadFull(f.r, f.buf); err != nil {
		return nil, err
	}
	if got, want := binary.BigEndian.Uint32(f.head[4:]), crc.Sum(f.head[:4], f.buf); got != want {
		return nil, fmt.Errorf("checksum of a message is %08x, not %08x", got, want)
	}
	return f.buf, nil
}

// encodeHello encodes the first message of a connection.
func encodeHello(e *wire.Encoder, from, to string) {
	e.Array(4)
	e.Str(helloName)
	e.Uint(helloVersion)
	e.Str(from)
	e.Str(to)
}

// decodeHello returns the id of the sender, or an error if the connection must be rejected.
func decodeHello(b []byte, self string) (from string, err error) {
	d := wire.NewDecoder(b)
	n, name, version := d.Array(), d.Str(), d.Uint()
	switch {
	case d.Err() != nil || name != helloName:
		return "", errors.New("peer is not a server of a group")
	case version != helloVersion || n != 4:
		return "", &fsm.VersionError{What: "connection", Version: version, Known: helloVersion}
	}
	from, to := d.Str(), d.Str()
	switch {
	case d.Err() != nil:
		return "", d.Err()
	case to != self:
		// This server has the former address of server to. Its vote would be counted as that of the
		// other server.
		return "", fmt.Errorf("this is server %s, not %s", self, to)
	case from == "" || len(from) > idBytesMax || from == self:
		return "", fmt.Errorf("bad server id %q", from)
	}
	return from, nil
}

// isHeartbeat reports whether a is one of raft's heartbeats.
func isHeartbeat(a *raft.AppendEntriesRequest) bool {
	return a.Term != 0 && a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}

// encodeAppend encodes a. It drops entries that would make the message too large; raft continues
// after the last one in a.
func encodeAppend(e *wire.Encoder, a *raft.AppendEntriesRequest) {
	bytes := 0
	for i, l := range a.Entries {
		bytes += len(l.Data) + entryCost
		if bytes > appendBytesMax && i > 0 {
			a.Entries = a.Entries[:i]
			break
		}
	}
	beginRequest(e, kindAppend, a.Term, a.PrevLogEntry, a.PrevLogTerm, a.LeaderCommitIndex)
	e.Array(len(a.Entries))
	for _, l := range a.Entries {
		e.Array(5)
		e.Uint(l.Index)
		e.Uint(l.Term)
		e.Uint(uint64(l.Type))
		e.Int(l.AppendedAt.UnixNano())
		e.Bin(l.Data)
	}
}

func decodeAppend(d *wire.Decoder) *raft.AppendEntriesRequest {
	a := &raft.AppendEntriesRequest{Term: d.Uint(), PrevLogEntry: d.Uint(), PrevLogTerm: d.Uint(), LeaderCommitIndex: d.Uint()}
	n := d.ArrayMax(entriesPerWrite)
	logs := make([]raft.Log, 0, n)
	for range n {
		if d.Array() != 5 {
			d.Fail(errors.New("bad entry"))
			break
		}
		l := raft.Log{Index: d.Uint(), Term: d.Uint(), Type: raft.LogType(d.Uint()), AppendedAt: time.Unix(0, d.Int())}
		// The machine retains the data, which must not keep the whole message in memory.
		l.Data = slices.Clone(d.Bytes())
		if l.Type > raft.LogConfiguration {
			d.Fail(fmt.Errorf("entry of type %d", l.Type))
			break
		}
		logs = append(logs, l)
	}
	for i := range logs {
		a.Entries = append(a.Entries, &logs[i])
	}
	return a
}

// begin starts a message of n values: the kind, then first.
func begin(e *wire.Encoder, n int, k kind, first ...uint64) {
	e.Array(n)
	e.Uint(uint64(k))
	for _, v := range first {
		e.Uint(v)
	}
}

func beginRequest(e *wire.Encoder, k kind, first ...uint64) { begin(e, parts[k], k, first...) }

// encodeRequest encodes raft's request, or a request for the term if it is nil.
func encodeRequest(e *wire.Encoder, request any) {
	switch r := request.(type) {
	case nil:
		beginRequest(e, kindTerm)
	case *raft.AppendEntriesRequest:
		if isHeartbeat(r) {
			beginRequest(e, kindHeartbeat, r.Term)
			return
		}
		encodeAppend(e, r)
	case *raft.RequestVoteRequest:
		beginRequest(e, kindVote, r.Term, r.LastLogIndex, r.LastLogTerm)
		e.Bool(r.LeadershipTransfer)
	case *raft.RequestPreVoteRequest:
		beginRequest(e, kindPreVote, r.Term, r.LastLogIndex, r.LastLogTerm)
	case *raft.InstallSnapshotRequest:
		beginRequest(e, kindSnapshot, r.Term, uint64(r.SnapshotVersion), r.LastLogIndex, r.LastLogTerm, r.ConfigurationIndex)
		e.Bin(r.Configuration)
		e.Int(r.Size)
	case *raft.TimeoutNowRequest:
		beginRequest(e, kindElect)
	default:
		panic(fmt.Sprintf("BUG: raft sends a %T", request))
	}
}

// headerOf returns the header that raft expects in a message. The sender is known from the
// connection.
func headerOf(from string) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(from), Addr: []byte(from)}
}

// decodeRequest reads the result of encodeRequest. A heartbeat becomes an AppendEntriesRequest.
func decodeRequest(b []byte, from string) (k kind, request any, err error) {
	d := wire.NewDecoder(b)
	n := d.Array()
	k = kind(d.Uint())
	want := 0
	if int(k) < len(parts) {
		want = parts[k]
	}
	if d.Err() == nil && n != want {
		return k, nil, fmt.Errorf("message of kind %d has %d parts, not %d", k, n, want)
	}
	header := headerOf(from)
	switch k {
	case kindAppend:
		a := decodeAppend(&d)
		a.RPCHeader = header
		request = a
	case kindHeartbeat:
		request = &raft.AppendEntriesRequest{RPCHeader: header, Term: d.Uint()}
	case kindVote:
		request = &raft.RequestVoteRequest{RPCHeader: header, Term: d.Uint(), LastLogIndex: d.Uint(), LastLogTerm: d.Uint(), LeadershipTransfer: d.Bool()}
	case kindPreVote:
		request = &raft.RequestPreVoteRequest{RPCHeader: header, Term: d.Uint(), LastLogIndex: d.Uint(), LastLogTerm: d.Uint()}
	case kindSnapshot:
		s := &raft.InstallSnapshotRequest{RPCHeader: header, Term: d.Uint(), SnapshotVersion: raft.SnapshotVersion(d.Uint()),
			LastLogIndex: d.Uint(), LastLogTerm: d.Uint(), ConfigurationIndex: d.Uint()}
		s.Configuration, s.Size = slices.Clone(d.Bytes()), d.Int()
		if s.Size < 0 {
			return k, nil, fmt.Errorf("snapshot of %d bytes", s.Size)
		}
		request = s
	case kindElect:
		request = &raft.TimeoutNowRequest{RPCHeader: header}
	}
	if d.Err() == nil && d.More() {
		return k, nil, errors.New("trailing bytes after a message")
	}
	return k, request, d.Err()
}

// encodeAnswer encodes raft's answer to a message of kind k, or err if it is not nil.
func encodeAnswer(e *wire.Encoder, k kind, answer any, err error) {
	if err != nil {
		code, index := codeRefused, uint64(0)
		if out := (*notMemberError)(nil); errors.As(err, &out) {
			code, index = codeNotMember, out.index
		}
		begin(e, 4, kindError, uint64(code), index)
		e.Str(err.Error())
		return
	}
	switch a := answer.(type) {
	case *raft.AppendEntriesResponse:
		begin(e, 5, k, a.Term, a.LastLog)
		e.Bool(a.Success)
		e.Bool(a.NoRetryBackoff)
	case *raft.RequestVoteResponse:
		encodeVote(e, k, a.Term, a.Granted)
	case *raft.RequestPreVoteResponse:
		encodeVote(e, k, a.Term, a.Granted)
	case *raft.InstallSnapshotResponse:
		encodeVote(e, k, a.Term, a.Success)
	case *raft.TimeoutNowResponse:
		encodeVote(e, k, 0, true)
	case termAnswer:
		encodeVote(e, k, uint64(a), true)
	default:
		panic(fmt.Sprintf("BUG: raft answers with a %T", answer))
	}
}

// termAnswer is the answer to a request for the term.
type termAnswer uint64

func encodeVote(e *wire.Encoder, k kind, term uint64, granted bool) {
	begin(e, 3, k, term)
	e.Bool(granted)
}

// decodeAnswer reads the result of encodeAnswer into answer, whose type matches the request.
func decodeAnswer(b []byte, from string, answer any) error {
	d := wire.NewDecoder(b)
	n := d.Array()
	k := kind(d.Uint())
	if want := answerParts(k, answer); d.Err() == nil && n != want {
		return fmt.Errorf("answer of kind %d has %d parts, not %d", k, n, want)
	}
	if k == kindError {
		code, index, text := d.Uint(), d.Uint(), d.Str()
		if d.Err() == nil && code == codeNotMember {
			return &notMemberError{from, index}
		}
		return fmt.Errorf("server %s: %s", from, text)
	}
	header, term := headerOf(from), d.Uint()
	if a, ok := answer.(*raft.AppendEntriesResponse); ok {
		*a = raft.AppendEntriesResponse{RPCHeader: header, Term: term, LastLog: d.Uint(), Success: d.Bool(), NoRetryBackoff: d.Bool()}
	} else {
		decodeVote(answer, header, term, d.Bool())
	}
	if d.Err() == nil && d.More() {
		return errors.New("trailing bytes after an answer")
	}
	return d.Err()
}

// answerParts returns the number of parts that encodeAnswer writes.
func answerParts(k kind, answer any) int {
	if k == kindError {
		return 4
	}
	if _, ok := answer.(*raft.AppendEntriesResponse); ok {
		return 5
	}
	return 3
}

// decodeVote stores the values of encodeVote in answer.
func decodeVote(answer any, header raft.RPCHeader, term uint64, granted bool) {
	switch a := answer.(type) {
	case *raft.RequestVoteResponse:
		*a = raft.RequestVoteResponse{RPCHeader: header, Term: term, Granted: granted}
	case *raft.RequestPreVoteResponse:
		*a = raft.RequestPreVoteResponse{RPCHeader: header, Term: term, Granted: granted}
	case *raft.InstallSnapshotResponse:
		*a = raft.InstallSnapshotResponse{RPCHeader: header, Term: term, Success: granted}
	case *raft.TimeoutNowResponse:
		*a = raft.TimeoutNowResponse{RPCHeader: header}
	case *termAnswer:
		*a = termAnswer(term)
	}
}

// decodeMembers reads a configuration in raft's encoding. Raft's own decoder panics on errors and
// trusts the encoded lengths.
func decodeMembers(b []byte) ([]raft.Server, error) {
	d := wire.NewDecoder(b)
	var servers []raft.Server
	for range d.Map() {
		if name := d.Str(); name != "Servers" {
			return nil, fmt.Errorf("configuration has unknown field %q", name)
		}
		if d.IsNil() {
			continue
		}
		for range d.ArrayMax(storage.MembersMax) {
			var s raft.Server
			for range d.Map() {
				switch name := d.Str(); name {
				case "Suffrage":
					s.Suffrage = raft.ServerSuffrage(d.Uint())
				case "ID":
					s.ID = raft.ServerID(d.Str())
				case "Address":
					s.Address = raft.ServerAddress(d.Str())
				default:
					return nil, fmt.Errorf("server in a configuration has unknown field %q", name)
				}
			}
			servers = append(servers, s)
		}
	}
	if d.Err() == nil && d.More() {
		return nil, errors.New("trailing bytes after a configuration")
	}
	return servers, d.Err()
}
