package audit

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

// Outcome is what came of a request.
type Outcome uint8

const (
	// Done was done.
	Done Outcome = 1
	// Refused was not begun, since who asked may not, or is not known.
	Refused Outcome = 2
	// Failed was begun, and may have been done in part.
	Failed Outcome = 3
)

var outcomeNames = [...]string{Done: "done", Refused: "refused", Failed: "failed"}

func (o Outcome) String() string {
	if o >= Done && o <= Failed {
		return outcomeNames[o]
	}
	return "unknown"
}

// Record is one entry of the log.
type Record struct {
	// Who asked, and From which address.
	Who  pki.Peer
	From string
	// Action is the method, On what it is about: "table webtable", "node n2".
	Action, On string
	Outcome    Outcome
	// Code and Text are the error's.
	Code, Text string
	// Request is the request's trace id.
	Request string
	// Time is when it happened. Zero means now.
	Time time.Time
}

// line is a record as it is written. The order of the fields is that of the keys.
type line struct {
	Time     string `json:"time"`
	Node     string `json:"node,omitempty"`
	Kind     string `json:"kind"`
	Name     string `json:"name,omitempty"`
	From     string `json:"from,omitempty"`
	Action   string `json:"action"`
	On       string `json:"on,omitempty"`
	Outcome  string `json:"outcome"`
	Code     string `json:"code,omitempty"`
	Text     string `json:"text,omitempty"`
	Request  string `json:"request,omitempty"`
	Repeated int64  `json:"repeated,omitempty"`
	Log      string `json:"log"`
	Seq      uint64 `json:"seq"`
	Prev     string `json:"prev"`
}

const timeForm = "2006-01-02T15:04:05.000Z"

// clean makes the record's texts fit for the log.
func (r *Record) clean() {
	for _, s := range []*string{&r.Who.Name, &r.From, &r.Action, &r.On, &r.Code, &r.Text, &r.Request} {
		*s = clean(*s)
	}
}

// line returns the record as it is written, without its place in a chain.
func (r Record) line(node string, repeated int64) *line {
	r.clean()
	l := &line{
		Time: r.Time.UTC().Format(timeForm), Node: clean(node), Kind: r.Who.Kind.String(), Name: r.Who.Name,
		From: r.From, Action: r.Action, On: r.On, Outcome: r.Outcome.String(), Code: r.Code, Text: r.Text, Request: r.Request,
	}
	if repeated > 1 {
		l.Repeated = repeated
	}
	return l
}

// encode appends the line to b, and a line feed.
func (l *line) encode(b *bytes.Buffer) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(l) // strings and numbers: it cannot fail
}

// textBytesMax bounds each text of a record: names have at most 64 bytes, addresses less.
const textBytesMax = 256

// keyText begins a private key in PEM, whatever kind it is.
var keyText = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY`)

// lookBytesMax bounds what is looked at of a text: who makes refusals chooses their texts.
const lookBytesMax = 4 * textBytesMax

// tokenBytesMax is more than a token has, or a line of one.
const tokenBytesMax = 150

// clean makes text of others fit for the log.
func clean(s string) string {
	if len(s) > lookBytesMax {
		s = s[:lookBytesMax]
		// Without the last word, unless it is longer than any token: it may be a piece of one.
		if i := strings.LastIndexAny(s, " \t\r\n"); i > lookBytesMax-tokenBytesMax {
			s = s[:i]
		}
	}
	if strings.Contains(s, "PRIVATE KEY") {
		if i := keyText.FindStringIndex(s); i != nil {
			s = s[:i[0]] + "(a private key)"
		}
	}
	// Before it is cut: the rest of a token might not look like one.
	s = strings.ToValidUTF8(token.Scrub(s), "�")
	if len(s) <= textBytesMax {
		return s
	}
	n := textBytesMax
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
