package api

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// decodeInto decodes params, an array, into r.
func decodeInto(params []byte, r any) error {
	d := wire.NewDecoder(params)
	return decodeWith(&d, r)
}

func decodeWith(d *wire.Decoder, r any) error {
	n := d.Array()
	if d.Err() != nil {
		return d.Err()
	}
	var err error
	switch r := r.(type) {
	case *MutateRequest:
		err = r.Decode(d, n, nil)
	case *MutateRowsRequest:
		err = r.Decode(d, n, nil)
	case *BulkWriteRequest:
		err = r.Decode(d, n, nil)
	case *BulkRequest:
		err = r.Decode(d, n, nil)
	case *ReadRequest:
		err = r.Decode(d, n, nil)
	case *ReadRowsRequest:
		err = r.Decode(d, n, nil)
	case *ScanOpenRequest:
		err = r.Decode(d, n, nil)
	case *ScanNextRequest:
		err = r.Decode(d, n)
	case *CheckAndMutateRequest:
		err = r.Decode(d, n, nil)
	case *ReadModifyWriteRequest:
		err = r.Decode(d, n, nil)
	case *ReadChangesRequest:
		return r.Decode(d, n, nil)
	case *SampleRowKeysRequest:
		err = r.Decode(d, n, nil)
	case *KeyHeatRequest:
		err = r.Decode(d, n, nil)
	case *HotTabletsRequest:
		err = r.Decode(d, n)
	case *ReportClientRequest:
		err = r.Decode(d, n)
	case *ClearRowsRequest:
		err = r.Decode(d, n, nil)
	case *NamesRequest:
		err = r.Decode(d, n, MethodRoot, 1)
	case *CreateTableRequest:
		err = r.Decode(d, n)
	case *SetFamilyRequest:
		err = r.Decode(d, n)
	case *AlterTableRequest:
		err = r.Decode(d, n)
	case *AppProfileRequest:
		err = r.Decode(d, n, MethodUpdateAppProfile)
	case *CreateTokenRequest:
		err = r.Decode(d, n)
	case *AddUserRequest:
		err = r.Decode(d, n)
	case *RevokeUserRequest:
		err = r.Decode(d, n)
	case *GrantRequest:
		err = r.Decode(d, n)
	case *SetGrantsRequest:
		err = r.Decode(d, n)
	case *ListGrantsRequest:
		err = r.Decode(d, n)
	case *SetQuotaRequest:
		err = r.Decode(d, n)
	case *CreateBackupRequest:
		err = r.Decode(d, n)
	case *CreateScheduleRequest:
		err = r.Decode(d, n)
	case *tabletOf:
		err = r.Decode(d, n)
	case *namesOf:
		err = r.Decode(d, n, r.method, 1)
	default:
		panic("BUG: unknown request")
	}
	if err == nil && d.More() {
		err = errors.New("bytes are left")
	}
	return err
}

func filterBytes(f table.Filter) []byte {
	return wiretest.Encode(func(e *wire.Encoder) { table.AppendFilter(e, f) })
}

// The examples of docs/rpc.md: struct and params bytes. They must not change.
func goldenRequests() []struct {
	name    string
	request interface{ Append(*wire.Encoder) }
	hex     string
} {
	gc := table.MaxVersions(3)
	return []struct {
		name    string
		request interface{ Append(*wire.Encoder) }
		hex     string
	}{
		{"mutate", &MutateRequest{Table: "web", Row: table.RowMutation{Row: []byte("com.cnn.www"), Mutations: []table.Mutation{
			table.Set("anchor", []byte("www.c-span.org"), table.ServerTimestamp, []byte("CNN")),
			table.DeleteColumn("anchor", []byte("www.abc.com")),
		}}},
			"93 a3776562 c40b636f6d2e636e6e2e777777 92" +
				" 95 a3736574 a6616e63686f72 c40e7777772e632d7370616e2e6f7267 c0 c403434e4e" +
				" 93 aa64656c5f636f6c756d6e a6616e63686f72 c40b7777772e6162632e636f6d"},
		{"mutate with options", &MutateRequest{TableOptions: TableOptions{Options: Options{Timeout: time.Second, TraceID: []byte{1, 2}}}, Table: "t", Row: table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{
			table.Set("f", nil, 5, []byte{0xff}), table.DeleteColumnRange("f", []byte("q"), 1, table.Before(300)), table.DeleteFamily("f"), table.DeleteRow(),
		}}},
			"94 a174 c40172 94 95a3736574a166c40005c401ff 95aa64656c5f636f6c756d6ea166c4017101cd012c" +
				" 92aa64656c5f66616d696c79a166 91a764656c5f726f77 82 aa74696d656f75745f6d73cd03e8 a874726163655f6964c4020102"},
		{"mutate with a table id", &MutateRequest{TableOptions: TableOptions{TableID: 17}, Table: "web", Row: table.RowMutation{Row: []byte("com.cnn.www"), Mutations: []table.Mutation{table.DeleteRow()}}},
			"94 a3776562 c40b636f6d2e636e6e2e777777 91 91a764656c5f726f77 81 a87461626c655f6964 11"},
		{"mutate with a token", &MutateRequest{Table: "t", Row: table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.DeleteRow()}, Token: &table.Token{ID: []byte("12345678")}}},
			"94 a174 c40172 91 91a764656c5f726f77 81 a5746f6b656e 92 c4083132333435363738 c0"},
		{"mutate_rows with a token", &MutateRowsRequest{Table: "t", Rows: []table.RowMutation{
			{Row: []byte("r"), Mutations: []table.Mutation{table.DeleteRow()}, Token: &table.Token{ID: []byte("12345678"), Start: 9}}, {Row: []byte("s"), Mutations: []table.Mutation{table.DeleteRow()}},
		}}, "92 a174 92 93 c40172 91 91a764656c5f726f77 92 c4083132333435363738 09 92 c40173 91 91a764656c5f726f77"},
		{"mutate_rows with a table id", &MutateRowsRequest{TableOptions: TableOptions{TableID: 300}, Table: "t"}, "93 a174 90 81 a87461626c655f6964 cd012c"},
		{"read with a table id", &ReadRequest{TableOptions: TableOptions{Options: Options{Timeout: time.Second}, TableID: 17}, Table: "t", Row: []byte("r"), Filter: filterBytes(table.PassAll{})},
			"93 a174 c40172 83 aa74696d656f75745f6d73cd03e8 a87461626c655f6964 11 a666696c746572 91a470617373"},
		{"read_rows with a table id", &ReadRowsRequest{TableOptions: TableOptions{TableID: 17}, Table: "t"}, "93 a174 90 81 a87461626c655f6964 11"},
		{"scan_open with a table id", &ScanOpenRequest{TableOptions: TableOptions{TableID: 17}, Table: "t", BatchRows: 5}, "92 a174 82 a87461626c655f6964 11 aa62617463685f726f777305"},
		{"check_and_mutate with a table id", &CheckAndMutateRequest{TableOptions: TableOptions{TableID: 17}, Table: "t", Row: []byte("r")},
			"96 a174 c40172 c0 90 90 81 a87461626c655f6964 11"},
		{"read_modify_write with a table id", &ReadModifyWriteRequest{TableOptions: TableOptions{TableID: 17}, Table: "t", Row: []byte("r"), Rules: []table.Rule{
			{Op: table.RuleIncrement, Family: "f", Qualifier: []byte("n"), Amount: 1}}},
			"94 a174 c40172 91 94a9696e6372656d656e74a166c4016e01 81 a87461626c655f6964 11"},
		{"sample_row_keys with a table id", &SampleRowKeysRequest{TableOptions: TableOptions{TableID: 17}, Table: "t"}, "92 a174 81 a87461626c655f6964 11"},
		{"mutate_rows", &MutateRowsRequest{Table: "t", Rows: []table.RowMutation{
			{Row: []byte("a"), Mutations: []table.Mutation{table.Set("f", []byte("q"), 7, []byte("v"))}},
			{Row: []byte("b"), Mutations: []table.Mutation{table.DeleteRow()}},
		}},
			"92 a174 92 92c40161 91 95a3736574a166c4017107c40176 92c40162 91 91a764656c5f726f77"},
		{"bulk_write", &BulkWriteRequest{MutateRowsRequest: MutateRowsRequest{Table: "t", Rows: []table.RowMutation{
			{Row: []byte("a"), Mutations: []table.Mutation{table.Set("f", []byte("q"), 7, []byte("v"))}},
		}}, Part: [BulkIDBytes]byte([]byte("0123456789abcdef"))},
			"94 a174 c41030313233343536373839616263646566 00 91 92c40161 91 95a3736574a166c4017107c40176"},
		{"bulk_write with a table id", &BulkWriteRequest{MutateRowsRequest: MutateRowsRequest{TableOptions: TableOptions{TableID: 17}, Table: "t"}, Number: 3},
			"95 a174 c41000000000000000000000000000000000 03 90 81 a87461626c655f6964 11"},
		{"bulk_commit", &BulkRequest{Table: "t", Part: [BulkIDBytes]byte([]byte("0123456789abcdef")), Row: []byte("r"), Requests: 2},
			"94 a174 c41030313233343536373839616263646566 c40172 02"},
		{"bulk_abort with a table id", &BulkRequest{TableOptions: TableOptions{TableID: 17}, Table: "t", Row: []byte("r")},
			"95 a174 c41000000000000000000000000000000000 c40172 00 81 a87461626c655f6964 11"},
		{"read", &ReadRequest{Table: "t", Row: []byte("r")}, "92 a174 c40172"},
		{"read with filter", &ReadRequest{Table: "t", Row: []byte("r"), Filter: filterBytes(table.CellsPerColumnLimit(1))},
			"93 a174 c40172 81 a666696c746572 92a876657273696f6e7301"},
		{"read with a bound", &ReadRequest{Table: "t", Row: []byte("r"), RowBytes: 5}, "93 a174 c40172 81 a9726f775f6279746573 05"},
		{"read with a position", &ReadRequest{Table: "t", Row: []byte("r"), Position: true}, "93 a174 c40172 81 a8706f736974696f6e c3"},
		{"read_rows with a bound", &ReadRowsRequest{Table: "t", Rows: [][]byte{[]byte("a")}, RowBytes: 5}, "93 a174 91c40161 81 a9726f775f6279746573 05"},
		{"read_rows", &ReadRowsRequest{Table: "t", Rows: [][]byte{[]byte("a"), []byte("b")}}, "92 a174 92c40161c40162"},
		{"scan_open", &ScanOpenRequest{Table: "t"}, "91 a174"},
		{"scan_open with options", &ScanOpenRequest{Table: "t", Start: []byte("a"), End: []byte("m"), Prefix: []byte("b"), Limit: 10, BatchRows: 5, BatchBytes: 70000},
			"92 a174 86 a57374617274c40161 a3656e64c4016d a6707265666978c40162 a56c696d69740a aa62617463685f726f777305 ab62617463685f6279746573ce00011170"},
		{"scan_open with a bound", &ScanOpenRequest{Table: "t", BatchRows: 5, RowBytes: 5}, "92 a174 82 aa62617463685f726f777305 a9726f775f627974657305"},
		{"scan_open by parts", &ScanOpenRequest{Table: "t", BatchRows: 5, Parts: true}, "92 a174 82 aa62617463685f726f777305 a57061727473c3"},
		{"scan_open with counts", &ScanOpenRequest{Table: "t", BatchRows: 5, Stats: true}, "92 a174 82 aa62617463685f726f777305 a57374617473c3"},
		{"scan_open in reverse", &ScanOpenRequest{Table: "t", BatchRows: 5, Reversed: true}, "92 a174 82 aa62617463685f726f777305 a87265766572736564c3"},
		{"scan_open of a set", &ScanOpenRequest{Table: "t", BatchRows: 5, Rows: table.NewRowSet([]table.RowRange{{Start: []byte("m")}, table.RowKeyRange([]byte("k")), {Start: []byte("a"), End: []byte("c")}})},
			"92 a174 82 aa62617463685f726f777305 a4726f7773 93 92c40161c40163 c4016b 92c4016dc0"},
		{"key_heat", &KeyHeatRequest{Table: "t", Since: time.Hour, UntilMS: 5, Prefix: []byte("m"), Rows: 9}, "92 a174 84 a873696e63655f6d73 ce0036ee80 a8756e74696c5f6d73 05 a6707265666978c4016d a4726f7773 09"},
		{"key_heat", &KeyHeatRequest{Table: "t", Start: []byte("a"), End: []byte("b")}, "92 a174 82 a57374617274c40161 a3656e64c40162"},
		{"hot_tablets", &HotTabletsRequest{}, "90"},
		{"report_client", &ReportClientRequest{Report: ClientReport{ID: "00112233445566aa", IntervalMS: 5}}, "91 8c a26964 b030303131323233333434353536366161 a46e616d65 a0 aa737461727465645f6d73 00" +
			"ab696e74657276616c5f6d73 05 a563616c6c73 00 a66572726f7273 00 a772657472696573 00 a468697473 00 a76c6f6f6b757073 00 a67035305f7573 00 a67039395f7573 00 a66d61785f7573 00"},
		{"hot_tablets", &HotTabletsRequest{Since: time.Hour, UntilMS: 5, Most: 9}, "91 83 a873696e63655f6d73 ce0036ee80 a8756e74696c5f6d73 05 a46d6f7374 09"},
		{"sample_row_keys", &SampleRowKeysRequest{Table: "t", Start: []byte("m\x00")}, "92 a174 81 a57374617274c4026d00"},
		{"root", &NamesRequest{Names: []string{"web"}}, "91 a3776562"},
		{"scan_next", &ScanNextRequest{Cursor: 1 << 40}, "91 cf0000010000000000"},
		{"check_and_mutate", &CheckAndMutateRequest{Table: "t", Row: []byte("r"), True: []table.Mutation{table.DeleteRow()}},
			"95 a174 c40172 c0 91 91a764656c5f726f77 90"},
		{"read_modify_write", &ReadModifyWriteRequest{Table: "t", Row: []byte("r"), Rules: []table.Rule{
			{Op: table.RuleIncrement, Family: "f", Qualifier: []byte("n"), Amount: -1}, {Op: table.RuleAppend, Family: "f", Qualifier: []byte("s"), Value: []byte("x")},
		}},
			"93 a174 c40172 92 94a9696e6372656d656e74a166c4016eff 94a6617070656e64a166c40173c40178"},
		{"create_token", &CreateTokenRequest{Kind: TokenJoin, TTL: time.Hour, Uses: 3},
			"92 a4 6a6f696e 82 a6 74746c5f6d73 ce0036ee80 a4 7573657303"},
		{"create_token for a node", &CreateTokenRequest{Kind: TokenJoin, Node: "n1"}, "92 a4 6a6f696e 81 a4 6e6f6465 a26e31"},
		{"grant", &GrantRequest{Principal: "ann", Rights: "read", Table: "web", Family: "anchor"},
			"93 a3 616e6e a4 72656164 82 a5 7461626c65 a3 776562 a6 66616d696c79 a6 616e63686f72"},
		{"grant on the cluster", &GrantRequest{Principal: "*", Rights: "read,write"}, "92 a1 2a aa 726561642c7772697465"},
		{"set_grants", &SetGrantsRequest{From: []PrincipalRights{{"ann", "read"}}, To: []PrincipalRights{}, View: "v", Table: "t"},
			"93 91 92 a3 616e6e a4 72656164 90 82 a5 7461626c65 a1 74 a4 76696577 a1 76"},
		{"list_grants", &ListGrantsRequest{Table: "web"}, "92 a0 81 a5 7461626c65 a3 776562"},
		{"add_user", &AddUserRequest{Name: "ann", TTL: time.Second, Comment: "x"}, "92 a3 616e6e 82 a6 74746c5f6d73 cd03e8 a7 636f6d6d656e74 a1 78"},
		{"add_user with a request", &AddUserRequest{Name: "ann", Request: []byte{0x30}}, "92 a3 616e6e 81 a7 72657175657374 c40130"},
		{"revoke_user", &RevokeUserRequest{Name: "ann", Token: "0102"}, "92 a3 616e6e 81 a5 746f6b656e a4 30313032"},
		{"set_quota", &SetQuotaRequest{Of: QuotaOfTable, Name: "web", Bounds: map[string]int64{QuotaWriteOps: 1000}, Unbounded: []string{QuotaReadBytes}, Burst: 2 * time.Second},
			"93 a5 7461626c65 a3 776562 83 a9 77726974655f6f7073 cd03e8 aa 726561645f6279746573 c0 a8 62757273745f6d73 cd07d0"},
		{"create_backup", &CreateBackupRequest{Tables: []string{"t", "u"}, Keep: time.Second}, "92 92a174a175 81 a7 6b6565705f6d73 cd03e8"},
		{"create_backup_schedule", &CreateScheduleRequest{Name: "d", Tables: []string{"t"}, Every: time.Minute, Keep: time.Hour, First: time.UnixMilli(1000)},
			"95 a164 91a174 cdea60 ce0036ee80 81 a8 66697273745f6d73 cd03e8"},
		{"create_backup_schedule of all tables", &CreateScheduleRequest{Name: "d", Every: time.Minute, Keep: time.Hour}, "94 a164 90 cdea60 ce0036ee80"},
		{"create_backup of all tables", &CreateBackupRequest{}, "91 90"},
		{"alter_table", &AlterTableRequest{Table: "t", Changes: []table.Change{{Op: table.ChangeAdd, Family: table.FamilySpec{Name: "f", GC: &gc}},
			{Op: table.ChangeDrop, Family: table.FamilySpec{Name: "g"}}, {Op: table.ChangeProtect, Protect: true},
			{Op: table.ChangeReadOnly, ReadOnly: table.ReadOnlyChange{Reason: "x"}}, {Op: table.ChangeReadOnly, ReadOnly: table.ReadOnlyChange{If: new(string)}}}},
			"92 a174 95 81a361646482a46e616d65a166a26763aa76657273696f6e733d33 81a464726f70a167 81a770726f74656374c3 81a9726561645f6f6e6c7991a178 81a9726561645f6f6e6c7992a0a0"},
		{"alter_table of views", &AlterTableRequest{Table: "t", Changes: []table.Change{{Op: table.ChangeAddView, View: &table.ViewChange{
			View: *table.NewView("v", [][]byte{[]byte("a")}, table.ViewFamily{Name: "f", Prefixes: [][]byte{{}}})}}}},
			"92 a174 91 81 a86164645f76696577 82 a465746167a0 a476696577 84 a46e616d65a176 a2696400 a4726f777391c40161 a866616d696c6965739193a16690 91c400"},
		{"read by a view", &ReadRequest{TableOptions: TableOptions{View: "v"}, Table: "t", Row: []byte("r")}, "93 a174 c40172 81 a476696577 a176"},
		{"alter_table of a change stream", &AlterTableRequest{Table: "t", Changes: []table.Change{{Op: table.ChangeStream, Retention: time.Hour}}},
			"92 a174 91 81ad6368616e67655f73747265616dced693a400"},
		{"read_changes", &ReadChangesRequest{Table: "t", Next: 100, Wait: time.Second}, "92 a174 82 a46e65787464 a7776169745f6d73cd03e8"},
		{"read_changes with all options", &ReadChangesRequest{Table: "t", Start: []byte("m"), End: []byte("n"), Next: 100, Bytes: 9, ChangeBytes: 10, Wait: time.Second, Since: 7, TableOptions: TableOptions{TableID: 17}},
			"92 a174 88 a87461626c655f696411 a57374617274c4016d a3656e64c4016e a46e65787464 a573696e636507 a5627974657309 ac6368616e67655f62797465730a a7776169745f6d73cd03e8"},
		{"read_changes with clears", &ReadChangesRequest{Table: "t", Clears: true}, "92 a174 81 a6636c65617273c3"},
		{"update_app_profile", &AppProfileRequest{Profile: AppProfile{ID: "batch", Description: "d", Routing: RoutingSingle, Transactional: true, Priority: PriorityLow, Etag: "e"}},
			"92 a56261746368 85 ab6465736372697074696f6e a164 a7726f7574696e67 a673696e676c65 a87072696f72697479 a36c6f77 a465746167 a165 ad7472616e73616374696f6e616c c3"},
		{"create_app_profile to any cluster", &AppProfileRequest{Profile: AppProfile{ID: "b", Routing: RoutingByRow, NamesCluster: true, Priority: PriorityHigh}},
			"92 a162 83 a7726f7574696e67 a7616e795f726f77 a87072696f72697479 a468696768 ad6e616d65735f636c7573746572 c3"},
		{"create_table of a protected table", &CreateTableRequest{Name: "t", Protected: true},
			"92 a174 83 a866616d696c69657390 a667726f75707390 b364656c6574696f6e5f70726f74656374696f6ec3"},
		{"create_table with a change stream", &CreateTableRequest{Name: "t", ChangeRetention: time.Hour},
			"92 a174 83 a866616d696c69657390 a667726f75707390 ad6368616e67655f73747265616d ced693a400"},
		{"create_table with splits", &CreateTableRequest{Name: "t", SplitAt: [][]byte{[]byte("g"), []byte("n")}},
			"92 a174 83 a866616d696c69657390 a667726f75707390 a873706c69745f6174 92c40167c4016e"},
		{"create_table of milliseconds", &CreateTableRequest{Name: "t", Granularity: table.GranularityMillis},
			"92 a174 83 a866616d696c69657390 a667726f75707390 ab6772616e756c6172697479 a66d696c6c6973"},
		{"create_table", &CreateTableRequest{Name: "t", Families: []table.FamilySpec{{Name: "f", GC: &gc, BlockBytes: 8192}}},
			"92 a174 82 a866616d696c696573 91 83 a46e616d65a166 a26763aa76657273696f6e733d33 ab626c6f636b5f6279746573cd2000 a667726f75707390"},
	}
}

func TestGoldenRequests(t *testing.T) {
	for _, g := range goldenRequests() {
		want := wiretest.Unhex(t, g.hex)
		if got := wiretest.Encode(g.request.Append); !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", g.name, got, want)
		}
		fresh := reflect.New(reflect.TypeOf(g.request).Elem()).Interface()
		// Twice, to check that reused memory is decoded correctly.
		for range 2 {
			if err := decodeInto(want, fresh); err != nil {
				t.Errorf("%s: decode: %v", g.name, err)
			}
		}
		again := wiretest.Encode(fresh.(interface{ Append(*wire.Encoder) }).Append)
		if _, scan := fresh.(*ScanOpenRequest); !scan && !bytes.Equal(again, want) {
			t.Errorf("%s: decoded and encoded again:\n got %x\nwant %x", g.name, again, want)
		}
	}
}

// Other libraries write text in place of bytes, and the other way round.
func TestTextAndBytesAreAlike(t *testing.T) {
	params := wiretest.Encode(func(e *wire.Encoder) {
		e.Array(3)
		e.Bin([]byte("t"))
		e.Str("r")
		e.Array(1)
		e.Array(5)
		e.Bin([]byte("set"))
		e.Bin([]byte("f"))
		e.Str("q")
		e.Nil()
		e.Str("v")
	})
	var r MutateRequest
	if err := decodeInto(params, &r); err != nil {
		t.Fatal(err)
	}
	want := table.RowMutation{Row: []byte("r"), Mutations: []table.Mutation{table.Set("f", []byte("q"), table.ServerTimestamp, []byte("v"))}}
	if r.Table != "t" || !reflect.DeepEqual(r.Row, want) {
		t.Errorf("decoded %+v", r.Row)
	}
}

func TestDecodeReusesItsMemory(t *testing.T) {
	var mutate MutateRequest
	var rows MutateRowsRequest
	var read ReadRequest
	for _, g := range goldenRequests() {
		params := wiretest.Unhex(t, g.hex)
		var into any
		switch g.request.(type) {
		case *MutateRequest:
			into = &mutate
		case *MutateRowsRequest:
			into = &rows
		case *ReadRequest:
			into = &read
		default:
			continue
		}
		d := new(wire.Decoder)
		decode := func() {
			*d = wire.NewDecoder(params)
			if err := decodeWith(d, into); err != nil {
				t.Fatal(err)
			}
		}
		most := 0.0
		if strings.HasSuffix(g.name, "with a token") {
			most = 1
		}
		if n := testing.AllocsPerRun(100, decode); n > most {
			t.Errorf("%s: %v allocations", g.name, n)
		}
	}
	// The memory of an unusually large request is not retained.
	big := MutateRequest{Row: table.RowMutation{Row: []byte("r"), Mutations: make([]table.Mutation, retainedMax+1)}}
	for i := range big.Row.Mutations {
		big.Row.Mutations[i] = table.DeleteRow()
	}
	if err := decodeInto(wiretest.Encode(big.Append), &mutate); err != nil || len(mutate.Row.Mutations) != retainedMax+1 {
		t.Fatalf("large request: %v", err)
	}
	if err := decodeInto(wiretest.Unhex(t, goldenRequests()[0].hex), &mutate); err != nil || cap(mutate.Row.Mutations) > retainedMax {
		t.Errorf("a small request has capacity for %d mutations, %v", cap(mutate.Row.Mutations), err)
	}
}

func TestWrongParameters(t *testing.T) {
	array := func(f ...func(*wire.Encoder)) []byte {
		return wiretest.Encode(func(e *wire.Encoder) {
			e.Array(len(f))
			for _, g := range f {
				g(e)
			}
		})
	}
	str := func(s string) func(*wire.Encoder) { return func(e *wire.Encoder) { e.Str(s) } }
	num := func(e *wire.Encoder) { e.Int(5) }
	none := func(e *wire.Encoder) { e.Array(0) }
	option := func(key string, v any) func(*wire.Encoder) {
		return func(e *wire.Encoder) {
			e.Map(1)
			e.Str(key)
			wiretest.Any(e, v)
		}
	}
	long := strings.Repeat("k", 70000)
	for _, test := range []struct {
		name   string
		params []byte
		into   any
		want   error
	}{
		{"too few", array(str("t")), &ReadRequest{}, rpc.CodeBadRequest},
		{"too many", array(str("t"), str("r"), option("timeout_ms", 1), num), &ReadRequest{}, rpc.CodeBadRequest},
		{"number for a row", array(str("t"), num), &ReadRequest{}, rpc.CodeBadRequest},
		{"empty row", array(str("t"), str("")), &ReadRequest{}, CodeBadRowKey},
		{"long row", array(str("t"), str(long)), &ReadRequest{}, CodeLimitExceeded},
		{"unknown option", array(str("t"), str("r"), option("fliter", 1)), &ReadRequest{}, rpc.CodeBadRequest},
		{"option of another method", array(str("t"), option("major", true)), &ScanOpenRequest{}, rpc.CodeBadRequest},
		{"option of another's", array(str("t"), str("r"), option("x_mine", map[string]int{"a": 1})), &ReadRequest{}, nil},
		{"nil options", array(str("t"), str("r"), (*wire.Encoder).Nil), &ReadRequest{}, nil},
		{"text for a number", array(str("t"), str("r"), option("timeout_ms", "1")), &ReadRequest{}, rpc.CodeBadRequest},
		{"long trace id", array(str("t"), str("r"), option("trace_id", long)), &ReadRequest{}, CodeLimitExceeded},
		{"huge filter", array(str("t"), str("r"), option("filter", []string{"row", strings.Repeat("k", 200_000)})), &ReadRequest{}, CodeBadFilter},
		{"no mutations", array(str("t"), str("r"), num), &MutateRequest{}, rpc.CodeBadRequest},
		{"unknown mutation", array(str("t"), str("r"), func(e *wire.Encoder) { e.Array(1); e.Array(1); e.Str("zap") }), &MutateRequest{}, CodeBadMutation},
		{"too many rows to read", wiretest.Encode((&ReadRowsRequest{Table: "t", Rows: make([][]byte, ReadRowsMax+1)}).Append), &ReadRowsRequest{}, CodeLimitExceeded},
		{"too many rows to change", wiretest.Encode((&MutateRowsRequest{Table: "t", Rows: make([]table.RowMutation, 100_001)}).Append), &MutateRowsRequest{}, CodeLimitExceeded},
		{"too many rules", array(str("t"), str("r"), func(e *wire.Encoder) {
			e.Array(RulesMax + 1)
			for range RulesMax + 1 {
				e.Nil()
			}
		}), &ReadModifyWriteRequest{}, CodeLimitExceeded},
		{"unknown rule", array(str("t"), str("r"), func(e *wire.Encoder) { e.Array(1); e.Array(1); e.Str("zap") }), &ReadModifyWriteRequest{}, CodeBadMutation},
		{"family without a name", array(str("t"), func(e *wire.Encoder) { e.Map(0) }), &SetFamilyRequest{}, nil}, // rejected by the schema
		{"misspelt key of a family", array(str("t"), option("compresion", "s2")), &SetFamilyRequest{}, CodeBadSchema},
		{"unknown compression", array(str("t"), option("compression", "lz77")), &SetFamilyRequest{}, CodeBadSchema},
		{"bad policy", array(str("t"), option("gc", "versions=0")), &SetFamilyRequest{}, CodeBadSchema},
		{"a change of two keys", array(str("t"), func(e *wire.Encoder) {
			e.Array(1)
			e.Map(2)
			str("drop")(e)
			str("f")(e)
			str("set")(e)
			str("g")(e)
		}), &AlterTableRequest{}, CodeBadSchema},
		{"an unknown change", array(str("t"), func(e *wire.Encoder) { e.Array(1); option("rename", "g")(e) }), &AlterTableRequest{}, CodeBadSchema},
		{"misspelt key of a table", array(str("t"), option("familes", nil)), &CreateTableRequest{}, CodeBadSchema},
		{"short id of a part", array(str("t"), str("p"), num, none), &BulkWriteRequest{}, rpc.CodeBadRequest},
		{"negative number of a request", array(str("t"), str("0123456789abcdef"), func(e *wire.Encoder) { e.Int(-1) }, none), &BulkWriteRequest{}, rpc.CodeBadRequest},
		{"too many rows of a part", wiretest.Encode((&BulkWriteRequest{MutateRowsRequest: MutateRowsRequest{Table: "t", Rows: make([]table.RowMutation, 100_001)}}).Append), &BulkWriteRequest{}, CodeLimitExceeded},
		{"a part without its first row", array(str("t"), str("0123456789abcdef"), str(""), num), &BulkRequest{}, CodeBadRowKey},
		{"empty rows are fine", array(str("t"), none), &ReadRowsRequest{}, nil},
	} {
		err := decodeInto(test.params, test.into)
		if test.want == nil && err != nil || test.want != nil && (err == nil || !errors.Is(ToRPC(err), test.want)) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
}

func TestScanRange(t *testing.T) {
	for _, test := range []struct {
		start, end, prefix string
		wantStart, wantEnd string
		empty              bool
	}{
		{}, {"a", "b", "", "a", "b", false}, {"b", "a", "", "b", "a", true}, {"a", "a", "", "a", "a", true},
		{"", "", "ab", "ab", "ac", false}, {"ab5", "", "ab", "ab5", "ac", false}, {"", "ab5", "ab", "ab", "ab5", false},
		{"b", "", "ab", "b", "ac", true}, {"", "", "\xff", "\xff", "", false},
	} {
		r := ScanOpenRequest{Start: []byte(test.start), End: []byte(test.end), Prefix: []byte(test.prefix)}
		start, end, empty := r.Range()
		if string(start) != test.wantStart || string(end) != test.wantEnd || empty != test.empty {
			t.Errorf("%+v: %q, %q, %v", test, start, end, empty)
		}
	}
}

func TestPrefixEnd(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"", ""}, {"a", "b"}, {"a\xff", "b"}, {"\xff\xff", ""}, {"a\x00", "a\x01"}, {"a\xfe", "a\xff"}, {"\xfe\xff", "\xff"},
	} {
		if got := PrefixEnd([]byte(test.in)); string(got) != test.want {
			t.Errorf("end of prefix %q is %q, want %q", test.in, got, test.want)
		}
	}
}

func TestScanBatchBounds(t *testing.T) {
	for _, test := range []struct{ rows, bytes, wantRows, wantBytes int }{
		{0, 0, ScanBatchRows, ScanBatchBytes}, {5, 7, 5, 7}, {1 << 40, 1 << 40, ScanBatchRowsMax, ScanBatchBytesMax},
	} {
		var r ScanOpenRequest
		err := decodeInto(wiretest.Encode((&ScanOpenRequest{Table: "t", BatchRows: test.rows, BatchBytes: test.bytes}).Append), &r)
		if err != nil || r.BatchRows != test.wantRows || r.BatchBytes != test.wantBytes {
			t.Errorf("%+v: %d, %d, %v", test, r.BatchRows, r.BatchBytes, err)
		}
	}
}

func TestResults(t *testing.T) {
	cells := []table.Cell{{Family: "f", Qualifier: []byte("q"), Timestamp: 7, Value: []byte("v"), Labels: []string{"l"}}}
	out := wiretest.Encode(func(e *wire.Encoder) {
		w := BeginScan(e)
		w.Row([]byte("a"), cells)
		w.Row([]byte("b"), cells)
		if w.Rows() != 2 || w.Bytes() < 20 {
			t.Errorf("%d rows, %d bytes", w.Rows(), w.Bytes())
		}
		w.End(9, []byte("c"))
	})
	want := wiretest.Unhex(t, "83 a4726f7773 dd00000002 92c4016191 95a166c4017107c4017691a16c 92c4016291 95a166c4017107c4017691a16c a6637572736f72 09 a46e657874 c40163")
	if !bytes.Equal(out, want) {
		t.Errorf("scan result\n got %x\nwant %x", out, want)
	}
	var r ScanResult
	d := wire.NewDecoder(out)
	if err := r.Decode(&d); err != nil || r.Count != 2 || r.Cursor != 9 || string(r.Next) != "c" {
		t.Errorf("scan result %+v, %v", r, err)
	}
	var row table.Row
	if err := table.DecodeRow(&r.Rows, &row, nil); err != nil || string(row.Key) != "a" || !reflect.DeepEqual(row.Cells, cells) {
		t.Errorf("row %+v, %v", row, err)
	}
	last := wiretest.Encode(func(e *wire.Encoder) { w := BeginScan(e); w.End(0, nil) })
	d = wire.NewDecoder(last)
	if err := r.Decode(&d); err != nil || r.Count != 0 || r.Cursor != 0 || r.Next != nil {
		t.Errorf("last scan result %+v, %v", r, err)
	}
	part := wiretest.Encode(func(e *wire.Encoder) { w := BeginScan(e); w.End(0, []byte("m")) })
	d = wire.NewDecoder(part)
	if err := r.Decode(&d); err != nil || r.Cursor != 0 || string(r.Next) != "m" {
		t.Errorf("the result at the end of a part %+v, %v", r, err)
	}
	if got := wiretest.Encode(func(e *wire.Encoder) { AppendRow(e, []byte("a"), nil) }); !bytes.Equal(got, []byte{0xc0}) {
		t.Errorf("no row is %x", got)
	}
}

func TestMutateResults(t *testing.T) {
	out := wiretest.Encode(func(e *wire.Encoder) {
		e.Array(3)
		AppendMutateResult(e, 5, nil)
		AppendMutateResult(e, 0, nil)
		AppendMutateResult(e, 0, &OverloadedError{Reason: "memory", RetryAfter: 20 * time.Millisecond})
	})
	want := wiretest.Unhex(t, "93 05 c0 85 a4636f6465 05 a46e616d65 aa6f7665726c6f61646564 a76d657373616765") // the text follows
	if !bytes.HasPrefix(out, want) {
		t.Errorf("results\n got %x\nwant %x", out, want)
	}
	d := wire.NewDecoder(out)
	var over *OverloadedError
	err := DecodeMutateResults(&d, 3, func(i int, ts int64, failed *rpc.Error) {
		switch i {
		case 0, 1:
			if failed != nil || ts != int64(5-5*i) {
				t.Errorf("result %d: %d, %v", i, ts, failed)
			}
		case 2:
			if !errors.As(FromRPC(failed), &over) || over.RetryAfter != 20*time.Millisecond || !failed.Retryable {
				t.Errorf("result %d: %v", i, failed)
			}
		}
	})
	if err != nil || over == nil {
		t.Errorf("results: %v", err)
	}
	d = wire.NewDecoder(out)
	if err := DecodeMutateResults(&d, 4, func(int, int64, *rpc.Error) {}); err == nil {
		t.Error("too few results were accepted")
	}
}

func TestAdministrationRoundTrips(t *testing.T) {
	pong := Pong{"stele", "1.2.3", 1, "n1", "c1"}
	status := Status{Node: "n", Cluster: "c", Version: "v", Uptime: 90 * time.Second, Ready: true, Reason: "", Tables: 1,
		NodeID: "n7f3a", Leader: true, Nodes: 5, NodesAlive: 4, UnderReplicated: 3, Counting: true, MemtableBytes: 1 << 40,
		Disks: []DiskStatus{{"/d", 3, 2, 1, true, "sync /d: input/output error", 2.5}, {Path: "/e"}}}
	raft := RaftStatus{Cluster: "c", Leader: "n1", LeaderName: "one", Term: 1 << 63, Applied: 2, LastIndex: 3, RaftEpoch: 4, Master: "n2", MasterName: "two", MasterEpoch: 5,
		Sessions: 6, Files: 7, Directories: 8, Bytes: 1 << 40, Servers: []RaftServer{
			{ID: "n1", Name: "one", Zone: "a", State: NodeAlive, Voter: true, Leader: true, Alive: true}, {ID: "n2", State: NodeDead, LastContactMS: -1, Lag: 9},
		}}
	schema, err := table.NewSchema("t", 7).Apply(table.FamilySpec{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	info := TableInfo{schema, []TabletInfo{{ID: 1 << 63, Node: "n", Start: []byte("a"), End: []byte("b"), MemtableBytes: 5,
		Groups: []GroupInfo{{"default", 1, 2, 3, 4}}}, {ID: 2}}, true}
	unserved := UnservedTablets{Total: 7, Tablets: []UnservedTablet{
		{"t", []byte("a"), []byte("m"), "n1", "n1.301", 90 * time.Second, 12, "a file of it is damaged"}, {},
	}}
	made := CreatedToken{"stele-join-x", TokenInfo{"0102030405060708", TokenJoin, 1, 1 << 41, 2, []string{"n1", "n2"}, "n3"}}
	tokens := Tokens{[]TokenInfo{made.Info, {ID: "x"}}}
	grants := Grants{[]GrantInfo{{"ann", "web", "anchor", "read", ""}, {Principal: "bob", Table: "web", Rights: "read", View: "v"}, {Principal: "*"}}}
	added := AddedUser{true, []byte{1}, []byte{2}, "stele-access-x", "0102", 1 << 41}
	users := Users{[]UserInfo{{"ann", true, 5, 6, []UserToken{{"01", 2, 3, "x"}}}, {Name: "bob"}}}
	me := Whoami{KindPrincipal, "ann", "c1", ShownToken, "0102", 1 << 41, grants.Grants}
	root := RootInfo{Metadata: true, Table: 17, Server: "n1.301", Addr: "h:1"}
	if got, want := wiretest.Encode(root.Append), wiretest.Unhex(t, "84 a86d65746164617461c3 a57461626c6511 a6736572766572a66e312e333031 a461646472a3683a31"); !bytes.Equal(got, want) {
		t.Errorf("root\n got %x\nwant %x", got, want)
	}
	for _, test := range []struct {
		in  interface{ Append(*wire.Encoder) }
		out interface{ Decode(*wire.Decoder) error }
	}{{&root, &RootInfo{}}, {&pong, &Pong{}}, {&status, &Status{}}, {&info, &TableInfo{}}, {&raft, &RaftStatus{}}, {&unserved, &UnservedTablets{}}, {&made, &CreatedToken{}}, {&tokens, &Tokens{}}, {&grants, &Grants{}}, {&added, &AddedUser{}}, {&users, &Users{}}, {&me, &Whoami{}}} {
		b := wiretest.Encode(test.in.Append)
		d := wire.NewDecoder(b)
		if err := test.out.Decode(&d); err != nil || d.More() {
			t.Errorf("%T: %v, more %v", test.in, err, d.More())
		}
		if again := wiretest.Encode(test.out.(interface{ Append(*wire.Encoder) }).Append); !bytes.Equal(b, again) {
			t.Errorf("%T:\n got %x\nwant %x", test.in, again, b)
		}
	}
	d := wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { AppendSchemas(e, []*table.Schema{schema, schema}) }))
	if got, err := DecodeSchemas(&d); err != nil || len(got) != 2 || !got[1].Equal(schema) {
		t.Errorf("schemas: %v, %v", got, err)
	}
	nodes := []NodeInfo{
		{"n1", "one", "a", "h:1", "h:2", "h:3", "v1", NodeAlive, 1.5, "", true, true, true, true, true, 1 << 40, 3, -7, 3600},
		{ID: "n2", State: NodeLeft, Reason: "sync: input/output error", FreeBytes: 1},
	}
	d = wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { AppendNodes(e, nodes) }))
	if got, err := DecodeNodes(&d); err != nil || d.More() || !reflect.DeepEqual(got, nodes) {
		t.Errorf("nodes: %+v, %v", got, err)
	}
	var got RaftStatus
	d = wire.NewDecoder(wiretest.Encode(raft.Append))
	if err := got.Decode(&d); err != nil || !reflect.DeepEqual(got, raft) {
		t.Errorf("raft status: %+v, %v", got, err)
	}
	samples := []RowSample{{[]byte("m"), 5}, {[]byte{}, 10}}
	d = wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { AppendSamples(e, samples) }))
	if got, err := DecodeSamples(&d); err != nil || !reflect.DeepEqual(got, samples) {
		t.Errorf("samples: %v, %v", got, err)
	}
}

func TestNamesRoundTrip(t *testing.T) {
	one := []string{"t"}
	for _, test := range []struct {
		method string
		r      NamesRequest
	}{
		{MethodCompactTable, NamesRequest{}}, {MethodCompactTable, NamesRequest{Names: one}}, {MethodCompactTable, NamesRequest{Names: []string{"t", "f"}}},
		{MethodCompactTable, NamesRequest{Names: one, Major: true, Options: Options{Timeout: time.Second}}},
		{MethodDrainNode, NamesRequest{Names: one, Undrain: true}}, {MethodRemoveNode, NamesRequest{Names: one, Force: true}},
	} {
		d := wire.NewDecoder(wiretest.Encode(test.r.Append))
		var got NamesRequest
		if err := got.Decode(&d, d.Array(), test.method, len(test.r.Names)); err != nil || !reflect.DeepEqual(got, test.r) {
			t.Errorf("%s %+v: %+v, %v", test.method, test.r, got, err)
		}
		d = wire.NewDecoder(wiretest.Encode(test.r.Append))
		err := got.Decode(&d, d.Array(), MethodDescribeTable, len(test.r.Names))
		if plain := !test.r.Major && !test.r.Undrain && !test.r.Force; (err == nil) != plain {
			t.Errorf("an option of %s given to another method: %v", test.method, err)
		}
	}
}

func TestDroppedRoundTrip(t *testing.T) {
	for _, test := range []struct {
		method string
		r      DroppedRequest
	}{
		{MethodPurgeTable, DroppedRequest{Table: "t"}}, {MethodPurgeTable, DroppedRequest{Table: "t", ID: 7}},
		{MethodUndropTable, DroppedRequest{Table: "t", ID: 7, As: "u", Options: Options{Timeout: time.Second}}},
	} {
		d := wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { test.r.AppendAs(test.method, e) }))
		var got DroppedRequest
		if err := got.Decode(&d, d.Array(), test.method); err != nil || !reflect.DeepEqual(got, test.r) {
			t.Errorf("%s: %+v, %v", test.method, got, err)
		}
	}
	d := wire.NewDecoder(wiretest.Encode(func(e *wire.Encoder) { (&DroppedRequest{Table: "t", As: "u"}).AppendAs(MethodUndropTable, e) }))
	if err := new(DroppedRequest).Decode(&d, d.Array(), MethodPurgeTable); err == nil {
		t.Error("a purge with a name for the table is accepted")
	}
	all := DroppedTables{[]DroppedTable{{Name: "t", ID: 7, DroppedMS: 1, GoneMS: 2, Tablets: 3, Bytes: 4}}}
	d = wire.NewDecoder(wiretest.Encode(all.Append))
	var got DroppedTables
	if err := got.Decode(&d); err != nil || !reflect.DeepEqual(got, all) {
		t.Errorf("dropped tables: %+v, %v", got, err)
	}
}

func TestClearRowsRoundTrip(t *testing.T) {
	for i, r := range []ClearRowsRequest{
		{Table: "t"}, {Table: "t", Start: []byte("a")}, {Table: "t", End: []byte("a")}, {Table: "t", Start: []byte("a"), End: []byte("a\x00"), Options: Options{Timeout: time.Second}},
	} {
		var got ClearRowsRequest
		if err := decodeInto(wiretest.Encode(r.Append), &got); err != nil || got.Table != "t" || string(got.Start) != string(r.Start) || string(got.End) != string(r.End) || got.Timeout != r.Timeout {
			t.Errorf("request %d: %+v, %v", i, got, err)
		}
	}
	for i, r := range []ClearRowsRequest{
		{Table: "t", Start: []byte("b"), End: []byte("a")}, {Table: "t", Start: []byte("a"), End: []byte("a")}, {Table: "t", End: make([]byte, 64<<10+2)},
	} {
		var got ClearRowsRequest
		if err := decodeInto(wiretest.Encode(r.Append), &got); err == nil {
			t.Errorf("bad request %d is accepted", i)
		}
	}
}

func TestFindNode(t *testing.T) {
	nodes := []NodeInfo{{ID: "n1", Name: "a"}, {ID: "n2", Name: "b"}, {ID: "n3", Name: "b"}, {ID: "n4", Name: "n1"}}
	for what, want := range map[string]string{"a": "n1", "n1": "n1", "n3": "n3", "b": "", "c": "", "": ""} {
		n, err := FindNode(nodes, what)
		switch {
		case want == "" && !errors.Is(err, ErrNodeNotFound):
			t.Errorf("%q: %+v, %v", what, n, err)
		case want != "" && (err != nil || n.ID != want):
			t.Errorf("%q: %+v, %v, want %s", what, n, err, want)
		}
	}
	if _, err := FindNode(nodes, "b"); !strings.Contains(err.Error(), "n2 or n3") {
		t.Errorf("an ambiguous name: %v", err)
	}
}

func TestCreateTableSchema(t *testing.T) {
	on := true
	r := CreateTableRequest{Name: "t", Groups: []table.LocalityGroup{{Name: "g", BlockBytes: 8192}},
		Families: []table.FamilySpec{{Name: "f", Group: "g", InMemory: &on, Compression: table.CompressionZstd}, {Name: "h"}}}
	var got CreateTableRequest
	if err := decodeInto(wiretest.Encode(r.Append), &got); err != nil {
		t.Fatal(err)
	}
	s, err := got.Schema(3)
	if err != nil || s.ID != 3 || s.Family("h").Group != table.DefaultGroup {
		t.Fatalf("schema %+v, %v", s, err)
	}
	if g := s.Group("g"); g.BlockBytes != 8192 || !g.InMemory || g.Compression != table.CompressionZstd {
		t.Errorf("group %+v", g)
	}
	for _, bad := range []CreateTableRequest{{Name: "a b"}, {Name: "t", Families: []table.FamilySpec{{Name: ""}}},
		{Name: "t", Families: []table.FamilySpec{{Name: "f"}, {Name: "f"}}}, {Name: "t", Groups: []table.LocalityGroup{{Name: "g", BlockBytes: 1}}}} {
		if _, err := bad.Schema(1); err == nil || ToRPC(err).Code < 100 {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for _, size := range []int64{-1 << 62, -8192, -1, 0, 1, table.MaxBlockBytes + 1, 1 << 40} {
		var got CreateTableRequest
		b := wiretest.Encode(func(e *wire.Encoder) {
			wiretest.Any(e, []any{"t", map[string]any{"families": []any{map[string]any{"name": "f", "block_bytes": size}}}})
		})
		err := decodeInto(b, &got)
		if err == nil {
			_, err = got.Schema(1)
		}
		if !errors.Is(err, table.ErrBadSchema) {
			t.Errorf("blocks of %d bytes: %v", size, err)
		}
	}
}
