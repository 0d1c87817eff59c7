package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/steledb/stele/client"
)

// TestClientsPage: the page has the processes that report, as they report, whatever their names are, and stays up to date.
func TestClientsPage(t *testing.T) {
	const script = "<img src=x onerror=document.title='owned'>\x00\n\u202e"
	c := startOpen(t)
	c.create("web")
	x := openTab(t, 1280, 800)
	x.run(chromedp.Navigate(c.address("/clients")))
	if text := value[string](x, `document.querySelector('main').innerText`); !strings.Contains(text, "No client process has reported") {
		t.Errorf("without any: %s", text)
	}
	for _, name := range []string{script, "crawler"} {
		reporting, err := client.Open(t.Context(), c.node.RPCAddr(), client.Config{ReportEvery: time.Second, ReportName: name})
		if err != nil {
			t.Fatal(err)
		}
		defer reporting.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for t.Context().Err() == nil { // its last report has reads, whenever the page shows it
				if _, err := reporting.Table("web").Get(t.Context(), "row"); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		t.Cleanup(func() { <-done })
	}
	x.until(`document.querySelectorAll('main tbody tr').length === 2`)
	text := value[string](x, `document.querySelector('main tbody').innerText`)
	if !strings.Contains(text, "<img src=x") || !strings.Contains(text, `\x00\n\xe2\x80\xae`) || !strings.Contains(text, "crawler") || !strings.Contains(text, "127.0.0.1:") || !strings.Contains(text, " ms") {
		t.Errorf("two processes: %q", text)
	}
	if n := value[int](x, `document.querySelectorAll('main img').length`); n > 0 || !strings.HasSuffix(value[string](x, `document.title`), " · Stele") {
		t.Errorf("%d elements of a name", n)
	}
	x.silent("clients")
}

// TestClientsPageRights: the list is for users that may see the requests of others.
func TestClientsPageRights(t *testing.T) {
	c := startSecured(t, "127.0.0.1:0")
	for user, status := range map[string]int{"monitor": http.StatusForbidden, "read,monitor": http.StatusOK} {
		name := strings.ReplaceAll(user, ",", "-")
		c.visitor(nil).post("/signin", url.Values{"token": {c.user(name, "", user)}, "to": {"/clients"}}).want(t, status)
	}
}
