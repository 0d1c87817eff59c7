package acl

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/steledb/stele/table"
)

var names = []string{"ann", "bob", "cleo"}

// randomPolicies returns random policies for a table.
func randomPolicies(rng *rand.Rand, s *table.Schema) (cluster, grants *Policy) {
	cluster, grants = &Policy{}, &Policy{Table: s.ID}
	add := func(p *Policy, family uint32) *Policy {
		principal := append(slices.Clone(names), Everyone)[rng.IntN(len(names)+1)]
		next, err := p.Grant(Grant{principal, family, Rights(1 + rng.IntN(7))})
		if err != nil {
			panic(err)
		}
		return next
	}
	if rng.IntN(5) == 0 {
		cluster = add(cluster, 0)
	}
	if rng.IntN(3) == 0 {
		grants = add(grants, 0)
	}
	for range rng.IntN(6) {
		grants = add(grants, 1+uint32(rng.IntN(int(s.NextFamilyID)+1))) // some name families that do not exist
	}
	return cluster, grants
}

// model is a simple reference for whether a principal has a right on a family (0: on the whole).
func model(principal string, right Rights, family uint32, cluster, grants *Policy) bool {
	for _, g := range append(slices.Clone(cluster.Grants), grants.Grants...) {
		mine := g.Principal == principal || g.Principal == "*"
		there := g.Family == 0 || g.Family == family
		if mine && there && (g.Rights&right != 0 || g.Rights&Admin != 0) {
			return true
		}
	}
	return false
}

// randomSchema returns a random table with some families dropped.
func randomSchema(t *testing.T, rng *rand.Rand, id uint64, most int) *table.Schema {
	t.Helper()
	var fs []string
	for i := range rng.IntN(most + 1) {
		fs = append(fs, fmt.Sprintf("f%02d", (i*37)%101))
	}
	s := schemaOf(t, id, fs...)
	for _, f := range fs {
		if rng.IntN(6) == 0 {
			var err error
			if s, err = s.DropFamily(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// TestModel: AC1.
func TestModel(t *testing.T) {
	rng := random(t)
	for range soak(700) {
		s := randomSchema(t, rng, 16, []int{4, 4, 4, 20, 70}[rng.IntN(5)])
		cluster, grants := randomPolicies(rng, s)
		principal := names[rng.IntN(len(names))]
		v := NewView(principal, cluster, grants, s)
		may := func(r Rights, family uint32) bool { return model(principal, r, family, cluster, grants) }
		any := func(family uint32) bool { return may(Read, family) || may(Write, family) || may(Admin, family) }
		seen, reads := 0, 0
		for i, f := range s.Families {
			if v.CanRead(f.Name) != may(Read, f.ID) || v.ReadMask().Has(i) != may(Read, f.ID) {
				t.Fatalf("%s reads %s: %v; %v %v", principal, f.Name, v.CanRead(f.Name), cluster, grants)
			}
			if got := v.Visible().Family(f.Name) != nil; got != any(f.ID) {
				t.Fatalf("%s sees %s: %v; %v %v", principal, f.Name, got, cluster, grants)
			}
			set := &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.Set(f.Name, nil, 0, nil)}}
			_, err := v.Restrict(set)
			wantKind(t, err, any(0) || anySeen(s, any), any(f.ID), may(Write, f.ID))
			err = v.CheckModify(f.Name)
			wantKind(t, err, any(0) || anySeen(s, any), any(f.ID), may(Write, f.ID) && may(Read, f.ID))
			if any(f.ID) {
				seen++
			}
			if may(Read, f.ID) {
				reads++
			}
		}
		visible := any(0) || seen > 0
		wantKind(t, v.CheckRead(), visible, true, reads > 0 || may(Read, 0))
		for _, r := range []Rights{Read, Write, Admin} {
			wantKind(t, v.CheckTable(r), visible, true, may(r, 0))
			if got := cluster.Check(principal, r) == nil; got != model(principal, r, 0, cluster, &Policy{}) {
				t.Fatalf("%s may %v on the cluster: %v; %v", principal, r, got, cluster)
			}
		}
		wantKind(t, v.CheckSeen(), visible, true, true)
		if v.ReadsAll() != (reads == len(s.Families)) || v.ReadMask().Len() != reads {
			t.Fatalf("reads %d of %d, and says all: %v", reads, len(s.Families), v.ReadsAll())
		}
		if err := v.Visible().Validate(nil); err != nil {
			t.Fatal(err)
		}
		wantKind(t, v.CheckModify("nowhere"), visible, false, false)
	}
}

func anySeen(s *table.Schema, any func(uint32) bool) bool {
	return slices.ContainsFunc(s.Families, func(f table.Family) bool { return any(f.ID) })
}

// wantKind checks the kind of the result: hidden, absent, denied or no error.
func wantKind(t *testing.T, err error, visible, there, allowed bool) {
	t.Helper()
	var want error
	switch {
	case !visible:
		want = ErrHidden
	case !there:
		want = table.ErrNoFamily
	case !allowed:
		want = ErrDenied
	}
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

// TestOtherPolicies: the policy of another table, or of a table in place of the cluster's, grants
// nothing.
func TestOtherPolicies(t *testing.T) {
	s := schemaOf(t, 16, "a")
	onTable := &Policy{Table: 16, Grants: []Grant{{"ann", 0, Admin}}}
	other := &Policy{Table: 17, Grants: onTable.Grants}
	cluster := &Policy{Grants: onTable.Grants}
	for what, v := range map[string]*View{
		"none": NewView("ann", nil, nil, s), "another table's": NewView("ann", nil, other, s),
		"a table's as the cluster's": NewView("ann", onTable, nil, s), "the cluster's as a table's": NewView("ann", nil, cluster, s),
		"somebody else": NewView("bob", cluster, onTable, s),
	} {
		if err := v.CheckSeen(); !errors.Is(err, ErrHidden) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := onTable.Check("ann", Read); err == nil {
		t.Error("a table's grants apply to the cluster")
	}
	if err := NewView("ann", cluster, nil, s).CheckTable(Admin); err != nil {
		t.Error(err)
	}
}

// TestHiddenFamilyErrors: errors about a hidden family are identical to those about a family that
// does not exist.
func TestHiddenFamilyErrors(t *testing.T) {
	with, without := schemaOf(t, 16, "a", "secret"), schemaOf(t, 16, "a")
	grants := &Policy{Table: 16, Grants: []Grant{{"ann", 1, Read | Write}}}
	hiding, lacking := NewView("ann", nil, grants, with), NewView("ann", nil, grants, without)
	text := func(v *View, m table.RowMutation) (s string) {
		if err := m.Validate(v.Visible(), nil); err != nil {
			s = err.Error()
		}
		if _, err := v.Restrict(&m); err != nil {
			s += " / " + err.Error()
		}
		return s + " / " + fmt.Sprint(v.CheckModify("secret"), reflect.TypeOf(v.CheckModify("secret")))
	}
	for _, m := range [][]table.Mutation{
		{table.Set("secret", nil, 0, nil)}, {table.DeleteFamily("secret")}, {table.DeleteColumn("secret", nil)},
		{table.Set("a", nil, 0, nil), table.Set("secret", nil, -5, nil)}, {table.DeleteRow()},
	} {
		r := table.RowMutation{Row: []byte("r"), Mutations: m}
		if a, b := text(hiding, r), text(lacking, r); a != b {
			t.Errorf("%v: hidden %q, not there %q", m, a, b)
		}
	}
	if !reflect.DeepEqual(hiding.Visible().Families, without.Families) {
		t.Errorf("sees %v", hiding.Visible().Families)
	}
}

// TestVisibleGroups: a locality group with only hidden families is hidden.
func TestVisibleGroups(t *testing.T) {
	s := table.NewSchema("t", 16)
	s, err := s.Apply(table.FamilySpec{Name: "a", Group: "open"}, table.FamilySpec{Name: "b", Group: "closed"}, table.FamilySpec{Name: "c"})
	if err != nil {
		t.Fatal(err)
	}
	v := NewView("ann", nil, &Policy{Table: 16, Grants: []Grant{{"ann", s.Family("a").ID, Read}}}, s)
	if got := v.Visible(); got.Group("closed") != nil || got.Group("open") == nil || got.Group(table.DefaultGroup) == nil {
		t.Errorf("groups are %v", got.Groups)
	}
	if s.Group("closed") == nil || len(s.Families) != 3 {
		t.Error("the schema was changed")
	}
}

// randomRow returns the cells of a random row in families.
func randomRow(rng *rand.Rand, families []table.Family) []table.Cell {
	var cells []table.Cell
	for _, f := range families {
		for i := range rng.IntN(4) {
			cells = append(cells, table.Cell{Family: f.Name, Qualifier: []byte{byte('a' + i/2)}, Timestamp: int64(10 - i), Value: []byte{byte('0' + rng.IntN(3))}})
		}
	}
	slices.SortFunc(cells, func(a, b table.Cell) int { return table.CompareCells(&a, &b) })
	return cells
}

func randomFilter(rng *rand.Rand, s *table.Schema, depth int) table.Filter {
	family := "none"
	if len(s.Families) > 0 {
		family = s.Families[rng.IntN(len(s.Families))].Name
	}
	if depth > 0 && rng.IntN(2) == 0 {
		sub := func() table.Filter { return randomFilter(rng, s, depth-1) }
		switch rng.IntN(3) {
		case 0:
			return table.Chain{sub(), sub()}
		case 1:
			return table.Interleave{sub(), sub()}
		}
		return table.Condition{Predicate: sub(), True: sub(), False: sub()}
	}
	return []table.Filter{
		table.PassAll{}, table.FamilyRegex(family), table.CellsPerRowLimit(1 + rng.IntN(3)), table.CellsPerRowOffset(rng.IntN(3)),
		table.ColumnRange{Family: family}, table.ValueRegex("[01]"), table.CellsPerColumnLimit(1), table.StripValue{},
	}[rng.IntN(8)]
}

// TestNothingLeaks: AC2. What a principal gets of a row through any filter is the same as if the
// table had never had the unreadable families.
func TestNothingLeaks(t *testing.T) {
	rng := random(t)
	var e table.Evaluator
	hidden := 0
	for range soak(5000) {
		s := randomSchema(t, rng, 16, 6)
		cluster, grants := randomPolicies(rng, s)
		v := NewView("ann", cluster, grants, s)
		var readable []table.Family
		for _, f := range s.Families {
			if model("ann", Read, f.ID, cluster, grants) {
				readable = append(readable, f)
			}
		}
		row := randomRow(rng, s.Families)
		var want []table.Cell
		for _, c := range row {
			if slices.ContainsFunc(readable, func(f table.Family) bool { return f.Name == c.Family }) {
				want = append(want, c)
			}
		}
		if len(want) < len(row) {
			hidden++
		}
		p, err := table.Compile(randomFilter(rng, s, 3))
		if err != nil {
			t.Fatal(err)
		}
		eval := func(cells []table.Cell) string {
			out, err := e.Eval(p, []byte("row"), cells)
			return fmt.Sprintf("%v %v", out, err)
		}
		expected := eval(want)
		work := slices.Clone(row)
		kept := v.Readable(work)
		if got := eval(kept); got != expected {
			t.Fatalf("row %v, grants %v %v: got %s, want %s", row, cluster, grants, got, expected)
		}
		if rest := work[len(kept):]; slices.ContainsFunc(rest, func(c table.Cell) bool { return c.Family != "" || c.Value != nil }) {
			t.Fatalf("cells that were left out are still there: %v", rest)
		}
	}
	if hidden < 100 {
		t.Errorf("cells were hidden only %d times", hidden)
	}
}

// apply applies a row mutation to cells keyed by column.
func apply(row map[string]string, m *table.RowMutation) {
	for _, o := range m.Mutations {
		maps.DeleteFunc(row, func(column, _ string) bool {
			family := column[:3]
			switch o.Op {
			case table.OpDeleteRow:
				return true
			case table.OpDeleteFamily:
				return family == o.Family
			}
			return o.Op == table.OpDeleteColumn && column == o.Family+":"+string(o.Qualifier)
		})
		if o.Op == table.OpSet {
			row[o.Family+":"+string(o.Qualifier)] = string(o.Value)
		}
	}
}

// TestRestrict: a mutation does the same as in a table without the hidden families, and leaves
// those unchanged.
func TestRestrict(t *testing.T) {
	rng := random(t)
	done, narrowed := 0, 0
	for range soak(5000) {
		s := randomSchema(t, rng, 16, 5)
		cluster, grants := randomPolicies(rng, s)
		v := NewView("ann", cluster, grants, s)
		m := &table.RowMutation{Row: []byte("r")}
		for i := range 1 + rng.IntN(4) {
			family := "f00"
			if n := len(v.Visible().Families); n > 0 {
				family = v.Visible().Families[rng.IntN(n)].Name
			}
			q := []byte{byte('a' + rng.IntN(2))}
			m.Mutations = append(m.Mutations, []table.Mutation{
				table.Set(family, q, 0, []byte{byte('0' + i)}), table.Set(family, q, 0, []byte{byte('0' + i)}),
				table.DeleteColumn(family, q), table.DeleteFamily(family), table.DeleteRow(),
			}[rng.IntN(5)])
		}
		before := fmt.Sprint(m)
		next, err := v.Restrict(m)
		if fmt.Sprint(m) != before {
			t.Fatal("the mutation was changed")
		}
		if err != nil {
			continue
		}
		done++
		if next != m {
			narrowed++
		}
		real, seen, hidden := map[string]string{}, map[string]string{}, map[string]string{}
		for _, c := range randomRow(rng, s.Families) {
			column := c.Family + ":" + string(c.Qualifier)
			real[column] = "old"
			if v.Visible().Family(c.Family) != nil {
				seen[column] = "old"
			} else {
				hidden[column] = "old"
			}
		}
		apply(real, next)
		apply(seen, m)
		maps.Copy(seen, hidden)
		if !maps.Equal(real, seen) {
			t.Fatalf("%v became %v: %v, want %v", m, next, real, seen)
		}
		for _, o := range next.Mutations {
			if o.Op != table.OpDeleteRow && !model("ann", Write, s.Family(o.Family).ID, cluster, grants) {
				t.Fatalf("%v is changed without the right", o.Family)
			}
		}
		if slices.ContainsFunc(next.Mutations, func(o table.Mutation) bool { return o.Op == table.OpDeleteRow }) {
			for _, f := range s.Families {
				if !model("ann", Write, f.ID, cluster, grants) {
					t.Fatalf("%v is deleted without the right", f.Name)
				}
			}
		}
	}
	if done < 100 || narrowed < 20 {
		t.Errorf("%d mutations were allowed, %d narrowed", done, narrowed)
	}
}

// TestTableWithoutFamilies: a principal with write on the table may delete rows; one with read may
// not.
func TestTableWithoutFamilies(t *testing.T) {
	m := &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.DeleteRow()}}
	for right, want := range map[Rights]error{Read: ErrDenied, Write: nil, Admin: nil} {
		v := NewView("ann", nil, &Policy{Table: 16, Grants: []Grant{{"ann", 0, right}}}, schemaOf(t, 16))
		if _, err := v.Restrict(m); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%v: %v, want %v", right, err, want)
		}
	}
}

// TestDeleteRowAmplifies: many row deletions in one request do not expand to one deletion per
// family each.
func TestDeleteRowAmplifies(t *testing.T) {
	var fs []string
	grants := &Policy{Table: 16}
	for i := range 500 {
		fs = append(fs, fmt.Sprintf("f%03d", i))
		grants.Grants = append(grants.Grants, Grant{"ann", uint32(i + 1), Write})
	}
	s := schemaOf(t, 16, append(fs, "secret")...)
	v := NewView("ann", nil, grants, s)
	m := &table.RowMutation{Row: []byte("r"), Mutations: slices.Repeat([]table.Mutation{table.DeleteRow()}, 100_000), Token: &table.Token{}}
	next, err := v.Restrict(m)
	if err != nil || len(next.Mutations) != 500 || next.Token != m.Token {
		t.Fatalf("%d mutations, %v", len(next.Mutations), err)
	}
}

// TestAllocations: AC5.
func TestAllocations(t *testing.T) {
	for _, families := range []int{3, 40} {
		var fs []string
		for i := range families {
			fs = append(fs, fmt.Sprintf("f%02d", i))
		}
		s := schemaOf(t, 16, fs...)
		v := NewView("ann", nil, &Policy{Table: 16, Grants: []Grant{{"ann", 1, Read | Write}, {"ann", 3, Read}}}, s)
		row := randomRow(rand.New(rand.NewPCG(1, 1)), s.Families)
		work := make([]table.Cell, len(row))
		m := &table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.Set("f00", nil, 0, nil), table.DeleteFamily("f00")}}
		n := testing.AllocsPerRun(100, func() {
			copy(work, row)
			if len(v.Readable(work)) == 0 || !v.CanRead("f00") || v.CanRead("f01") || v.CheckRead() != nil {
				t.Error("wrong")
			}
			if _, err := v.Restrict(m); err != nil {
				t.Error(err)
			}
		})
		if n != 0 {
			t.Errorf("%d families: %v allocations", families, n)
		}
	}
}
