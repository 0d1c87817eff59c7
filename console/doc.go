// Package console serves web pages about a cluster, for people who operate it: what is wrong and what to do, nodes, tables and their tablets, rows,
// backups, users and quotas. It is a client of the cluster: each request uses a client of its user, so that the nodes check the user's rights and
// charge the user's quotas, and the console checks none.
//
// The paper has no such part. Its operators had a registry of clusters, tables and tablet servers to look at (§9 names "the importance of proper
// system-level monitoring").
//
// # Pages
//
// Pages are rendered on the server by html/template, and usable without JavaScript. With it, the elements with the attribute data-live are kept up
// to date while the page is visible: the same address, asked for a text/event-stream, sends the page's main part again each time it has changed, for
// at most liveTime; the browser then connects again. Idiomorph inserts it, which keeps focus and scrolling. uPlot draws charts. All files are
// embedded. htmx is not used: a page has one live part, links and forms, which needs 30 lines.
//
// # Security
//
// No page runs a script that is not among the embedded files, nor has inline styles: the Content-Security-Policy forbids both. Text is escaped by
// html/template, and bytes of rows are shown by package internal/text. Requests that change something are POST, and rejected if another site's page
// sends them. A form has at most FormBytesMax.
//
// # Goroutines
//
// None: a request runs on its connection's goroutine.
//
// # Invariants
//
//	CO1. A request without a credential is answered only with the page to sign in, and with embedded files.
//	CO2. At most pagesAtOnce pages are made at once, cellsAtOnce cells are sent, and livesMax pages are live. A page reads at most rowsPageMax rows of rowBytesMax, and shows
//	     tabletsPageMax tablets.
package console
