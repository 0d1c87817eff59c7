// Package webtable turns a directory of HTML pages into rows of the paper's Webtable (§2, Figure
// 1). It determines which files are pages, the row of each page, and the pages it links to. It only
// reads files; package webload writes the rows.
//
//	row                        column                          value
//	org.python.docs/3/         contents:                       the page, byte for byte
//	                           language:                       en
//	                           anchor:https://www.python.org/  the text of the link
//
// # Rows
//
// The row of a URL is its host with the labels reversed, so that the pages of a domain are
// adjacent, followed by the path:
//
//	https://www.cnn.com/                     com.cnn.www
//	https://www.cnn.com/index.html           com.cnn.www/index.html
//	http://WWW.CNN.com:80/a/../b?x=1#top     com.cnn.www/b?x=1
//	http://cnn.com:8080/%7Ejo/caf%c3%a9      com.cnn:8080/~jo/caf%C3%A9
//	http://192.0.2.7/                        192.0.2.7
//
// These rules give equivalent URLs the same row:
//
//   - The scheme is omitted: http and https of one address are the same page. Other
//     schemes have no row.
//   - The host is in lower case, international names in their ASCII form. IP
//     addresses are not reversed. User and password are omitted.
//   - The port follows the host unless it is the default of the scheme.
//   - The path has no dot segments. A path of only "/" without a query is omitted.
//   - The query is unchanged, parameter by parameter. An empty query and the fragment
//     are omitted.
//   - Bytes that a URL may not contain are percent-encoded, others are not, and the
//     hexadecimal digits are in upper case.
//   - An index page is a page under its own name: /docs/ and /docs/index.html are two
//     rows. But if the index.html or index.htm of a directory is among the loaded
//     pages, a link to the directory counts as a link to that page, as a web server
//     would serve it.
//
// # Links
//
// A link is an a or area element with an href, resolved against the page or its base element. A
// page's links are columns in the rows of their targets, named by the page's URL:
// anchor:https://docs.python.org/3/index.html. A target need not be a page of the directory. The
// row of such a target has only anchors, like a page that was never fetched.
//
// The text of a link is the visible text of the element, including the alt text of images, with
// white space collapsed, at most LinkTextMax bytes. Links from one page to the same target are one
// column with their distinct texts in page order, one per line. Links of a page to itself, and to
// targets without a row, are ignored.
//
// # Times
//
// Every cell derived from a page, including anchors, has the modification time of the file in
// microseconds. So loading a directory again adds no versions.
//
// # Differences from the paper
//
// The paper's figure names anchors by the referring site, such as cnnsi.com. Here the qualifier is
// the whole URL of the referring page, because many pages of a site refer to the same target. The
// language is a BCP 47 tag, such as en or pt-BR, where the figure has EN.
//
// # Terms
//
//   - A Site is a directory and the URL that it is published under.
//   - A Page is an HTML file of a Site, and its Address.
//   - An Address is a URL in normal form and its row.
//   - A Document is the data extracted from a page: language and Links.
//
// # Invariants
//
//	WT1. The same directory and base URL give the same rows, cells and timestamps.
//	WT2. URLs that are equal by the rules above have one row. AddressOf of an Address's URL
//	    is that Address.
//	WT3. Extract takes time and memory proportional to the size of the page, regardless of
//	    its content, and never fails: anything that does not parse as a link is ignored.
//
// The package starts no goroutine.
package webtable
