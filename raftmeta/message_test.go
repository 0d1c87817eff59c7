package raftmeta

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/raftmeta/api"
)

// goldenMessages are the first message from n1 to n2 and a heartbeat of term 3, as in doc.go.
const goldenMessages = `00 00 00 13 f5 5e 03 b9 94 aa 73 74 65 6c 65 20 72 61 66 74 01 a2 6e 31 a2 6e 32
00 00 00 03 59 e3 78 8a 92 02 03`

// memConn is a connection that records what is written.
type memConn struct {
	net.Conn
	bytes.Buffer
}

func (c *memConn) Write(b []byte) (int, error) { return c.Buffer.Write(b) }
func (c *memConn) Read(b []byte) (int, error)  { return c.Buffer.Read(b) }

func TestMessageGolden(t *testing.T) {
	c := &memConn{}
	f := newFrames(c)
	for _, encode := range []func(e *wire.Encoder){
		func(e *wire.Encoder) { encodeHello(e, "n1", "n2") },
		func(e *wire.Encoder) { encodeRequest(e, &raft.AppendEntriesRequest{Term: 3}) },
	} {
		e := wire.GetEncoder()
		encode(e)
		if err := f.send(e); err != nil {
			t.Fatal(err)
		}
		e.Release()
	}
	if want := wiretest.Unhex(t, goldenMessages); !bytes.Equal(c.Bytes(), want) {
		t.Errorf("sent %s", hex.EncodeToString(c.Bytes()))
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if !strings.Contains(squeeze(strings.ReplaceAll(string(doc), "//", "")), squeeze(goldenMessages)) {
		t.Error("doc.go does not have the example")
	}
}

func header(from string) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: 3, ID: []byte(from), Addr: []byte(from)}
}

var requests = []any{
	&raft.AppendEntriesRequest{RPCHeader: header("n1"), Term: 3},
	&raft.AppendEntriesRequest{RPCHeader: header("n1"), Term: 3, PrevLogEntry: 7, PrevLogTerm: 2, LeaderCommitIndex: 6, Entries: []*raft.Log{
		{Index: 8, Term: 2, Type: raft.LogCommand, Data: []byte("x"), AppendedAt: time.Unix(0, 12345)},
		{Index: 9, Term: 3, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1"}}}), AppendedAt: time.Unix(1, 0)},
	}},
	&raft.RequestVoteRequest{RPCHeader: header("n1"), Term: 4, LastLogIndex: 9, LastLogTerm: 3, LeadershipTransfer: true},
	&raft.RequestPreVoteRequest{RPCHeader: header("n1"), Term: 4, LastLogIndex: 9, LastLogTerm: 3},
	&raft.InstallSnapshotRequest{RPCHeader: header("n1"), SnapshotVersion: 1, Term: 4, LastLogIndex: 9, LastLogTerm: 3, ConfigurationIndex: 2,
		Configuration: raft.EncodeConfiguration(raft.Configuration{}), Size: 77},
	&raft.TimeoutNowRequest{RPCHeader: header("n1")},
	nil,
}

func TestMessagesRoundTrip(t *testing.T) {
	for _, want := range requests {
		b := wiretest.Encode(func(e *wire.Encoder) { encodeRequest(e, want) })
		_, got, err := decodeRequest(b, "n1")
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v came out as %+v, %v", want, got, err)
		}
		if err := check(got, 3); err != nil {
			t.Errorf("%+v: %v", want, err)
		}
		for n := range b {
			if _, _, err := decodeRequest(b[:n], "n1"); err == nil {
				t.Errorf("%x is part of a message and was accepted", b[:n])
			}
		}
	}
	for _, tc := range []struct{ want, into any }{
		{&raft.AppendEntriesResponse{RPCHeader: header("n2"), Term: 3, LastLog: 9, Success: true, NoRetryBackoff: true}, &raft.AppendEntriesResponse{}},
		{&raft.RequestVoteResponse{RPCHeader: header("n2"), Term: 3, Granted: true}, &raft.RequestVoteResponse{}},
		{&raft.RequestPreVoteResponse{RPCHeader: header("n2"), Term: 3, Granted: true}, &raft.RequestPreVoteResponse{}},
		{&raft.InstallSnapshotResponse{RPCHeader: header("n2"), Term: 3, Success: true}, &raft.InstallSnapshotResponse{}},
		{&raft.TimeoutNowResponse{RPCHeader: header("n2")}, &raft.TimeoutNowResponse{}},
	} {
		b := wiretest.Encode(func(e *wire.Encoder) { encodeAnswer(e, kindAppend, tc.want, nil) })
		if err := decodeAnswer(b, "n2", tc.into); err != nil || !reflect.DeepEqual(tc.into, tc.want) {
			t.Errorf("%+v came out as %+v, %v", tc.want, tc.into, err)
		}
	}
	for k, want := range map[kind]int{kindError: 4, kindAppend: 5, kindHeartbeat: 5} {
		for n := range 8 {
			b := wiretest.Encode(func(e *wire.Encoder) { begin(e, n, k, 1, 1, 1, 1, 1, 1) })
			err := decodeAnswer(b, "n2", &raft.AppendEntriesResponse{})
			if got := err != nil && strings.HasSuffix(err.Error(), fmt.Sprintf("has %d parts, not %d", n, want)); got != (n != want) {
				t.Errorf("answer of kind %d with %d parts: %v", k, n, err)
			}
		}
	}
	b := wiretest.Encode(func(e *wire.Encoder) { begin(e, 4, kindTerm, 7); e.Bool(true) }) // its length counts a part that it lacks
	if err := decodeAnswer(b, "n2", new(termAnswer)); err == nil {
		t.Error("accepted an answer that lacks a part")
	}
	var term termAnswer
	if err := decodeAnswer(wiretest.Encode(func(e *wire.Encoder) { encodeAnswer(e, kindTerm, termAnswer(7), nil) }), "n2", &term); err != nil || term != 7 {
		t.Errorf("term %d, %v", term, err)
	}
	var out *notMemberError
	err := decodeAnswer(wiretest.Encode(func(e *wire.Encoder) { encodeAnswer(e, kindVote, nil, &notMemberError{"n2", 8}) }), "n2", &term)
	if !errors.As(err, &out) || *out != (notMemberError{"n2", 8}) {
		t.Errorf("got %v", err)
	}
}

// TestMessageIsTruncated sends more entries than fit into one message: the request then has only the
// entries that were sent.
func TestMessageIsTruncated(t *testing.T) {
	a := &raft.AppendEntriesRequest{Term: 1}
	for i := range entriesPerWrite {
		a.Entries = append(a.Entries, &raft.Log{Index: uint64(i + 1), Data: make([]byte, api.FileBytesMax)})
	}
	b := wiretest.Encode(func(e *wire.Encoder) { encodeRequest(e, a) })
	_, got, err := decodeRequest(b, "n1")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.(*raft.AppendEntriesRequest).Entries); n != len(a.Entries) || n == 0 || n == entriesPerWrite || len(b) > messageBytesMax {
		t.Errorf("%d of %d entries in %d bytes", n, len(a.Entries), len(b))
	}
}

// TestBadMessages sends invalid messages.
func TestBadMessages(t *testing.T) {
	for name, b := range map[string][]byte{
		"too long":     wiretest.Unhex(t, "7f ff ff ff 00 00 00 00"),
		"bad checksum": wiretest.Unhex(t, "00 00 00 03 59 e3 78 8b 92 02 03"),
		"cut":          wiretest.Unhex(t, "00 00 00 03 59 e3 78 8a 92"),
	} {
		c := &memConn{}
		c.Buffer.Write(b)
		if _, err := newFrames(c).recv(nil); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	hello := func(to string, version uint64) []byte {
		return wiretest.Encode(func(e *wire.Encoder) { e.Array(4); e.Str(helloName); e.Uint(version); e.Str("n1"); e.Str(to) })
	}
	if from, err := decodeHello(hello("n2", 1), "n2"); err != nil || from != "n1" {
		t.Errorf("%s, %v", from, err)
	}
	var newer *fsm.VersionError
	if _, err := decodeHello(hello("n2", 2), "n2"); !errors.As(err, &newer) {
		t.Errorf("newer: %v", err)
	}
	for name, b := range map[string][]byte{"another's": hello("n3", 1), "own": hello("n1", 1), "none": nil, "text": []byte("GET / HTTP/1.1")} {
		self := "n2"
		if name == "own" {
			self = "n1"
		}
		if _, err := decodeHello(b, self); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	const term = 7
	unread, far := []byte{0xdd, 0xff, 0xff, 0xff, 0xff}, uint64(term+termStepMax+1)
	for name, request := range map[string]any{
		"an entry with members that raft would panic at":   &raft.AppendEntriesRequest{Term: 7, Entries: []*raft.Log{{Index: 1, Term: 7, Type: raft.LogConfiguration, Data: unread}}},
		"a snapshot with members that raft would panic at": &raft.InstallSnapshotRequest{Term: 7, Configuration: unread},
		"entries behind a gap":                             &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 3, PrevLogTerm: 2, Entries: []*raft.Log{{Index: 5, Term: 7}}},
		"entries with a gap":                               &raft.AppendEntriesRequest{Term: 7, Entries: []*raft.Log{{Index: 1, Term: 7}, {Index: 3, Term: 7}}},
		"entries that go back":                             &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 3, PrevLogTerm: 2, Entries: []*raft.Log{{Index: 3, Term: 7}}},
		"an entry older than the one before":               &raft.AppendEntriesRequest{Term: 7, PrevLogEntry: 3, PrevLogTerm: 2, Entries: []*raft.Log{{Index: 4, Term: 1}}},
		"an entry of a leader to come":                     &raft.AppendEntriesRequest{Term: 7, Entries: []*raft.Log{{Index: 1, Term: 8}}},
		"a snapshot of a leader that was":                  &raft.InstallSnapshotRequest{Term: 6, Configuration: raft.EncodeConfiguration(raft.Configuration{})},
		"a heartbeat of a term that never comes":           &raft.AppendEntriesRequest{Term: far},
		"a vote for one":                                   &raft.RequestVoteRequest{Term: far},
		"a vote before the vote":                           &raft.RequestPreVoteRequest{Term: ^uint64(0)},
		"a snapshot":                                       &raft.InstallSnapshotRequest{Term: far, Configuration: raft.EncodeConfiguration(raft.Configuration{})},
	} {
		if check(request, term) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, request := range []any{&raft.AppendEntriesRequest{Term: term + termStepMax}, &raft.AppendEntriesRequest{Term: 1}, &raft.RequestVoteRequest{Term: 1}} {
		if err := check(request, term); err != nil { // raft answers
			t.Errorf("%+v: %v", request, err)
		}
	}
}

// FuzzMessage decodes any bytes as a request and as an answer. An accepted message is equal after
// encoding and decoding it again.
func FuzzMessage(f *testing.F) {
	for _, r := range requests {
		f.Add(wiretest.Encode(func(e *wire.Encoder) { encodeRequest(e, r) }))
	}
	f.Add(wiretest.Encode(func(e *wire.Encoder) { encodeAnswer(e, kindVote, nil, &notMemberError{"n2", 8}) }))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = decodeAnswer(b, "n2", &raft.AppendEntriesResponse{})
		_, _ = decodeMembers(b)
		_, _ = decodeHello(b, "n2")
		_, got, err := decodeRequest(b, "n1")
		if err != nil || check(got, 3) != nil {
			return
		}
		_, again, err := decodeRequest(wiretest.Encode(func(e *wire.Encoder) { encodeRequest(e, got) }), "n1")
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%+v came out as %+v, %v", got, again, err)
		}
	})
}
