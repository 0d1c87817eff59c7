package bigtable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/steledb/stele/gateway/buffers"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
)

// recorder is a stream that keeps the messages sent to it, as bytes from the codec.
type recorder struct {
	grpc.ServerStream
	messages [][]byte
}

func (r *recorder) SendMsg(m any) error {
	data, err := Codec().Marshal(m)
	if err != nil {
		return err
	}
	r.messages = append(r.messages, bytes.Clone(data.Materialize()))
	data.Free()
	return nil
}

// decoded returns the messages decoded by the library.
func (r *recorder) decoded(t *testing.T) []*bigtablepb.ReadRowsResponse {
	t.Helper()
	var all []*bigtablepb.ReadRowsResponse
	for _, b := range r.messages {
		m := &bigtablepb.ReadRowsResponse{}
		if err := (proto.UnmarshalOptions{DiscardUnknown: false}).Unmarshal(b, m); err != nil {
			t.Fatalf("message of %d bytes: %v", len(b), err)
		}
		if len(m.ProtoReflect().GetUnknown()) > 0 {
			t.Fatalf("message has unknown fields")
		}
		all = append(all, m)
	}
	return all
}

// countingPool counts buffers that are not in the pool.
type countingPool struct {
	mem.BufferPool
	out int
}

func (p *countingPool) Get(n int) *[]byte { p.out++; return p.BufferPool.Get(n) }
func (p *countingPool) Put(b *[]byte)     { p.out--; p.BufferPool.Put(b) }

// wantChunks returns the chunks of a row as messages of the library.
func wantChunks(row *table.Row) []*bigtablepb.ReadRowsResponse_CellChunk {
	var all []*bigtablepb.ReadRowsResponse_CellChunk
	for i, cell := range row.Cells {
		c := &bigtablepb.ReadRowsResponse_CellChunk{TimestampMicros: cell.Timestamp, Labels: cell.Labels}
		if i == 0 {
			c.RowKey = row.Key
		}
		if i == 0 || row.Cells[i-1].Family != cell.Family {
			c.FamilyName = wrapperspb.String(cell.Family)
		}
		if c.FamilyName != nil || !bytes.Equal(row.Cells[i-1].Qualifier, cell.Qualifier) {
			c.Qualifier = wrapperspb.Bytes(cell.Qualifier)
		}
		value := cell.Value
		for ; len(value) > chunkBytes; value = value[chunkBytes:] {
			c.Value, c.ValueSize = value[:chunkBytes], int32(len(cell.Value))
			all = append(all, c)
			c = &bigtablepb.ReadRowsResponse_CellChunk{}
		}
		c.Value = value
		if i == len(row.Cells)-1 {
			c.RowStatus = &bigtablepb.ReadRowsResponse_CellChunk_CommitRow{CommitRow: true}
		}
		all = append(all, c)
	}
	return all
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// randomRow returns a row in the order of a read.
func randomRow(r *rand.Rand, i int) *table.Row {
	row := &table.Row{Key: fmt.Appendf(nil, "row%06d%s", i, randomBytes(r, r.IntN(200)))}
	for f := range 1 + r.IntN(3) {
		for q := range r.IntN(4) {
			qualifier := append(bytes.Repeat([]byte{'q'}, q), randomBytes(r, r.IntN(2)*r.IntN(300))...)
			for v := range 1 + r.IntN(3) {
				c := table.Cell{Family: fmt.Sprintf("f%d", f), Qualifier: qualifier, Timestamp: int64(2-v) * r.Int64N(1<<40)}
				switch r.IntN(60) {
				case 0:
					c.Value = make([]byte, chunkBytes-1+r.IntN(3))
				case 1:
					c.Value = make([]byte, r.IntN(3*chunkBytes))
				default:
					c.Value = randomBytes(r, r.IntN(2)*r.IntN(2000))
				}
				if r.IntN(4) == 0 {
					c.Labels = []string{"label"}
				}
				row.Cells = append(row.Cells, c)
			}
		}
	}
	return row
}

// TestEncoding: messages encoded by hand decode to what the library would have sent (GB1), and end where they may (GB3).
func TestEncoding(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	for _, whole := range []bool{true, false} {
		pool := &countingPool{BufferPool: buffers.Pool}
		stream := &recorder{}
		s := sender{stream: stream, pool: pool, whole: whole}
		var want []*bigtablepb.ReadRowsResponse_CellChunk
		var rows, cells int64
		for i := range 600 {
			row := randomRow(r, i)
			if len(row.Cells) > 0 {
				rows, cells = rows+1, cells+int64(len(row.Cells))
			}
			want = append(want, wantChunks(row)...)
			if err := s.add(row); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.flush(); err != nil {
			t.Fatal(err)
		}
		var got []*bigtablepb.ReadRowsResponse_CellChunk
		for i, m := range stream.decoded(t) {
			if n := len(stream.messages[i]); !whole && n > splitBytes+chunkBytes+64<<10 {
				t.Errorf("message %d has %d bytes", i, n)
			}
			if last := m.Chunks[len(m.Chunks)-1]; whole && !last.GetCommitRow() {
				t.Errorf("message %d ends within a row", i)
			}
			got = append(got, m.Chunks...)
		}
		if len(got) != len(want) {
			t.Fatalf("whole rows: %t: %d chunks, want %d", whole, len(got), len(want))
		}
		for i := range want {
			if !proto.Equal(want[i], got[i]) {
				t.Fatalf("whole rows: %t: chunk %d: %.1000v, want %.1000v", whole, i, got[i], want[i])
			}
		}
		if s.release(); pool.out != 0 {
			t.Errorf("%d buffers are not in the pool", pool.out)
		}
		if s.rows != rows || s.cells != cells {
			t.Errorf("counted %d rows, %d cells; want %d, %d", s.rows, s.cells, rows, cells)
		}
	}
}

// TestNoAllocations: encoding a cell allocates nothing.
func TestNoAllocations(t *testing.T) {
	row := &table.Row{Key: []byte("row")}
	for i := range 100 {
		row.Cells = append(row.Cells, table.Cell{Family: "f", Qualifier: []byte{byte(i)}, Timestamp: 1, Value: make([]byte, 10)})
	}
	s := sender{pool: buffers.Pool, whole: true}
	if err := s.add(row); err != nil {
		t.Fatal(err)
	}
	buffer := s.buffer
	if n := testing.AllocsPerRun(100, func() {
		*buffer = (*buffer)[:0]
		_ = s.add(row)
	}); n > 0 {
		t.Errorf("%v allocations for 100 cells, want none", n)
	}
}

func BenchmarkEncoding(b *testing.B) {
	row := &table.Row{Key: []byte("com.cnn.www/index.html"), Cells: []table.Cell{{Family: "contents", Qualifier: []byte("q"), Timestamp: 1 << 50, Value: make([]byte, 1000)}}}
	stream := &discard{}
	s := sender{stream: stream, pool: buffers.Pool}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.add(row); err != nil {
			b.Fatal(err)
		}
	}
}

// discard is a stream that sends nothing.
type discard struct{ grpc.ServerStream }

func (*discard) SendMsg(m any) error {
	m.(*encoded).buffer.Free()
	return nil
}
