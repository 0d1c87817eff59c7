package table

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A FamilySpec describes a family to create or alter. Its text form on the command line is:
//
//	contents:versions=3,group=pages,compression=zstd,block=8KiB,bloom=row,in-memory
//
// Options that are not given keep their current value, or the default in a new family.
type FamilySpec struct {
	Name string
	// GC comes from versions= and age=, or from gc="…" with a whole policy. If both versions= and
	// age= are given, the policy is their union: at most N versions, none older than the age. Nil
	// means not given.
	GC *GCPolicy
	// Group comes from group=. Empty means not given: a new family joins the default group.
	Group string
	// The next fields are options of the family's group. Zero means not given.
	BlockBytes  int         // block=8KiB
	Compression Compression // compression=none, s2, zstd or two-pass
	Bloom       BloomMode   // bloom=none, row or rowcol
	InMemory    *bool       // in-memory, or in-memory=false
	// Aggregate comes from aggregate=sum, min, max or hll. Nil means not given: a new family is a plain one. The aggregate of a family
	// cannot change.
	Aggregate *Aggregate
}

// ParseFamilySpec parses a family specification. Names and sizes are checked when the specification
// is applied. Errors: ErrBadSpec, as a *SpecError that names the option.
func ParseFamilySpec(text string) (FamilySpec, error) {
	name, options, _ := strings.Cut(text, ":")
	p := specParser{text: text, spec: FamilySpec{Name: strings.TrimSpace(name)}}
	if p.spec.Name == "" {
		return FamilySpec{}, &SpecError{Text: text, Reason: "expected the name of a family, then ':' and options"}
	}
	for options != "" {
		var option string
		var err error
		if option, options, err = p.cutOption(options); err != nil {
			return FamilySpec{}, err
		}
		key, value, given := strings.Cut(option, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if slices.Contains(p.seen, key) {
			return FamilySpec{}, p.bad(key, errors.New("is given twice"))
		}
		p.seen = append(p.seen, key)
		if err := p.set(key, value, given); err != nil {
			return FamilySpec{}, p.bad(key, err)
		}
	}
	return p.finish()
}

type specParser struct {
	text          string
	spec          FamilySpec
	seen          []string
	versions, age *GCPolicy
}

func (p *specParser) bad(option string, err error) error {
	return &SpecError{Text: p.text, Option: option, Err: err}
}

// cutOption splits options at the first comma outside double quotes.
func (p *specParser) cutOption(options string) (option, rest string, err error) {
	quoted := false
	for i := range len(options) {
		switch {
		case options[i] == '"':
			quoted = !quoted
		case options[i] == ',' && !quoted:
			return options[:i], options[i+1:], nil
		}
	}
	if quoted {
		return "", "", &SpecError{Text: p.text, Reason: "a double quote is not closed"}
	}
	return options, "", nil
}

func (p *specParser) set(key, value string, given bool) (err error) {
	if key == "in-memory" {
		on := true
		if given {
			if on, err = strconv.ParseBool(value); err != nil {
				return errors.New("expected true or false")
			}
		}
		p.spec.InMemory = &on
		return nil
	}
	if value == "" {
		return errors.New("expected a value")
	}
	s := &p.spec
	switch key {
	case "versions":
		p.versions, err = parseRule("versions="+value, GCMaxVersions)
	case "age":
		p.age, err = parseRule("age="+value, GCMaxAge)
	case "gc":
		if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
			value = value[1 : n-1]
		}
		var gc GCPolicy
		gc, err = ParseGCPolicy(value)
		s.GC = &gc
	case "group":
		s.Group = value
	case "aggregate":
		var a Aggregate
		if a, err = ParseAggregate(value); err != nil {
			return fmt.Errorf("unknown value %q: expected one of %s", value, strings.Join(aggregateNames[:], ", "))
		}
		s.Aggregate = &a
	case "compression":
		s.Compression, err = oneOf[Compression](value, compressionNames[:])
	case "bloom":
		s.Bloom, err = oneOf[BloomMode](value, bloomNames[:])
	case "block":
		s.BlockBytes, err = parseBytes(value)
	default:
		return errors.New("unknown option: expected one of versions, age, gc, group, aggregate, compression, block, bloom, in-memory")
	}
	return err
}

// parseRule parses a policy that is a single rule of the given kind.
func parseRule(text string, kind GCKind) (*GCPolicy, error) {
	p, err := ParseGCPolicy(text)
	if err == nil && p.Kind != kind {
		err = errors.New(`expected one rule; gc="…" takes several`)
	}
	return &p, err
}

// oneOf returns the index of value in names. The first name, the default, is not accepted.
func oneOf[T ~uint8](value string, names []string) (T, error) {
	i := slices.Index(names[1:], value)
	if i < 0 {
		return 0, fmt.Errorf("unknown value %q: expected one of %s", value, strings.Join(names[1:], ", "))
	}
	return T(i + 1), nil
}

func parseBytes(text string) (int, error) {
	digits := strings.TrimRight(text, "BKMi")
	n, err := strconv.Atoi(digits)
	unit := map[string]int{"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[text[len(digits):]]
	if err != nil || unit == 0 || n <= 0 || n > math.MaxInt32/unit {
		return 0, fmt.Errorf("bad size %q: expected a size such as 8KiB, 1MiB or 65536", text)
	}
	return n * unit, nil
}

func (p *specParser) finish() (FamilySpec, error) {
	if p.versions == nil && p.age == nil {
		return p.spec, nil
	}
	if p.spec.GC != nil {
		return FamilySpec{}, p.bad("gc", errors.New("cannot be combined with versions or age"))
	}
	var rules []GCPolicy
	for _, r := range []*GCPolicy{p.versions, p.age} {
		if r != nil {
			rules = append(rules, *r)
		}
	}
	gc := Union(rules...)
	p.spec.GC = &gc
	return p.spec, nil
}

// String returns the text of the specification, which ParseFamilySpec accepts.
func (f *FamilySpec) String() string {
	var opts []string
	add := func(given bool, opt string) {
		if given {
			opts = append(opts, opt)
		}
	}
	if f.GC != nil {
		opts = append(opts, specGC(f.GC))
	}
	add(f.Group != "", "group="+f.Group)
	if f.Aggregate != nil {
		add(true, "aggregate="+f.Aggregate.String())
	}
	add(f.Compression != 0, "compression="+f.Compression.String())
	add(f.BlockBytes != 0, "block="+formatBytes(f.BlockBytes))
	add(f.Bloom != 0, "bloom="+f.Bloom.String())
	if f.InMemory != nil {
		add(*f.InMemory, "in-memory")
		add(!*f.InMemory, "in-memory=false")
	}
	if len(opts) == 0 {
		return f.Name
	}
	return f.Name + ":" + strings.Join(opts, ",")
}

// specGC formats a policy as options, in the short form if there is one.
func specGC(p *GCPolicy) string {
	switch {
	case p.Kind == GCMaxVersions || p.Kind == GCMaxAge:
		return p.String()
	case p.Kind == GCUnion && len(p.Rules) == 2 && p.Rules[0].Kind == GCMaxVersions && p.Rules[1].Kind == GCMaxAge:
		return p.Rules[0].String() + "," + p.Rules[1].String()
	}
	return `gc="` + p.String() + `"`
}

func formatBytes(n int) string {
	switch {
	case n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + "MiB"
	case n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + "KiB"
	}
	return strconv.Itoa(n)
}

// Spec returns the current specification of the named family, including the options of its group.
// It returns false if there is no such family.
func (s *Schema) Spec(name string) (FamilySpec, bool) {
	f := s.Family(name)
	if f == nil {
		return FamilySpec{}, false
	}
	spec := FamilySpec{Name: f.Name, Group: f.Group}
	if f.GC.Kind != GCNone {
		spec.GC = &f.GC
	}
	if f.Aggregate != AggregateNone {
		spec.Aggregate = &f.Aggregate
	}
	if g := s.Group(f.Group); g != nil {
		spec.BlockBytes, spec.Compression, spec.Bloom = g.BlockBytes, g.Compression, g.Bloom
		if g.InMemory {
			spec.InMemory = &g.InMemory
		}
	}
	return spec, true
}

// Apply returns the schema with families added or altered according to specs. It creates missing
// groups and removes groups whose last family moves to another. Options of a group apply to all its
// families. Errors: ErrFamilyExists if two specs name the same family, ErrBadSpec if two specs
// conflict in an option of a group, and those of Validate.
func (s *Schema) Apply(specs ...FamilySpec) (*Schema, error) {
	c := s
	given := make(map[string]*FamilySpec) // by group: the options given so far
	orig := s
	for i := range specs {
		spec := &specs[i]
		for j := range specs[:i] {
			if specs[j].Name == spec.Name {
				return nil, fmt.Errorf("family %q is specified twice: %w", spec.Name, ErrFamilyExists)
			}
		}
		var err error
		if c, err = c.apply(spec, given, orig); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (s *Schema) apply(spec *FamilySpec, given map[string]*FamilySpec, orig *Schema) (*Schema, error) {
	f := Family{Name: spec.Name, Group: spec.Group}
	old := s.Family(spec.Name)
	if old != nil {
		f = *old
	}
	if spec.GC != nil {
		f.GC = *spec.GC
	}
	if spec.Group != "" {
		f.Group = spec.Group
	}
	if spec.Aggregate != nil {
		f.Aggregate = *spec.Aggregate
	}
	if f.Group == "" {
		f.Group = DefaultGroup
	}
	if given[f.Group] == nil {
		given[f.Group] = &FamilySpec{}
	}
	if option := given[f.Group].merge(spec); option != "" {
		return nil, &SpecError{Text: spec.String(), Option: option, Reason: "conflicts with the option of another family of group " + f.Group}
	}
	g := given[f.Group].group(s, orig, f.Group)
	if old != nil && f.Group != old.Group {
		// If this is the group's last family, remove the old group before the new one is added:
		// the limit on groups may not allow both.
		moving := *old
		moving.Group = DefaultGroup
		var err error
		if s, err = s.SetFamily(moving); err != nil {
			return nil, err
		}
	}
	c, err := s.SetGroup(g)
	if err != nil {
		return nil, err
	}
	if old != nil {
		return c.SetFamily(f)
	}
	return c.AddFamily(f)
}

// merge copies the group options given in o to f. It returns the name of the first option that is
// given differently in f and o, or "".
func (f *FamilySpec) merge(o *FamilySpec) (option string) {
	differ := func(name string, a, b int) {
		if a != 0 && b != 0 && a != b && option == "" {
			option = name
		}
	}
	differ("block", f.BlockBytes, o.BlockBytes)
	differ("compression", int(f.Compression), int(o.Compression))
	differ("bloom", int(f.Bloom), int(o.Bloom))
	if f.InMemory != nil && o.InMemory != nil && *f.InMemory != *o.InMemory && option == "" {
		option = "in-memory"
	}
	if o.BlockBytes != 0 {
		f.BlockBytes = o.BlockBytes
	}
	f.Compression = max(f.Compression, o.Compression)
	f.Bloom = max(f.Bloom, o.Bloom)
	if o.InMemory != nil {
		f.InMemory = o.InMemory
	}
	return option
}

// group returns the named group with the options of f applied. The group is taken from s, else from
// the schema before the change, else it is new.
func (f *FamilySpec) group(s, before *Schema, name string) LocalityGroup {
	g := LocalityGroup{Name: name}
	if old := s.Group(name); old != nil {
		g = *old
	} else if old := before.Group(name); old != nil {
		g = *old
	}
	if f.BlockBytes != 0 {
		g.BlockBytes = f.BlockBytes
	}
	if f.Compression != 0 {
		g.Compression = f.Compression
	}
	if f.Bloom != 0 {
		g.Bloom = f.Bloom
	}
	if f.InMemory != nil {
		g.InMemory = *f.InMemory
	}
	return g
}
