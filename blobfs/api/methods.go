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
	fieldVital   // bytes that are expected, 0: not vital
)

// values is how many values the field has on the wire.
func (f field) values() int {
	if f == fieldHolders {
		return 2
	}
	return 1
}

// appended tells whether the field came in a later version. Whoever has no use for it leaves it out.
func (f field) appended() bool { return f == fieldVital }

// A shape is what a method takes: parameters in their order. More may be appended in
// later versions; nothing else may change, and readers pass over what they do not know.
type shape struct {
	method string
	params []field
}

// least is how many values the first version sent.
func (s *shape) least() int {
	n := 0
	for _, f := range s.params {
		if !f.appended() {
			n += f.values()
		}
	}
	return n
}

var shapes = []shape{
	{MethodBegin, []field{fieldStream, fieldBlob, fieldIndex, fieldOffset, fieldNodes, fieldVital}},
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

// Methods lists every method of a node's store: of replicas, of logs and of the sweep.
func Methods() (names []string) {
	for i := range shapes {
		names = append(names, shapes[i].method)
	}
	for i := range logShapes {
		names = append(names, logShapes[i].method)
	}
	for i := range sweepShapes {
		names = append(names, sweepShapes[i].method)
	}
	return names
}
