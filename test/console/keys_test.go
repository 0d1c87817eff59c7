package console

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
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

// TestZoomKeys: a part of the map is zoomed to by dragging over it, by keyboard and by fields, whatever the rows are, and there is a way back.
func TestZoomKeys(t *testing.T) {
	const script = `com.m/"><script>document.title='owned'</script>`
	c := startOpen(t)
	c.create("web", "com.a", "com.example/\xff\x00\n\u202e", script, "com.n/"+strings.Repeat("x", 100), "de.z")
	x := openTab(t, 1280, 800)
	whole := c.address("/tables/web/keys?show=time of a write")
	x.run(chromedp.Navigate(whole))
	x.until(`!!document.querySelector('canvas')`)
	if text := value[string](x, `document.querySelector('main').innerText`); !strings.Contains(text, "Slowest ranges") || !strings.Contains(text, " ms") {
		t.Errorf("times: %s", text)
	}
	// drag drags from one place of the map to another one, each as a part of its width and height.
	drag := func(x0, y0, x1, y1 float64) {
		t.Helper()
		var box []float64
		x.run(chromedp.ScrollIntoView(`canvas`), chromedp.Evaluate(`(() => { const b = document.querySelector('canvas').getBoundingClientRect(); return [b.left + 150, b.top + 12, b.width - 150, b.height - 34]; })()`, &box))
		at := func(fx, fy float64) (float64, float64) { return box[0] + fx*box[2], box[1] + fy*box[3] }
		for i, kind := range []input.MouseType{input.MousePressed, input.MouseMoved, input.MouseMoved, input.MouseReleased} {
			px, py := at(x0, y0)
			if i == 1 {
				px, py = at((x0+x1)/2, (y0+y1)/2)
			} else if i > 1 {
				px, py = at(x1, y1)
			}
			x.run(chromedp.MouseEvent(kind, px, py, chromedp.ButtonLeft))
		}
	}
	ranges := func() int {
		return value[int](x, `JSON.parse(document.querySelector('.heat').dataset.heat).ends.length`)
	}
	all := ranges()
	drag(0.5, 0.3, 0.5, 0.3) // a click selects nothing
	if search := value[string](x, `location.search`); strings.Contains(search, "from") {
		t.Errorf("a click leads to %s", search)
	}
	drag(0.5, 0.25, 0.9999, 0.55)
	x.until(`new URLSearchParams(location.search).get('until') !== null && !!document.querySelector('.zoomed')`)
	zoomed := value[string](x, `location.search`)
	if n := ranges(); n >= all || n == 0 || !strings.Contains(zoomed, "start=") || !strings.Contains(zoomed, "end=") || !strings.Contains(zoomed, "time+of+a+write") {
		t.Errorf("%d of %d ranges, with %s", n, all, zoomed)
	}
	if text := value[string](x, `[...document.querySelectorAll('td:nth-child(2)')].map(e => e.innerText).join('\n')`); strings.Contains(text, "de.z") || strings.Contains(text, "com.a") || !strings.Contains(text, "<script>") {
		t.Errorf("the ends of the middle ranges: %s", text)
	}
	if n := value[int](x, `document.querySelectorAll('main img, main script').length`); n > 0 || !strings.HasSuffix(value[string](x, `document.title`), " · Stele") {
		t.Errorf("%d elements of a row", n)
	}
	x.run(chromedp.Click(`//a[.="All rows"]`))
	x.until(`!new URLSearchParams(location.search).has('start') && new URLSearchParams(location.search).has('from') && !!document.querySelector('canvas')`)
	x.run(chromedp.Click(`//a[.="The whole map"]`))
	x.until(`!new URLSearchParams(location.search).has('from') && !document.querySelector('.zoomed') && !!document.querySelector('canvas')`)
	x.run(chromedp.Focus(`canvas`), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown, chromedp.KeyModifiers(input.ModifierShift)),
		chromedp.KeyEvent(kb.ArrowLeft, chromedp.KeyModifiers(input.ModifierShift)))
	if text := value[string](x, `document.querySelector('output').textContent`); !strings.HasPrefix(text, "Selected: ") {
		t.Errorf("selected by keyboard: %s", text)
	}
	x.run(chromedp.KeyEvent(kb.Enter))
	x.until(`new URLSearchParams(location.search).has('start') && new URLSearchParams(location.search).has('from') && !!document.querySelector('.zoomed')`)
	x.silent("zooming")
	x.run(emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(c.address("/tables/web/keys")), chromedp.Click(`.zoom summary`), chromedp.SendKeys(`input[name=start]`, "com.b"),
		chromedp.SendKeys(`input[name=end]`, "com.z"), chromedp.Click(`.filter button`), chromedp.WaitVisible(`.zoomed`))
	var text string
	x.run(chromedp.Text(`main`, &text))
	if !strings.Contains(text, "com.m/") || strings.Contains(text, "de.z\t") {
		t.Errorf("by fields, without JavaScript: %s", text)
	}
	x.silent("fields")
	for query, want := range map[string]string{
		"from=yesterday": "From: write a time", "from=2026-01-02T03:04Z&until=2026-01-01T00:00Z": "From: it must be before", "from=2020-01-01T00:00Z": "two weeks",
		"start=b&end=a": "Rows above", "end=%5Cq": "Up to: unknown escape", "start=" + strings.Repeat("x", 1<<14): "No row of this range",
	} {
		x.run(chromedp.Navigate(c.address("/tables/web/keys?" + query)))
		if x.run(chromedp.Text(`main`, &text)); !strings.Contains(text, want) {
			t.Errorf("%.60s: %.300s", query, text)
		}
	}
	x.expect("400")
}
