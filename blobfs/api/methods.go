package api

// The methods that keep extents of blobs.
const (
	MethodBegin      = "blob.begin"
	MethodPiece      = "blob.piece"
	MethodSeal       = "blob.seal"
	MethodResume     = "blob.resume"
	MethodReread     = "blob.reread"
	MethodAbort      = "blob.abort"
	MethodRead       = "blob.read"
	MethodStat       = "blob.stat"
	MethodList       = "blob.list"
	MethodDrop       = "blob.drop"
	MethodDropBlob   = "blob.drop_blob"
	MethodCopy       = "blob.copy"
	MethodSetHolders = "blob.set_holders"
	MethodCheck      = "blob.check"
	MethodVerify     = "blob.verify"
)

// A field is a parameter.
type field uint8

const (
	fieldStream field = iota
	fieldBlob
	fieldIndex
	fieldOffset
	fieldLength
	fieldCRC
	fieldLast
	fieldHolders // two values: epoch, nodes
	fieldNodes   // of a chain, or to copy from
	fieldData
	fieldCount
	fieldReason
	fieldExtents // array of [blob, index]
)

// values is how many values the field has on the wire.
func (f field) values() int {
	if f == fieldHolders {
		return 2
	}
	return 1
}

// A shape is what a method takes: parameters in their order. More may be appended in
// later versions; nothing else may change, and readers pass over what they do not know.
type shape struct {
	method string
	params []field
}

func (s *shape) values() int {
	n := 0
	for _, f := range s.params {
		n += f.values()
	}
	return n
}

var shapes = []shape{
	{MethodBegin, []field{fieldStream, fieldBlob, fieldIndex, fieldOffset, fieldNodes}},
	{MethodPiece, []field{fieldStream, fieldOffset, fieldData}},
	{MethodSeal, []field{fieldStream, fieldLength, fieldCRC, fieldLast, fieldHolders}},
	{MethodResume, []field{fieldStream}},
	{MethodReread, []field{fieldStream, fieldOffset, fieldCount}},
	{MethodAbort, []field{fieldStream}},
	{MethodRead, []field{fieldBlob, fieldIndex, fieldCRC, fieldOffset, fieldCount}},
	{MethodStat, []field{fieldBlob, fieldIndex}},
	{MethodList, []field{fieldBlob, fieldIndex, fieldCount}},
	{MethodDrop, []field{fieldBlob, fieldIndex, fieldReason}},
	{MethodDropBlob, []field{fieldBlob, fieldReason}},
	{MethodCopy, []field{fieldBlob, fieldIndex, fieldCRC, fieldNodes, fieldHolders}},
	{MethodSetHolders, []field{fieldBlob, fieldIndex, fieldHolders}},
	{MethodCheck, []field{fieldExtents}},
	{MethodVerify, []field{fieldBlob, fieldIndex, fieldCRC}},
}

var shapeOf = func() map[string]*shape {
	m := make(map[string]*shape)
	for i := range shapes {
		m[shapes[i].method] = &shapes[i]
	}
	return m
}()
