package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/internal/text"
	"github.com/steledb/stele/table"
)

// units of sizes in bytes. KB, MB, GB and TB are powers of 1000; K, M, G and T are powers of 1024.
var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3},
	{"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}, {"B", 1},
}

// ParseSize parses a number of bytes such as 4GiB, 1.5GiB, 512MB or 1048576.
func ParseSize(s string) (int64, error) {
	number, scale := strings.TrimSpace(s), int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, scale = strings.TrimSpace(n), u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || v < 0 || math.IsNaN(v) || v*float64(scale) >= math.MaxInt64 {
		return 0, Usagef(unitHint(s, sizeUnits()), "%q is not a size such as 4GiB, 512MiB or 1048576", s)
	}
	if whole, err := strconv.ParseInt(number, 10, 64); err == nil { // exact beyond 2^53
		return whole * scale, nil
	}
	return int64(v * float64(scale)), nil
}

func sizeUnits() (names []string) {
	for _, u := range units {
		names = append(names, u.name)
	}
	return names
}

// unitHint returns a hint for a number with a missing or unknown unit; empty if s has no number.
func unitHint(s string, names []string) string {
	number := strings.TrimRightFunc(s, unicode.IsLetter)
	unit := s[len(number):]
	if _, err := strconv.ParseFloat(strings.TrimSpace(number), 64); err != nil || slices.Contains(names, unit) {
		return ""
	}
	if unit == "" {
		return "add a unit: one of " + strings.Join(names, ", ")
	}
	for _, name := range names {
		if strings.EqualFold(name, unit) {
			return "did you mean " + number + name + "?"
		}
	}
	for _, name := range names { // sec, minutes, Gigabytes
		if strings.EqualFold(name[:1], unit[:1]) && len(unit) > 2 {
			return "did you mean " + number + name + "?"
		}
	}
	return fmt.Sprintf("unknown unit %q: use one of %s", unit, strings.Join(names, ", "))
}

// FormatSize formats n bytes with a binary unit.
func FormatSize(n int64) string { return text.Size(n) }

// FormatCount formats n with thousands separators.
func FormatCount(n int64) string { return text.Count(n) }

// Plural returns "1 row", "2 rows", "3 families".
func Plural(n int64, what string) string { return text.Plural(n, what) }

// ParseDuration parses a duration such as 90s, 36h or 30d.
func ParseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseFloat(days, 64); err == nil && math.Abs(n) < 100_000 {
			return time.Duration(n * float64(24*time.Hour)), nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, Usagef(unitHint(s, []string{"s", "m", "h", "d", "ms"}), "%q is not a duration such as 90s, 15m, 36h or 30d", s)
	}
	return d, nil
}

// ParseMoment parses a point in time: microseconds since 1970, RFC 3339, a date, or an age such as 2h.
func ParseMoment(s string, now time.Time) (time.Time, error) {
	if micros, err := strconv.ParseInt(s, 10, 64); err == nil && micros >= 0 {
		return time.UnixMicro(micros), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil && t.UnixMicro() >= 0 {
			return t, nil
		}
	}
	if d, err := ParseDuration(strings.TrimSuffix(s, " ago")); err == nil && d >= 0 && now.Add(-d).UnixMicro() >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, Usagef("", "%q is not a time such as 2026-11-21T10:00:00Z, 1795254000000000 (microseconds) or 2h (ago)", s)
}

// FormatMoment formats a timestamp so that ParseMoment parses it.
func FormatMoment(micros int64) string { return text.Moment(micros) }

// text returns an argument, unescaped with --escaped.
func (a *App) text(arg string) (string, error) {
	if !a.escapes {
		return arg, nil
	}
	return Unescape(arg)
}

// Texts replaces each argument by its text.
func (a *App) Texts(args ...*string) error {
	for _, arg := range args {
		s, err := a.text(*arg)
		if err != nil {
			return err
		}
		*arg = s
	}
	return nil
}

// A valueReader reads the values in the arguments of one command: literal values, @FILE, or - for
// standard input, which only one value can use.
type valueReader struct {
	a     *App
	stdin string // the value that uses standard input
}

// NewValueReader returns a reader of the values of one command.
func NewValueReader(a *App) *valueReader { return &valueReader{a: a} }

// Read returns the value of arg. what names the value in errors.
func (v *valueReader) Read(what, arg string) ([]byte, error) {
	switch {
	case arg == "-":
		if v.stdin != "" {
			return nil, Usagef("put one of them into a file and use @FILE", "%s and %s cannot both be read from standard input", v.stdin, what)
		}
		v.stdin = what
		if v.a.InTTY {
			v.a.Notef("reading %s from the terminal: press Ctrl-D at its end", what)
		}
		return readValue(v.a.In)
	case strings.HasPrefix(arg, "@"):
		f, err := os.Open(arg[1:])
		if err != nil {
			return nil, Usagef(`a value that begins with @ names a file; with --escaped, \x40 is the character itself`, "%s: %w", what, err)
		}
		defer f.Close()
		return readValue(f)
	}
	s, err := v.a.text(arg)
	return []byte(s), err
}

// valueBytesMax is the maximum size of a value: that of the largest row mutation. The node has a lower
// limit, and a better error for it.
const valueBytesMax = 256 << 20

func readValue(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, valueBytesMax+1))
	if err == nil && len(b) > valueBytesMax {
		return nil, Usagef("divide it among several columns", "the value exceeds %s", FormatSize(valueBytesMax))
	}
	return b, err
}

// ParseAssignment splits family:qualifier=value at the first = after the family.
func ParseAssignment(arg string) (column, value string, err error) {
	family, rest, ok := strings.Cut(arg, ":")
	if !ok || strings.Contains(family, "=") {
		return "", "", Usagef("", `%q is not of the form family:qualifier=value`, arg)
	}
	qualifier, value, ok := strings.Cut(rest, "=")
	if !ok {
		return "", "", Usagef(`a value may be empty, read from a file (=@FILE), or from standard input (=-)`, `%q has no value: want family:qualifier=value`, arg)
	}
	return family + ":" + qualifier, value, nil
}

// EscapesFlag adds --escaped, for commands that take row keys and values.
func (a *App) EscapesFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&a.escapes, "escaped", "e", false, `interpret \n, \r, \t, \\ and \xNN in row keys, columns and values`)
}

// ParseFamilies parses the specifications of column families, such as "contents:versions=3".
func ParseFamilies(texts []string) (specs []table.FamilySpec, err error) {
	for _, t := range texts {
		spec, err := table.ParseFamilySpec(t)
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec)
	}
	return specs, nil
}
