package bigtable

import (
	"context"
	"errors"
	"sync"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/table"
)

// Fields of google.bigtable.v2.MutateRowsRequest, and of its Entry.
const (
	requestEntries = 2
	entryMutations = 2
)

const (
	// groupBytesDefault is the default of Config.GroupBytes. Such a group has several batches of client.Table.ApplyAll, which are sent at the same time.
	groupBytesDefault = 4 << 20
	// entryBytes is the memory of an entry besides what it has: with its conversion, its error, and its place in an answer.
	entryBytes = listedBytes + 256
	// headBytesMax bounds the fields of a MutateRows besides its entries: names, of which the longest has some hundred bytes.
	headBytesMax = 8 << 10
)

// batch is a MutateRows request, whose entries stay encoded until they are executed.
type batch struct {
	head   bigtablepb.MutateRowsRequest // without entries
	groups []int                        // of how many entries each one consists
	data   mem.BufferSlice
}

// entryLayout returns that of an entry. It is built by the first request.
var entryLayout = sync.OnceValue(func() *layout { return layoutOf((&bigtablepb.MutateRowsRequest_Entry{}).ProtoReflect().Descriptor()) })

// receiveMutateRows is the handler of MutateRows. The request is not decoded as a whole, but in groups of entries, one after the other.
func (s *Service) receiveMutateRows(_ any, stream grpc.ServerStream) error {
	r := &receivedPieces{}
	if err := stream.RecvMsg(r); err != nil {
		return err
	}
	defer r.data.Free()
	return s.mutateRows(r.data, &grpc.GenericServerStream[bigtablepb.MutateRowsRequest, bigtablepb.MutateRowsResponse]{ServerStream: stream})
}

// mutateRows executes an encoded MutateRows request. It answers every index once (GB4), unless the table or view does not exist.
func (s *Service) mutateRows(data mem.BufferSlice, stream bigtablepb.Bigtable_MutateRowsServer) error {
	ctx := stream.Context()
	memory := groupMemory{service: s, received: int64(data.Len())}
	defer memory.end()
	b, err := s.parseBatch(ctx, data, &memory)
	if err != nil {
		return err
	}
	if len(b.groups) == 0 {
		return errNoMutations
	}
	t, err := s.open(ctx, target{table: b.head.TableName, authorizedView: b.head.AuthorizedViewName, profile: b.head.AppProfileId})
	if err != nil {
		return err
	}
	return s.applyGroups(t, b, stream)
}

// parseBatch divides the entries of a request into groups, and takes memory for the largest. Nothing is executed yet. Errors are statuses.
func (s *Service) parseBatch(ctx context.Context, data mem.BufferSlice, memory *groupMemory) (*batch, error) {
	b := &batch{data: data}
	p := readPieces(data)
	defer p.close()
	var head []byte
	var group, largest, longest int64 // bytes of the present group, of the largest one, and of the longest entry
	mutations := 0
	for {
		number, n, err := p.next()
		switch {
		case err != nil:
			return nil, err
		case number == 0:
			if proto.Unmarshal(head, &b.head) != nil {
				return nil, errMalformed
			}
			if err := s.checkMutations(mutations); err != nil {
				return nil, err
			}
			return b, memory.take(ctx, longest+largest)
		case number != requestEntries && n > headBytesMax-len(head):
			return nil, errcode.Invalid("The fields of a MutateRows besides its entries must have at most %d bytes", headBytesMax)
		case number != requestEntries:
			head = protowire.AppendBytes(protowire.AppendTag(head, number, protowire.BytesType), p.value(n))
			continue
		}
		longest = max(longest, int64(n))
		if err := memory.take(ctx, longest); err != nil { // to have it in one piece
			return nil, err
		}
		entry := p.value(n)
		size := entryBytes + entryLayout().decodedBytes(entry, 0)
		if len(b.groups) == 0 || group+size > s.cfg.GroupBytes {
			b.groups, group = append(b.groups, 0), 0
		}
		b.groups[len(b.groups)-1]++
		group += size
		largest = max(largest, group)
		if s.cfg.StrictLimits {
			mutations += countFields(entry, entryMutations)
		}
	}
}

// countFields returns how often a message has a field, as far as it is well-formed.
func countFields(b []byte, field protowire.Number) (n int) {
	for len(b) > 0 {
		number, _, size := protowire.ConsumeField(b)
		if size < 0 {
			return n
		}
		if number == field {
			n++
		}
		b = b[size:]
	}
	return n
}

// groupMemory is the memory of the groups of a MutateRows, one at a time.
type groupMemory struct {
	service  *Service
	received int64  // the bytes of the request
	reserved int64  // besides what is charged with them
	release  func() // nil for none
}

// GroupedCharge returns how many bytes of memory are charged for the bytes of a MutateRows request when they are received: those, and a group of its
// entries.
func GroupedCharge(received, groupBytes int64) int64 {
	return received + min((ReceivedCopies-1)*received, groupBytes)
}

// take reserves memory so that n bytes can be used besides those that were received. Errors are statuses.
func (m *groupMemory) take(ctx context.Context, n int64) error {
	cfg := &m.service.cfg
	n -= GroupedCharge(m.received, cfg.GroupBytes) - m.received + decodedFree
	if n <= m.reserved {
		return nil
	}
	if all := GroupedCharge(m.received, cfg.GroupBytes) + n; cfg.DecodedBytesMax > 0 && all > cfg.DecodedBytesMax {
		return errTooMuchDecoded(all, cfg.DecodedBytesMax)
	}
	if cfg.Reserve == nil {
		return nil
	}
	release, err := cfg.Reserve(ctx, n-m.reserved)
	if err != nil {
		return errcode.Convert(err, errcode.Once) // nothing was executed
	}
	before := m.release
	m.reserved, m.release = n, func() {
		release()
		if before != nil {
			before()
		}
	}
	return nil
}

func (m *groupMemory) end() {
	if m.release != nil {
		m.release()
	}
}

// applyGroups decodes, executes and answers the groups of a request.
func (s *Service) applyGroups(t Table, b *batch, stream bigtablepb.Bigtable_MutateRowsServer) error {
	p := readPieces(b.data)
	defer p.close()
	first, f := 0, featuresOf(stream.Context())
	limited, slow := f.GetMutateRowsRateLimit() || f.GetMutateRowsRateLimit2(), false
	for at, n := range b.groups {
		e := s.decodeEntries(p, n)
		e.apply(stream.Context(), t)
		if err := e.notFound(); err != nil && at == 0 {
			return errcode.Convert(err, errcode.Repeatable)
		}
		answer := &bigtablepb.MutateRowsResponse{Entries: e.answers(first)}
		slow = slow || e.overloaded()
		if limited && at == len(b.groups)-1 {
			answer.RateLimitInfo = rateLimit(slow)
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
		first += n
	}
	return nil
}

// entries are a group of those of a request. The slices are parallel to them, except valid.
type entries struct {
	valid  []*client.RowMutation
	at     []int // the index of each valid entry
	repeat []errcode.Repeat
	errs   []error
}

// decodeEntries decodes the next n entries, which parseBatch has found, and converts them.
func (s *Service) decodeEntries(p *pieces, n int) *entries {
	e := &entries{make([]*client.RowMutation, 0, n), make([]int, 0, n), make([]errcode.Repeat, n), make([]error, n)}
	for i := 0; i < n; {
		number, size, err := p.next()
		if err != nil || number == 0 {
			panic("BUG: a request has fewer entries than before")
		}
		if number != requestEntries {
			p.skip(size)
			continue
		}
		var m *client.RowMutation
		if m, e.repeat[i], e.errs[i] = s.decodeEntry(p.value(size)); e.errs[i] == nil {
			e.valid, e.at = append(e.valid, m), append(e.at, i)
		}
		i++
	}
	return e
}

// decodeEntry decodes and converts an entry. Errors are statuses.
func (s *Service) decodeEntry(b []byte) (*client.RowMutation, errcode.Repeat, error) {
	var f bigtablepb.MutateRowsRequest_Entry
	if err := proto.Unmarshal(b, &f); err != nil {
		return nil, errcode.Repeatable, errcode.Invalid("The entry is malformed: %v", err)
	}
	if err := s.checkRow(f.RowKey); err != nil {
		return nil, errcode.Repeatable, err
	}
	m, repeat, err := tokened(f.RowKey, f.Mutations, f.Idempotency)
	if err == nil && m.Len() == 0 {
		err = errNoMutations
	}
	return m, repeat, err
}

// apply applies the valid entries, and sets the errors of those that fail.
func (e *entries) apply(ctx context.Context, t Table) {
	err := t.ApplyAll(ctx, e.valid)
	var batch *client.BatchError
	some := errors.As(err, &batch)
	for at, i := range e.at {
		if some {
			e.errs[i] = batch.Errs[at]
		} else {
			e.errs[i] = err
		}
	}
}

// notFound returns the error of the first valid entry if none was applied because the table or view does not exist.
func (e *entries) notFound() error {
	for _, i := range e.at {
		if !errors.Is(e.errs[i], client.ErrNoTable) && !errors.Is(e.errs[i], table.ErrNoView) {
			return nil
		}
	}
	if len(e.at) == 0 {
		return nil
	}
	return e.errs[e.at[0]]
}

// overloaded reports whether an entry was rejected because of the client's rate.
func (e *entries) overloaded() bool {
	for _, err := range e.errs {
		if errors.Is(err, client.ErrOverloaded) || errors.Is(err, client.ErrQuotaRate) {
			return true
		}
	}
	return false
}

// answers returns the status of each entry. The first one has the given index in the request.
func (e *entries) answers(first int) []*bigtablepb.MutateRowsResponse_Entry {
	all := make([]*bigtablepb.MutateRowsResponse_Entry, len(e.errs))
	for i, err := range e.errs {
		all[i] = &bigtablepb.MutateRowsResponse_Entry{Index: int64(first + i), Status: &statuspb.Status{}}
		if err != nil {
			all[i].Status = errcode.Status(err, e.repeat[i]).Proto()
		}
	}
	return all
}

// A client multiplies its rate of MutateRows by the factor, at most once in a period. Google's
// clients limit the factor to this range.
const (
	rateLimitPeriod = 10 * time.Second
	slower, faster  = 0.7, 1.3
)

// rateLimit returns the feedback for a client that limits its own rate.
func rateLimit(overloaded bool) *bigtablepb.RateLimitInfo {
	info := &bigtablepb.RateLimitInfo{Period: durationpb.New(rateLimitPeriod), Factor: faster}
	if overloaded {
		info.Factor = slower
	}
	return info
}
