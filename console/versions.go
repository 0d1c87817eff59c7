package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/internal/text"
)

// versionsView is what the page of a column's versions shows.
type versionsView struct {
	Table, Row, Column string // as the form has them
	As                 string
	Decoders           []string
	Versions           []versionView // newest first
	Max                int           // versions that are read
}

// versionView is a version of a column in a row.
type versionView struct {
	Time, Address string
	Value         value
	Parts         []part // Value.Text, with its changes against the next older version
	Same          bool   // as the next older version
}

// part is a part of a text that was changed.
type part struct {
	Text string
	Kind partKind
}

type partKind uint8

const (
	partKept partKind = iota
	partAdded
	partRemoved // of the older text
)

// Added and Removed are for the template.
func (p part) Added() bool   { return p.Kind == partAdded }
func (p part) Removed() bool { return p.Kind == partRemoved }

// versionsPage shows the versions of one column of one row side by side.
func versionsPage(ctx context.Context, q *query) (*content, error) {
	form := q.r.URL.Query()
	x := &versionsView{Table: q.r.PathValue("table"), Row: form.Get("row"), Column: form.Get("column"), As: form.Get("as"), Decoders: decoderNames(), Max: versionsMax}
	if x.As == "" {
		x.As = decodeAuto
	}
	decode := decoderOf(x.As)
	if decode == nil {
		return nil, &pageError{http.StatusBadRequest, "There is no decoder " + x.As + "."}
	}
	row, rowErr := text.Unescape(x.Row)
	column, columnErr := text.Unescape(x.Column)
	if rowErr != nil || columnErr != nil || x.Column != "" && !strings.Contains(x.Column, ":") {
		return nil, &pageError{http.StatusBadRequest, `A row and a column, such as anchor:com.example, are needed; write \\ for a backslash, \n, \r, \t, or \xNN for any byte.`}
	}
	page := &content{Title: "Versions in " + x.Table, Template: "versions.html", Section: "Tables", Data: x, Static: true}
	if x.Row == "" || x.Column == "" {
		return page, nil
	}
	got, err := q.Table(x.Table).Get(ctx, row, client.Columns(column), client.Versions(versionsMax), client.RowBytesMax(versionsBytesMax))
	if err != nil || got == nil {
		return page, err
	}
	for i := range got.Cells {
		c := &got.Cells[i]
		x.Versions = append(x.Versions, versionView{Time: text.Moment(c.Timestamp), Address: cellAddress(x.Table, got.Key, c), Value: decode(c.Value)})
		if i > 0 {
			newer := &x.Versions[i-1]
			newer.Same = string(got.Cells[i-1].Value) == string(c.Value)
			newer.Parts = changes(x.Versions[i].Value.Text, newer.Value.Text)
		}
	}
	if last := len(x.Versions) - 1; last >= 0 {
		x.Versions[last].Parts = []part{{Text: x.Versions[last].Value.Text}}
	}
	return page, nil
}

// versionsBytesMax is the size of the versions of a column that are read for a page.
const versionsBytesMax = 4 << 20

// versionsAddress returns the address of the page of a column's versions.
func versionsAddress(tableName, row, column, as string) string {
	return "/tables/" + url.PathEscape(tableName) + "/versions?" + url.Values{"row": {row}, "column": {column}, "as": {as}}.Encode()
}

// tokensMax bounds the words of a text that are compared. Longer ones between the common beginning and end count as changed as a whole.
const tokensMax = 1000

// tokensOf splits a text into words, and single characters between them.
func tokensOf(s string) (all []string) {
	for len(s) > 0 {
		n := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
		switch {
		case n < 0:
			n = len(s)
		case n == 0:
			_, n = utf8.DecodeRuneInString(s)
		}
		all, s = append(all, s[:n]), s[n:]
	}
	return all
}

// changes returns the parts of the newer of two texts, and between them those that only the older has.
func changes(older, newer string) (parts []part) {
	a, b := tokensOf(older), tokensOf(newer)
	add := func(kind partKind, tokens ...string) {
		s := strings.Join(tokens, "")
		if n := len(parts); n > 0 && parts[n-1].Kind == kind {
			parts[n-1].Text += s
		} else if s != "" {
			parts = append(parts, part{s, kind})
		}
	}
	begin := 0
	for begin < min(len(a), len(b)) && a[begin] == b[begin] {
		begin++
	}
	add(partKept, b[:begin]...)
	a, b = a[begin:], b[begin:]
	end := 0
	for end < min(len(a), len(b)) && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	tail := b[len(b)-end:]
	a, b = a[:len(a)-end], b[:len(b)-end]
	if len(a) > tokensMax || len(b) > tokensMax {
		add(partRemoved, a...)
		add(partAdded, b...)
	} else {
		mergeChanges(a, b, add)
	}
	add(partKept, tail...)
	return parts
}

// mergeChanges calls add for the tokens of two texts in order, those of their longest common subsequence once.
func mergeChanges(a, b []string, add func(partKind, ...string)) {
	common := make([][]uint16, len(a)+1) // lengths of the longest common subsequences of a[i:] and b[j:]
	for i := range common {
		common[i] = make([]uint16, len(b)+1)
	}
	for i := range slices.Backward(a) {
		for j := range slices.Backward(b) {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			add(partKept, b[j])
			i, j = i+1, j+1
		case common[i+1][j] >= common[i][j+1]:
			add(partRemoved, a[i])
			i++
		default:
			add(partAdded, b[j])
			j++
		}
	}
	add(partRemoved, a[i:]...)
	add(partAdded, b[j:]...)
}
