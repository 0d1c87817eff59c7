package api

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// TestOptionsThatWiden: a number or text that would mean "all" is rejected with the option's name.
// nil means unset.
func TestOptionsThatWiden(t *testing.T) {
	texts := []any{"", 5, true}
	numbers := []any{0, -1, "1", 1.5, true}
	for _, test := range []struct {
		option string
		params []string // before the options
		into   func() any
		wrong  []any
	}{
		{"timeout_ms", []string{"t", "r"}, func() any { return &ReadRequest{} }, numbers},
		{"table_id", []string{"t", "r"}, func() any { return &ReadRequest{} }, numbers},
		{"table_id", []string{"t"}, func() any { return &SampleRowKeysRequest{} }, numbers},
		{"limit", []string{"t"}, func() any { return &ScanOpenRequest{} }, numbers},
		{"batch_rows", []string{"t"}, func() any { return &ScanOpenRequest{} }, numbers},
		{"row_bytes", []string{"t", "r"}, func() any { return &ReadRequest{} }, numbers},
		{"row_bytes", []string{"t"}, func() any { return &ScanOpenRequest{} }, numbers},
		{"batch_bytes", []string{"t"}, func() any { return &ScanOpenRequest{} }, numbers},
		{"ttl_ms", []string{TokenJoin}, func() any { return &CreateTokenRequest{} }, numbers},
		{"uses", []string{TokenJoin}, func() any { return &CreateTokenRequest{} }, numbers},
		{"node", []string{TokenJoin}, func() any { return &CreateTokenRequest{} }, texts},
		{"ttl_ms", []string{"ann"}, func() any { return &AddUserRequest{} }, numbers},
		{"token", []string{"ann"}, func() any { return &RevokeUserRequest{} }, texts},
		{"table", []string{"ann", "read"}, func() any { return &GrantRequest{} }, texts},
		{"family", []string{"ann", "read"}, func() any { return &GrantRequest{} }, texts},
		{"table", []string{"ann"}, func() any { return &ListGrantsRequest{} }, texts},
		{"burst_ms", []string{QuotaOfTable, "t"}, func() any { return &SetQuotaRequest{} }, numbers},
		{"write_ops", []string{QuotaOfTable, "t"}, func() any { return &SetQuotaRequest{} }, numbers},
		{"bytes", []string{QuotaOfTable, "t"}, func() any { return &SetQuotaRequest{} }, numbers},
		{"id", []string{"t", "r"}, func() any { return &tabletOf{method: MethodMergeTablets} }, numbers},
	} {
		for _, v := range append(slices.Clone(test.wrong), nil) {
			params := wiretest.Encode(func(e *wire.Encoder) {
				e.Array(len(test.params) + 1)
				for _, p := range test.params {
					e.Str(p)
				}
				e.Map(1)
				e.Str(test.option)
				wiretest.Any(e, v)
			})
			err := decodeInto(params, test.into())
			if v == nil {
				if err != nil {
					t.Errorf("%s of nil: %v", test.option, err)
				}
				continue
			}
			if !errors.Is(ToRPC(err), rpc.CodeBadRequest) || !strings.Contains(err.Error(), test.option) {
				t.Errorf("%s of %v: %v, want bad_request with the option's name", test.option, v, err)
			}
		}
	}
}

// tabletOf is a TabletRequest of one method.
type tabletOf struct {
	TabletRequest
	method string
}

func (r *tabletOf) Decode(d *wire.Decoder, n int) error {
	return r.TabletRequest.Decode(d, n, r.method, nil)
}

// TestNegativeOptionsAreSent: an invalid value of the caller reaches the server, which rejects it.
func TestNegativeOptionsAreSent(t *testing.T) {
	for name, r := range map[string]interface{ Append(*wire.Encoder) }{
		"limit":    &ScanOpenRequest{Table: "t", Limit: -1},
		"burst_ms": &SetQuotaRequest{Of: QuotaOfTable, Name: "t", Burst: -time.Microsecond},
		"ttl_ms":   &CreateTokenRequest{Kind: TokenJoin, TTL: -time.Hour},
		"uses":     &CreateTokenRequest{Kind: TokenJoin, Uses: -1},
	} {
		var into any
		switch r.(type) {
		case *ScanOpenRequest:
			into = &ScanOpenRequest{}
		case *SetQuotaRequest:
			into = &SetQuotaRequest{}
		default:
			into = &CreateTokenRequest{}
		}
		if err := decodeInto(wiretest.Encode(r.Append), into); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s below 0: %v", name, err)
		}
	}
	var short CreateTokenRequest
	if err := decodeInto(wiretest.Encode((&CreateTokenRequest{Kind: TokenJoin, TTL: time.Microsecond}).Append), &short); err != nil || short.TTL != time.Millisecond {
		t.Errorf("a part of a millisecond: %v, %v", short.TTL, err)
	}
}

// TestNoRules: a read-modify-write without rules is rejected.
func TestNoRules(t *testing.T) {
	params := wiretest.Encode((&ReadModifyWriteRequest{Table: "t", Row: []byte("r")}).Append)
	err := decodeInto(params, &ReadModifyWriteRequest{})
	if !errors.Is(err, table.ErrNoRules) || !errors.Is(ToRPC(err), CodeBadMutation) || !errors.Is(FromRPC(ToRPC(err)), table.ErrNoRules) {
		t.Errorf("no rules: %v", err)
	}
}
