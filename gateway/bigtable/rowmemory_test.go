package bigtable

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

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
	bytes    int // of the value
}

func (l *largeTable) Get(_ context.Context, row string, _ ...client.ReadOption) (*table.Row, error) {
	if l.reads++; l.reads <= l.failures {
		return nil, &client.RowTooLargeError{Limit: 1}
	}
	return &table.Row{Key: []byte(row), Cells: []table.Cell{{Family: "f", Value: make([]byte, l.bytes)}}}, nil
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
	return New(Config{Open: func(context.Context, string, string) (Table, error) { return l, nil }, Reserve: r.reserve, RowBytesMax: 3 << 20})
}

// sentMessages are those that a stream keeps.
type sentMessages struct {
	ctx context.Context
	all []*encoded
}

func (s *sentMessages) SendMsg(m any) error {
	s.all = append(s.all, m.(*encoded))
	return nil
}

func (s *sentMessages) write() {
	for _, m := range s.all {
		m.buffer.Free()
	}
}

type plainStream struct {
	answers[bigtablepb.ReadRowsResponse]
	sent *sentMessages
}

func (p *plainStream) SendMsg(m any) error { return p.sent.SendMsg(m) }

type sessionStream struct {
	*wire
	sent *sentMessages
}

func (s *sessionStream) Send(*bigtablepb.SessionResponse) error { return nil }
func (s *sessionStream) SendMsg(m any) error                    { return s.sent.SendMsg(m) }

func readPlain(s *Service, sent *sentMessages) error {
	return s.ReadRows(&bigtablepb.ReadRowsRequest{TableName: tableName, Rows: &bigtablepb.RowSet{RowKeys: [][]byte{[]byte("r")}}},
		&plainStream{answers[bigtablepb.ReadRowsResponse]{ctx: sent.ctx}, sent})
}

func readVirtual(s *Service, sent *sentMessages) error {
	stream := &sessionStream{&wire{ctx: sent.ctx, to: make(chan *bigtablepb.SessionRequest, 3)}, sent}
	stream.to <- <-handshakes()
	stream.to <- &bigtablepb.SessionRequest{Payload: &bigtablepb.SessionRequest_VirtualRpc{VirtualRpc: &bigtablepb.VirtualRpcRequest{RpcId: 1, Payload: encode(readOf("r"))}}}
	close(stream.to)
	return s.OpenTable(stream)
}

// TestLargePointReads (GB6): a row for which the memory of a call does not suffice is read with what is reserved in two steps, until it is written.
func TestLargePointReads(t *testing.T) {
	const value = 20 << 10
	message := int64(encodedBytes(&table.Row{Key: []byte("r"), Cells: []table.Cell{{Family: "f", Value: make([]byte, value)}}}))
	medium, largest := rowCharge(1<<20), rowCharge(3<<20)
	for _, test := range []struct {
		read     func(*Service, *sentMessages) error
		failures int
		bytes    int
		reserved []int64
		held     int64 // when the row is sent, and until it is written
	}{
		{readPlain, 0, 10, nil, 0},
		{readPlain, 0, value, []int64{message}, message},
		{readPlain, 1, value, []int64{medium}, medium},
		{readPlain, 2, value, []int64{medium, largest}, largest},
		{readVirtual, 0, value, nil, 0},
		{readVirtual, 1, value, []int64{medium}, medium},
		{readVirtual, 2, value, []int64{medium, largest}, largest},
	} {
		for _, cancels := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				l, r := &largeTable{failures: test.failures, bytes: test.bytes}, &reservations{}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				sent := &sentMessages{ctx: ctx}
				result := make(chan error, 1)
				go func() { result <- test.read(l.service(r), sent) }()
				synctest.Wait()
				if r.held != test.held || !slices.Equal(r.all, test.reserved) || len(result) == 1 != (test.held == 0) {
					t.Errorf("%d failures, %d bytes: reserved %v, want %v; %d bytes are held until the row is written, want %d",
						test.failures, test.bytes, r.all, test.reserved, r.held, test.held)
				}
				if cancels {
					cancel()
				} else {
					sent.write()
				}
				if err := <-result; err != nil || r.held != 0 {
					t.Errorf("%d failures, %d bytes: %v; %d bytes are held after the row was written or dropped", test.failures, test.bytes, err, r.held)
				}
			})
		}
	}
	l, r := &largeTable{failures: 100}, &reservations{}
	err := readPlain(l.service(r), &sentMessages{ctx: t.Context()})
	if s := status.Convert(err); s.Code() != codes.FailedPrecondition || !strings.Contains(s.Message(), fmt.Sprint(3<<20)) || l.reads != 3 || r.held != 0 {
		t.Errorf("a row above the last bound: %v after %d reads, %d bytes are held", err, l.reads, r.held)
	}
	for _, l := range []*largeTable{{failures: 1}, {bytes: value}} {
		if err := readPlain(l.service(&reservations{full: true}), &sentMessages{ctx: t.Context()}); status.Code(err) != codes.Unavailable {
			t.Errorf("without memory: %v", err)
		}
	}
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
