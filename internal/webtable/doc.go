// Package webtable turns a folder of HTML pages into rows of the paper's Webtable
// (§2, Figure 1): what a page is, which row it has, and which pages it links to.
// It reads files and nothing else; package webload writes the rows.
//
//	row                        column                          value
//	org.python.docs/3/         contents:                       the page, byte for byte
//	                           language:                       en
//	                           anchor:https://www.python.org/  the text of the link
//
// # Rows
//
// The row of a URL is its host with the labels reversed, so that the pages of a
// domain stand together, then the path:
//
//	https://www.cnn.com/                     com.cnn.www
//	https://www.cnn.com/index.html           com.cnn.www/index.html
//	http://WWW.CNN.com:80/a/../b?x=1#top     com.cnn.www/b?x=1
//	http://cnn.com:8080/%7Ejo/caf%c3%a9      com.cnn:8080/~jo/caf%C3%A9
//	http://192.0.2.7/                        192.0.2.7
//
// The rules, so that a URL written in several ways has one row:
//
//   - The scheme is left out: http and https of one address are one page. Others
//     than these two have no row.
//   - The host is in lower case, international names in their ASCII form. Addresses
//     are not reversed. User and password are left out.
//   - The port follows the host unless it is the one of the scheme.
//   - The path has no dot segments. A path that is only "/", with no query behind
//     it, is left out.
//   - The query stays as it is, parameter by parameter. An empty one is left out, and
//     so is the fragment.
//   - Bytes that a URL may not hold are percent-encoded, those that need not be are
//     not, and the digits are capitals.
//   - An index page is a page by its own name: /docs/ and /docs/index.html are two
//     rows. But a link to a folder whose index.html or index.htm is among the loaded
//     pages counts as a link to that page, as a web server would answer it.
//
// # Links
//
// A link is an a or area element with an href, resolved against the page or its
// base element. A page's links are columns of the rows that they lead to, named by
// the page's URL: anchor:https://docs.python.org/3/index.html. Targets need not be
// pages of the folder; the row of one that is not has nothing but anchors, as for a
// page that was never fetched.
//
// The text of a link is what the element shows, white space collapsed, with the alt
// text of images, at most LinkTextMax bytes. Links from one page to the same target
// are one column: their different texts, in the order of the page, a line each.
// Links of a page to itself, and to what has no row, are not columns.
//
// # Times
//
// Every cell that comes from a page has the file's time of modification in
// microseconds, the anchors too. So loading a folder again adds no versions.
//
// # Departures from the paper
//
// Its figure names anchors by the referring site, such as cnnsi.com. It is pages that
// refer, and many of one site refer to the same target: so the qualifier is the whole
// URL. The language is a BCP 47 tag, such as en or pt-BR, where the figure has EN.
//
// # Nouns
//
//   - A Site is a folder and the URL that it stands for.
//   - A Page is an HTML file of a Site, and its Address.
//   - An Address is a URL in normal form and its row.
//   - A Document is what is to be known of a page's text: language and Links.
//
// # Invariants
//
//	W1. The same folder and base URL give the same rows, cells and timestamps.
//	W2. URLs that are equal by the rules above have one row; AddressOf of an
//	    Address's URL is that Address.
//	W3. Extract takes time and memory in proportion to the page, whatever is in it,
//	    and never fails: what cannot be read as a link is none.
//
// The package starts no goroutine.
package webtable
