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

// Outcome is the result of a request.
type Outcome uint8

const (
	// Done means that the action succeeded.
	Done Outcome = 1
	// Refused means that the action was not started, because the requester lacks the right or is
	// unknown.
	Refused Outcome = 2
	// Failed means that the action was started and may have been done in part.
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
	// Requester is the user or node that made the request, From its address.
	Requester pki.Peer
	From      string
	// Action is the method, On its subject: "table webtable", "node n2".
	Action, On string
	Outcome    Outcome
	// Code and Text are those of the error.
	Code, Text string
	// Request is the request's trace id.
	Request string
	// Time is when it happened. Zero means now.
	Time time.Time
}

// line is the encoded form of a record. The order of the fields is the order of the keys.
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

// clean applies clean to the record's texts.
func (r *Record) clean() {
	for _, s := range []*string{&r.Requester.Name, &r.From, &r.Action, &r.On, &r.Code, &r.Text, &r.Request} {
		*s = clean(*s)
	}
}

// line returns the encoded form without the chain fields.
func (r Record) line(node string, repeated int64) *line {
	r.clean()
	l := &line{
		Time: r.Time.UTC().Format(timeForm), Node: clean(node), Kind: r.Requester.Kind.String(), Name: r.Requester.Name,
		From: r.From, Action: r.Action, On: r.On, Outcome: r.Outcome.String(), Code: r.Code, Text: r.Text, Request: r.Request,
	}
	if repeated > 1 {
		l.Repeated = repeated
	}
	return l
}

// encode appends the line and a line feed to b.
func (l *line) encode(b *bytes.Buffer) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(l) // cannot fail for strings and numbers
}

// textBytesMax bounds each text of a record. Names have at most 64 bytes, addresses less.
const textBytesMax = 256

// keyText matches the start of a PEM private key of any kind.
var keyText = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY`)

// scanBytesMax bounds the part of a text that is scanned, because requesters choose their texts.
const scanBytesMax = 4 * textBytesMax

// tokenBytesMax exceeds the length of a token and of each line of a wrapped one.
const tokenBytesMax = 150

// clean makes an untrusted text fit for the log: valid UTF-8 of bounded length, without secrets.
func clean(s string) string {
	if len(s) > scanBytesMax {
		s = s[:scanBytesMax]
		// Drop the last word, which may be a piece of a token, unless it is longer than any token.
		if i := strings.LastIndexAny(s, " \t\r\n"); i > scanBytesMax-tokenBytesMax {
			s = s[:i]
		}
	}
	if strings.Contains(s, "PRIVATE KEY") {
		if i := keyText.FindStringIndex(s); i != nil {
			s = s[:i[0]] + "(a private key)"
		}
	}
	// Scrub before cutting, because a part of a token may not be recognized.
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
