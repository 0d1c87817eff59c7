package webtable

import (
	"bytes"
	"net/url"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// LinkTextMax bounds the text of one link: 1 KiB. A link that is never closed would otherwise
// include the rest of the page.
const LinkTextMax = 1 << 10

// A Link is one target of a page's links.
type Link struct {
	Row  string // of the target
	Text string // the distinct texts, one per line; may be empty
}

// A Document is the data that Extract found in a page.
type Document struct {
	Language string // a BCP 47 tag; empty if the page does not declare it
	Links    []Link // one per target, in page order
	// Elements is the number of link elements that make up Links. Ignored is the number of those
	// that lead to the page itself or to a target without a row.
	Elements, Ignored int
}

// Extract parses a page: HTML of any quality, in any encoding that it declares.
func (s *Site) Extract(p *Page, contents []byte) *Document {
	x := extractor{site: s, page: p, byHref: map[string]int{}, byRow: map[string]int{}, seen: map[linkText]struct{}{}}
	x.base, _ = url.Parse(p.URL) // cannot fail: it is in normal form
	x.tokens = html.NewTokenizer(bytes.NewReader(toUTF8(contents)))
	for kind := x.tokens.Next(); kind != html.ErrorToken; kind = x.tokens.Next() {
		x.token(kind)
	}
	x.endLink()
	x.doc.Language = x.languages.best()
	for i, texts := range x.texts {
		x.doc.Links[i].Text = strings.Join(texts, "\n")
	}
	return &x.doc
}

// toUTF8 decodes a page. Bytes that are invalid in its encoding become U+FFFD.
func toUTF8(contents []byte) []byte {
	encoding, name, certain := charset.DetermineEncoding(contents[:min(len(contents), 1024)], "")
	if name == "utf-8" || !certain && utf8.Valid(contents) {
		return contents
	}
	decoded, err := encoding.NewDecoder().Bytes(contents)
	if err != nil {
		return contents
	}
	return decoded
}

// extractor processes the tokens of one page.
type extractor struct {
	site      *Site
	page      *Page
	doc       Document
	tokens    *html.Tokenizer
	base      *url.URL
	based     bool // base was set by a base element
	languages languages

	byHref map[string]int // index in doc.Links of an href's target, or ignored
	byRow  map[string]int // index in doc.Links of a row
	texts  [][]string     // the texts of each of doc.Links
	seen   map[linkText]struct{}

	open   bool // inside a link
	target int  // the link's index in doc.Links, or ignored
	text   []byte
	space  bool // white space precedes the next text
	script bool // inside script or style
}

const ignored = -1

// A linkText is a text of a link to one target. Duplicates are dropped.
type linkText struct {
	target int
	text   string
}

// token processes the current token.
func (x *extractor) token(kind html.TokenType) {
	switch kind {
	case html.TextToken:
		if x.open && !x.script {
			x.addText(string(x.tokens.Text()))
		}
	case html.StartTagToken, html.SelfClosingTagToken:
		name, more := x.tokens.TagName()
		x.startTag(atom.Lookup(name), more, kind == html.StartTagToken)
	case html.EndTagToken:
		name, _ := x.tokens.TagName()
		switch tag := atom.Lookup(name); tag {
		case atom.A:
			x.endLink()
		case atom.Script, atom.Style:
			x.script = false
		default:
			x.space = x.space || !inline[tag]
		}
	}
}

// inline lists the elements that do not separate words. All others do.
var inline = map[atom.Atom]bool{
	atom.A: true, atom.Abbr: true, atom.B: true, atom.Bdi: true, atom.Bdo: true, atom.Big: true, atom.Cite: true,
	atom.Code: true, atom.Data: true, atom.Del: true, atom.Dfn: true, atom.Em: true, atom.Font: true, atom.I: true,
	atom.Ins: true, atom.Kbd: true, atom.Mark: true, atom.Q: true, atom.S: true, atom.Samp: true, atom.Small: true,
	atom.Span: true, atom.Strong: true, atom.Sub: true, atom.Sup: true, atom.Time: true, atom.Tt: true, atom.U: true,
	atom.Var: true, atom.Wbr: true,
}

func (x *extractor) startTag(tag atom.Atom, more, opens bool) {
	switch tag {
	case atom.A:
		a := x.attributes(more)
		x.endLink()
		if a.isLink {
			x.beginLink(a.href)
		}
	case atom.Area:
		if a := x.attributes(more); a.isLink {
			x.endLink()
			x.beginLink(a.href)
			x.addText(a.alt)
			x.endLink()
		}
	case atom.Img:
		x.space = true
		x.addText(x.attributes(more).alt)
		x.space = true
	case atom.Base:
		x.rebase(x.attributes(more))
	case atom.Html:
		x.languages.note(fromHTML, x.attributes(more).lang)
	case atom.Body:
		x.languages.note(fromBody, x.attributes(more).lang)
	case atom.Meta:
		x.meta(x.attributes(more))
	case atom.Script, atom.Style:
		x.script = opens
	case atom.Noscript:
		x.tokens.NextIsNotRawText() // its links are meant for clients without scripts
	default:
		x.space = x.space || !inline[tag]
	}
}

// attributes are the relevant attributes of one tag.
type attributes struct {
	isLink                                           bool // it has an href, which may be empty
	href, alt, lang, name, property, content, pragma string
}

func (x *extractor) attributes(more bool) (a attributes) {
	for more {
		var key, value []byte
		key, value, more = x.tokens.TagAttr()
		switch string(key) {
		case "href":
			if !a.isLink { // the first one counts
				a.isLink, a.href = true, string(value)
			}
		case "alt":
			a.alt = string(value)
		case "lang":
			a.lang = string(value)
		case "xml:lang":
			if a.lang == "" {
				a.lang = string(value)
			}
		case "name":
			a.name = strings.ToLower(string(value))
		case "property":
			a.property = strings.ToLower(string(value))
		case "content":
			a.content = string(value)
		case "http-equiv":
			a.pragma = strings.ToLower(string(value))
		}
	}
	return a
}

func (x *extractor) meta(a attributes) {
	switch {
	case a.pragma == "content-language":
		x.languages.note(fromPragma, a.content)
	case a.name == "language" || a.name == "dc.language" || a.name == "dcterms.language":
		x.languages.note(fromMetaName, a.content)
	case a.property == "og:locale":
		x.languages.note(fromOpenGraph, a.content)
	}
}

// rebase applies the page's first base element.
func (x *extractor) rebase(a attributes) {
	if !a.isLink || x.based {
		return
	}
	x.based = true
	if u, err := parseHref(a.href); err == nil {
		if u = x.base.ResolveReference(u); u.Scheme == "http" || u.Scheme == "https" {
			x.base = u
			clear(x.byHref)
		}
	}
}

func (x *extractor) beginLink(href string) {
	x.open, x.text, x.space = true, x.text[:0], false
	if x.target = x.resolve(href); x.target == ignored {
		x.doc.Ignored++
	} else {
		x.doc.Elements++
	}
}

// resolve returns the index in doc.Links of an href's target, or ignored.
func (x *extractor) resolve(href string) int {
	if at, known := x.byHref[href]; known {
		return at
	}
	at := ignored
	if u, err := parseHref(href); err == nil {
		if a, err := AddressOf(x.base.ResolveReference(u)); err == nil {
			at = x.place(x.site.served(a).Row)
		}
	}
	x.byHref[href] = at
	return at
}

func (x *extractor) place(row string) int {
	if row == x.page.Row {
		return ignored
	}
	at, known := x.byRow[row]
	if !known {
		at = len(x.doc.Links)
		x.byRow[row] = at
		x.doc.Links, x.texts = append(x.doc.Links, Link{Row: row}), append(x.texts, nil)
	}
	return at
}

// parseHref parses an href as browsers do: it strips surrounding white space and embedded line
// breaks and tabs, and accepts a bare percent sign.
func parseHref(href string) (*url.URL, error) {
	href = strings.Trim(href, " \t\r\n\f")
	if strings.ContainsAny(href, "\t\r\n") {
		href = strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(href)
	}
	href, _, _ = strings.Cut(href, "#")
	u, err := url.Parse(href)
	if err != nil && strings.Contains(href, "%") {
		u, err = url.Parse(fixPercents(href))
	}
	return u, err
}

func fixPercents(s string) string {
	var out strings.Builder
	for i := range len(s) {
		out.WriteByte(s[i])
		if s[i] == '%' && (i+2 >= len(s) || unhex(s[i+1]) < 0 || unhex(s[i+2]) < 0) {
			out.WriteString("25")
		}
	}
	return out.String()
}

// addText adds text to the open link, if any.
func (x *extractor) addText(s string) {
	if !x.open || x.target == ignored {
		return
	}
	for _, r := range s {
		if isSpace(r) {
			x.space = true
			continue
		}
		n := utf8.RuneLen(r)
		if x.space && len(x.text) > 0 {
			n++
		}
		if len(x.text)+n > LinkTextMax {
			return
		}
		if x.space && len(x.text) > 0 {
			x.text = append(x.text, ' ')
		}
		x.space = false
		x.text = utf8.AppendRune(x.text, r)
	}
}

// isSpace reports whether r is white space on a page, including the non-breaking space.
func isSpace(r rune) bool {
	return r == ' ' || r == '\n' || r == '\t' || r == '\r' || r == '\f' || r == 0xA0
}

func (x *extractor) endLink() {
	if !x.open {
		return
	}
	x.open = false
	if x.target == ignored || len(x.text) == 0 {
		return
	}
	s := linkText{x.target, string(x.text)}
	if _, again := x.seen[s]; !again {
		x.seen[s] = struct{}{}
		x.texts[x.target] = append(x.texts[x.target], s.text)
	}
}
