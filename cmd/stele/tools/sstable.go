package tools

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/steledb/stele/cmd/stele/cli"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/ikey"
	"github.com/steledb/stele/tablet/sstable"
)

func sstableCommand(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sstable",
		Short: "Dump and verify SSTables on disk",
		Example: `  stele sstable dump /var/lib/stele/blobs/blobs/0a1b....0of1
  stele sstable verify 0a1b... --data-dir /var/lib/stele`,
		Args: cli.UnknownCommand,
		RunE: cli.RequireSubcommand,
	}
	cmd.AddCommand(sstableDumpCommand(a), sstableVerifyCommand(a))
	return cmd
}

// sstableHelp describes the argument FILE.
const sstableHelp = `FILE is an SSTable, an extent file of one in a node's data folder, or the id of a blob
whose extents are in the data folders. Running nodes are not affected.`

func sstableDumpCommand(a *cli.App) *cobra.Command {
	var dirs []string
	var keys, summary bool
	cmd := &cobra.Command{
		Use:   "dump FILE",
		Short: "Print the entries of an SSTable",
		Long: `Print the properties of an SSTable, then its entries, one per line: sequence number,
kind, row, column, time and value.

` + sstableHelp,
		Example: `  stele sstable dump /var/lib/stele/blobs/blobs/0a1b....0of1
  stele sstable dump 0a1b... --data-dir /data1 --data-dir /data2 --summary
  stele sstable dump table.sst --json | jq .row`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withSSTable(args[0], dirs, func(src *extents) error {
				ctx, cancel := a.Within(cmd, cli.NoTimeout)
				defer cancel()
				return dumpSSTable(ctx, a, src, keys, summary)
			})
		},
	}
	dataDirFlag(cmd, &dirs)
	cmd.Flags().BoolVar(&keys, "keys", false, "omit the values")
	cmd.Flags().BoolVar(&summary, "summary", false, "print only the properties")
	return cmd
}

func dataDirFlag(cmd *cobra.Command, dirs *[]string) {
	cmd.Flags().StringArrayVar(dirs, "data-dir", nil, "data `folder` to search for extents; may be repeated")
}

// withSSTable runs f with an SSTable. It adds file and offset to errors of corrupt data.
func withSSTable(name string, dirs []string, f func(*extents) error) error {
	src, err := openExtents(name, dirs)
	if err != nil {
		return err
	}
	defer src.Close()
	err = f(src)
	var corrupt *sstable.CorruptError
	if errors.As(err, &corrupt) {
		p := problemOf(src, err)
		return cli.Damagedf("%s at offset %d: %s", p.File, p.Offset, p.Error)
	}
	return err
}

func dumpSSTable(ctx context.Context, a *cli.App, src *extents, keys, summary bool) error {
	switch {
	case a.JSON && summary:
		return sstableSummary(ctx, a, src)
	case a.JSON:
		return dumpJSON(ctx, a, src, keys)
	}
	return sstable.Dump(ctx, a.Out, src, sstable.DumpOptions{
		Name: src.name, NoEntries: summary,
		Entry: func(dst, key, value []byte) []byte {
			return textEntry(dst, key, value, keys)
		},
	})
}

// dumpJSON prints each entry as an object.
func dumpJSON(ctx context.Context, a *cli.App, src *extents, keys bool) error {
	t, err := sstable.Open(ctx, src, sstable.OpenOptions{Name: src.name})
	if err != nil {
		return err
	}
	// 1 MiB: the dump is limited by formatting, not by reads.
	it := t.NewIter(sstable.IterOptions{NoCacheFill: true, ReadAheadBytes: 1 << 20})
	var line []byte
	for ok := it.First(); ok; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, it.Close())
		}
		line = append(jsonEntry(line[:0], it.Key(), it.Value(), keys), '\n')
		if _, err := a.Out.Write(line); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return it.Close()
}

func sstableSummary(ctx context.Context, a *cli.App, src *extents) error {
	t, err := sstable.Open(ctx, src, sstable.OpenOptions{Name: src.name})
	if err != nil {
		return err
	}
	m := t.Meta()
	return a.PrintJSON(struct {
		File           string `json:"file"`
		Bytes          int64  `json:"bytes"`
		Entries        uint64 `json:"entries"`
		FirstKey       []byte `json:"first_key_base64"`
		LastKey        []byte `json:"last_key_base64"`
		RawBytes       uint64 `json:"raw_bytes"`
		DataBlocks     uint64 `json:"data_blocks"`
		DataBytes      uint64 `json:"data_bytes"`
		DictBytes      uint64 `json:"dictionary_bytes"`
		IndexBytes     uint64 `json:"index_bytes"`
		FilterBytes    uint64 `json:"filter_bytes"`
		FilterPrefixes uint64 `json:"filter_prefixes"`
		FilterName     string `json:"filter_name"`
		BlockBytes     int    `json:"block_bytes"`
		Compression    string `json:"compression"`
	}{
		src.name, m.Size, m.Entries, m.FirstKey, m.LastKey, m.RawBytes, m.DataBlocks, m.DataBytes, m.DictBytes,
		m.IndexBytes, m.FilterBytes, m.FilterPrefixes, m.FilterName, m.BlockBytes, m.Compression.String(),
	})
}

var kindNames = map[ikey.Kind]string{
	ikey.KindCell: "set", ikey.KindDeleteColumn: "del_column", ikey.KindDeleteFamily: "del_family", ikey.KindDeleteRow: "del_row",
	ikey.KindOperand: "operand",
}

// An entry is a parsed internal key and its value.
type entry struct {
	seq         uint64
	kind        ikey.Kind
	row, column []byte // column is "family:qualifier", "family", or empty
	family      uint32 // id
	timestamp   int64
	start, end  int64 // of a deleted column
	value       []byte
}

// parseEntry parses an internal key. ok is false if key is not a valid one.
func parseEntry(key, value []byte) (e entry, ok bool) {
	p, err := ikey.Split(key)
	if err != nil {
		return entry{}, false
	}
	e = entry{seq: ikey.Seq(key), kind: p.Kind, row: ikey.RowKey(key[:p.Row]), value: value}
	if p.Family > p.Row {
		part := key[p.Row:p.Family]
		e.column, e.family = append(e.column, ikey.FamilyName(part)...), ikey.FamilyID(part)
	}
	if p.Column > p.Family {
		e.column = append(append(e.column, ':'), ikey.Qualifier(key[p.Family:p.Column])...)
	}
	switch p.Kind {
	case ikey.KindCell, ikey.KindOperand:
		e.timestamp = ikey.Timestamp(key)
	case ikey.KindDeleteColumn:
		if e.start, e.end, err = ikey.Range(value); err != nil {
			return entry{}, false
		}
		e.value = nil
	}
	return e, true
}

// hasTimestamp reports whether the entry is a cell or an operand of one.
func (e *entry) hasTimestamp() bool { return e.kind == ikey.KindCell || e.kind == ikey.KindOperand }

// textEntry appends an entry as tab-separated fields; without the value if keys is true.
func textEntry(dst, key, value []byte, keys bool) []byte {
	e, ok := parseEntry(key, value)
	switch {
	case !ok && keys:
		return append(dst, cli.EscapeBytes(key)...)
	case !ok:
		return fmt.Appendf(dst, "%s\t%s", cli.EscapeBytes(key), cli.EscapeBytes(value))
	}
	dst = fmt.Appendf(dst, "%d\t%s\t%s", e.seq, kindNames[e.kind], cli.EscapeBytes(e.row))
	if len(e.column) > 0 {
		dst = fmt.Appendf(dst, "\t%s", cli.EscapeBytes(e.column))
	}
	switch {
	case e.hasTimestamp() && keys:
		dst = fmt.Appendf(dst, "\t%s", cli.FormatMoment(e.timestamp))
	case e.hasTimestamp():
		dst = fmt.Appendf(dst, "\t%s\t%s", cli.FormatMoment(e.timestamp), cli.EscapeBytes(e.value))
	case e.start != 0 || e.end != 0:
		dst = fmt.Appendf(dst, "\t%s to %s", cli.FormatMoment(e.start), rangeEnd(e.end))
	}
	return dst
}

func rangeEnd(end int64) string {
	if end == 0 {
		return "any"
	}
	return cli.FormatMoment(end)
}

// jsonEntry appends an entry as an object; without the value if keys is true.
func jsonEntry(dst, key, value []byte, keys bool) []byte {
	appendValue := func(dst []byte) []byte {
		if keys {
			return dst
		}
		return cli.AppendJSONField(append(dst, ','), "value", value)
	}
	e, ok := parseEntry(key, value)
	if !ok {
		dst = cli.AppendJSONField(append(dst, '{'), "key", key)
		return append(appendValue(dst), '}')
	}
	dst = fmt.Appendf(dst, `{"seq":%d,"kind":%q,`, e.seq, kindNames[e.kind])
	dst = cli.AppendJSONField(dst, "row", e.row)
	if len(e.column) > 0 {
		name := "column"
		if e.kind == ikey.KindDeleteFamily {
			name = "family"
		}
		dst = cli.AppendJSONField(append(dst, ','), name, e.column)
		dst = fmt.Appendf(dst, `,"family_id":%d`, e.family)
	}
	switch {
	case e.hasTimestamp():
		dst = appendValue(fmt.Appendf(dst, `,"timestamp":%d`, e.timestamp))
	case e.kind == ikey.KindDeleteColumn:
		dst = fmt.Appendf(dst, `,"start":%d,"end":%d`, e.start, e.end)
	}
	return append(dst, '}')
}

func sstableVerifyCommand(a *cli.App) *cobra.Command {
	var dirs []string
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Verify the checksums and the key order of an SSTable",
		Long: `Read a whole SSTable and verify all checksums, the order of its keys, and its
properties. Exit codes: 0 no problems, 5 problems found.

` + sstableHelp,
		Example: `  stele sstable verify /var/lib/stele/blobs/blobs/0a1b....0of1
  stele sstable verify 0a1b... --data-dir /data1 --data-dir /data2`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withSSTable(args[0], dirs, func(src *extents) error {
				ctx, cancel := a.Within(cmd, cli.NoTimeout)
				defer cancel()
				return verifySSTable(ctx, a, src)
			})
		},
	}
	dataDirFlag(cmd, &dirs)
	return cmd
}

func verifySSTable(ctx context.Context, a *cli.App, src *extents) error {
	problems := 0
	report := func(p problemJSON) {
		problems++
		printProblem(a, p)
	}
	if err := src.verify(report); err != nil {
		return err
	}
	stats, err := sstable.Verify(ctx, src, sstable.VerifyOptions{
		FilterPrefixes: tablet.FilterPrefixes,
		Name:           src.name,
		Entry: func(key, _ []byte) error {
			_, err := ikey.Split(key)
			return err
		},
	}, func(err error) { report(problemOf(src, err)) })
	if err != nil {
		return err
	}
	if a.JSON {
		err = a.PrintJSON(struct {
			File     string `json:"file"`
			OK       bool   `json:"ok"`
			Bytes    int64  `json:"bytes"`
			Blocks   int    `json:"blocks"`
			Entries  uint64 `json:"entries"`
			Problems int    `json:"problems"`
		}{src.name, problems == 0, stats.Bytes, stats.Blocks, stats.Entries, problems})
	} else {
		_, err = fmt.Fprintf(a.Out, "%s: %s: %s in %s, %s\n", verdict(a, problems), src.name,
			cli.Plural(int64(stats.Entries), "entry"), cli.Plural(int64(stats.Blocks), "block"), cli.FormatSize(stats.Bytes))
	}
	if err == nil && problems > 0 {
		err = cli.SilentExit(cli.ExitUnhealthy)
	}
	return err
}
