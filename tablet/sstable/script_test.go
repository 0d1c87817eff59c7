package sstable

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/steledb/stele/table"
)

// script is the state of a datadriven script.
type script struct {
	file []byte
	tab  *Table
	src  *countingSource
}

// TestScripts runs the scripts in testdata/script. The commands:
//
//	build [block=N] [compression=NAME] [restart=N] [filter=(N,N...)] [prop=NAME:VALUE]...
//	    a line an entry: key, a space, value ("*N" makes a value of N bytes)
//	open [cache=BYTES] [index-max=BYTES]
//	layout       the frames of the file
//	index        separators and blocks
//	iter [lower=K] [upper=K] [nofill] [ahead=N]
//	    a line a step: first, next, seek KEY
//	contains     a line a prefix
//	approx lower=K upper=K
//	flip at=N    inverts a bit of byte N; the table stays open
//	truncate to=N
//	verify
//	dump [lower=K] [upper=K] [no-entries]
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		var s script
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "build":
				return s.build(t, d)
			case "open":
				return s.open(d)
			case "layout":
				return s.layout()
			case "index":
				return s.index()
			case "iter":
				return s.iter(d)
			case "contains":
				return s.contains(d)
			case "approx":
				n, err := s.tab.ApproxBytes(arg(d, "lower"), arg(d, "upper"))
				return fmt.Sprintln(n, err)
			case "flip":
				var at int
				d.ScanArgs(t, "at", &at)
				s.file[at] ^= 0x40
				return ""
			case "truncate":
				var to int
				d.ScanArgs(t, "to", &to)
				s.file = s.file[:to]
				return ""
			case "verify":
				return s.verify()
			case "dump":
				var out bytes.Buffer
				err := Dump(context.Background(), &out, bytesSource(s.file), DumpOptions{
					Name: "f", Lower: arg(d, "lower"), Upper: arg(d, "upper"), NoEntries: d.HasArg("no-entries")})
				if err != nil {
					fmt.Fprintln(&out, "error:", err)
				}
				return out.String()
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	})
}

// arg returns the value of an argument, or nil.
func arg(d *datadriven.TestData, name string) []byte {
	for _, a := range d.CmdArgs {
		if a.Key == name && len(a.Vals) > 0 {
			return []byte(a.Vals[0])
		}
	}
	return nil
}

func number(d *datadriven.TestData, name string) int {
	n, _ := strconv.Atoi(string(arg(d, name)))
	return n
}

func (s *script) build(t *testing.T, d *datadriven.TestData) string {
	opts := Options{BlockBytes: number(d, "block"), RestartInterval: number(d, "restart"), Compression: table.CompressionNone}
	switch string(arg(d, "compression")) {
	case "s2":
		opts.Compression = table.CompressionS2
	case "zstd":
		opts.Compression = table.CompressionZstd
	case "two-pass":
		opts.Compression = table.CompressionTwoPass
	}
	props := map[string][]byte{}
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "prop":
			name, value, _ := strings.Cut(a.Vals[0], ":")
			props[name] = []byte(value)
		case "filter":
			opts.FilterName = "lengths"
			opts.FilterPrefixes = func(key []byte, dst []int) []int {
				for _, v := range a.Vals {
					if n, _ := strconv.Atoi(v); n <= len(key) {
						dst = append(dst, n)
					}
				}
				return dst
			}
		}
	}
	var out bytes.Buffer
	w := NewWriter(&out, opts)
	for line := range strings.Lines(d.Input) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		v := []byte(value)
		if n, ok := strings.CutPrefix(value, "*"); ok {
			c, _ := strconv.Atoi(n)
			v = bytes.Repeat([]byte{'x'}, c)
		}
		if err := w.Add([]byte(key), v); err != nil {
			return fmt.Sprintln("error:", err)
		}
	}
	m, err := w.Finish(props)
	if err != nil {
		return fmt.Sprintln("error:", err)
	}
	s.file = out.Bytes()
	s.open(d)
	return fmt.Sprintf("%d bytes, %d entries from %q to %q in %d blocks, %d prefixes\n",
		m.Size, m.Entries, m.FirstKey, m.LastKey, m.DataBlocks, m.FilterPrefixes)
}

func (s *script) open(d *datadriven.TestData) string {
	opts := OpenOptions{Name: "f", IndexBytesMax: int64(number(d, "index-max"))}
	if n := number(d, "cache"); n > 0 {
		opts.Cache = NewCache(int64(n))
	}
	s.src = &countingSource{Source: bytesSource(s.file)}
	tab, err := Open(context.Background(), s.src, opts)
	if err != nil {
		return fmt.Sprintln("error:", err)
	}
	s.tab = tab
	return fmt.Sprintf("%d reads\n", s.src.reads.Load())
}

// layout walks over the frames backward, as a tool without an index would.
func (s *script) layout() string {
	lines := []string{fmt.Sprintf("%6d footer", len(s.file)-footerBytes)}
	for end := len(s.file) - footerBytes; end > headerBytes; {
		trailer := s.file[end-trailerBytes : end]
		stored := int(trailer[6]) | int(trailer[7])<<8 | int(trailer[8])<<16
		end -= stored + trailerBytes
		c := table.Compression(trailer[1])
		lines = append(lines, fmt.Sprintf("%6d %v, %v, %d bytes", end, kind(trailer[0]), c, stored))
	}
	lines = append(lines, "     0 header")
	var out strings.Builder
	for i := len(lines) - 1; i >= 0; i-- {
		out.WriteString(lines[i] + "\n")
	}
	return out.String()
}

func (s *script) index() string {
	var out strings.Builder
	c := indexCursor{t: s.tab}
	err := c.seek(nil)
	for ok := true; ok && err == nil; ok, err = c.step() {
		if err = c.bounds(); err != nil {
			break
		}
		fmt.Fprintf(&out, "%q: %d+%d\n", c.lo, c.h.off, c.h.stored)
	}
	if err != nil {
		fmt.Fprintln(&out, "error:", err)
	}
	return out.String()
}

func (s *script) iter(d *datadriven.TestData) string {
	it := s.tab.NewIter(IterOptions{Lower: arg(d, "lower"), Upper: arg(d, "upper"),
		NoCacheFill: d.HasArg("nofill"), ReadAheadBytes: number(d, "ahead")})
	defer it.Close()
	var out strings.Builder
	for line := range strings.Lines(d.Input) {
		step, key, _ := strings.Cut(strings.TrimSpace(line), " ")
		before := s.src.reads.Load()
		var ok bool
		switch step {
		case "first":
			ok = it.First()
		case "next":
			ok = it.Next()
		case "seek":
			ok = it.SeekGE([]byte(key))
		}
		switch {
		case ok && len(it.Value()) > 20:
			fmt.Fprintf(&out, "%s: %d bytes", it.Key(), len(it.Value()))
		case ok:
			fmt.Fprintf(&out, "%s: %q", it.Key(), it.Value())
		case it.Err() != nil:
			fmt.Fprintf(&out, "error: %v", it.Err())
		default:
			out.WriteString("end")
		}
		if n := s.src.reads.Load() - before; n > 0 {
			fmt.Fprintf(&out, " (%d reads)", n)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func (s *script) contains(d *datadriven.TestData) string {
	var out strings.Builder
	for line := range strings.Lines(d.Input) {
		p := strings.TrimSpace(line)
		fmt.Fprintf(&out, "%s: %v\n", p, s.tab.MayContain([]byte(p)))
	}
	return out.String()
}

func (s *script) verify() string {
	var out strings.Builder
	st, err := Verify(context.Background(), bytesSource(s.file), VerifyOptions{Name: "f"},
		func(err error) { fmt.Fprintln(&out, err) })
	if err != nil {
		fmt.Fprintln(&out, "error:", err)
	}
	fmt.Fprintf(&out, "%d of %d bytes, %d blocks, %d entries, %d problems\n",
		st.Bytes, len(s.file), st.Blocks, st.Entries, st.Problems)
	return out.String()
}
