package api

import "github.com/steledb/stele/internal/wire"

// AuditLines is the result of audit_log: the last lines of one of a node's audit logs, the newest
// first. Package security/audit specifies them.
type AuditLines struct {
	Node  string // its name
	Lines []string
}

// AuditLinesMax is the maximum number of lines of AuditLines.
const AuditLinesMax = 500

func (a *AuditLines) fields() fields {
	return fields{{"node", &a.Node}, {"lines", &texts{&a.Lines, "lines", AuditLinesMax}}}
}

// Append encodes the result.
func (a *AuditLines) Append(e *wire.Encoder) { a.fields().append(e) }

// Decode decodes the result.
func (a *AuditLines) Decode(d *wire.Decoder) error {
	*a = AuditLines{}
	return a.fields().decode(d)
}

// LogLines is the result of log_lines: the last lines of a node's log, the newest first.
type LogLines struct {
	Node  string // its name
	Lines []LogLine
}

// LogLine is a line of a log.
type LogLine struct {
	// Number grows from line to line, also across restarts of the node.
	Number  uint64 `json:"number"`
	TimeMS  int64  `json:"time_ms"` // since 1970
	Level   string `json:"level"`   // info, warn or error
	Message string `json:"message"`
	Details string `json:"details"` // key=value, separated by spaces; values with special characters are quoted as in Go
}

// Bounds of LogLines. LogLineBytesMax is that of a line's message and details.
const (
	LogLinesMax     = 512
	LogLineBytesMax = 1024
)

func (l *LogLines) fields() fields {
	return fields{{"node", &l.Node}, {"lines", &list[LogLine]{all: &l.Lines, fields: (*LogLine).fields, what: "lines", max: LogLinesMax}}}
}

func (l *LogLine) fields() fields {
	return fields{{"number", &l.Number}, {"time_ms", &l.TimeMS}, {"level", &l.Level}, {"message", &l.Message}, {"details", &l.Details}}
}

// Append encodes the result.
func (l *LogLines) Append(e *wire.Encoder) { l.fields().append(e) }

// Decode decodes the result.
func (l *LogLines) Decode(d *wire.Decoder) error {
	*l = LogLines{}
	return l.fields().decode(d)
}
