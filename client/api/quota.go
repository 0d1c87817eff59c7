package api

import (
	"errors"
	"fmt"
	"time"

	"github.com/steledb/stele/internal/errkind"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
)

var (
	// ErrQuota means that a quota is exceeded: a *QuotaError. Nothing was executed.
	ErrQuota = errors.New("quota exceeded")
	// ErrQuotaRate is ErrQuota of a rate; a retry shortly after may succeed.
	ErrQuotaRate = fmt.Errorf("%w: too fast", ErrQuota)
	// ErrQuotaBytes is ErrQuota of bytes. Writes are rejected until data is deleted or the quota is
	// raised; deletions are accepted.
	ErrQuotaBytes = fmt.Errorf("%w: too large", ErrQuota)
	// ErrNoQuota means that there is no quota to remove.
	ErrNoQuota = errors.New("no such quota")
)

// QuotaError describes an exceeded quota.
type QuotaError struct {
	// Quota names it, such as: table "web" write_ops, or: user "ann" bytes.
	Quota string
	// Bytes is set for a quota of bytes, and not for a rate.
	Bytes bool
	// Limit is the quota, in units per second or in bytes. Used is the number of bytes used. It is
	// 0 for rates, and for callers that may not see all families of the table.
	Limit, Used int64
	// RetryAfter is how long to wait before a retry; 0 for a quota of bytes.
	RetryAfter time.Duration
}

func (e *QuotaError) Error() string {
	if e.Bytes && e.Used == 0 {
		return fmt.Sprintf("quota of %s: limit of %d bytes reached; delete data or raise the quota", e.Quota, e.Limit)
	}
	if e.Bytes && e.Used < e.Limit { // a quota stays exhausted for a while, so that writers do not alternate
		return fmt.Sprintf("quota of %s: limit of %d bytes reached; %d are used by now, so writes are accepted again soon", e.Quota, e.Limit, e.Used)
	}
	if e.Bytes {
		return fmt.Sprintf("quota of %s: %d of %d bytes used; delete data or raise the quota", e.Quota, e.Used, e.Limit)
	}
	return fmt.Sprintf("quota of %s: limit of %d per second reached; retry after %v", e.Quota, e.Limit, e.RetryAfter)
}

// Is makes the error match ErrQuota, and ErrQuotaRate or ErrQuotaBytes.
func (e *QuotaError) Is(target error) bool {
	return target == ErrQuota || target == ErrQuotaBytes && e.Bytes || target == ErrQuotaRate && !e.Bytes
}

// quotaForm returns the form of errors of byte quotas or of rates. RetryAfter is rounded up to
// milliseconds.
func quotaForm(bytes bool) *errkind.Form {
	return errkind.FormOf(
		func(e *QuotaError, d errkind.Details) {
			d["quota"], d["limit"], d["used"] = e.Quota, e.Limit, e.Used
			d["retry_after_ms"] = (e.RetryAfter + time.Millisecond - 1).Milliseconds()
		},
		func(a errkind.Answer) error {
			return &QuotaError{
				Quota: a.Text("quota"), Bytes: bytes, Limit: a.Int("limit"), Used: a.Int("used"),
				RetryAfter: time.Duration(a.Int("retry_after_ms")) * time.Millisecond,
			}
		})
}

// Objects of quotas: the values of SetQuotaRequest.Of and QuotaInfo.Of.
const (
	QuotaOfTable = "table"
	QuotaOfUser  = "user"
)

// The kinds of quotas: QuotaBytes and four rates.
const (
	QuotaBytes      = "bytes"
	QuotaReadOps    = "read_ops"
	QuotaReadBytes  = "read_bytes"
	QuotaWriteOps   = "write_ops"
	QuotaWriteBytes = "write_bytes"
)

// QuotaKinds lists the kinds of quotas.
func QuotaKinds() []string {
	return []string{QuotaBytes, QuotaReadOps, QuotaReadBytes, QuotaWriteOps, QuotaWriteBytes}
}

// SetQuotaRequest holds the parameters of set_quota:
//
//	[of, name, options]    options: bytes, read_ops, read_bytes, write_ops, write_bytes, burst_ms
type SetQuotaRequest struct {
	Options
	Of, Name string
	// Bounds maps kinds to bytes or units per second, at least 1. A kind that is in neither Bounds
	// nor Unbounded keeps its bound.
	Bounds map[string]int64
	// Unbounded lists the kinds whose bounds are removed. They are nil on the wire.
	Unbounded []string
	// Burst applies to the rates in Bounds: how much of a rate may be used at once after a pause. 0
	// means one second's worth.
	Burst time.Duration
}

// Append encodes the parameters.
func (r *SetQuotaRequest) Append(e *wire.Encoder) {
	n := r.Options.count() + len(r.Bounds) + len(r.Unbounded)
	if r.Burst != 0 {
		n++
	}
	e.Array(2 + min(n, 1))
	e.Str(r.Of)
	e.Str(r.Name)
	r.Options.append(e, n)
	for _, kind := range QuotaKinds() {
		if v, ok := r.Bounds[kind]; ok {
			e.Str(kind)
			e.Int(v)
		}
	}
	for _, kind := range r.Unbounded {
		e.Str(kind)
		e.Nil()
	}
	appendCount(e, "burst_ms", wholeMillis(r.Burst))
}

// Decode decodes the n parameters in d.
func (r *SetQuotaRequest) Decode(d *wire.Decoder, n int) error {
	if err := params(MethodSetQuota, n, 2, 3); err != nil {
		return err
	}
	*r = SetQuotaRequest{Of: d.Str(), Name: d.Str()}
	return r.Options.decode(d, n > 2, r)
}

// burstMax is the largest decoded Burst; larger values are reduced to it.
const burstMax = 24 * time.Hour

func (r *SetQuotaRequest) option(key []byte, d *wire.Decoder) bool {
	if string(key) == "burst_ms" {
		r.Burst = millisOption(d, "burst_ms", burstMax)
		return true
	}
	for _, kind := range QuotaKinds() {
		if string(key) == kind {
			if d.IsNil() {
				r.Unbounded = append(r.Unbounded, kind)
				return true
			}
			if r.Bounds == nil {
				r.Bounds = map[string]int64{}
			}
			r.Bounds[kind] = d.Int()
			if r.Bounds[kind] < 1 && d.Err() == nil {
				d.Fail(rpc.Errorf(rpc.CodeBadRequest, "option %s is %d, want at least 1, or nil for no bound", kind, r.Bounds[kind]))
			}
			return true
		}
	}
	return false
}

// QuotaInfo is the quota of a table or user.
type QuotaInfo struct {
	Of, Name string
	Bounds   []QuotaBound
}

// QuotaBound is one bound of a quota.
type QuotaBound struct {
	Kind  string // QuotaBytes...
	Limit int64  // bytes, or units per second
	// BurstMS is the burst of a rate, in milliseconds.
	BurstMS int64
	// Used is the number of bytes used, as far as the master knows; -1 if it does not.
	Used int64
}

func (q *QuotaInfo) fields() fields {
	return fields{
		{"of", &q.Of}, {"name", &q.Name},
		{"bounds", &list[QuotaBound]{all: &q.Bounds, fields: (*QuotaBound).fields, what: "bounds", max: 100}},
	}
}

func (b *QuotaBound) fields() fields {
	return fields{{"kind", &b.Kind}, {"limit", &b.Limit}, {"burst_ms", &b.BurstMS}, {"used", &b.Used}}
}

// Quotas is the result of list_quotas: those of tables, then those of users, sorted by name.
type Quotas struct{ Quotas []QuotaInfo }

func (q *Quotas) fields() fields {
	return fields{{"quotas", &list[QuotaInfo]{all: &q.Quotas, fields: (*QuotaInfo).fields, what: "quotas", max: grantsMax}}}
}

// Append encodes the result.
func (q *Quotas) Append(e *wire.Encoder) { q.fields().append(e) }

// Decode decodes the result.
func (q *Quotas) Decode(d *wire.Decoder) error {
	*q = Quotas{}
	return q.fields().decode(d)
}
