package console

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/steledb/stele/client"
)

// tab is a tab of Chromium.
type tab struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	messages []string // errors and warnings of the console, and exceptions
}

// openTab starts Chromium with one tab of a size.
func openTab(t testing.TB, width, height int64) *tab {
	t.Helper()
	program := os.Getenv("STELE_CHROMIUM")
	if program == "" {
		var err error
		if program, err = exec.LookPath("chromium"); err != nil {
			t.Skip("Chromium is not installed: apt-get install chromium, or set STELE_CHROMIUM")
		}
	}
	profile, err := os.MkdirTemp("", "stele-console-*") // not t.TempDir: Chromium's processes write to it a moment longer
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(profile) })
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(profile), chromedp.Env("TMPDIR="+profile))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(cancel)
	x := &tab{t: t}
	x.ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	chromedp.ListenTarget(x.ctx, x.listen)
	x.run(log.Enable(), chromedp.EmulateViewport(width, height))
	return x
}

// listen keeps what goes wrong in the tab.
func (x *tab) listen(event any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning {
			x.messages = append(x.messages, e.Entry.Text+" "+e.Entry.URL)
		}
	case *cdpruntime.EventExceptionThrown:
		x.messages = append(x.messages, e.ExceptionDetails.Error())
	}
}

func (x *tab) run(actions ...chromedp.Action) {
	x.t.Helper()
	if err := chromedp.Run(x.ctx, actions...); err != nil {
		x.t.Fatal(err)
	}
}

// value returns the value of an expression.
func value[T any](x *tab, expression string) (v T) {
	x.t.Helper()
	x.run(chromedp.Evaluate(expression, &v))
	return v
}

// until waits until an expression is true.
func (x *tab) until(expression string) {
	x.t.Helper()
	for end := time.Now().Add(20 * time.Second); !value[bool](x, expression); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatalf("not true in 20 s: %s\n%s", expression, value[string](x, "document.body.innerText"))
		}
	}
}

// expect forgets messages that have one of some texts.
func (x *tab) expect(texts ...string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.messages = slices.DeleteFunc(x.messages, func(m string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(m, text) })
	})
}

// silent fails the test if something went wrong in the tab.
func (x *tab) silent(where string) {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.messages {
		x.t.Errorf("%s: %s", where, m)
	}
	x.messages = nil
}

// unlabelled is the text of elements that a screen reader cannot name.
const unlabelled = `[...document.querySelectorAll('a,button,summary,input:not([type=hidden]),select')].filter(e =>
	!(e.textContent || e.getAttribute('aria-label') || (e.labels && e.labels.length && e.labels[0].textContent) || '').trim()).map(e => e.outerHTML).join('\n')`

// faint is the text whose contrast with its background is below 4.5 to 1 (WCAG 2.2, 1.4.3).
const faint = `(() => {
	const parse = (c) => (c.match(/[\d.]+/g) || []).map(Number);
	const light = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
	const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
	return [...document.querySelectorAll('body *')].filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && e.checkVisibility() && e.className !== 'skip').filter(e => {
		const a = light(parse(getComputedStyle(e).color)), b = light(ground(e));
		return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
	}).map(e => e.tagName + ' ' + e.innerText).join('\n');
})()`

// unaligned is the names of controls of a form that overlap the height of the one before them, but do not begin and end where it does.
const unaligned = `[...document.querySelectorAll('.filter')].flatMap(f => {
	const boxes = [...f.querySelectorAll('input,select,button')].filter(e => e.checkVisibility()).map(e => [e, e.getBoundingClientRect()]);
	return boxes.filter(([e, b], i) => { const a = i && boxes[i - 1][1]; return a && b.top < a.bottom && (Math.abs(a.top - b.top) > 1 || Math.abs(a.bottom - b.bottom) > 1); }).map(([e]) => e.name || e.textContent);
}).join(', ')`

// TestEveryPage: no page has a script that fails or a style that the policy forbids, text that is hard to read, an element without a name, a control out of line, or is wider
// than the window, light or dark, wide or narrow.
func TestEveryPage(t *testing.T) {
	c := startOpen(t)
	c.create("web", "com.example/a-long-row-key-"+strings.Repeat("x", 200))
	if err := c.admin.Table("web").Apply(t.Context(), client.NewRowMutation("v").SetAt("f:q", 1, []byte("old value")).SetAt("f:q", 2, []byte("new value"))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin.Backups().Create(t.Context(), time.Hour, "web"); err != nil {
		t.Fatal(err)
	}
	if err := c.admin.Quotas().Set(t.Context(), client.QuotaOfTable, "web", map[string]int64{"bytes": 1 << 30}, 0); err != nil {
		t.Logf("no quota: %v", err)
	}
	for _, width := range []int64{1280, 360} {
		for _, scheme := range []string{"light", "dark"} {
			x := openTab(t, width, 800)
			x.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
			for _, path := range []string{"/", "/nodes", "/nodes/" + c.node.ID(), "/tables", "/tables/web", "/tables/web/row", "/tables/web/versions?row=v&column=f:q", "/tables/web/keys", "/audit", "/logs", "/requests", "/backups", "/users", "/quotas", "/clusters", "/clients", "/jobs"} {
				where := fmt.Sprintf("%s, %d px, %s", path, width, scheme)
				x.run(chromedp.Navigate(c.address(path)))
				if d := x.paint(); d > time.Second {
					t.Errorf("%s: the first paint after %v", where, d)
				}
				if w := value[int64](x, "document.documentElement.scrollWidth"); w > width {
					t.Errorf("%s: the page is %d px wide", where, w)
				}
				if s := value[string](x, unlabelled); s != "" {
					t.Errorf("%s: elements without a name: %s", where, s)
				}
				if s := value[string](x, faint); s != "" {
					t.Errorf("%s: text with too little contrast: %s", where, s)
				}
				if s := value[string](x, unaligned); s != "" {
					t.Errorf("%s: controls of a form that are out of line: %s", where, s)
				}
				x.silent(where)
			}
		}
	}
}

// paint returns the time from the start of the navigation to the first contentful paint.
func (x *tab) paint() time.Duration {
	x.until(`performance.getEntriesByName('first-contentful-paint').length > 0`)
	return time.Duration(value[float64](x, `performance.getEntriesByName('first-contentful-paint')[0].startTime`) * float64(time.Millisecond))
}

// TestLivePage: a page shows what has changed without being loaded again, and keeps the focus, what is typed, and what is unfolded.
func TestLivePage(t *testing.T) {
	c := startOpen(t)
	c.create("web")
	x := openTab(t, 1280, 800)
	x.run(chromedp.Navigate(c.address("/tables")))
	x.until(`document.getElementById('freshness').textContent === 'live'`)
	x.run(chromedp.Evaluate(`window.before = true`, nil), chromedp.Focus(`input[name=q]`), chromedp.SendKeys(`input[name=q]`, "typed"))
	c.create("later")
	x.until(`!!document.querySelector('a[href="/tables/later"]')`)
	if !value[bool](x, `window.before === true && document.activeElement.name === 'q' && document.activeElement.value === 'typed'`) {
		t.Error("the page was loaded again, or lost the focus or what was typed")
	}
	x.run(chromedp.Navigate(c.address("/tables/web")))
	x.until(`document.getElementById('freshness').textContent === 'live'`)
	x.run(chromedp.Click(`summary`), chromedp.Focus(`summary`))
	if err := c.admin.Table("web").Apply(t.Context(), client.NewRowMutation("r").Set("f:q", []byte(strings.Repeat("x", 5000)))); err != nil {
		t.Fatal(err)
	}
	x.until(`!document.querySelector('.tiles').innerText.includes('Memtables\n0 B')`)
	if !value[bool](x, `document.querySelector('details').open && document.activeElement.nodeName === 'SUMMARY'`) {
		t.Error("what was unfolded is folded, or has lost the focus")
	}
	x.silent("live pages")
}

// TestNodeGone: while the node of the page does not answer, the page reveals that it is not live.
func TestNodeGone(t *testing.T) {
	c := startOpen(t)
	x := openTab(t, 1280, 800)
	x.run(chromedp.Navigate(c.address("/nodes")))
	x.until(`document.getElementById('freshness').textContent === 'live'`)
	c.stop()
	x.until(`document.getElementById('freshness').textContent.startsWith('not live')`)
}

// TestScriptsInRows: HTML and scripts in row keys, columns, values and names are shown as text, and do not run.
func TestScriptsInRows(t *testing.T) {
	const script = `<html><body></td></script><script>document.title='owned';top.document.title='owned'</script><img src=x onerror="document.title='owned'">`
	c := startOpen(t)
	c.create("web")
	if err := c.admin.Table("web").Apply(t.Context(), client.NewRowMutation(script).Set("f:"+script, []byte(script))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin.Tablets().Split(t.Context(), "web", script); err != nil {
		t.Fatal(err)
	}
	x := openTab(t, 1280, 800)
	x.run(chromedp.Navigate(c.address("/tables/web/row")), chromedp.Click(`details.page summary`), chromedp.Sleep(500*time.Millisecond))
	if title := value[string](x, `document.title`); !strings.HasSuffix(title, " · Stele") || !value[bool](x, `document.querySelector('iframe').clientHeight > 0`) {
		t.Errorf("a cell as a page: the title is %q", title)
	}
	x.expect("Blocked script execution", "blocked")
	for _, path := range []string{"/tables/web/row", "/tables/web", "/tables?q=%3Cscript%3Edocument.title='owned'%3C/script%3E"} {
		x.run(chromedp.Navigate(c.address(path)))
		if title := value[string](x, `document.title`); !strings.HasSuffix(title, " · Stele") {
			t.Errorf("%s: the title is %q", path, title)
		}
		if n := value[int](x, `document.querySelectorAll('main img, main script').length`); n > 0 {
			t.Errorf("%s: %d elements of a row", path, n)
		}
		x.silent(path)
	}
}

// TestKeyboard: the first key goes to the link that skips the navigation, and all links can be reached.
func TestKeyboard(t *testing.T) {
	c := startSecured(t, "127.0.0.1:0")
	token := c.user("ann", "", "monitor,read")
	x := openTab(t, 1280, 800)
	x.run(chromedp.Navigate(c.address("/nodes")))
	if !value[bool](x, `document.activeElement.name === 'token'`) {
		t.Error("the field of the token does not have the focus")
	}
	x.run(chromedp.KeyEvent(token + "\r"))
	x.until(`location.pathname === '/nodes' && document.readyState === 'complete'`)
	for _, want := range []string{"Skip to the page", "Stele", "Overview", "Nodes"} {
		x.run(chromedp.KeyEvent("\t"))
		if got := value[string](x, `document.activeElement.textContent`); got != want {
			t.Errorf("the next element is %q, want %q", got, want)
		}
	}
	x.silent("signing in")
}
