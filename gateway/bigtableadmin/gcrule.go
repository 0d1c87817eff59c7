package bigtableadmin

import (
	"math"
	"time"

	"cloud.google.com/go/bigtable/admin/apiv2/adminpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/table"
)

// ruleDepthMax bounds the recursion of policyOf; schemas have the same limit.
const ruleDepthMax = 16

// policyOf converts a rule, which may be nil. The limits of policies are checked when the family is
// created. Errors are statuses.
func policyOf(r *adminpb.GcRule, depth int) (p table.GCPolicy, err error) {
	if depth > ruleDepthMax {
		return p, errcode.Invalid("gc_rule has more than %d levels", ruleDepthMax)
	}
	switch r := r.GetRule().(type) {
	case nil:
		return p, nil
	case *adminpb.GcRule_MaxNumVersions:
		if r.MaxNumVersions < 1 {
			return p, errcode.Invalid("gc_rule.max_num_versions must be at least 1")
		}
		return table.MaxVersions(int(r.MaxNumVersions)), nil
	case *adminpb.GcRule_MaxAge:
		return agePolicy(r.MaxAge)
	case *adminpb.GcRule_Union_:
		rules, err := policiesOf(r.Union.GetRules(), depth)
		return table.Union(rules...), err
	case *adminpb.GcRule_Intersection_:
		rules, err := policiesOf(r.Intersection.GetRules(), depth)
		return table.Intersection(rules...), err
	}
	return p, errcode.Unimplemented("The gc_rule is not supported.")
}

func policiesOf(rules []*adminpb.GcRule, depth int) ([]table.GCPolicy, error) {
	policies := make([]table.GCPolicy, len(rules))
	for i, r := range rules {
		var err error
		if policies[i], err = policyOf(r, depth+1); err != nil {
			return nil, err
		}
	}
	return policies, nil
}

// agePolicy converts a maximum age, which has a granularity of 1 µs here.
func agePolicy(d *durationpb.Duration) (p table.GCPolicy, err error) {
	if d.CheckValid() != nil || d.AsDuration() < time.Microsecond {
		return p, errcode.Invalid("gc_rule.max_age must be at least 1 µs")
	}
	return table.MaxAge(d.AsDuration().Truncate(time.Microsecond)), nil
}

// ruleOf converts a policy. It returns nil for one that keeps everything (GA2).
func ruleOf(p *table.GCPolicy) *adminpb.GcRule {
	switch p.Kind {
	case table.GCMaxVersions:
		return &adminpb.GcRule{Rule: &adminpb.GcRule_MaxNumVersions{MaxNumVersions: int32(min(p.Versions, math.MaxInt32))}}
	case table.GCMaxAge:
		return &adminpb.GcRule{Rule: &adminpb.GcRule_MaxAge{MaxAge: durationpb.New(p.Age)}}
	case table.GCUnion:
		return &adminpb.GcRule{Rule: &adminpb.GcRule_Union_{Union: &adminpb.GcRule_Union{Rules: rulesOf(p.Rules)}}}
	case table.GCIntersection:
		return &adminpb.GcRule{Rule: &adminpb.GcRule_Intersection_{Intersection: &adminpb.GcRule_Intersection{Rules: rulesOf(p.Rules)}}}
	}
	return nil
}

func rulesOf(policies []table.GCPolicy) []*adminpb.GcRule {
	rules := make([]*adminpb.GcRule, len(policies))
	for i := range policies {
		rules[i] = ruleOf(&policies[i])
	}
	return rules
}

// specOf converts a column family. Errors are statuses.
func specOf(name string, f *adminpb.ColumnFamily) (table.FamilySpec, error) {
	aggregate, err := aggregateOf(f.GetValueType())
	if err != nil {
		return table.FamilySpec{}, err
	}
	policy, err := policyOf(f.GetGcRule(), 1)
	spec := table.FamilySpec{Name: name, GC: &policy}
	if aggregate != table.AggregateNone { // masters of earlier versions accept plain families only without one
		spec.Aggregate = &aggregate
	}
	return spec, err
}
