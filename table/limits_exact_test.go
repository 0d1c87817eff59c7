package table

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// limited is an operation on n units of what a limit bounds.
type limited struct {
	name  string
	n     int64
	limit func(l *Limits, n int64)
	do    func(l *Limits) error
}

// TestLimitsAreExact: input at a limit is accepted; with a limit of one less it is rejected with
// both numbers.
func TestLimitsAreExact(t *testing.T) {
	nested := func(n int) Filter {
		f := Filter(PassAll{})
		for range n - 1 {
			f = Chain{f}
		}
		return f
	}
	nodes := func(l *Limits, n int64) { l.FilterNodes = n }
	depth := func(l *Limits, n int64) { l.FilterDepth = n }
	bytes := func(l *Limits, n int64) { l.FilterBytes = n }
	rules := func(l *Limits, n int64) { l.GCPolicyNodes = n }
	levels := func(l *Limits, n int64) { l.GCPolicyDepth = n }
	policy := func(p GCPolicy) func(l *Limits) error { return func(l *Limits) error { return p.Validate(l) } }
	one := MaxVersions(1)
	cases := []limited{
		{"pattern bytes", 4, func(l *Limits, n int64) { l.RegexBytes = n }, compiled(RowRegex("abcd"))},
		{"pattern cost", 7 * nodeCost, func(l *Limits, n int64) { l.RegexCost = n }, compiled(Chain{RowRegex("abcd"), ValueRegex("xyz")})},
		{"rules", 5, rules, policy(Union(one, Intersection(MaxAge(time.Hour), one)))},
		{"rules in text", 5, rules, func(l *Limits) error {
			p, err := ParseGCPolicy("versions=1 or age=1h and versions=2")
			return errors.Join(err, p.Validate(l))
		}},
		{"levels of rules", 4, levels, policy(Union(one, Intersection(MaxAge(time.Hour), Union(one, one))))},
		{"families", 2, func(l *Limits, n int64) { l.Families = n }, func(l *Limits) error {
			s := NewSchema("t", 20)
			for _, name := range []string{"a", "b"} {
				next, err := s.AddFamily(Family{Name: name})
				if err != nil {
					t.Fatal(err)
				}
				s = next
			}
			return s.Validate(l)
		}},
		{"mutations", 3, func(l *Limits, n int64) { l.Mutations = n }, func(l *Limits) error {
			r := RowMutation{Row: []byte("r"), Mutations: slices.Repeat([]Mutation{DeleteRow()}, 3)}
			return r.Validate(nil, l)
		}},
		{"decode a label", 3, bytes, decoded(ApplyLabel("abc"))},
		{"row key", 5, func(l *Limits, n int64) { l.RowKeyBytes = n }, func(l *Limits) error { return l.CheckRowKey([]byte("12345")) }},
		{"table name", 5, func(l *Limits, n int64) { l.TableNameBytes = n }, func(l *Limits) error { return l.CheckTableName("abcde") }},
		{"family name", 5, func(l *Limits, n int64) { l.FamilyNameBytes = n }, func(l *Limits) error { return l.CheckFamilyName("abcde") }},
	}
	for _, f := range []struct {
		name  string
		n     int64
		limit func(l *Limits, n int64)
		f     Filter
	}{
		{"one filter", 1, nodes, PassAll{}},
		{"a chain of 3", 4, nodes, Chain{PassAll{}, PassAll{}, PassAll{}}},
		{"an interleave of a chain of 2", 5, nodes, Interleave{PassAll{}, Chain{PassAll{}, PassAll{}}}},
		{"a condition", 4, nodes, Condition{PassAll{}, PassAll{}, BlockAll{}}},
		{"levels of filters", 7, depth, nested(7)},
		{"a pattern", 4, bytes, RowRegex("abcd")},
		{"two patterns", 6, bytes, Chain{RowRegex("abcd"), FamilyRegex("ef")}},
		{"a range of columns", 6, bytes, ColumnRange{"f", ByteRange{Closed([]byte("aa")), Open([]byte("bbb"))}}},
		{"a range of values", 5, bytes, ValueRange{Closed([]byte("aa")), Open([]byte("bbb"))}},
		{"a mask of values", 3, bytes, ValueMask("abc")},
	} {
		cases = append(cases, limited{"compile " + f.name, f.n, f.limit, compiled(f.f)}, limited{"decode " + f.name, f.n, f.limit, decoded(f.f)})
	}
	for _, c := range cases {
		at, below := DefaultLimits(), DefaultLimits()
		c.limit(&at, c.n)
		if err := c.do(&at); err != nil {
			t.Errorf("%s, %d at a limit of as many: %v", c.name, c.n, err)
		}
		if c.n == 1 {
			continue // a limit of 0 is the default
		}
		c.limit(&below, c.n-1)
		var over *LimitError
		if err := c.do(&below); !errors.As(err, &over) || over.Limit != c.n-1 || over.Got != c.n {
			t.Errorf("%s, %d at a limit of one less: %v", c.name, c.n, err)
		}
	}
}

func compiled(f Filter) func(l *Limits) error {
	return func(l *Limits) error {
		_, err := CompileLimits(f, l)
		return err
	}
}

func decoded(f Filter) func(l *Limits) error {
	return func(l *Limits) error {
		var e wire.Encoder
		AppendFilter(&e, f)
		d := wire.NewDecoder(e.Bytes())
		_, err := DecodeFilter(&d, l)
		return err
	}
}

// TestGroupBounds: block size, compression and Bloom mode are valid up to their maximum.
func TestGroupBounds(t *testing.T) {
	for _, c := range []struct {
		g    LocalityGroup
		good bool
	}{
		{LocalityGroup{Name: "g", BlockBytes: MinBlockBytes - 1}, false},
		{LocalityGroup{Name: "g", BlockBytes: MinBlockBytes}, true},
		{LocalityGroup{Name: "g", BlockBytes: MaxBlockBytes}, true},
		{LocalityGroup{Name: "g", BlockBytes: MaxBlockBytes + 1}, false},
		{LocalityGroup{Name: "g", BlockBytes: -1}, false},
		{LocalityGroup{Name: "g", Compression: CompressionTwoPass}, true},
		{LocalityGroup{Name: "g", Compression: CompressionTwoPass + 1}, false},
		{LocalityGroup{Name: "g", Bloom: BloomRowCol}, true},
		{LocalityGroup{Name: "g", Bloom: BloomRowCol + 1}, false},
	} {
		if err := c.g.validate("t", &defaultLimits); (err == nil) != c.good {
			t.Errorf("%+v: %v", c.g, err)
		}
	}
	names := []string{CompressionTwoPass.String(), (CompressionTwoPass + 1).String(), BloomRowCol.String(), (BloomRowCol + 1).String()}
	if want := []string{"two-pass", "unknown", "rowcol", "unknown"}; !slices.Equal(names, want) {
		t.Errorf("the names are %q, want %q", names, want)
	}
}

// TestGroupNames: every name of a compression and a Bloom mode decodes, including "default"; others
// do not.
func TestGroupNames(t *testing.T) {
	for key, names := range map[string][]string{"compression": compressionNames[:], "bloom": bloomNames[:]} {
		for i, name := range append(slices.Clone(names), "unknown") {
			var e wire.Encoder
			e.Map(2)
			e.Str("name")
			e.Str("g")
			e.Str(key)
			e.Str(name)
			d := wire.NewDecoder(e.Bytes())
			g, err := DecodeGroup(&d)
			if good := i < len(names); (err == nil) != good || good && int(g.Compression)+int(g.Bloom) != i {
				t.Errorf("%s %q is read as %+v, %v", key, name, g, err)
			}
		}
	}
}

func TestFamilyEqual(t *testing.T) {
	f := Family{Name: "f", ID: 1, Group: "g", GC: MaxVersions(1)}
	if same := f; !f.Equal(&same) {
		t.Error("a family is not equal to itself")
	}
	for name, change := range map[string]func(f *Family){
		"name": func(f *Family) { f.Name = "x" }, "id": func(f *Family) { f.ID = 2 },
		"group": func(f *Family) { f.Group = "x" }, "policy": func(f *Family) { f.GC = MaxVersions(2) },
	} {
		o := f
		if change(&o); f.Equal(&o) || o.Equal(&f) {
			t.Errorf("families with another %s are equal", name)
		}
	}
}

// TestFamilyIDs: an id has 32 bits.
func TestFamilyIDs(t *testing.T) {
	for id, good := range map[uint64]bool{0: true, 1<<32 - 1: true, 1 << 32: false, 1 << 63: false} {
		var e wire.Encoder
		e.Map(2)
		e.Str("name")
		e.Str("f")
		e.Str("id")
		e.Uint(id)
		d := wire.NewDecoder(e.Bytes())
		if f, err := decodeFamily(&d); (err == nil) != good || good && uint64(f.ID) != id {
			t.Errorf("id %d is read as %d, %v", id, f.ID, err)
		}
	}
}

func TestEmptyRanges(t *testing.T) {
	a, b := []byte("a"), []byte("b")
	for _, c := range []struct {
		r     ByteRange
		empty bool
	}{
		{ByteRange{Closed(a), Closed(a)}, false}, {ByteRange{Closed(a), Open(a)}, true}, {ByteRange{Open(a), Closed(a)}, true},
		{ByteRange{Open(a), Open(a)}, true}, {ByteRange{Closed(b), Closed(a)}, true}, {ByteRange{Open(a), Open(b)}, false},
		{ByteRange{}, false}, {ByteRange{Start: Open(a)}, false}, {ByteRange{End: Open(a)}, false},
	} {
		if got := c.r.empty(); got != c.empty {
			t.Errorf("%+q is empty: %v", c.r, got)
		}
	}
	bounds := []Bound{{}, Closed(a), Open(a), Closed(b), Open(b)}
	for i, x := range bounds {
		for j, y := range bounds {
			if x.equal(y) != (i == j) {
				t.Errorf("%+q equals %+q: %v", x, y, x.equal(y))
			}
		}
	}
}

func TestFilterErrorTexts(t *testing.T) {
	cause := errors.New("cause")
	for want, e := range map[string]*FilterError{
		"filter chain[0]: reason: cause": {Path: "chain[0]", Reason: "reason", Err: cause},
		"filter chain[0]: cause":         {Path: "chain[0]", Err: cause},
		"filter chain[0]: reason":        {Path: "chain[0]", Reason: "reason"},
	} {
		if got := e.Error(); got != want {
			t.Errorf("the error is %q, want %q", got, want)
		}
	}
}

// TestLabels: a label has 1 to 15 of a-z, 0-9 and the hyphen.
func TestLabels(t *testing.T) {
	for c := range 256 {
		want := c < 128 && strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789-", rune(c))
		if got := validLabel("a" + string([]byte{byte(c)})); got != want {
			t.Errorf("a label with the byte %#x is valid: %v", c, got)
		}
	}
	for n, want := range map[int]bool{0: false, 1: true, 15: true, 16: false} {
		if got := validLabel(strings.Repeat("a", n)); got != want {
			t.Errorf("a label of %d bytes is valid: %v", n, got)
		}
	}
}

// TestResetKeepsSmallBuffers: Reset keeps 8 buffers of up to 8,192 cells, all empty.
func TestResetKeepsSmallBuffers(t *testing.T) {
	e := Evaluator{free: [][]Cell{make([]Cell, 0, 8193)}}
	for range 9 {
		e.free = append(e.free, append(make([]Cell, 0, 8192), Cell{Family: "f"}))
	}
	e.Reset()
	if len(e.free) != 8 {
		t.Errorf("%d buffers are kept", len(e.free))
	}
	for _, b := range e.free {
		if cap(b) != 8192 || b[:1][0].Family != "" {
			t.Errorf("a buffer of %d cells is kept, with a cell of family %q", cap(b), b[:1][0].Family)
		}
	}
}

// TestSizesOfBlocks: a size is positive and fits in 31 bits.
func TestSizesOfBlocks(t *testing.T) {
	for text, want := range map[string]int{
		"1": 1, "1B": 1, "8KiB": 8192, "1MiB": 1 << 20, "2147483647": 1<<31 - 1, "2047MiB": 2047 << 20, "2097151KiB": 2097151 << 10,
		"0": 0, "-1": 0, "2147483648": 0, "2048MiB": 0, "2097152KiB": 0, "KiB": 0, "1GiB": 0, "1K": 0, "": 0,
	} {
		if got, err := parseBytes(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q is read as %d, %v", text, got, err)
		}
	}
}

// TestSpecOfPolicies: only a union of versions and age has the short form.
func TestSpecOfPolicies(t *testing.T) {
	v, a := MaxVersions(2), MaxAge(time.Hour)
	for want, p := range map[string]GCPolicy{
		"versions=2": v, "age=1h": a, "versions=2,age=1h": Union(v, a), `gc="versions=2 and age=1h"`: Intersection(v, a),
		`gc="age=1h or versions=2"`: Union(a, v), `gc="versions=2 or versions=2"`: Union(v, v), `gc="age=1h or age=1h"`: Union(a, a),
		`gc="versions=2 or age=1h or age=1h"`: Union(v, a, a),
	} {
		if got := specGC(&p); got != want {
			t.Errorf("the policy %s is written as %s, want %s", p.String(), got, want)
		}
	}
}

// TestQuotedPolicies: a policy may be quoted; both quotes are required.
func TestQuotedPolicies(t *testing.T) {
	for text, good := range map[string]bool{
		`f:gc=versions=2`: true, `f:gc="versions=2"`: true, `f:gc="versions=2`: false, `f:gc=versions=2"`: false, `f:gc=""`: true, `f:gc="`: false,
	} {
		spec, err := ParseFamilySpec(text)
		if (err == nil) != good || good && !strings.Contains(text, `""`) && spec.GC.String() != "versions=2" {
			t.Errorf("%s is read as %+v, %v", text, spec, err)
		}
	}
}

// TestSchemaEqual: schemas that differ in one field are not equal.
func TestSchemaEqual(t *testing.T) {
	s := mustSchema(t, "f", "g")
	if !s.Equal(s.Clone()) {
		t.Error("a schema is not equal to its copy")
	}
	for name, change := range map[string]func(s *Schema){
		"name": func(s *Schema) { s.Name = "other" }, "id": func(s *Schema) { s.ID++ }, "next id": func(s *Schema) { s.NextFamilyID++ },
		"group": func(s *Schema) { s.Groups[0].InMemory = true }, "families": func(s *Schema) { s.Families = s.Families[:1] },
		"family": func(s *Schema) { s.Families[1].GC = MaxVersions(7) },
	} {
		o := s.Clone()
		if change(o); s.Equal(o) || o.Equal(s) {
			t.Errorf("schemas with another %s are equal", name)
		}
	}
}

// TestGroupsAreSorted: groups are sorted by name without duplicates.
func TestGroupsAreSorted(t *testing.T) {
	for names, good := range map[string]bool{"a default": true, "default": true, "a a default": false, "default a": false, "a": false} {
		s := NewSchema("t", 20)
		s.Groups = nil
		for name := range strings.SplitSeq(names, " ") {
			s.Groups = append(s.Groups, LocalityGroup{Name: name})
		}
		if err := s.Validate(nil); (err == nil) != good {
			t.Errorf("groups %s: %v", names, err)
		}
	}
}

// TestTimeRangeBounds: the range of a delete contains at least one timestamp, and none is negative.
func TestTimeRangeBounds(t *testing.T) {
	for _, c := range []struct {
		start int64
		end   TimestampEnd
		good  bool
	}{
		{0, TimestampEnd{}, true}, {-1, TimestampEnd{}, false}, {0, Before(1), true}, {1, Before(1), false}, {2, Before(1), false}, {1, Before(2), true},
		{0, Before(-1), false}, {0, Before(0), false},
	} {
		if err := checkTimeRange(c.start, c.end, GranularityMicros); (err == nil) != c.good {
			t.Errorf("range from %d to %+v: %v", c.start, c.end, err)
		}
	}
}

// TestRuleBounds: versions and ages of rules are positive and not too large, in text and in
// policies.
func TestRuleBounds(t *testing.T) {
	for text, good := range map[string]bool{
		"versions=0": false, "versions=1": true, "versions=2147483647": true, "versions=2147483648": false,
		"age=0s": false, "age=1s": true, "age=106751d": true, "age=106752d": false,
	} {
		p, err := ParseGCPolicy(text)
		if (err == nil) != good {
			t.Errorf("%s: %v", text, err)
		}
		if err == nil && p.Validate(nil) != nil {
			t.Errorf("%s is read, and is not valid: %v", text, p.Validate(nil))
		}
	}
	for n, good := range map[int]bool{0: false, 1: true, maxVersionsRule: true, maxVersionsRule + 1: false} {
		p := MaxVersions(n)
		if err := p.Validate(nil); (err == nil) != good {
			t.Errorf("%d versions: %v", n, err)
		}
	}
	v, w, x, y := MaxVersions(2), MaxVersions(3), MaxAge(time.Hour), MaxAge(time.Minute)
	for _, c := range []struct {
		p        GCPolicy
		versions int
		age      time.Duration
	}{
		{Union(v, x), 2, time.Hour}, {Union(x, v), 2, time.Hour}, {Union(v, w), 2, 0}, {Union(w, v), 2, 0}, {Union(x, y), 0, time.Minute},
		{Union(y, x), 0, time.Minute}, {Intersection(v, x), 0, 0}, {Intersection(v, w), 3, 0}, {Intersection(x, y), 0, time.Hour},
	} {
		if n, d := c.p.MaxVersions(), c.p.MaxAge(); n != c.versions || d != c.age {
			t.Errorf("%s: all is garbage out of %d versions and past %v, want %d and %v", c.p.String(), n, d, c.versions, c.age)
		}
	}
}

// TestNameBytes: a name has letters, digits, the hyphen, the underscore and the dot.
func TestNameBytes(t *testing.T) {
	for c := range 256 {
		want := c < 128 && strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", rune(c))
		if got := nameByte(byte(c)); got != want {
			t.Errorf("the byte %#x may be in a name: %v", c, got)
		}
	}
}

// TestScratchBuffers: buffer sizes are powers of two, the last sufficient free buffer is reused,
// and the held cells stay within the limit.
func TestScratchBuffers(t *testing.T) {
	for n, want := range map[int]int{0: 32, 32: 32, 33: 64, 64: 64, 65: 128} {
		e := Evaluator{limit: 1000}
		if b, ok := e.buffer(n); !ok || cap(b) != want || e.held != want {
			t.Errorf("for %d cells there is a buffer of %d, %d are held", n, cap(b), e.held)
		}
	}
	for n, good := range map[int]bool{100: true, 101: false} {
		e := Evaluator{limit: 100}
		var over *LimitError
		if _, ok := e.buffer(n); ok != good || errors.As(e.err, &over) == good || !good && (over.Got != 101 || over.Limit != 100) {
			t.Errorf("%d cells of 100: %v, %v", n, ok, e.err)
		}
	}
	for n, want := range map[int]int{32: 32, 33: 64, 64: 64, 65: 128} {
		e := Evaluator{limit: 1000, free: [][]Cell{make([]Cell, 0, 64), make([]Cell, 0, 32)}}
		b, ok := e.buffer(n)
		if left := len(e.free); !ok || cap(b) != want || left != 1 && want < 128 {
			t.Errorf("for %d cells there is a buffer of %d, %d are left", n, cap(b), left)
		}
	}
}

func TestOpNames(t *testing.T) {
	for op, want := range map[Op]string{0: "unknown", OpSet: "set", OpDeleteColumn: "del_column", OpDeleteFamily: "del_family", OpDeleteRow: "del_row", OpAdd: "add", OpMerge: "merge", OpMerge + 1: "unknown"} {
		if got := op.String(); got != want {
			t.Errorf("operation %d is called %s, want %s", op, got, want)
		}
	}
	for op, good := range map[Op]bool{0: false, OpSet: true, OpDeleteFamily: true, OpDeleteRow: true, OpMerge + 1: false} {
		m := Mutation{Op: op, Family: "f"}
		if err := m.Validate(nil, nil); (err == nil) != good {
			t.Errorf("operation %d: %v", op, err)
		}
	}
}

// TestInternerBounds: an Interner remembers names of up to 64 bytes until its capacity is used up.
func TestInternerBounds(t *testing.T) {
	for n, want := range map[int]int{64: 1, 65: 0} {
		in := &Interner{names: map[string]string{}, capacity: 2}
		if got := in.Intern(make([]byte, n)); len(got) != n || len(in.names) != want || in.capacity != 2-want {
			t.Errorf("after a name of %d bytes it knows %d", n, len(in.names))
		}
	}
	in := &Interner{names: map[string]string{}, capacity: 1}
	for _, name := range []string{"a", "b", "a"} {
		if got := in.Intern([]byte(name)); got != name || len(in.names) != 1 {
			t.Errorf("%q is interned as %q, and it knows %d", name, got, len(in.names))
		}
	}
}
