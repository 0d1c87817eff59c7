package bigtable

import (
	"context"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

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
