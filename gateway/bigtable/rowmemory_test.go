package bigtable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// largeTable has a row that is too large for the first reads.
type largeTable struct {
	Table
	failures int
	reads    int
}

func (l *largeTable) Get(_ context.Context, row string, _ ...client.ReadOption) (*table.Row, error) {
	if l.reads++; l.reads <= l.failures {
		return nil, &client.RowTooLargeError{Limit: 1}
	}
	return &table.Row{Key: []byte(row), Cells: []table.Cell{{Family: "f", Value: []byte("v")}}}, nil
}

// reservations are those of a service.
type reservations struct {
	all  []int64
	held int64
	full bool
}

func (r *reservations) reserve(_ context.Context, bytes int64) (func(), error) {
	if r.full {
		return nil, &client.OverloadedError{Reason: "memory"}
	}
	r.all = append(r.all, bytes)
	r.held += bytes
	return func() { r.held -= bytes }, nil
}

func (l *largeTable) service(r *reservations) *Service {
	return New(Config{Open: func(context.Context, string) (Table, error) { return l, nil }, Reserve: r.reserve, RowBytesMax: 3 << 20})
}

// heldAnswers is a stream that keeps what is reserved when a message is sent.
type heldAnswers struct {
	answers[bigtablepb.ReadRowsResponse]
	*reservations
	at []int64
}

func (h *heldAnswers) SendMsg(any) error {
	h.at = append(h.at, h.held)
	return nil
}

// TestLargePointReads (GB6): a row for which the memory of a call does not suffice is read with what is reserved in two steps, until it is sent.
func TestLargePointReads(t *testing.T) {
	for _, test := range []struct {
		failures int
		reserved []int64
		held     int64 // when the row is sent
	}{
		{0, nil, 0},
		{1, []int64{rowCharge(1 << 20)}, rowCharge(1 << 20)},
		{2, []int64{rowCharge(1 << 20), rowCharge(3 << 20)}, rowCharge(3 << 20)},
	} {
		for _, read := range []func(s *Service, r *reservations) (held int64, err error){readPlain, readVirtual} {
			l, r := &largeTable{failures: test.failures}, &reservations{}
			held, err := read(l.service(r), r)
			if err != nil || held != test.held || !slices.Equal(r.all, test.reserved) || r.held != 0 {
				t.Errorf("after %d failures: %v; reserved %v, want %v; %d bytes were held when the row was sent, want %d, and %d behind it",
					test.failures, err, r.all, test.reserved, held, test.held, r.held)
			}
		}
	}
	l, r := &largeTable{failures: 100}, &reservations{}
	_, err := readPlain(l.service(r), r)
	if s := status.Convert(err); s.Code() != codes.FailedPrecondition || !strings.Contains(s.Message(), fmt.Sprint(3<<20)) || l.reads != 3 || r.held != 0 {
		t.Errorf("a row above the last bound: %v after %d reads, %d bytes are held", err, l.reads, r.held)
	}
	l, r = &largeTable{failures: 1}, &reservations{full: true}
	if _, err := readPlain(l.service(r), r); status.Code(err) != codes.Unavailable {
		t.Errorf("without memory: %v", err)
	}
}

func readPlain(s *Service, r *reservations) (held int64, err error) {
	stream := &heldAnswers{answers: answers[bigtablepb.ReadRowsResponse]{ctx: context.Background()}, reservations: r}
	if err = s.ReadRows(&bigtablepb.ReadRowsRequest{TableName: tableName, Rows: &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("r")}}}, stream); err != nil {
		return 0, err
	}
	if len(stream.at) != 1 {
		return 0, errors.New("there must be one message")
	}
	return stream.at[0], nil
}

// heldWire is the client of a session that keeps what is reserved when an answer is sent.
type heldWire struct {
	*wire
	r  *reservations
	at int64
}

func (h *heldWire) Send(m *bigtablepb.SessionResponse) error {
	h.at = h.r.held
	return nil
}

func readVirtual(s *Service, r *reservations) (held int64, err error) {
	stream := &heldWire{wire: &wire{ctx: context.Background(), to: make(chan *bigtablepb.SessionRequest, 3)}, r: r}
	open := handshakes()
	stream.to <- <-open
	stream.to <- &bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_VirtualRpc{VirtualRpc: &bigtablepb.VirtualRpcRequest{RpcId: 1, Payload: encode(readOf("r"))}}}
	close(stream.to)
	err = s.OpenTable(stream)
	return stream.at, err
}

// TestAfter: a scan continues with the rows that it has not sent.
func TestAfter(t *testing.T) {
	one := func(key string) span { return span{start: key, one: true} }
	all := []span{one("a"), {start: "c", end: "f"}, one("g"), {start: "k", end: "p"}, {start: "t"}}
	for _, test := range []struct {
		last     string
		reversed bool
		want     []span
	}{
		{"a", false, all[1:]},
		{"b", false, all[1:]},
		{"d", false, []span{{start: "d\x00", end: "f"}, one("g"), all[3], all[4]}},
		{"e\xff", false, []span{{start: "e\xff\x00", end: "f"}, one("g"), all[3], all[4]}},
		{"f", false, all[2:]},
		{"g", false, all[3:]},
		{"z", false, []span{{start: "z\x00"}}},
		{"z", true, []span{all[0], all[1], all[2], all[3], {start: "t", end: "z"}}},
		{"t", true, all[:4]},
		{"l", true, []span{all[0], all[1], all[2], {start: "k", end: "l"}}},
		{"k", true, all[:3]},
		{"g", true, all[:2]},
		{"c", true, all[:1]},
		{"a", true, nil},
	} {
		if got := after(slices.Clone(all), test.last, test.reversed); !slices.Equal(got, test.want) {
			t.Errorf("behind %q, reversed %v: %v, want %v", test.last, test.reversed, got, test.want)
		}
	}
}
