package bigtableadmin

import (
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/gateway/errcode"
)

// Limits of Google's service that are narrower than those of the cluster, for Config.StrictLimits.
const (
	strictRuleBytes = 500
	strictAge       = time.Millisecond

	strictRetentionMin, strictRetentionMax = 24 * time.Hour, 7 * 24 * time.Hour
)

// checkRetention checks how long changes are to be kept, unless it is 0. The error is a status.
func (s *Service) checkRetention(d time.Duration) error {
	if s.cfg.StrictLimits && d != 0 && (d < strictRetentionMin || d > strictRetentionMax) {
		return errcode.Invalid("change_stream_config.retention_period must be from %v to %v", strictRetentionMin, strictRetentionMax)
	}
	return nil
}

// checkFamily checks the name and the rule of a family to create or change. The error is a status.
func (s *Service) checkFamily(name string, f *adminpb.ColumnFamily) error {
	if !s.cfg.StrictLimits {
		return nil
	}
	if name != "" && (name[0] == '-' || name[0] == '.') { // [_a-zA-Z0-9][-_.a-zA-Z0-9]*
		return errcode.Invalid("Column family %.200q begins with a character other than a-z A-Z 0-9 _", name)
	}
	if n := proto.Size(f.GetGcRule()); n > strictRuleBytes {
		return errcode.Invalid("The gc_rule of column family %.200q has %d bytes, want at most %d", name, n, strictRuleBytes)
	}
	return checkAges(f.GetGcRule(), ruleDepthMax)
}

// checkAges checks the ages in a rule of at most depth levels; policyOf rejects deeper ones.
func checkAges(r *adminpb.GcRule, depth int) error {
	if age := r.GetMaxAge(); age != nil && age.AsDuration() < strictAge {
		return errcode.Invalid("gc_rule.max_age must be at least %v", strictAge)
	}
	if depth == 0 {
		return nil
	}
	for _, rules := range [][]*adminpb.GcRule{r.GetUnion().GetRules(), r.GetIntersection().GetRules()} {
		for _, rule := range rules {
			if err := checkAges(rule, depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkModification checks the family that a modification creates or changes. The error is a status.
func (s *Service) checkModification(m *adminpb.ModifyColumnFamiliesRequest_Modification) error {
	f := m.GetCreate()
	if f == nil {
		f = m.GetUpdate()
	}
	if f == nil {
		return nil
	}
	return s.checkFamily(m.GetId(), f)
}
