package api

import (
	"context"
	"errors"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// The codes of the data API's errors. They travel on the wire: append only.
const (
	CodeTableNotFound  rpc.Code = 100
	CodeTableExists    rpc.Code = 101
	CodeFamilyNotFound rpc.Code = 102
	CodeBadName        rpc.Code = 103
	CodeLimitExceeded  rpc.Code = 104
	CodeBadFilter      rpc.Code = 105
	CodeNotServing     rpc.Code = 106
	CodeCorrupt        rpc.Code = 107
	CodeDiskFull       rpc.Code = 108
	CodeCursorExpired  rpc.Code = 109
	CodeConflict       rpc.Code = 110
	CodeNotANumber     rpc.Code = 111
	CodeBadTimestamp   rpc.Code = 112
	CodeBadMutation    rpc.Code = 113
	CodeGroupConflict  rpc.Code = 114
	CodeRowTooLarge    rpc.Code = 115
	CodeBadRowKey      rpc.Code = 116
	CodeBadSchema      rpc.Code = 117
	CodeGroupNotFound  rpc.Code = 118
	CodeNodeNotFound   rpc.Code = 119
	CodeNodeInUse      rpc.Code = 120
	CodeStaleEpoch     rpc.Code = 121
)

// A kind ties a code to the Go error that it stands for.
type kind struct {
	code      rpc.Code
	name      string // empty for the codes of rpc, which have names
	retryable bool   // refused before execution: the same request may succeed later
	target    error  // what errors.Is tells the kind by
	// cause tells the kinds of one code apart, as a detail. Empty for the first.
	cause string
}

// kinds is in the order in which ToRPC tries them: what wraps comes before what
// it may wrap.
var kinds = []kind{
	{rpc.CodeOverloaded, "", true, ErrOverloaded, ""},
	{rpc.CodeUnavailable, "", true, ErrUnavailable, ""},
	{CodeTableNotFound, "table_not_found", false, ErrNoTable, ""},
	{CodeTableExists, "table_exists", false, ErrTableExists, ""},
	{CodeNotServing, "not_serving", true, ErrNotServing, ""},
	{CodeCorrupt, "corrupt", false, ErrCorrupt, ""},
	{CodeDiskFull, "disk_full", false, ErrDiskFull, ""},
	{CodeCursorExpired, "cursor_expired", false, ErrCursorExpired, ""},
	{CodeConflict, "conflict", true, ErrConflict, ""},
	{CodeNotANumber, "not_a_number", false, ErrNotNumber, ""},
	{CodeNotANumber, "not_a_number", false, table.ErrBadValue, "value"},
	{CodeGroupConflict, "group_conflict", false, ErrGroupConflict, ""},
	{CodeGroupConflict, "group_conflict", false, table.ErrGroupInUse, "group_in_use"},
	{CodeRowTooLarge, "row_too_large", false, ErrRowTooLarge, ""},
	{CodeBadFilter, "bad_filter", false, table.ErrBadFilter, ""},
	{CodeFamilyNotFound, "family_not_found", false, table.ErrNoFamily, ""},
	{CodeGroupNotFound, "group_not_found", false, table.ErrNoGroup, ""},
	{CodeLimitExceeded, "limit_exceeded", false, table.ErrLimit, ""},
	{CodeBadName, "bad_name", false, table.ErrBadName, ""},
	{CodeBadTimestamp, "bad_timestamp", false, table.ErrBadTimestamp, ""},
	{CodeBadRowKey, "bad_row_key", false, table.ErrBadRowKey, ""},
	{CodeBadMutation, "bad_mutation", false, table.ErrBadOp, ""},
	{CodeBadMutation, "bad_mutation", false, table.ErrNoMutations, "no_mutations"},
	{CodeBadSchema, "bad_schema", false, table.ErrBadSchema, ""},
	{CodeBadSchema, "bad_schema", false, table.ErrBadGCPolicy, "gc_policy"},
	{CodeBadSchema, "bad_schema", false, table.ErrBadSpec, "spec"},
	{CodeBadSchema, "bad_schema", false, table.ErrFamilyExists, "family_exists"},
	{CodeNodeNotFound, "node_not_found", false, ErrNodeNotFound, ""},
	{CodeNodeInUse, "node_in_use", false, ErrNodeInUse, ""},
	{CodeStaleEpoch, "stale_epoch", false, ErrStaleEpoch, ""},
	{rpc.CodeBadRequest, "", false, table.ErrBadEncoding, ""},
	{rpc.CodeDeadlineExceeded, "", false, context.DeadlineExceeded, ""},
}

func init() {
	names := make(map[rpc.Code]string)
	for _, k := range kinds {
		if k.name != "" {
			names[k.code] = k.name
		}
	}
	rpc.RegisterCodes(names)
}

// ToRPC returns the error that a server answers with for err: the code of the
// first kind that err matches, err's text as the message, and the fields of the
// typed error as details. An err that is an *rpc.Error already stays as it is. An
// err of no known kind is CodeInternal.
func ToRPC(err error) *rpc.Error {
	var done *rpc.Error
	if errors.As(err, &done) {
		return done
	}
	for _, k := range kinds {
		if errors.Is(err, k.target) {
			return &rpc.Error{Code: k.code, Message: err.Error(), Retryable: k.retryable, Details: details(err, k.cause)}
		}
	}
	var bad *wire.FormatError
	if errors.As(err, &bad) {
		return &rpc.Error{Code: rpc.CodeBadRequest, Message: err.Error()}
	}
	return rpc.AsError(err)
}

// details returns the fields of the typed errors in err's chain, and the cause. A filter over a
// limit has those of both.
func details(err error, cause string) map[string]any {
	d := make(map[string]any)
	if cause != "" {
		d["cause"] = cause
	}
	var over *OverloadedError
	if errors.As(err, &over) {
		d["retry_after_ms"] = over.RetryAfter.Milliseconds()
	}
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		d["file"], d["offset"] = corrupt.File, corrupt.Offset
	}
	var row *RowTooLargeError
	if errors.As(err, &row) {
		d["limit"] = row.Limit
	}
	var node *NodeInUseError
	if errors.As(err, &node) {
		d["node"], d["reason"] = node.Node, node.Reason
	}
	var limit *table.LimitError
	if errors.As(err, &limit) {
		d["what"], d["limit"], d["got"] = limit.What, limit.Limit, limit.Got
	}
	var filter *table.FilterError
	if errors.As(err, &filter) {
		d["path"], d["reason"] = filter.Path, filter.Reason
	}
	var family *table.NoFamilyError
	if errors.As(err, &family) {
		d["table"], d["family"] = family.Table, family.Family
	}
	var name *table.NameError
	if errors.As(err, &name) {
		d["what"], d["value"], d["reason"] = name.What, name.Name, name.Reason
	}
	var ts *table.TimestampError
	if errors.As(err, &ts) {
		d["what"], d["got"] = ts.What, ts.Got
	}
	var element *table.ElementError
	if errors.As(err, &element) {
		d["element"], d["index"] = element.What, element.Index
	}
	if len(d) == 0 {
		return nil
	}
	return d
}

// remoteError is an error that a node answered with. Its text is the node's;
// errors.Is and errors.As find both the *rpc.Error and the Go error that its code
// stands for.
type remoteError struct {
	rpc   *rpc.Error
	cause error
}

func (e *remoteError) Error() string {
	if e.rpc.Message != "" {
		return e.rpc.Message
	}
	return e.rpc.Error()
}

func (e *remoteError) Unwrap() []error { return []error{e.cause, e.rpc} }

// FromRPC turns an *rpc.Error in err's chain into one that matches the Go errors
// that its code stands for: errors.Is(err, table.ErrNoFamily), errors.As into a
// *table.LimitError, and so on. Any other error is returned as it is.
func FromRPC(err error) error {
	var e *rpc.Error
	if !errors.As(err, &e) {
		return err
	}
	if cause := causeOf(e); cause != nil {
		return &remoteError{e, cause}
	}
	return err
}

// causeOf returns the Go error that e stands for, with its details; nil for a
// code that has none.
func causeOf(e *rpc.Error) error {
	text := func(key string) string { s, _ := e.Details[key].(string); return s }
	num := func(key string) int64 { n, _ := integer(e.Details[key]); return n }
	switch e.Code {
	case rpc.CodeOverloaded:
		return &OverloadedError{e.Message, time.Duration(num("retry_after_ms")) * time.Millisecond}
	case CodeCorrupt:
		return &CorruptError{File: text("file"), Offset: num("offset")}
	case CodeRowTooLarge:
		return &RowTooLargeError{num("limit")}
	case CodeNodeInUse:
		return &NodeInUseError{Node: text("node"), Reason: text("reason")}
	case CodeLimitExceeded:
		return &table.LimitError{What: text("what"), Limit: num("limit"), Got: num("got")}
	case CodeBadFilter:
		f := &table.FilterError{Path: text("path"), Reason: text("reason")}
		if e.Details["limit"] != nil {
			f.Err = &table.LimitError{What: text("what"), Limit: num("limit"), Got: num("got")}
		}
		return f
	case CodeFamilyNotFound:
		return &table.NoFamilyError{Table: text("table"), Family: text("family")}
	case CodeBadName:
		return &table.NameError{What: text("what"), Name: text("value"), Reason: text("reason")}
	case CodeBadTimestamp:
		return &table.TimestampError{What: text("what"), Got: num("got")}
	}
	var first error // for a cause that a later version added
	for _, k := range kinds {
		if k.code != e.Code {
			continue
		}
		if k.cause == text("cause") {
			return k.target
		}
		if first == nil {
			first = k.target
		}
	}
	return first
}

// integer reads a detail that came over the wire, or from an Error made here.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int:
		return int64(v), true
	case uint64:
		return int64(v), true
	}
	return 0, false
}
