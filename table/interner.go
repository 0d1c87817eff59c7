package table

// An Interner returns the same string for repeated names, so that decoding them does not allocate.
// A nil Interner allocates each string.
type Interner struct {
	names    map[string]string
	capacity int
}

// NewInterner returns an Interner that remembers the first capacity distinct names of at most 64
// bytes. It is not safe for concurrent use.
func NewInterner(capacity int) *Interner {
	return &Interner{names: make(map[string]string), capacity: capacity}
}

// Interner returns an Interner with the names of the schema's families. It remembers no others and
// is safe for concurrent use.
func (s *Schema) Interner() *Interner {
	in := &Interner{names: make(map[string]string, len(s.Families))}
	for i := range s.Families {
		in.names[s.Families[i].Name] = s.Families[i].Name
	}
	return in
}

// Intern returns b as a string.
func (in *Interner) Intern(b []byte) string {
	if in == nil {
		return string(b)
	}
	if s, ok := in.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if in.capacity > 0 && len(s) <= 64 {
		in.capacity--
		in.names[s] = s
	}
	return s
}

// reuse returns b as a string. It returns last if that is equal.
func (in *Interner) reuse(b []byte, last string) string {
	if string(b) == last {
		return last
	}
	return in.Intern(b)
}
