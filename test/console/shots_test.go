package console

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// TestScreenshots makes the screenshots of docs/console.md from a node under load, if STELE_SHOTS names the folder for them. It takes STELE_SHOTS_LOAD,
// by default 2 minutes.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv("STELE_SHOTS")
	if folder == "" {
		t.Skip("STELE_SHOTS=FOLDER is not set")
	}
	load, err := time.ParseDuration(cmp.Or(os.Getenv("STELE_SHOTS_LOAD"), "2m"))
	if err != nil {
		t.Fatal(err)
	}
	c := startOpen(t)
	if _, err := c.admin.Tables().CreateSplit(t.Context(), "web", []string{"com.e", "com.m", "de", "org"}, table.FamilySpec{Name: "anchor"}, table.FamilySpec{Name: "contents", Group: "pages"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now().UTC().Format("2006-01-02T15:04Z")
	c.load("web", load)
	if err := c.admin.Quotas().Set(t.Context(), api.QuotaOfTable, "web", map[string]int64{api.QuotaBytes: 1 << 30, api.QuotaReadOps: 50_000}, time.Second); err != nil {
		t.Logf("no quota: %v", err)
	}
	x := openTab(t, 1280, 800)
	for name, path := range map[string]string{"overview": "/", "node": "/nodes/" + c.node.ID(), "requests": "/requests", "table": "/tables/web", "rows": "/tables/web/row?prefix=com.example", "keys": "/tables/web/keys?from=" + began} {
		var png []byte
		x.run(chromedp.Navigate(c.address(path)), chromedp.Sleep(time.Second), chromedp.CaptureScreenshot(&png))
		if err := os.WriteFile(filepath.Join(folder, name+".png"), png, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	x.silent("screenshots")
}

// load writes and reads rows of a table for a time, as a site with some popular pages does.
func (c *cluster) load(name string, d time.Duration) {
	c.t.Helper()
	crawler, err := client.Open(c.t.Context(), c.node.RPCAddr(), client.Config{ReportEvery: 5 * time.Second, ReportName: "crawler"})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = crawler.Close() })
	tbl := crawler.Table(name)
	domains := []string{"com.example", "com.cnn", "com.golang", "de.heise", "org.wikipedia", "org.debian"}
	pages := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.2, 5, 5000)
	for end, i := time.Now().Add(d), 0; time.Now().Before(end); i++ {
		row := fmt.Sprintf("%s/page-%04d", domains[i%len(domains)], pages.Uint64())
		var err error
		if i%3 == 0 {
			m := client.NewRowMutation(row).Set("anchor:"+domains[(i/3)%len(domains)], []byte(`{"text": "CNN", "visits": 12}`)).Set("contents:", []byte("<html><title>"+row+"</title>"))
			err = tbl.Apply(c.t.Context(), m)
		} else {
			_, err = tbl.Get(c.t.Context(), row)
		}
		if err != nil {
			c.t.Fatal(err)
		}
		time.Sleep(time.Duration(300+200*(i/5000%3)) * time.Microsecond)
	}
}
