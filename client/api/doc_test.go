package api

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/rpcdoc"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/rpc"
)

func TestDocHasEveryMethod(t *testing.T) {
	text := rpcdoc.Part(t, "## Methods", "## Cursors")
	var listed []string
	for _, row := range rpcdoc.Rows(text) {
		if slices.Contains(Methods(), row[0]) {
			listed = append(listed, row[0])
		}
	}
	if !slices.Equal(listed, Methods()) {
		t.Errorf("the table lists\n%v, the code has\n%v", listed, Methods())
	}
	var sections []string
	for _, m := range regexp.MustCompile("(?m)^### `(.*)`$").FindAllStringSubmatch(text, -1) {
		sections = append(sections, m[1])
	}
	if !slices.Equal(sections, Methods()) {
		t.Errorf("the sections are of\n%v, the code has\n%v", sections, Methods())
	}
}

func TestDocHasEveryErrorCode(t *testing.T) {
	text := rpcdoc.Part(t, "## Errors", "## Data")
	// Unknown are the outcomes that package client treats as unknown.
	rpcdoc.CheckErrors(t, text, 1, 999, kinds.Kinds, rpc.CodeInternal, rpc.CodeDeadlineExceeded, rpc.CodeTooLarge, CodeOutcomeUnknown)
	for _, k := range kinds.Kinds {
		if k.Cause != "" && k.Cause != "value" && !strings.Contains(text, "`"+k.Cause+"`") {
			t.Errorf("cause %s of code %d is not there", k.Cause, k.Code)
		}
	}
}

// The hexadecimal examples are what the code writes.
func TestDocExamples(t *testing.T) {
	text := rpcdoc.Part(t, "## Methods", "## Cursors")
	examples := regexp.MustCompile("(?s)```hex ([a-z_]+)\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(examples) < 8 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, x := range examples {
		method, got := x[1], wiretest.Unhex(t, strings.Join(strings.Fields(x[2]), ""))
		found := false
		for _, g := range append(goldenRequests(), blobGoldens()...) {
			want := wiretest.Encode(func(e *wire.Encoder) {
				e.Array(4)
				e.Int(0)
				e.Int(1)
				e.Str(method)
				g.request.Append(e)
			})
			found = found || bytes.Equal(got, want) && strings.HasPrefix(g.name, method)
		}
		if !found {
			t.Errorf("%s: the example is not what the code writes: %x", method, got)
		}
	}
	ping := rpcdoc.Part(t, "### Plain mode", "### Framed mode")
	var b []byte
	for _, line := range regexp.MustCompile(`(?m)^    +((?:(?:[0-9a-f]{2})+ +)+)`).FindAllStringSubmatch(ping, -1) {
		b = append(b, wiretest.Unhex(t, strings.Join(strings.Fields(line[1]), ""))...)
	}
	want := wiretest.Encode(func(e *wire.Encoder) {
		e.Array(4)
		e.Int(0)
		e.Int(1)
		e.Str(MethodPing)
		e.Array(0)
		e.Array(4)
		e.Int(1)
		e.Int(1)
		e.Nil()
		(&Pong{"stele", "v1.0.0", 1, "n1", "a1b2"}).Append(e)
	})
	if !bytes.Equal(b, want) {
		t.Errorf("ping is\n%x in the doc, and\n%x in the code", b, want)
	}
}

// The limits in the page are those of the code.
func TestDocLimits(t *testing.T) {
	text := rpcdoc.Part(t, "## Limits", "## A complete client in Python")
	lim := defaultLimits
	for _, want := range []string{
		thousands(int(lim.BatchRows)) + ", with " + thousands(BatchMutationsMax) + " mutations",
		"| rows in a `read_rows` | " + thousands(ReadRowsMax),
		fmt.Sprintf("| %d MiB |", ResultBytesMax>>20),
		"| rules in a `read_modify_write` | " + fmt.Sprint(RulesMax),
		"| cursors open on one node | " + thousands(CursorsMax) + ", of one user " + thousands(CursorsOfUserMax),
		fmt.Sprintf("| blob | %d GiB, in %d extents; less if", BlobBytesMax>>30, BlobExtentsMax),
		fmt.Sprintf("| name of a blob | %d bytes |", BlobNameBytesMax),
		fmt.Sprintf("`blob_read` | %d MiB |", BlobPieceBytesMax>>20),
		fmt.Sprintf("| uploads to one node at a time | %d,", UploadsMax),
		fmt.Sprintf("| value | %d MiB", lim.ValueBytes>>20),
		fmt.Sprintf("| qualifier | %d KiB", lim.QualifierBytes>>10),
		"| mutations of one row | " + thousands(int(lim.Mutations)),
		fmt.Sprintf("%d parts, %d levels, %d KiB of patterns", lim.FilterNodes, lim.FilterDepth, lim.FilterBytes>>10),
		fmt.Sprintf("%d rules, %d levels", lim.GCPolicyNodes, lim.GCPolicyDepth),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("limits lack %q", want)
		}
	}
	scan := rpcdoc.Part(t, "### `scan_open`", "### `scan_next`")
	for _, want := range []string{
		fmt.Sprintf("up to %s, default %d ", thousands(ScanBatchRowsMax), ScanBatchRows),
		fmt.Sprintf("up to %d MiB, default %d KiB", ScanBatchBytesMax>>20, ScanBatchBytes>>10),
	} {
		if !strings.Contains(scan, want) {
			t.Errorf("scan_open lacks %q", want)
		}
	}
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
