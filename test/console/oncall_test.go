package console

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/timing"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/certs"
	"github.com/steledb/stele/security/token"
	"github.com/steledb/stele/table"
)

// slowDisk is a disk whose syncs take longer while delay is set, and fail if it is broken.
type slowDisk struct {
	vfs.FS
	delay  atomic.Int64
	broken atomic.Bool
}

type slowFile struct {
	vfs.File
	disk *slowDisk
}

func (d *slowDisk) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return slowFile{f, d}, nil
}

func (d *slowDisk) Create(name string) (vfs.File, error) { return d.wrap(d.FS.Create(name)) }
func (d *slowDisk) Open(name string) (vfs.File, error)   { return d.wrap(d.FS.Open(name)) }

func (d *slowDisk) Lock(name string) (io.Closer, error) { return d.FS.(vfs.Locker).Lock(name) }
func (d *slowDisk) Disk(dir string) (vfs.Disk, error)   { return d.FS.(vfs.Disks).Disk(dir) }

func (f slowFile) Sync() error {
	time.Sleep(time.Duration(f.disk.delay.Load()))
	if f.disk.broken.Load() {
		return &os.PathError{Op: "sync", Path: "data", Err: syscall.EIO}
	}
	return f.File.Sync()
}

// threeNodes is a secured cluster of three nodes. The disks of the second and the third can be slowed down.
type threeNodes struct {
	*cluster
	disks [3]slowDisk
	nodes [3]*node.Node // the first is cluster.node
}

// slowRequest is the setting slow_request of all, for tables as small as those of tests.
const slowRequest = 10 * time.Millisecond

// startThree starts three nodes. The console of its first node is used.
func startThree(t *testing.T) *threeNodes {
	t.Helper()
	f := &threeNodes{cluster: startSecuredWith(t, node.Config{Name: "node1", HTTP: "127.0.0.1:0", SlowRequest: slowRequest})}
	for i := 1; i < len(f.nodes); i++ {
		made := good(f.admin.JoinTokens().Create(t.Context(), client.TokenRequest{Kind: api.TokenJoin, TTL: time.Hour}))
		dir := t.TempDir()
		token, data := filepath.Join(dir, "token"), filepath.Join(dir, "data")
		if err := os.WriteFile(token, []byte(made.Text), 0o600); err != nil {
			t.Fatal(err)
		}
		f.disks[i].FS = vfs.OS()
		n, err := node.Start(t.Context(), node.Config{Name: fmt.Sprintf("node%d", i+1), DataDirs: []string{data}, Security: filepath.Join(data, certs.FolderName), TokenFile: token,
			Join: []string{f.node.RPCAddr()}, FS: &f.disks[i], Listen: "127.0.0.1:0", Gossip: "127.0.0.1:0", HTTP: "off", Bigtable: "off", MemoryBytes: 256 << 20, ExtentBytes: 1 << 20, SlowRequest: slowRequest})
		if err != nil {
			t.Fatal(err)
		}
		f.nodes[i] = n
		t.Cleanup(func() { f.stopNode(i) })
	}
	return f
}

func (f *threeNodes) stopNode(i int) {
	n := f.nodes[i]
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		f.t.Error(err)
	}
	f.nodes[i] = nil
}

// breakDisk lets the syncs of a node's disk fail, and closes the node once it has ended by itself, as "stele serve" does.
func (f *threeNodes) breakDisk(i int) {
	f.t.Helper()
	f.disks[i].broken.Store(true)
	select {
	case <-f.nodes[i].Done():
	case <-time.After(time.Minute):
		f.t.Fatal("the node goes on with a disk whose syncs fail")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_ = f.nodes[i].Close(ctx) // of files that are not written
	f.nodes[i] = nil
}

// as returns a client of a new user with rights on a table.
func (f *threeNodes) as(name, on string) *client.Table {
	f.t.Helper()
	c, err := client.Open(f.t.Context(), f.node.RPCAddr(), client.Config{Token: good(token.Parse(f.user(name, on, "read,write")))})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return c.Table(on)
}

// repeat calls do again and again until the test ends, from a goroutine that ends with it.
func (f *threeNodes) repeat(pause time.Duration, do func(ctx context.Context, i int) error) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_ = do(ctx, i) // the faults make some fail
			timing.Sleep(ctx, pause)
		}
	})
	f.t.Cleanup(func() { cancel(); running.Wait() })
}

// TestOnCall: with a hot row, a slow disk, a full quota, and a client with an expensive and one with a wrong filter all at once, and then a node
// that ends by itself as its disk fails, the console names each culprit, after the clicks that docs/console.md describes.
func TestOnCall(t *testing.T) {
	f := startThree(t)
	f.create("web")
	f.create("orders")
	rows := make([]*client.RowMutation, 4000)
	for i := range rows {
		rows[i] = client.NewRowMutation(fmt.Sprintf("row%04d", i)).Set("f:q", bytes.Repeat([]byte("0123456789abcdef"), 128))
	}
	if err := f.admin.Table("web").ApplyAll(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	if err := f.admin.Quotas().Set(t.Context(), client.QuotaOfTable, "orders", map[string]int64{api.QuotaBytes: 20_000}, 0); err != nil {
		t.Fatal(err)
	}

	crawler, shop, report, typo := f.as("crawler", "web"), f.as("shop", "orders"), f.as("report", "web"), f.as("typo", "web")
	for range 8 {
		f.repeat(0, func(ctx context.Context, _ int) error {
			return crawler.Apply(ctx, client.NewRowMutation("popular").SetAt("f:n", 1000, []byte("v")))
		})
	}
	f.repeat(20*time.Millisecond, func(ctx context.Context, i int) error {
		return shop.Apply(ctx, client.NewRowMutation(fmt.Sprint(i)).Set("f:q", make([]byte, 2000)))
	})
	f.repeat(500*time.Millisecond, func(ctx context.Context, _ int) error {
		all := report.Scan(ctx, client.Filter(table.ValueRegex("(.*a.*b.*c.*z)+")))
		for all.Next() {
		}
		return all.Close()
	})
	f.repeat(500*time.Millisecond, func(ctx context.Context, _ int) error {
		_, err := typo.Get(ctx, "row0001", client.Filter(table.RowRegex("(")))
		return err
	})
	f.disks[1].delay.Store(int64(400 * time.Millisecond))

	x := openTab(t, 1280, 800)
	x.run(chromedp.Navigate(f.address("/")), chromedp.KeyEvent(f.user("oncall", "", "read,monitor")+"\r"))
	x.until(`location.pathname === '/' && document.readyState === 'complete'`)
	f.find(x, "a slow disk", `log replicas? (of|on) node node2`, "Overview")
	f.find(x, "a hot row", `popular[^]*hot: about[^]*most by crawler`, "Tables", "/tables/web", "/tables/web/keys")
	f.find(x, "a full quota", `orders\s+bytes\s+19.5 KiB\s+[\d.]+ KiB of 19.5 KiB`, "Quotas")
	f.find(x, "its user", `quota_exceeded[^]*orders\s+shop`, "Requests")
	f.find(x, "an expensive filter", `scan_(open|next)\s+web\s+report`, "Requests")
	f.find(x, "a wrong filter", `bad_filter[^]*web\s+typo`, "Requests")

	f.disks[1].delay.Store(0)
	f.breakDisk(2)
	f.find(x, "a node that ended by itself", `node3 ended by itself[^]*input/output error`, "Overview")
	f.find(x, "its error among the nodes", `node3 ended by itself[^]*input/output error`, "Nodes")
	x.silent("the drill")
}

// find follows links by their text or address, and waits until the page has text that matches a pattern. It reloads the page now and then, as pages about
// requests are about the past.
func (f *threeNodes) find(x *tab, what, pattern string, links ...string) {
	f.t.Helper()
	began := time.Now()
	for _, link := range links {
		selector := fmt.Sprintf(`//nav//a[text()=%q]`, link)
		if strings.HasPrefix(link, "/") {
			selector = fmt.Sprintf(`//a[@href=%q]`, link)
		}
		x.run(chromedp.Click(selector, chromedp.BySearch))
		x.until(`document.readyState === 'complete'`)
	}
	found := fmt.Sprintf(`new RegExp(%s).test(document.querySelector('main')?.innerText)`, strconv.Quote(pattern))
	for !value[bool](x, found) {
		if time.Since(began) > time.Minute {
			f.t.Errorf("%s: not found by %q:\n%s", what, links, value[string](x, `document.querySelector('main').innerText.slice(0, 4000)`))
			return
		}
		time.Sleep(time.Second)
		x.run(chromedp.Reload())
		x.until(`document.readyState === 'complete'`)
	}
	f.t.Logf("%s: found in %v by %q", what, time.Since(began).Round(100*time.Millisecond), links)
}
