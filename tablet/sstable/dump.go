package sstable

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
)

// DumpOptions are options of Dump. The zero value writes quoted keys and values.
type DumpOptions struct {
	// Name of the file in errors.
	Name string
	// Lower and Upper restrict the dump to Lower <= key < Upper. Nil means no bound.
	Lower, Upper []byte
	// Entry appends the line of an entry without its newline. Nil means the quoted key, a tab, and
	// the quoted value.
	Entry func(dst, key, value []byte) []byte
	// NoEntries omits the entries, so that only the properties are written.
	NoEntries bool
}

// Dump writes a table as text: its properties, each on a line that begins with '#', then one line
// per entry. Errors are those of Open and Iter.Err, ctx's and w's.
func Dump(ctx context.Context, w io.Writer, src Source, opts DumpOptions) error {
	t, err := Open(ctx, src, OpenOptions{Name: opts.Name})
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	dumpMeta(out, t)
	if !opts.NoEntries {
		if err := dumpEntries(ctx, out, t, opts); err != nil {
			out.Flush()
			return err
		}
	}
	return out.Flush()
}

func dumpMeta(out *bufio.Writer, t *Table) {
	m := t.meta
	own := m.properties()
	for _, name := range slices.Sorted(maps.Keys(own)) {
		fmt.Fprintf(out, "# %s = %s\n", name, printable(own[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(t.props)) {
		fmt.Fprintf(out, "# %s = %s\n", name, printable(t.props[name]))
	}
	fmt.Fprintf(out, "# size = %d\n", m.Size)
}

// printable returns p unquoted if it has only printable characters without spaces and quotes.
func printable(p []byte) string {
	for _, c := range p {
		if c <= ' ' || c == '"' || c >= 0x7f {
			return fmt.Sprintf("%q", p)
		}
	}
	return string(p)
}

func dumpEntries(ctx context.Context, out *bufio.Writer, t *Table, opts DumpOptions) error {
	line := opts.Entry
	if line == nil {
		line = func(dst, key, value []byte) []byte { return fmt.Appendf(dst, "%q\t%q", key, value) }
	}
	// 1 MiB: formatting dominates the cost of a dump, not reads.
	it := t.NewIter(IterOptions{Lower: opts.Lower, Upper: opts.Upper, NoCacheFill: true, ReadAheadBytes: 1 << 20})
	defer it.Close()
	var buf []byte
	for n := 0; ; n++ {
		if ok := n == 0 && it.First() || n > 0 && it.Next(); !ok {
			return it.Err()
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		buf = append(line(buf[:0], it.Key(), it.Value()), '\n')
		if _, err := out.Write(buf); err != nil {
			return err
		}
	}
}
