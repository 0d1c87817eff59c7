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
