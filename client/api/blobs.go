package api

import (
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/table"
)

// The methods about blobs: files that users store, and the files of the block store.
const (
	MethodBlobOpen   = "blob_open"
	MethodBlobWrite  = "blob_write"
	MethodBlobSeal   = "blob_seal"
	MethodBlobAbort  = "blob_abort"
	MethodBlobRead   = "blob_read"
	MethodBlobStat   = "blob_stat"
	MethodBlobList   = "blob_list"
	MethodBlobDelete = "blob_delete"
	MethodBlobFsck   = "blob_fsck"
	MethodBlobStatus = "blob_status"
	// These undo garbage collection that an operator has found wrong.
	MethodBlobRevive      = "blob_revive"
	MethodBlobResumeSweep = "blob_resume_sweep"
)

// Bounds of the methods about blobs.
const (
	// BlobPieceBytesMax is the most that one blob_write or blob_read carries: 1 MiB, the largest
	// buffer that is pooled.
	BlobPieceBytesMax = 1 << 20
	// BlobExtentsMax is the most extents of a user's blob. Its handle is a file of the lock service
	// of at most 256 KiB and takes up to 159 bytes per extent.
	BlobExtentsMax = 1600
	// BlobBytesMax is the size of BlobExtentsMax extents: 100 GiB.
	BlobBytesMax = BlobExtentsMax * (64 << 20)
	// BlobNameBytesMax is the maximum length of a blob's name.
	BlobNameBytesMax = 255
	// UploadIdle is how long an upload stays open without a request.
	UploadIdle = 60 * time.Second
	// UploadsMax is the number of open uploads to one node; further ones are rejected as
	// overloaded. Each may use 16 MiB of memory for data on its way to the disks.
	UploadsMax = 16
	// BlobListMax is the most blobs in one result of blob_list, BlobStatMax the most extents in one
	// of blob_stat. BlobListCount and BlobStatCount are the defaults.
	BlobListCount, BlobListMax = 1000, 10_000
	BlobStatCount, BlobStatMax = 64, 1024
)

// afterBytesMax is the maximum length of the option after. It exceeds that of a lock service path.
const afterBytesMax = 2 << 10

// blobField is a positional parameter of a method about blobs.
type blobField uint8

const (
	blobUpload blobField = iota
	blobID
	blobOffset
	blobLength
	blobData
)

// A blobShape is the signature of a method: its parameters in order, and its own options.
type blobShape struct {
	params  []blobField
	options []string
}

var blobShapes = map[string]blobShape{
	MethodBlobOpen:   {nil, []string{"name", "staged"}},
	MethodBlobWrite:  {[]blobField{blobUpload, blobOffset, blobData}, nil},
	MethodBlobSeal:   {[]blobField{blobUpload, blobLength}, nil},
	MethodBlobAbort:  {[]blobField{blobUpload}, nil},
	MethodBlobRead:   {[]blobField{blobID, blobOffset, blobLength}, nil},
	MethodBlobStat:   {[]blobField{blobID}, []string{"from", "count", "deep"}},
	MethodBlobList:   {nil, []string{"after", "count", "all"}},
	MethodBlobDelete: {[]blobField{blobID}, nil},
	MethodBlobFsck:   {nil, []string{"after", "deep"}},
	MethodBlobStatus: {nil, []string{"here"}},
	MethodBlobRevive: {[]blobField{blobID}, nil},

	MethodBlobResumeSweep: {nil, nil},
}

// BlobRequest holds the parameters of any method about blobs.
type BlobRequest struct {
	Options
	Method string

	Upload uint64 // the result of blob_open
	ID     string // 32 hexadecimal digits
	Offset int64  // within the blob
	Length int64  // of the blob; for blob_read the number of bytes to read
	Data   []byte // aliases the message

	Name  string // blob_open: the blob's name
	From  int64  // blob_stat: the first extent
	Count int64  // blob_stat, blob_list: number of results; 0 is the default
	After string // blob_list, blob_fsck: Next of the previous result
	Deep  bool   // blob_stat, blob_fsck: read all bytes of each replica
	All   bool   // blob_list: all blobs that nodes hold, of every kind
	Here  bool   // blob_status: only the part of the node that answers
	// Staged marks a blob of blob_open as a file for import_backup. Its bytes are left to garbage collection when it is deleted.
	Staged bool
}

func (r *BlobRequest) fields() fields {
	return fields{
		{"name", &r.Name}, {"after", &r.After}, {"from", &r.From}, {"count", &r.Count}, {"deep", &r.Deep}, {"all", &r.All}, {"here", &r.Here},
		{"staged", &r.Staged},
	}
}

// setOptions returns the method's own options that are not zero.
func (r *BlobRequest) setOptions() (set fields) {
	for _, f := range r.fields() {
		var zero bool
		switch v := f.value.(type) {
		case *string:
			zero = *v == ""
		case *int64:
			zero = *v == 0
		case *bool:
			zero = !*v
		}
		if !zero {
			set = append(set, f)
		}
	}
	return set
}

// Append encodes the parameters.
func (r *BlobRequest) Append(e *wire.Encoder) {
	sh := blobShapes[r.Method]
	set := r.setOptions()
	n := r.Options.count() + len(set)
	e.Array(len(sh.params) + min(n, 1))
	for _, p := range sh.params {
		switch p {
		case blobUpload:
			e.Uint(r.Upload)
		case blobID:
			e.Str(r.ID)
		case blobOffset:
			e.Int(r.Offset)
		case blobLength:
			e.Int(r.Length)
		case blobData:
			e.Bin(r.Data)
		}
	}
	r.Options.append(e, n)
	set.appendValues(e)
}

// Decode decodes the n parameters in d of the method r.Method. Errors: *table.LimitError,
// rpc.CodeBadRequest.
func (r *BlobRequest) Decode(d *wire.Decoder, n int) error {
	sh := blobShapes[r.Method]
	*r = BlobRequest{Method: r.Method}
	if err := params(r.Method, n, len(sh.params), len(sh.params)+1); err != nil {
		return err
	}
	for _, p := range sh.params {
		switch p {
		case blobUpload:
			r.Upload = d.Uint()
		case blobID:
			r.ID = d.Str()
		case blobOffset:
			r.Offset = d.Int()
		case blobLength:
			r.Length = d.Int()
		case blobData:
			r.Data = d.Bytes()
		}
	}
	if err := r.Options.decode(d, n > len(sh.params), r); err != nil {
		return err
	}
	return r.check()
}

// option implements optionReader.
func (r *BlobRequest) option(key []byte, d *wire.Decoder) bool {
	if !slices.Contains(blobShapes[r.Method].options, string(key)) {
		return false
	}
	for _, f := range r.fields() {
		if f.key == string(key) {
			f.decode(d)
		}
	}
	return true
}

func (r *BlobRequest) check() error {
	for _, n := range []int64{r.Offset, r.Length, r.From, r.Count} {
		if n < 0 {
			return rpc.Errorf(rpc.CodeBadRequest, "%s: %d is negative", r.Method, n)
		}
	}
	switch {
	case r.Method == MethodBlobSeal && r.Length > BlobBytesMax, r.Offset > BlobBytesMax:
		return &table.LimitError{What: BlobBytes, Limit: BlobBytesMax, Got: max(r.Length, r.Offset)}
	case r.Method == MethodBlobRead && r.Length > BlobPieceBytesMax:
		return &table.LimitError{What: "blob bytes in one read", Limit: BlobPieceBytesMax, Got: r.Length}
	case strings.ContainsRune(r.Name, 0):
		return rpc.Errorf(rpc.CodeBadRequest, "%s: the name has a zero byte", r.Method)
	}
	if err := within("bytes of the option after", len(r.After), afterBytesMax); err != nil {
		return err
	}
	if err := within("blob bytes in one piece", len(r.Data), BlobPieceBytesMax); err != nil {
		return err
	}
	return within("blob name bytes", len(r.Name), BlobNameBytesMax)
}

// BlobBytes is the LimitError.What of a blob over BlobBytesMax.
const BlobBytes = "blob bytes"
