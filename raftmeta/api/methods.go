package api

// Names of the methods of the lock service.
const (
	MethodOpenSession    = "meta.open_session"
	MethodKeepAlive      = "meta.keep_alive"
	MethodCloseSession   = "meta.close_session"
	MethodGet            = "meta.get"
	MethodStat           = "meta.stat"
	MethodList           = "meta.list"
	MethodReadDirectory  = "meta.read_directory"
	MethodSet            = "meta.set"
	MethodDelete         = "meta.delete"
	MethodSetACL         = "meta.set_acl"
	MethodAcquire        = "meta.acquire"
	MethodRelease        = "meta.release"
	MethodCheckSequencer = "meta.check_sequencer"
	MethodWatch          = "meta.watch"
	MethodUnwatch        = "meta.unwatch"
)

// Methods returns the names of all methods of the lock service.
func Methods() []string {
	names := make([]string, len(shapes))
	for i := range shapes {
		names[i] = shapes[i].method
	}
	return names
}

// A field is a parameter or an option of a method.
type field uint8

const (
	fieldSession field = iota
	fieldName
	fieldTerm
	fieldAcked
	fieldPath
	fieldData
	fieldGeneration // of a compare-and-set
	fieldACL
	fieldMode
	fieldSequencer
	fieldKinds
	fieldWatch

	// Options.
	fieldOptSession
	fieldLease
	fieldHang
	fieldStale
	fieldEphemeral
	fieldGuard
	fieldWait
	fieldDelay
	fieldHold
	fieldSeen // the generation that a watcher has read
	fieldNode // the caller is a node, not a client
	fieldOwner
	fieldSince // the index of the last read of a directory
	fieldAfter // a name
	fieldAbsentSince
	fieldFrom // the path of a file that is renamed
	fieldFromGeneration
)

// optionNames maps options to their keys on the wire.
var optionNames = [...]string{
	fieldOptSession: "session", fieldLease: "lease_ms", fieldHang: "hang_ms", fieldStale: "stale",
	fieldEphemeral: "ephemeral", fieldGuard: "guard", fieldWait: "wait_ms", fieldDelay: "delay_ms",
	fieldHold: "hold", fieldSeen: "generation", fieldNode: "node", fieldOwner: "owner",
	fieldSince: "since", fieldAfter: "after",
	fieldAbsentSince: "absent_since", fieldFrom: "from", fieldFromGeneration: "from_generation",
}

// A shape is the signature of a method: its parameters in order, and its options. Options may be
// added; nothing else may change.
type shape struct {
	method  string
	params  []field
	options []field
	// change is set for methods that modify state, so that a lost answer is ErrOutcomeUnknown.
	change bool
}

var shapes = []shape{
	{MethodOpenSession, []field{fieldName}, []field{fieldLease, fieldNode}, true},
	{MethodKeepAlive, []field{fieldSession, fieldTerm, fieldAcked}, []field{fieldHang}, false},
	{MethodCloseSession, []field{fieldSession}, nil, true},
	{MethodGet, []field{fieldPath}, []field{fieldOptSession, fieldStale}, false},
	{MethodStat, []field{fieldPath}, nil, false},
	{MethodList, []field{fieldPath}, nil, false},
	{MethodReadDirectory, []field{fieldPath}, []field{fieldSince, fieldAfter}, false},
	{MethodSet, []field{fieldPath, fieldData, fieldGeneration}, []field{fieldOptSession, fieldEphemeral, fieldGuard, fieldNode, fieldOwner, fieldAbsentSince, fieldFrom, fieldFromGeneration}, true},
	{MethodDelete, []field{fieldPath, fieldGeneration}, []field{fieldOptSession, fieldGuard, fieldNode}, true},
	{MethodSetACL, []field{fieldPath, fieldACL}, []field{fieldOptSession, fieldGuard, fieldNode}, true},
	{MethodAcquire, []field{fieldSession, fieldPath, fieldMode}, []field{fieldWait, fieldDelay, fieldNode}, true},
	{MethodRelease, []field{fieldSession, fieldPath}, []field{fieldHold}, true},
	{MethodCheckSequencer, []field{fieldSequencer}, nil, false},
	{MethodWatch, []field{fieldSession, fieldPath, fieldKinds}, []field{fieldSeen}, true},
	{MethodUnwatch, []field{fieldSession, fieldPath, fieldWatch}, nil, true},
}

var shapeOf = func() map[string]*shape {
	m := make(map[string]*shape)
	for i := range shapes {
		m[shapes[i].method] = &shapes[i]
	}
	return m
}()

// PathBytesMax bounds the length of a path in bytes.
const PathBytesMax = 1024
