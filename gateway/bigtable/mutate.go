package bigtable

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/table"
)

// errNoMutations has the words that tests of clients expect.
var errNoMutations = errcode.Invalid("No mutations provided")

// MutateRow implements bigtablepb.BigtableServer.
func (s *Service) MutateRow(ctx context.Context, req *bigtablepb.MutateRowRequest) (*bigtablepb.MutateRowResponse, error) {
	if len(req.Mutations) == 0 {
		return nil, errNoMutations
	}
	t, err := s.open(ctx, target{table: req.TableName, authorizedView: req.AuthorizedViewName, profile: req.AppProfileId})
	if err != nil {
		return nil, err
	}
	if err := s.checkRow(req.RowKey); err != nil {
		return nil, err
	}
	m, repeat, err := tokened(req.RowKey, req.Mutations, req.Idempotency)
	if err != nil {
		return nil, err
	}
	if err := t.Apply(ctx, m); err != nil {
		return nil, errcode.Convert(err, repeat)
	}
	return &bigtablepb.MutateRowResponse{}, nil
}

// MutateRows implements bigtablepb.BigtableServer. It answers every index once (GB4), unless the table or view does not exist.
func (s *Service) MutateRows(req *bigtablepb.MutateRowsRequest, stream bigtablepb.Bigtable_MutateRowsServer) error {
	if len(req.Entries) == 0 {
		return errNoMutations
	}
	t, err := s.open(stream.Context(), target{table: req.TableName, authorizedView: req.AuthorizedViewName, profile: req.AppProfileId})
	if err != nil {
		return err
	}
	if err := s.checkEntries(req.Entries); err != nil {
		return err
	}
	e := s.convertEntries(req.Entries)
	e.apply(stream.Context(), t)
	if err := e.notFound(); err != nil {
		return errcode.Convert(err, errcode.Repeatable)
	}
	answer := &bigtablepb.MutateRowsResponse{Entries: e.answers()}
	if f := featuresOf(stream.Context()); f.GetMutateRowsRateLimit() || f.GetMutateRowsRateLimit2() {
		answer.RateLimitInfo = rateLimit(e.errs)
	}
	return stream.Send(answer)
}

// entries are those of a MutateRows request. The slices are parallel to the request, except valid.
type entries struct {
	valid  []*client.RowMutation
	at     []int // the index of each valid entry
	repeat []errcode.Repeat
	errs   []error
}

func (s *Service) convertEntries(from []*bigtablepb.MutateRowsRequest_Entry) *entries {
	n := len(from)
	e := &entries{make([]*client.RowMutation, 0, n), make([]int, 0, n), make([]errcode.Repeat, n), make([]error, n)}
	for i, f := range from {
		var m *client.RowMutation
		if e.errs[i] = s.checkRow(f.RowKey); e.errs[i] != nil {
			continue
		}
		if m, e.repeat[i], e.errs[i] = tokened(f.RowKey, f.Mutations, f.Idempotency); e.errs[i] != nil {
			continue
		}
		if m.Len() == 0 {
			e.errs[i] = errNoMutations
			continue
		}
		e.valid, e.at = append(e.valid, m), append(e.at, i)
	}
	return e
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

// answers returns the status of each entry.
func (e *entries) answers() []*bigtablepb.MutateRowsResponse_Entry {
	all := make([]*bigtablepb.MutateRowsResponse_Entry, len(e.errs))
	for i, err := range e.errs {
		all[i] = &bigtablepb.MutateRowsResponse_Entry{Index: int64(i), Status: &statuspb.Status{}}
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
func rateLimit(errs []error) *bigtablepb.RateLimitInfo {
	info := &bigtablepb.RateLimitInfo{Period: durationpb.New(rateLimitPeriod), Factor: faster}
	for _, err := range errs {
		if errors.Is(err, client.ErrOverloaded) || errors.Is(err, client.ErrQuotaRate) {
			info.Factor = slower
		}
	}
	return info
}

// CheckAndMutateRow implements bigtablepb.BigtableServer.
func (s *Service) CheckAndMutateRow(ctx context.Context, req *bigtablepb.CheckAndMutateRowRequest) (*bigtablepb.CheckAndMutateRowResponse, error) {
	if len(req.TrueMutations)+len(req.FalseMutations) == 0 {
		return nil, errNoMutations
	}
	t, err := s.open(ctx, target{table: req.TableName, authorizedView: req.AuthorizedViewName, profile: req.AppProfileId, use: useTransact})
	if err != nil {
		return nil, err
	}
	if err = s.checkRow(req.RowKey); err == nil {
		err = s.checkFilter(req.PredicateFilter)
	}
	if err != nil {
		return nil, err
	}
	predicate, err := convertFilter(req.PredicateFilter)
	if err != nil {
		return nil, err
	}
	then, _, err := rowMutation(req.RowKey, req.TrueMutations)
	if err != nil {
		return nil, err
	}
	otherwise, _, err := rowMutation(req.RowKey, req.FalseMutations)
	if err != nil {
		return nil, err
	}
	matched, err := t.CheckAndMutate(ctx, string(req.RowKey), predicate, then, otherwise)
	if err != nil {
		return nil, errcode.Convert(err, errcode.Once)
	}
	return &bigtablepb.CheckAndMutateRowResponse{PredicateMatched: matched}, nil
}

// ReadModifyWriteRow implements bigtablepb.BigtableServer.
func (s *Service) ReadModifyWriteRow(ctx context.Context, req *bigtablepb.ReadModifyWriteRowRequest) (*bigtablepb.ReadModifyWriteRowResponse, error) {
	t, err := s.open(ctx, target{table: req.TableName, authorizedView: req.AuthorizedViewName, profile: req.AppProfileId, use: useTransact})
	if err != nil {
		return nil, err
	}
	if err := s.checkRow(req.RowKey); err != nil {
		return nil, err
	}
	rules := make([]table.Rule, len(req.Rules))
	for i, from := range req.Rules {
		to := &rules[i]
		to.Family, to.Qualifier = from.GetFamilyName(), from.GetColumnQualifier()
		switch r := from.GetRule().(type) {
		case *bigtablepb.ReadModifyWriteRule_AppendValue:
			to.Op, to.Value = table.RuleAppend, r.AppendValue
		case *bigtablepb.ReadModifyWriteRule_IncrementAmount:
			to.Op, to.Amount = table.RuleIncrement, r.IncrementAmount
		default:
			return nil, errcode.Invalid("Error in element #%d: no rule is set", i)
		}
	}
	memory := answerMemory(ctx, s)
	for {
		row, err := t.ReadModifyWriteWithin(ctx, string(req.RowKey), memory.bytes, rules...)
		if err == nil {
			return &bigtablepb.ReadModifyWriteRowResponse{Row: convertRow(row)}, nil
		}
		if err = memory.grow(ctx, err); err != nil { // otherwise the row is as it was
			return nil, errcode.Convert(err, errcode.Once)
		}
	}
}

// convertRow converts a row whose cells are in the order of a read.
func convertRow(from *table.Row) *bigtablepb.Row {
	to := &bigtablepb.Row{Key: from.Key}
	var family *bigtablepb.Family
	var column *bigtablepb.Column
	for i := range from.Cells {
		c := &from.Cells[i]
		if family == nil || family.Name != c.Family {
			family, column = &bigtablepb.Family{Name: c.Family}, nil
			to.Families = append(to.Families, family)
		}
		if column == nil || string(column.Qualifier) != string(c.Qualifier) {
			column = &bigtablepb.Column{Qualifier: c.Qualifier}
			family.Columns = append(family.Columns, column)
		}
		column.Cells = append(column.Cells, &bigtablepb.Cell{TimestampMicros: c.Timestamp, Value: c.Value, Labels: c.Labels})
	}
	return to
}
