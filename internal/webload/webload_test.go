package webload_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/webload"
	"github.com/steledb/stele/internal/webtable"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const base = "https://www.example.com/"

var fileTime = time.UnixMicro(1_700_000_000_123_456)

func write(t testing.TB, dir, name, contents string) {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, fileTime, fileTime); err != nil {
		t.Fatal(err)
	}
}

// writeSite writes n pages that link to each other, some of them large, and returns the number of
// pairs of page and target.
func writeSite(t testing.TB, dir string, n int) (anchors int64) {
	t.Helper()
	for i := range n {
		var page strings.Builder
		fmt.Fprintf(&page, "<html lang=en><title>%d</title>", i)
		targets := map[int]bool{}
		for j := 1; j <= 12; j++ {
			target := (i*j*7 + j) % n
			fmt.Fprintf(&page, `<a href="/d%d/p%d.html">from %d</a>`, target%5, target, i)
			targets[target] = true
		}
		delete(targets, i)
		anchors += int64(len(targets)) + 1
		page.WriteString(`<a href="http://elsewhere.example/">out</a>`)
		if i%50 == 0 {
			page.WriteString(strings.Repeat("<p>text without end", 10_000))
		}
		write(t, dir, fmt.Sprintf("d%d/p%d.html", i%5, i), page.String())
	}
	return anchors
}

func startNode(t testing.TB) string {
	t.Helper()
	n, err := node.Start(context.Background(), node.Config{
		DataDirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Gossip: "off", HTTP: "off", MemoryBytes: 512 << 20, ExtentBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return n.RPCAddr()
}

func dial(t testing.TB, addr string, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.Open(context.Background(), addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func prepare(t testing.TB, c *client.Client, name string) *client.Table {
	t.Helper()
	if created, err := webload.Prepare(context.Background(), c, name); err != nil || !created {
		t.Fatal(created, err)
	}
	return c.Table(name)
}

func openSite(t testing.TB, dir string) *webtable.Site {
	t.Helper()
	s, err := webtable.Open(dir, base)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// contents returns every cell of a table.
func contents(t testing.TB, tab *client.Table) (cells []string) {
	t.Helper()
	for row, err := range tab.Scan(context.Background()).Rows() {
		if err != nil {
			t.Fatal(err)
		}
		for i := range row.Cells {
			c := &row.Cells[i]
			cells = append(cells, fmt.Sprintf("%s %s %d %.60s %d", row.Key, client.ColumnName(c), c.Timestamp, c.Value, len(c.Value)))
		}
	}
	return cells
}

// TestLoadAgain: WL3, and a modified page gets another version.
func TestLoadAgain(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	write(t, dir, "index.html", `<html lang=EN><a href="a.html">A</a><a href=http://cnn.com/>CNN</a>`)
	write(t, dir, "a.html", `no language, <a href=".">home</a>`)
	c := dial(t, startNode(t), client.Config{})
	tab := prepare(t, c, "webtable")
	l := webload.New(webload.Config{Table: tab, Site: openSite(t, dir)})
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
	ts := fileTime.UnixMicro()
	want := []string{
		fmt.Sprintf("com.cnn anchor:%sindex.html %d CNN 3", base, ts),
		fmt.Sprintf("com.example.www/a.html anchor:%sindex.html %d A 1", base, ts),
		fmt.Sprintf("com.example.www/a.html contents: %d no language, <a href=\".\">home</a> 33", ts),
		fmt.Sprintf("com.example.www/a.html language: %d und 3", ts),
		fmt.Sprintf("com.example.www/index.html anchor:%sa.html %d home 4", base, ts),
		fmt.Sprintf("com.example.www/index.html contents: %d <html lang=EN><a href=\"a.html\">A</a><a href=http://cnn.com/> 67", ts),
		fmt.Sprintf("com.example.www/index.html language: %d en 2", ts),
	}
	if diff := cmp.Diff(want, contents(t, tab)); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	if s, want := l.Stats(), (webload.Stats{Pages: 2, PageBytes: 100, Links: 3, Anchors: 3, Rows: 5}); s != want {
		t.Errorf("stats %+v, want %+v", s, want)
	}

	l = webload.New(webload.Config{Table: tab, Site: openSite(t, dir)})
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if s, want := l.Stats(), (webload.Stats{Skipped: 2, PageBytes: 100}); s != want {
		t.Errorf("second load: stats %+v, want %+v", s, want)
	}

	later := fileTime.Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "a.html"), later, later); err != nil {
		t.Fatal(err)
	}
	l = webload.New(webload.Config{Table: tab, Site: openSite(t, dir)})
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if s := l.Stats(); s.Pages != 1 || s.Skipped != 1 {
		t.Errorf("third load: stats %+v", s)
	}
	row, err := tab.Get(ctx, "com.example.www/a.html", client.Columns("contents:"))
	if err != nil || len(row.Cells) != 2 || row.Cells[0].Timestamp != later.UnixMicro() {
		t.Errorf("after the page changed: %+v, %v", row, err)
	}
}

func TestPrepareRefusesOtherTables(t *testing.T) {
	ctx := context.Background()
	c := dial(t, startNode(t), client.Config{})
	prepare(t, c, "webtable")
	if created, err := webload.Prepare(ctx, c, "webtable"); created || err != nil {
		t.Errorf("again: %v, %v", created, err)
	}
	if _, err := c.Tables().Create(ctx, "other", table.FamilySpec{Name: "contents"}); err != nil {
		t.Fatal(err)
	}
	var missing *table.NoFamilyError
	if _, err := webload.Prepare(ctx, c, "other"); !errors.As(err, &missing) || missing.Family != "anchor" {
		t.Errorf("other: %v", err)
	}
}

// TestLoadThroughBrokenConnections: a load continues when connections break at any point, with the
// same result as an undisturbed one.
func TestLoadThroughBrokenConnections(t *testing.T) {
	seed := testseed.New(t)
	dir := t.TempDir()
	anchors := writeSite(t, dir, 120)
	addr := startNode(t)
	plain := dial(t, addr, client.Config{})
	want := prepare(t, plain, "want")
	l := webload.New(webload.Config{Table: want, Site: openSite(t, dir)})
	if err := l.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := l.Stats(); s.Anchors != anchors || s.Pages != 120 || s.Links != 120*13-selfLinks(120) {
		t.Errorf("stats %+v, want %d anchors", s, anchors)
	}
	var broken atomic.Int64
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := client.Config{RetryTimeMax: time.Minute, RetriesPerSecond: 1000}
	cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		broken.Add(1)
		f := &fragile{Conn: conn}
		f.left.Store(20_000 + rng.Int64N(300_000)) // one dial at a time
		return f, nil
	}
	got := prepare(t, plain, "got")
	acks := &bytes.Buffer{}
	l = webload.New(webload.Config{Table: dial(t, addr, cfg).Table("got"), Site: openSite(t, dir), Acks: webload.NewAckWriter(acks)})
	if err := l.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if broken.Load() < 3 {
		t.Errorf("only %d connections: nothing was tried", broken.Load())
	}
	if diff := cmp.Diff(contents(t, want), contents(t, got)); diff != "" {
		t.Errorf("-want +got:\n%.2000s", diff)
	}
	verify(t, got, acks.Bytes(), anchors+2*120)
}

// selfLinks counts the links of writeSite's pages to themselves.
func selfLinks(n int) (count int64) {
	for i := range n {
		for j := 1; j <= 12; j++ {
			if (i*j*7+j)%n == i {
				count++
			}
		}
	}
	return count
}

// fragile is a connection that breaks after a number of bytes.
type fragile struct {
	net.Conn
	left atomic.Int64
}

func (f *fragile) Write(p []byte) (int, error) {
	if f.left.Add(-int64(len(p))) < 0 {
		f.Conn.Close()
		return 0, io.ErrClosedPipe
	}
	return f.Conn.Write(p)
}

func verify(t *testing.T, tab *client.Table, acks []byte, cells int64) {
	t.Helper()
	v, err := webload.Verify(context.Background(), tab, bytes.NewReader(acks), func(webload.Verification) {})
	if err != nil || v.Cells != cells || v.Missing+v.Wrong != 0 {
		t.Errorf("verification %+v, %v; want %d cells", v, err, cells)
	}
}

// TestInterrupted: an interrupted load satisfies WL1 and WL2, and the next one completes it.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	writeSite(t, dir, 120)
	c := dial(t, startNode(t), client.Config{})
	want, got := prepare(t, c, "want"), prepare(t, c, "got")
	if err := webload.New(webload.Config{Table: want, Site: openSite(t, dir)}).Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	wanted := contents(t, want)
	acks := &bytes.Buffer{}
	out := webload.NewAckWriter(acks)
	site := openSite(t, dir)
	for try := 0; ; try++ {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(5<<try)*time.Millisecond)
		l := webload.New(webload.Config{Table: got, Site: site, Acks: out})
		err := l.Run(ctx)
		cancel()
		checkPages(t, site, got)
		if err == nil {
			t.Logf("done by load %d: %+v", try+1, l.Stats())
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(wanted, contents(t, got)); diff != "" {
		t.Errorf("-want +got:\n%.2000s", diff)
	}
	v, err := webload.Verify(context.Background(), got, bytes.NewReader(acks.Bytes()), func(webload.Verification) {})
	if err != nil || v.Cells == 0 || v.Missing+v.Wrong != 0 {
		t.Errorf("verification %+v, %v", v, err)
	}
}

// checkPages checks that all links of the pages in the table are there (WL1).
func checkPages(t *testing.T, site *webtable.Site, tab *client.Table) {
	t.Helper()
	pages := map[string]bool{}
	anchors := map[string]bool{}
	for row, err := range tab.Scan(context.Background()).Rows() {
		if err != nil {
			t.Fatal(err)
		}
		for i := range row.Cells {
			if c := &row.Cells[i]; c.Family == "contents" {
				pages[string(row.Key)] = true
			} else if c.Family == "anchor" {
				anchors[string(row.Key)+" "+string(c.Qualifier)] = true
			}
		}
	}
	for p, err := range site.Pages() {
		if err != nil {
			t.Fatal(err)
		}
		if !pages[p.Row] {
			continue
		}
		text, err := site.Read(&p)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range site.Extract(&p, text).Links {
			if !anchors[l.Row+" "+p.URL] {
				t.Errorf("page %s is there, its link to %s is not", p.Row, l.Row)
			}
		}
	}
}

// TestVerifyFinds: lost or modified cells are found; a truncated last line is ignored.
func TestVerifyFinds(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	write(t, dir, "a.html", `<a href="b.html">B</a>`)
	write(t, dir, "b.html", `<a href="a.html">A</a>`)
	c := dial(t, startNode(t), client.Config{})
	tab := prepare(t, c, "webtable")
	acks := &bytes.Buffer{}
	if err := webload.New(webload.Config{Table: tab, Site: openSite(t, dir), Acks: webload.NewAckWriter(acks)}).Run(ctx); err != nil {
		t.Fatal(err)
	}
	verify(t, tab, append(acks.Bytes(), `{"row":"com.exam`...), 6)
	if err := tab.Apply(ctx, client.NewRowMutation("com.example.www/a.html").Delete("contents:")); err != nil {
		t.Fatal(err)
	}
	m := client.NewRowMutation("com.example.www/b.html").SetAt("language:", fileTime.UnixMicro(), []byte("xx"))
	if err := tab.Apply(ctx, m); err != nil {
		t.Fatal(err)
	}
	v, err := webload.Verify(ctx, tab, bytes.NewReader(acks.Bytes()), func(webload.Verification) {})
	if err != nil || v.Cells != 6 || v.Missing != 1 || v.Wrong != 1 || v.First == "" {
		t.Errorf("verification %+v, %v", v, err)
	}
	for _, text := range []string{"no json\n", "{}\n", strings.Repeat("x", 2<<20)} {
		if v, err := webload.Verify(ctx, tab, strings.NewReader(text), func(webload.Verification) {}); err == nil {
			t.Errorf("%.20q verified as %+v", text, v)
		}
	}
}

// TestUnreadableFilesAreSkipped: unreadable files are reported and counted, the others are loaded.
func TestUnreadableFilesAreSkipped(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.html", "a")
	write(t, dir, "z.html", "z")
	if err := os.Symlink(filepath.Join(dir, "gone"), filepath.Join(dir, "b.html")); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "z.html"), webtable.PageBytesMax+1); err != nil {
		t.Fatal(err)
	}
	c := dial(t, startNode(t), client.Config{})
	var told []error
	l := webload.New(webload.Config{Table: prepare(t, c, "webtable"), Site: openSite(t, dir), Warn: func(err error) { told = append(told, err) }})
	if err := l.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := l.Stats(); s.Pages != 1 || s.Failed != 2 || len(told) != 2 {
		t.Errorf("stats %+v, told %v", s, told)
	}
	if !errors.Is(errors.Join(told...), webtable.ErrTooLarge) || !errors.Is(errors.Join(told...), os.ErrNotExist) {
		t.Errorf("told %v", told)
	}
}
