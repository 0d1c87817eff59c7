package api

// Methods of blob extents.
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
	fieldNodes   // of a chain, or copy sources
	fieldData
	fieldCount
	fieldReason
	fieldExtents       // array of [blob, index]
	fieldPriorityBytes // expected bytes of a high-priority extent, else 0
	fieldToCopy        // whether a read is for a copy
)

// values returns the number of values of the field on the wire.
func (f field) values() int {
	if f == fieldHolders {
		return 2
	}
	return 1
}

// appended reports whether a later version added the field. It is left out if it has its zero
// value.
func (f field) appended() bool { return f == fieldPriorityBytes || f == fieldToCopy }

// A shape lists the parameters of a method in wire order. Later versions may append parameters and
// change nothing else; readers skip unknown ones.
type shape struct {
	method string
	params []field
}

// minValues returns the number of values that the first version sent.
func (s *shape) minValues() int {
	n := 0
	for _, f := range s.params {
		if !f.appended() {
			n += f.values()
		}
	}
	return n
}

var shapes = []shape{
	{MethodBegin, []field{fieldStream, fieldBlob, fieldIndex, fieldOffset, fieldNodes, fieldPriorityBytes}},
	{MethodPiece, []field{fieldStream, fieldOffset, fieldData}},
	{MethodSeal, []field{fieldStream, fieldLength, fieldCRC, fieldLast, fieldHolders}},
	{MethodResume, []field{fieldStream}},
	{MethodReread, []field{fieldStream, fieldOffset, fieldCount}},
	{MethodAbort, []field{fieldStream}},
	{MethodRead, []field{fieldBlob, fieldIndex, fieldCRC, fieldOffset, fieldCount, fieldToCopy}},
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

// Methods returns the names of all methods of a node's store.
func Methods() (names []string) {
	for i := range shapes {
		names = append(names, shapes[i].method)
	}
	for i := range logShapes {
		names = append(names, logShapes[i].method)
	}
	for i := range gcShapes {
		names = append(names, gcShapes[i].method)
	}
	return names
}
