package bigtableadmin

import (
	"context"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/table"
)

// familyChange is one modification of a table's families.
type familyChange struct {
	drop bool
	spec table.FamilySpec // of a drop: only the name
}

// ModifyColumnFamilies implements adminpb.BigtableTableAdminServer.
func (s *Service) ModifyColumnFamilies(ctx context.Context, req *adminpb.ModifyColumnFamiliesRequest) (*adminpb.Table, error) {
	t, name, err := s.openTable(ctx, req.Name)
	if err != nil {
		return nil, err
	}
	schema, err := schemaOf(ctx, t, name)
	if err != nil {
		return nil, err
	}
	changes, err := familyChanges(schema, req.Modifications)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		if c.drop {
			schema, err = t.DropFamily(ctx, name.ID, c.spec.Name)
		} else {
			schema, err = t.SetFamily(ctx, name.ID, c.spec)
		}
		if err != nil {
			return nil, errcode.Convert(err, errcode.Once)
		}
	}
	return describe(name, schema, adminpb.Table_SCHEMA_VIEW), nil
}

// familyChanges converts modifications, and checks them against the families of a schema as each
// leaves them. Errors are statuses.
func familyChanges(schema *table.Schema, from []*adminpb.ModifyColumnFamiliesRequest_Modification) ([]familyChange, error) {
	exists := map[string]bool{}
	for i := range schema.Families {
		exists[schema.Families[i].Name] = true
	}
	changes := make([]familyChange, len(from))
	for i, m := range from {
		create, err := changes[i].convert(m)
		if err != nil {
			return nil, err
		}
		switch {
		case create && exists[m.Id]:
			return nil, status.Errorf(codes.AlreadyExists, "family %.200q already exists", m.Id)
		case !create && !exists[m.Id]:
			return nil, status.Errorf(codes.NotFound, "family %.200q not found", m.Id)
		}
		exists[m.Id] = !changes[i].drop
	}
	return changes, nil
}

// convert converts a modification, and reports whether it creates the family.
func (c *familyChange) convert(m *adminpb.ModifyColumnFamiliesRequest_Modification) (create bool, err error) {
	switch mod := m.GetMod().(type) {
	case *adminpb.ModifyColumnFamiliesRequest_Modification_Create:
		c.spec, err = specOf(m.Id, mod.Create)
		return true, err
	case *adminpb.ModifyColumnFamiliesRequest_Modification_Update:
		for _, path := range m.GetUpdateMask().GetPaths() {
			if path != "gc_rule" {
				return false, errcode.Unimplemented("Only gc_rule of a column family can be updated.")
			}
		}
		c.spec, err = specOf(m.Id, mod.Update)
		return false, err
	case *adminpb.ModifyColumnFamiliesRequest_Modification_Drop:
		if !mod.Drop {
			return false, errcode.Invalid("drop must be true if set")
		}
		c.drop, c.spec = true, table.FamilySpec{Name: m.Id}
		return false, nil
	}
	return false, errcode.Invalid("no modification of family %.200q is set", m.GetId())
}
