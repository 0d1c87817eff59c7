package api

import (
	"reflect"
	"testing"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// fuzzRequest decodes the input as a request. An accepted request must round-trip, an error must be
// the client's fault, and no input may cost much more memory than its own size (AP1, AP2).
func fuzzRequest[R any, P interface {
	*R
	Append(*wire.Encoder)
}](f *testing.F) {
	for _, g := range goldenRequests() {
		if _, ok := g.request.(P); ok {
			f.Add(wiretest.Unhex(f, g.hex))
		}
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		err := wiretest.RoundTrip(t, params, func(b []byte) ([]byte, error) {
			r := P(new(R))
			for range 2 { // the second time into reused memory
				if err := decodeInto(b, r); err != nil {
					return nil, err
				}
			}
			return wiretest.Encode(r.Append), nil
		})
		clientsFault(t, err)
	})
}

// clientsFault checks that a decoder's error blames the client.
func clientsFault(t *testing.T, err error) {
	if err != nil && ToRPC(err).Code == rpc.CodeInternal && err.Error() != "bytes are left" {
		t.Fatalf("internal error %v", err)
	}
}

func FuzzMutate(f *testing.F)          { fuzzRequest[MutateRequest](f) }
func FuzzMutateRows(f *testing.F)      { fuzzRequest[MutateRowsRequest](f) }
func FuzzRead(f *testing.F)            { fuzzRequest[ReadRequest](f) }
func FuzzReadRows(f *testing.F)        { fuzzRequest[ReadRowsRequest](f) }
func FuzzScanOpen(f *testing.F)        { fuzzRequest[ScanOpenRequest](f) }
func FuzzKeyHeat(f *testing.F)         { fuzzRequest[KeyHeatRequest](f) }
func FuzzHotTablets(f *testing.F)      { fuzzRequest[HotTabletsRequest](f) }
func FuzzSampleRowKeys(f *testing.F)   { fuzzRequest[SampleRowKeysRequest](f) }
func FuzzScanNext(f *testing.F)        { fuzzRequest[ScanNextRequest](f) }
func FuzzCheckAndMutate(f *testing.F)  { fuzzRequest[CheckAndMutateRequest](f) }
func FuzzReadModifyWrite(f *testing.F) { fuzzRequest[ReadModifyWriteRequest](f) }
func FuzzClearRows(f *testing.F)       { fuzzRequest[ClearRowsRequest](f) }
func FuzzCreateTable(f *testing.F)     { fuzzRequest[CreateTableRequest](f) }

func FuzzAddUser(f *testing.F)        { fuzzRequest[AddUserRequest](f) }
func FuzzGrant(f *testing.F)          { fuzzRequest[GrantRequest](f) }
func FuzzSetGrants(f *testing.F)      { fuzzRequest[SetGrantsRequest](f) }
func FuzzListGrants(f *testing.F)     { fuzzRequest[ListGrantsRequest](f) }
func FuzzSetQuota(f *testing.F)       { fuzzRequest[SetQuotaRequest](f) }
func FuzzCreateSchedule(f *testing.F) { fuzzRequest[CreateScheduleRequest](f) }

func FuzzCreateBackup(f *testing.F) { fuzzRequest[CreateBackupRequest](f) }
func FuzzRevokeUser(f *testing.F)   { fuzzRequest[RevokeUserRequest](f) }

// namesOf is a NamesRequest of a method that takes one name.
type namesOf struct {
	NamesRequest
	method string
}

// FuzzNames decodes inputs as requests of methods that take a name and an option of their own.
func FuzzNames(f *testing.F) {
	methods := []string{MethodCompactTable, MethodDrainNode, MethodRemoveNode, MethodDescribeTable}
	for i := range methods {
		f.Add(uint8(i), wiretest.Encode((&NamesRequest{Names: []string{"n1"}, Major: i == 0, Undrain: i == 1, Force: i == 2}).Append))
	}
	f.Fuzz(func(t *testing.T, method uint8, params []byte) {
		clientsFault(t, wiretest.RoundTrip(t, params, func(b []byte) ([]byte, error) {
			r := &namesOf{method: methods[int(method)%len(methods)]}
			if err := decodeInto(b, r); err != nil {
				return nil, err
			}
			return wiretest.Encode(r.Append), nil
		}))
	})
}

// FuzzResults decodes inputs as the results that a client reads.
func FuzzResults(f *testing.F) {
	f.Add(wiretest.Encode(func(e *wire.Encoder) {
		w := BeginScan(e)
		w.Row([]byte("a"), []table.Cell{{Family: "f", Value: []byte("v")}})
		w.End(9, []byte("c"))
	}))
	f.Add(wiretest.Encode(func(e *wire.Encoder) {
		e.Array(2)
		AppendMutateResult(e, 5, nil)
		AppendMutateResult(e, 0, &OverloadedError{})
	}))
	f.Add(wiretest.Encode((&Status{Disks: []DiskStatus{{}}}).Append))
	f.Add(wiretest.Encode((&TableInfo{table.NewSchema("t", 1), []TabletInfo{{Groups: []GroupInfo{{}}}}, true}).Append))
	f.Add(wiretest.Encode((&Pong{}).Append))
	f.Add(wiretest.Encode((&RootInfo{Metadata: true, Addr: "h:1"}).Append))
	f.Add(wiretest.Encode(blobStatusExample().Append))
	f.Add(wiretest.Encode((&BlobPage{Blobs: []BlobInfo{{}}, Silent: []string{"n"}}).Append))
	f.Add(wiretest.Encode((&RaftStatus{Servers: []RaftServer{{LastContactMS: -1}}}).Append))
	f.Add(wiretest.Encode(func(e *wire.Encoder) { AppendNodes(e, []NodeInfo{{ID: "n1", State: NodeAlive}}) }))
	f.Fuzz(func(t *testing.T, b []byte) {
		var scan ScanResult
		d := wire.NewDecoder(b)
		if scan.Decode(&d) == nil {
			names := table.NewInterner(10)
			var row table.Row
			for range scan.Count {
				if table.DecodeRow(&scan.Rows, &row, names) != nil {
					break
				}
			}
		}
		d = wire.NewDecoder(b)
		_ = DecodeMutateResults(&d, 2, func(_ int, _ int64, err *rpc.Error) {
			if err != nil {
				_ = FromRPC(err).Error()
			}
		})
		for _, r := range []interface{ Decode(*wire.Decoder) error }{&Status{}, &TableInfo{}, &Pong{}, &RaftStatus{}, &UnservedTablets{}, &BlobUpload{}, &BlobStatus{}, &BlobPage{}, &FsckStep{}, &StoreStatus{}, &RootInfo{}, &CreatedToken{}, &Tokens{}, &Grants{}, &AddedUser{}, &Users{}, &Whoami{}} {
			d = wire.NewDecoder(b)
			if r.Decode(&d) != nil {
				continue
			}
			if info, ok := r.(*TableInfo); ok && info.Schema == nil {
				continue // a map without a schema
			}
			once := wiretest.Encode(r.(interface{ Append(*wire.Encoder) }).Append)
			again := reflect.New(reflect.TypeOf(r).Elem()).Interface().(interface{ Decode(*wire.Decoder) error })
			d = wire.NewDecoder(once)
			if err := again.Decode(&d); err != nil {
				t.Fatalf("%T is written as %x: %v", r, once, err)
			}
		}
		d = wire.NewDecoder(b)
		if nodes, err := DecodeNodes(&d); err == nil {
			once := wiretest.Encode(func(e *wire.Encoder) { AppendNodes(e, nodes) })
			d = wire.NewDecoder(once)
			if again, err := DecodeNodes(&d); err != nil || len(again) != len(nodes) {
				t.Fatalf("nodes are written as %x: %v", once, err)
			}
		}
		d = wire.NewDecoder(b)
		_, _ = DecodeSamples(&d)
		d = wire.NewDecoder(b)
		_, _ = DecodeSchemas(&d)
	})
}
