package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// A selection is the flags that get, scan and count narrow cells by.
type selection struct {
	families []string
	columns  []string // patterns; at most one
	value    string   // pattern
	filter   string   // JSON
	versions int
	since    string
	until    string
}

func (s *selection) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&s.families, "family", nil, "only cells of this column family; may be given several times")
	f.StringArrayVar(&s.columns, "column", nil, "only columns that match `family:qualifier`, two regular expressions for the whole of each; without a colon, the qualifier in any family")
	f.StringVar(&s.value, "value-regex", "", "only cells whose whole value matches this regular `expression`")
	f.StringVar(&s.filter, "filter", "", "only what this `filter` lets through: an array of docs/rpc.md, as JSON")
	f.IntVar(&s.versions, "versions", 0, "only the newest `N` versions of each column (default all)")
	f.StringVar(&s.since, "since", "", "only cells written at this `time` or later: RFC 3339, microseconds, or how long ago, such as 2h or 30d")
	f.StringVar(&s.until, "until", "", "only cells written before this `time`")
}

// options returns what the flags amount to.
func (s *selection) options(cmd *cobra.Command) (opts []client.ReadOption, err error) {
	if len(s.families) > 0 {
		opts = append(opts, client.Families(s.families...))
	}
	switch len(s.columns) {
	case 0:
	case 1:
		opts = append(opts, client.Filter(columnPattern(s.columns[0])))
	default:
		return nil, usagef("join the patterns with |, as in 'anchor:(a|b)'", "--column is given %d times", len(s.columns))
	}
	if cmd.Flags().Changed("value-regex") {
		opts = append(opts, client.Filter(table.ValueRegex(s.value)))
	}
	if cmd.Flags().Changed("filter") {
		escaped, _ := cmd.Flags().GetBool("escaped")
		f, err := parseFilter(s.filter, escaped)
		if err != nil {
			return nil, err
		}
		opts = append(opts, client.Filter(f))
	}
	since, until, err := timeRange(s.since, s.until)
	if err != nil {
		return nil, err
	}
	if s.since != "" || s.until != "" {
		opts = append(opts, client.TimeRange(since, until))
	}
	if cmd.Flags().Changed("versions") {
		if s.versions < 1 {
			return nil, usagef("", "--versions is %d, must be at least 1", s.versions)
		}
		opts = append(opts, client.Versions(s.versions))
	}
	return opts, nil
}

// timeRange reads --since and --until. A zero time is no bound.
func timeRange(since, until string) (from, to time.Time, err error) {
	now := time.Now()
	if since != "" {
		if from, err = parseMoment(since, now); err != nil {
			return from, to, fmt.Errorf("--since: %w", err)
		}
	}
	if until != "" {
		if to, err = parseMoment(until, now); err != nil {
			return from, to, fmt.Errorf("--until: %w", err)
		}
		if to.UnixMicro() <= 0 {
			return from, to, usagef("leave it out for no bound", "--until %s chooses no versions: none is from before 1970", until)
		}
	}
	if since != "" && until != "" && !from.Before(to) {
		return from, to, usagef("", "--since %s is not before --until %s", formatMoment(from.UnixMicro()), formatMoment(to.UnixMicro()))
	}
	return from, to, nil
}

// columnPattern returns the filter of a --column: a pattern for the family, a
// colon, one for the qualifier. The colon of a group such as (?:a|b) divides
// nothing.
func columnPattern(pattern string) table.Filter {
	for i := range len(pattern) {
		if pattern[i] == ':' && !inGroupFlags(pattern[:i]) {
			// Whether a group captures makes no difference to a match, and a pattern
			// for families must not have a colon.
			family := strings.ReplaceAll(pattern[:i], "(?:", "(")
			if qualifier := pattern[i+1:]; qualifier != "" || family != "" {
				return table.Chain{table.FamilyRegex(family), table.QualifierRegex(qualifier)}
			}
		}
	}
	return table.QualifierRegex(pattern)
}

// inGroupFlags tells whether s ends within the flags of a group, as "(?" and "(?i" do.
func inGroupFlags(s string) bool {
	at := strings.LastIndex(s, "(?")
	return at >= 0 && strings.Trim(s[at+2:], "imsU-") == ""
}

// exactColumns returns the filter of columns and families that are named exactly:
// fam:qual, or fam for all of a family.
func exactColumns(names []string) (table.Filter, error) {
	whole := map[string]bool{}
	for _, name := range names {
		if !strings.Contains(name, ":") {
			whole[name] = true
		}
	}
	var each table.Interleave
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		family, qualifier, isColumn := strings.Cut(name, ":")
		if err := (*table.Limits)(nil).CheckFamilyName(family); err != nil {
			return nil, err
		}
		switch {
		case !isColumn:
			each = append(each, table.ColumnRange{Family: family})
		case !whole[family]: // or else the family has it already
			bound := table.Closed([]byte(qualifier))
			each = append(each, table.ColumnRange{Family: family, Qualifiers: table.ByteRange{Start: bound, End: bound}})
		}
	}
	switch len(each) {
	case 0:
		return nil, nil
	case 1:
		return each[0], nil
	}
	return each, nil
}

// A span is the flags that scan and count choose rows by.
type span struct{ start, end, prefix string }

func (s *span) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.start, "start", "", "begin at this `row`, or the first one after it")
	f.StringVar(&s.end, "end", "", "end before this `row`")
	f.StringVar(&s.prefix, "prefix", "", "only rows whose keys begin with `text`")
}

func (s *span) options(a *app) ([]client.ScanOption, error) {
	if err := a.texts(&s.start, &s.end, &s.prefix); err != nil {
		return nil, err
	}
	if s.end != "" && s.start > s.end {
		return nil, usagef("", "--start %s is after --end %s", escapeText(s.start), escapeText(s.end))
	}
	var opts []client.ScanOption
	if s.start != "" {
		opts = append(opts, client.Start(s.start))
	}
	if s.end != "" {
		opts = append(opts, client.End(s.end))
	}
	if s.prefix != "" {
		opts = append(opts, client.Prefix(s.prefix))
	}
	return opts, nil
}

// escapesFlag adds --escaped, which verbs have that take row keys and values.
func (a *app) escapesFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&a.escapes, "escaped", "e", false, `read \n, \r, \t, \\ and \xNN in row keys, columns and values`)
}
