package console

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/steledb/stele/client"
)

// TestKeysPage: the map of keys has the rows that were written, moves by keyboard and zooms to a prefix, whatever the rows are.
func TestKeysPage(t *testing.T) {
	const script = `"><script>document.title='owned'</script><img src=x onerror="document.title='owned'">`
	c := startOpen(t)
	c.create("web", script, "com.example/a", "com.example/b", "com.example/\xff\x00\n\u202e", "zz"+strings.Repeat("x", 5000))
	for range 40 {
		if err := c.admin.Table("web").Apply(t.Context(), client.NewRowMutation(script).Set("f:q", []byte("v"))); err != nil {
			t.Fatal(err)
		}
	}
	x := openTab(t, 360, 800)
	x.run(chromedp.Navigate(c.address("/tables/web")), chromedp.Click(`a[href="/tables/web/keys"]`))
	x.until(`location.pathname === '/tables/web/keys' && document.readyState === 'complete'`)
	if bright := value[int](x, `(() => { const c = document.querySelector('canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;
		for (let i = 0; i < d.length; i += 4) if (d[i] > 240 && d[i + 1] > 240 && d[i + 3] === 255) n++; return n; })()`); bright == 0 {
		t.Error("the map has no bright range")
	}
	x.run(chromedp.Focus(`canvas`))
	for range 80 { // to the last range
		x.run(chromedp.KeyEvent(kb.ArrowDown))
	}
	if got := value[string](x, `document.querySelector('output').textContent`); !strings.Contains(got, "reads and writes") || !strings.Contains(got, "up to the last") {
		t.Errorf("in the last range: %q", got)
	}
	if n := value[int](x, `document.querySelectorAll('main img, main script').length`); n > 0 || !strings.HasSuffix(value[string](x, `document.title`), " · Stele") {
		t.Errorf("%d elements of a row", n)
	}
	if w := value[int](x, `document.documentElement.scrollWidth`); w > 360 {
		t.Errorf("the page is %d px wide", w)
	}
	x.silent("a map")
	x.run(chromedp.Navigate(c.address("/tables/web/keys?prefix=com.&show=writes")))
	if text := value[string](x, `document.querySelector('main').innerText`); !strings.Contains(text, "com.example/b") || strings.Contains(text, "zzx") || strings.Contains(text, "<script>") {
		t.Errorf("with a prefix: %s", text)
	}
	x.silent("a prefix")
	x.run(emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(c.address("/tables/web/keys")))
	var text string
	x.run(chromedp.Text(`main`, &text))
	if !strings.Contains(text, "Busiest ranges") || !strings.Contains(text, "hot: about") {
		t.Errorf("without JavaScript: %s", text)
	}
}
