package api

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

const blobTestID = "3f9c0a5e8d7b41f2a6c4e1d09b8a7c65"

const blobTestIDHex = "d920 3366396330613565386437623431663261366334653164303962386137633635"

// blobGoldens are requests about blobs. They must not change.
func blobGoldens() []struct {
	name    string
	request interface{ Append(*wire.Encoder) }
	hex     string
} {
	return []struct {
		name    string
		request interface{ Append(*wire.Encoder) }
		hex     string
	}{
		{"blob_open", &BlobRequest{Method: MethodBlobOpen, Name: "backup.tar"}, "91 81 a46e616d65 aa6261636b75702e746172"},
		{"blob_open without a name", &BlobRequest{Method: MethodBlobOpen, Options: Options{Timeout: time.Second}}, "91 81 aa74696d656f75745f6d73 cd03e8"},
		{"blob_write", &BlobRequest{Method: MethodBlobWrite, Upload: 4711, Data: []byte("abc")}, "93 cd1267 00 c403616263"},
		{"blob_seal", &BlobRequest{Method: MethodBlobSeal, Upload: 4711, Length: 3}, "92 cd1267 03"},
		{"blob_abort", &BlobRequest{Method: MethodBlobAbort, Upload: 4711}, "91 cd1267"},
		{"blob_read", &BlobRequest{Method: MethodBlobRead, ID: blobTestID, Offset: 1, Length: 2}, "93" + blobTestIDHex + "0102"},
		{"blob_stat", &BlobRequest{Method: MethodBlobStat, ID: blobTestID}, "91" + blobTestIDHex},
		{"blob_stat with options", &BlobRequest{Method: MethodBlobStat, ID: blobTestID, From: 3, Count: 4, Deep: true},
			"92" + blobTestIDHex + "83 a466726f6d 03 a5636f756e74 04 a464656570 c3"},
		{"blob_list", &BlobRequest{Method: MethodBlobList}, "90"},
		{"blob_list with options", &BlobRequest{Method: MethodBlobList, All: true, After: "aa", Count: 5},
			"91 83 a56166746572 a26161 a5636f756e74 05 a3616c6c c3"},
		{"blob_fsck", &BlobRequest{Method: MethodBlobFsck, After: "a#1", Deep: true}, "91 82 a56166746572 a3612331 a464656570 c3"},
		{"blob_status", &BlobRequest{Method: MethodBlobStatus, Here: true}, "91 81 a468657265 c3"},
		{"blob_delete", &BlobRequest{Method: MethodBlobDelete, ID: blobTestID}, "91" + blobTestIDHex},
		{"blob_revive", &BlobRequest{Method: MethodBlobRevive, ID: blobTestID}, "91" + blobTestIDHex},
		{"blob_resume_sweep", &BlobRequest{Method: MethodBlobResumeSweep}, "90"},
	}
}

func decodeBlob(method string, params []byte) (*BlobRequest, error) {
	r := &BlobRequest{Method: method}
	d := wire.NewDecoder(params)
	n := d.Array()
	if err := d.Err(); err != nil {
		return r, err
	}
	err := r.Decode(&d, n)
	return r, errors.Join(err, d.Err())
}

func TestBlobGoldens(t *testing.T) {
	var seen []string
	for _, g := range blobGoldens() {
		want, r := wiretest.Unhex(t, g.hex), g.request.(*BlobRequest)
		seen = append(seen, r.Method)
		if got := wiretest.Encode(g.request.Append); !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", g.name, got, want)
		}
		if back, err := decodeBlob(r.Method, want); err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("%s reads as %+v, %v", g.name, back, err)
		}
	}
	for method := range blobShapes {
		if !slices.Contains(seen, method) {
			t.Errorf("no golden of %s", method)
		}
	}
}

func TestBlobBounds(t *testing.T) {
	for name, c := range map[string]struct {
		r    BlobRequest
		want error
	}{
		"piece":           {BlobRequest{Method: MethodBlobWrite, Data: make([]byte, BlobPieceBytesMax+1)}, table.ErrLimit},
		"read":            {BlobRequest{Method: MethodBlobRead, Length: BlobPieceBytesMax + 1}, table.ErrLimit},
		"seal":            {BlobRequest{Method: MethodBlobSeal, Length: BlobBytesMax + 1}, table.ErrLimit},
		"write far out":   {BlobRequest{Method: MethodBlobWrite, Offset: BlobBytesMax + 1}, table.ErrLimit},
		"name":            {BlobRequest{Method: MethodBlobOpen, Name: strings.Repeat("x", BlobNameBytesMax+1)}, table.ErrLimit},
		"name with zero":  {BlobRequest{Method: MethodBlobOpen, Name: "a\x00b"}, rpc.CodeBadRequest},
		"negative offset": {BlobRequest{Method: MethodBlobWrite, Offset: -1}, rpc.CodeBadRequest},
		"negative length": {BlobRequest{Method: MethodBlobSeal, Length: -1}, rpc.CodeBadRequest},
		"foreign option":  {BlobRequest{Method: MethodBlobRead, Deep: true}, rpc.CodeBadRequest},
	} {
		if _, err := decodeBlob(c.r.Method, wiretest.Encode(c.r.Append)); !errors.Is(FromRPC(ToRPC(err)), c.want) {
			t.Errorf("%s out of bounds: %v", name, err)
		}
	}
}

func FuzzBlobRequest(f *testing.F) {
	var methods []string
	for method := range blobShapes {
		methods = append(methods, method)
	}
	slices.Sort(methods)
	for _, g := range blobGoldens() {
		f.Add(uint8(slices.Index(methods, g.request.(*BlobRequest).Method)), wiretest.Unhex(f, g.hex))
	}
	f.Fuzz(func(t *testing.T, i uint8, params []byte) {
		method := methods[int(i)%len(methods)]
		err := wiretest.RoundTrip(t, params, func(b []byte) ([]byte, error) {
			r, err := decodeBlob(method, b)
			if err != nil {
				return nil, err
			}
			return wiretest.Encode(r.Append), nil
		})
		clientsFault(t, err)
	})
}

func blobStatusExample() *BlobStatus {
	return &BlobStatus{
		BlobInfo: BlobInfo{ID: blobTestID, Kind: BlobOfUser, Name: "n", Bytes: 3, Extents: 1, Replicas: 1, Created: time.UnixMilli(12345)},
		Parts: []ExtentInfo{{Bytes: 3, ReplicationFactor: 2, Replicas: []ReplicaInfo{
			{Node: "n1", Name: "host1", State: ReplicaGood}, {Node: "n2", State: ReplicaCorrupt, File: "f", Offset: 4096, Reason: "r"},
		}}},
	}
}

func TestBlobResults(t *testing.T) {
	page := &BlobPage{Blobs: []BlobInfo{blobStatusExample().BlobInfo}, Next: "x", Silent: []string{"n3"}}
	step := &FsckStep{Next: "x", Done: 1, Total: 2, Extents: 3, Bytes: 4, Replicas: 5, Unnamed: page.Blobs, Silent: []string{"n3"},
		Findings: []BlobFinding{{Kind: BlobOfLog, Name: "n1", ID: blobTestID, ExtentInfo: blobStatusExample().Parts[0]}}}
	for _, want := range []interface {
		Append(*wire.Encoder)
		Decode(*wire.Decoder) error
	}{
		&BlobUpload{Upload: 1 << 63, ID: blobTestID}, &blobStatusExample().BlobInfo, blobStatusExample(), page, step, &StoreStatus{ReplicationFactor: 3, Nodes: []NodeStore{{Node: "n1", Known: true, Under: 4, FailedDisks: []DiskStatus{{Path: "/d", Retired: true, Error: "e", FailedForS: 2}}, ScrubPosition: 0.5, ScrubbedAt: time.UnixMilli(0), Sweeps: 2, SweptAt: time.UnixMilli(1700000000000), SweptFound: 3, LogTimes: []ReplicaTimes{{Node: "n2", Appends: 7, MeanUS: 9, P99US: 16}}, SweepHalted: "n2: needed"}}},
	} {
		d := wire.NewDecoder(wiretest.Encode(want.Append))
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface().(interface{ Decode(*wire.Decoder) error })
		if err := got.Decode(&d); err != nil || !reflect.DeepEqual(got, any(want)) {
			t.Errorf("%T reads as %+v, %v", want, got, err)
		}
	}
	if x := blobStatusExample().Parts[0]; x.Count(ReplicaGood) != 1 || x.Count(ReplicaMissing) != 0 {
		t.Errorf("counts of %+v", x)
	}
}
