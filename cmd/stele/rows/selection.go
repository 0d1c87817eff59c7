package rows

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/table"
)

// A selection holds the flags of get, scan and count that select cells.
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
	f.StringSliceVar(&s.families, "family", nil, "read only cells of this column family; may be repeated")
	f.StringArrayVar(&s.columns, "column", nil, "read only columns that match `family:qualifier`, a regular expression for each, anchored at both ends; without a colon, the pattern is for qualifiers in all families")
	f.StringVar(&s.value, "value-regex", "", "read only cells whose whole value matches this regular `expression`")
	f.StringVar(&s.filter, "filter", "", "read only cells that pass this `filter`: an array as in docs/rpc.md, as JSON")
	f.IntVar(&s.versions, "versions", 0, "read only the newest `N` versions of each column (default: all)")
	f.StringVar(&s.since, "since", "", "read only cells with this timestamp or a later one: a `time` in RFC 3339, microseconds, or an age such as 2h or 30d")
	f.StringVar(&s.until, "until", "", "read only cells with a timestamp before this `time`, in the forms of --since")
}

// options returns the read options of the flags.
func (s *selection) options(cmd *cobra.Command) (opts []client.ReadOption, err error) {
	if len(s.families) > 0 {
		opts = append(opts, client.Families(s.families...))
	}
	switch len(s.columns) {
	case 0:
	case 1:
		opts = append(opts, client.Filter(columnPattern(s.columns[0])))
	default:
		return nil, cli.Usagef("join the patterns with |, as in 'anchor:(a|b)'", "--column is given %d times", len(s.columns))
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
			return nil, cli.Usagef("", "--versions is %d, must be at least 1", s.versions)
		}
		opts = append(opts, client.Versions(s.versions))
	}
	return opts, nil
}

// checkFamilies returns an error if a table has not all families. It is called only if nothing was read: a read of an unknown family is empty.
func checkFamilies(ctx context.Context, c *client.Client, name string, families []string) error {
	if len(families) == 0 {
		return nil
	}
	info, err := c.Tables().Describe(ctx, name)
	if err != nil {
		return err
	}
	for _, f := range families {
		if info.Schema.Family(f) == nil {
			return &table.NoFamilyError{Table: name, Family: f}
		}
	}
	return nil
}

// timeRange parses --since and --until. A zero time means no bound.
func timeRange(since, until string) (from, to time.Time, err error) {
	now := time.Now()
	if since != "" {
		if from, err = cli.ParseMoment(since, now); err != nil {
			return from, to, fmt.Errorf("--since: %w", err)
		}
	}
	if until != "" {
		if to, err = cli.ParseMoment(until, now); err != nil {
			return from, to, fmt.Errorf("--until: %w", err)
		}
		if to.UnixMicro() <= 0 {
			return from, to, cli.Usagef("omit it for no bound", "--until %s selects no versions: none is from before 1970", until)
		}
	}
	if since != "" && until != "" && !from.Before(to) {
		return from, to, cli.Usagef("", "--since %s is not before --until %s", cli.FormatMoment(from.UnixMicro()), cli.FormatMoment(to.UnixMicro()))
	}
	return from, to, nil
}

// columnPattern returns the filter of --column: a pattern for the family, a colon, and a pattern for
// the qualifier. The colon of a group such as (?:a|b) is no separator.
func columnPattern(pattern string) table.Filter {
	for i := range len(pattern) {
		if pattern[i] == ':' && !inGroupFlags(pattern[:i]) {
			// A pattern for families must not contain a colon, and capturing does not change a match.
			family := strings.ReplaceAll(pattern[:i], "(?:", "(")
			if qualifier := pattern[i+1:]; qualifier != "" || family != "" {
				return table.Chain{table.FamilyRegex(family), table.QualifierRegex(qualifier)}
			}
		}
	}
	return table.QualifierRegex(pattern)
}

// inGroupFlags reports whether s ends in the flags of a group, as "(?" and "(?i" do.
func inGroupFlags(s string) bool {
	at := strings.LastIndex(s, "(?")
	return at >= 0 && strings.Trim(s[at+2:], "imsU-") == ""
}

// exactColumns returns a filter for the named columns and families: family:qualifier, or family for
// all of its columns. It returns nil if names is empty.
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
		case !whole[family]: // otherwise the family's filter passes the column
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

// A span holds the flags of scan and count that select rows.
type span struct{ start, end, prefix string }

func (s *span) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.start, "start", "", "start at this `row`, inclusive")
	f.StringVar(&s.end, "end", "", "stop before this `row`")
	f.StringVar(&s.prefix, "prefix", "", "read only rows whose keys begin with this `prefix`")
}

func (s *span) options(a *cli.App) ([]client.ScanOption, error) {
	if err := a.Texts(&s.start, &s.end, &s.prefix); err != nil {
		return nil, err
	}
	if s.end != "" && s.start > s.end {
		return nil, cli.Usagef("", "--start %s is after --end %s", cli.EscapeText(s.start), cli.EscapeText(s.end))
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
