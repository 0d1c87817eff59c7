package report

import (
	"fmt"
	"strings"
)

// A setting is one in which runs may differ.
type setting struct {
	name  string // "rows"
	value func(*Run) int64
}

var runSettings = []setting{
	{"rows", func(r *Run) int64 { return r.Rows }},
	{"tablets", func(r *Run) int64 { return int64(r.Tablets) }},
	{"clients", func(r *Run) int64 { return int64(r.Clients) }},
}

// varying returns the settings that differ between the runs of a report.
func (r *Report) varying() (vs []setting) {
	for _, s := range runSettings {
		for i := range r.Runs {
			if s.value(&r.Runs[i]) != s.value(&r.Runs[0]) {
				vs = append(vs, s)
				break
			}
		}
	}
	return vs
}

// label returns a run's values of the given settings, such as "1M rows, 10 tablets".
func (r *Run) label(vs []setting) string {
	var parts []string
	for _, s := range vs {
		name, n := s.name, s.value(r)
		if n == 1 {
			name = strings.TrimSuffix(name, "s")
		}
		parts = append(parts, short(n)+" "+name)
	}
	return strings.Join(parts, ", ")
}

// short formats n with a unit if that is not longer: 200k, 1.5M, 1234.
func short(n int64) string {
	for _, u := range []struct {
		name string
		of   int64
	}{{"M", 1e6}, {"k", 1e3}} {
		if n >= u.of && n*10%u.of == 0 {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(u.of)), ".0") + u.name
		}
	}
	return fmt.Sprint(n)
}

// grouped formats v rounded, with thousands separators.
func grouped(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// latency formats microseconds with about three digits and a unit.
func latency(us float64) string {
	switch {
	case us < 9.995:
		return fmt.Sprintf("%.2f µs", us)
	case us < 999.5:
		return fmt.Sprintf("%.0f µs", us)
	case us < 99_995:
		return fmt.Sprintf("%.2f ms", us/1e3)
	case us < 999_500:
		return fmt.Sprintf("%.0f ms", us/1e3)
	}
	return fmt.Sprintf("%.2f s", us/1e6)
}
