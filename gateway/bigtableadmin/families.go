package bigtableadmin

import (
	"context"
	"errors"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/table"
)

// ModifyColumnFamilies implements adminpb.BigtableTableAdminServer. All modifications are made at once,
// or none.
func (s *Service) ModifyColumnFamilies(ctx context.Context, req *adminpb.ModifyColumnFamiliesRequest) (*adminpb.Table, error) {
	t, name, err := s.openTable(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	changes := make([]table.Change, len(req.Modifications))
	for i, m := range req.Modifications {
		if changes[i], err = familyChange(m); err == nil {
			err = s.checkModification(m)
		}
		if err != nil {
			return nil, err
		}
	}
	schema, err := t.Alter(ctx, name.ID, changes...)
	if err != nil {
		return nil, alterError(err, req.Modifications)
	}
	return describe(name, schema, adminpb.Table_SCHEMA_VIEW), nil
}

// alterError returns the status of a modification that failed.
func alterError(err error, modifications []*adminpb.ModifyColumnFamiliesRequest_Modification) error {
	var element *table.ElementError
	if errors.Is(err, table.ErrFamilyExists) && errors.As(err, &element) && element.Index < len(modifications) {
		return status.Errorf(codes.AlreadyExists, "family %.200q already exists", modifications[element.Index].Id)
	}
	return errcode.Convert(err, errcode.Once)
}

// updateOf converts the update of the masked parts of a family; without a mask it is one of the rule.
func updateOf(name string, f *adminpb.ColumnFamily, paths []string) (spec table.FamilySpec, err error) {
	if len(paths) == 0 {
		paths = []string{"gc_rule"}
	}
	spec.Name = name
	for _, path := range paths {
		switch path {
		case "gc_rule":
			var policy table.GCPolicy
			policy, err = policyOf(f.GetGcRule(), 1)
			spec.GC = &policy
		case "value_type":
			var a table.Aggregate
			a, err = aggregateOf(f.GetValueType())
			spec.Aggregate = &a // fails unless the family has it
		default:
			err = errcode.Unimplemented("Only gc_rule of a column family can be updated.")
		}
		if err != nil {
			return spec, err
		}
	}
	return spec, nil
}

// familyChange converts a modification. Errors are statuses.
func familyChange(m *adminpb.ModifyColumnFamiliesRequest_Modification) (c table.Change, err error) {
	switch mod := m.GetMod().(type) {
	case *adminpb.ModifyColumnFamiliesRequest_Modification_Create:
		c.Op = table.ChangeAdd
		c.Family, err = specOf(m.Id, mod.Create)
		return c, err
	case *adminpb.ModifyColumnFamiliesRequest_Modification_Update:
		c.Op = table.ChangeFamily
		c.Family, err = updateOf(m.Id, mod.Update, m.GetUpdateMask().GetPaths())
		return c, err
	case *adminpb.ModifyColumnFamiliesRequest_Modification_Drop:
		if !mod.Drop {
			return c, errcode.Invalid("drop must be true if set")
		}
		return table.Change{Op: table.ChangeDrop, Family: table.FamilySpec{Name: m.Id}}, nil
	}
	return c, errcode.Invalid("no modification of family %.200q is set", m.GetId())
}
