package webtable

import "strings"

// languageTag returns a language in BCP 47 form, such as "pt-BR" for "PT_br", or "" if s is not a
// tag.
func languageTag(s string) string {
	s, _, _ = strings.Cut(s, ",") // content-language may name several
	s = strings.ReplaceAll(strings.TrimSpace(s), "_", "-")
	if len(s) > 35 { // the longest that RFC 5646 requires programs to support
		return ""
	}
	parts := strings.Split(s, "-")
	for i, p := range parts {
		if p == "" || len(p) > 8 || strings.ContainsFunc(p, func(r rune) bool { return !alphanumeric(r) }) {
			return ""
		}
		p = strings.ToLower(p)
		switch {
		case i == 0:
			// The grammar allows longer ones, but none is registered: "english" is not a tag.
			if p != "x" && p != "i" && len(p) != 2 && len(p) != 3 || strings.ContainsFunc(p, digit) {
				return ""
			}
		case len(p) == 2: // a region
			p = strings.ToUpper(p)
		case len(p) == 4: // a script
			p = strings.ToUpper(p[:1]) + p[1:]
		}
		parts[i] = p
	}
	return strings.Join(parts, "-")
}

func digit(r rune) bool { return '0' <= r && r <= '9' }

func alphanumeric(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || digit(r)
}

// The places where a page may declare its language, in order of preference: in RFC 9110 and HTML,
// lang on the html element takes precedence over meta elements.
const (
	fromHTML = iota
	fromBody
	fromPragma
	fromMetaName
	fromOpenGraph
	languageSources
)

// languages holds the declarations of a page, by source.
type languages [languageSources]string

func (l *languages) note(source int, text string) {
	if l[source] == "" {
		l[source] = languageTag(text)
	}
}

// best returns the language of the page, or "" if it is not declared.
func (l *languages) best() string {
	for _, tag := range l {
		if tag != "" {
			return tag
		}
	}
	return ""
}
