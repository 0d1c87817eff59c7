package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/hashicorp/raft"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/internal/wire"
)

// The parts of bbolt's file format, version 2, that the check uses. Integers are in the host's byte
// order.
const (
	boltMagic         = 0xED0CDAED
	boltVersion       = 2
	boltPageHeader    = 16 // id u64, flags u16, count u16, overflow u32
	boltMetaBytes     = 64
	boltElementBytes  = 16
	boltBucketBytes   = 16 // root page u64, sequence u64
	boltBranch        = 0x01
	boltLeaf          = 0x02
	boltMeta          = 0x04
	boltBucketElement = 0x01
	boltDepthMax      = 32
	boltPageMin       = 512
	boltPageMax       = 64 << 10
	boltPageOverflow  = 8 << 20 // bytes of one page with its overflow: some entries of the largest size
	corruptionsMax    = 100
	logBucket         = "logs"
	stableBucket      = "conf"
	stableVoteCand    = "LastVoteCand"
	// Added by this package: the id of the server, whether it waits to be added to a group, and the
	// entry of the invitation with which it does.
	StableServerID        = "ServerID"
	StableJoining         = "Joining"
	StableInvitationTerm  = "InvitationTerm"
	StableInvitationIndex = "InvitationIndex"
)

// LogSummary is the result of the check of a log file.
type LogSummary struct {
	First, Last uint64 // indexes; zero if the log is empty
	lastTerm    uint64
	// Sizes are those of the entries from first to last, as counted by entryBytes.
	Sizes []int32
	// ServerID is the id of the log's server, empty in old logs. joining is set if the server waits
	// to be added to a group.
	ServerID string
	Joining  bool
	// Invitation is the entry of the server's invitation; zero if it has none.
	Invitation EntryID
}

// boltCheck reads a log file from end to end without bbolt, which maps the file and trusts its
// content: bbolt answers a corrupt page with a panic in its own goroutine, or with missing entries.
// The check accepts exactly what bbolt writes (elements are adjacent and in order in their page,
// both meta pages are valid), so that a changed count or length cannot hide an entry.
//
// One corruption cannot be detected: a page number changed to that of an older copy of the same
// page, because pages have no checksum.
type boltCheck struct {
	f        vfs.File
	name     string
	size     int64
	pageSize int64
	pages    uint64 // high water mark
	seen     map[uint64]bool
	sum      LogSummary
	problems []error
}

// CheckLog checks every page, checksum and log entry in file. It returns all problems it finds,
// each a *CorruptError, or a *VersionError for an entry that a newer program wrote. The error is
// for a file that cannot be read at all.
func CheckLog(fsys vfs.FS, file string) (LogSummary, []error, error) {
	f, err := fsys.OpenRead(file)
	if err != nil {
		return LogSummary{}, nil, fmt.Errorf("check log: %w", err)
	}
	defer func() { _ = f.Close() }()
	size, err := f.Size()
	if err != nil {
		return LogSummary{}, nil, fmt.Errorf("check log: %w", err)
	}
	c := &boltCheck{f: f, name: file, size: size, seen: map[uint64]bool{}}
	if rootPage, ok := c.meta(); ok {
		buckets := map[string]bool{}
		c.tree(rootPage, func(at int64, flags uint32, key, value []byte) {
			buckets[string(key)] = true
			c.bucket(at, flags, string(key), value)
		})
		if len(c.problems) == 0 && (!buckets[logBucket] || !buckets[stableBucket]) {
			c.bad(0, "a bucket is missing")
		}
	}
	return c.sum, c.problems, nil
}

func (c *boltCheck) bad(at int64, format string, args ...any) {
	if len(c.problems) < corruptionsMax {
		c.problems = append(c.problems, &CorruptError{c.name, at, fmt.Sprintf(format, args...)})
	}
}

// meta checks both meta pages and returns the root page of the newer one. bbolt accepts a single
// valid meta page, to recover from a torn write. But the 64 bytes of a meta page are in one sector,
// which disks write atomically. So an invalid meta page is corruption, and falling back to the
// other one would lose the last acknowledged commit.
func (c *boltCheck) meta() (rootPage uint64, ok bool) {
	c.pageSize = boltPageMin
	var newest uint64
	for id := range uint64(2) {
		at := int64(id) * c.pageSize
		b := make([]byte, boltPageHeader+boltMetaBytes)
		if _, err := c.f.ReadAt(b, at); err != nil {
			c.bad(at, "read meta page: %v", err)
			return 0, false
		}
		m := b[boltPageHeader:]
		if reason := c.metaPage(id, b); reason != "" {
			c.bad(at, "meta page: %s", reason)
			return 0, false
		}
		c.pageSize = int64(binary.NativeEndian.Uint32(m[8:]))
		if txid := binary.NativeEndian.Uint64(m[48:]); id == 0 || txid > newest {
			newest = txid
			rootPage = binary.NativeEndian.Uint64(m[16:])
			c.pages = binary.NativeEndian.Uint64(m[40:])
		}
	}
	if c.pages > uint64(c.size/c.pageSize) {
		c.bad(0, "file has %d bytes, but %d pages of %d bytes are in use", c.size, c.pages, c.pageSize)
		return 0, false
	}
	return rootPage, true
}

// metaPage returns what is wrong with meta page id, or an empty string.
func (c *boltCheck) metaPage(id uint64, b []byte) string {
	m := b[boltPageHeader:]
	h := fnv.New64a()
	_, _ = h.Write(m[:56])
	size := binary.NativeEndian.Uint32(m[8:])
	switch {
	case binary.NativeEndian.Uint32(m) != boltMagic:
		return "bad magic"
	case binary.NativeEndian.Uint32(m[4:]) != boltVersion:
		return fmt.Sprintf("version is %d, not %d", binary.NativeEndian.Uint32(m[4:]), boltVersion)
	case binary.NativeEndian.Uint64(m[56:]) != h.Sum64():
		return "bad checksum"
	case binary.NativeEndian.Uint64(b) != id || binary.NativeEndian.Uint16(b[8:]) != boltMeta:
		return "bad page header"
	case size < boltPageMin || size > boltPageMax || size&(size-1) != 0 || id == 1 && int64(size) != c.pageSize:
		return fmt.Sprintf("page size is %d", size)
	case binary.NativeEndian.Uint64(m[48:])%2 != id:
		return "bad transaction number"
	}
	return ""
}

// visit is called with each element of a leaf, in order of key. at is the offset of the element in
// the file.
type visit func(at int64, flags uint32, key, value []byte)

// tree walks the tree with the root page id.
func (c *boltCheck) tree(id uint64, f visit) {
	t := &treeWalk{c: c, f: f}
	t.page(id, 0)
}

// treeWalk is one walk of one tree.
type treeWalk struct {
	c *boltCheck
	f visit
	// leaf is the last key seen in a leaf, and low the last one seen in a branch: the next key must
	// be greater than leaf, and not less than low.
	leaf, low []byte
}

func (t *treeWalk) page(id uint64, depth int) {
	c := t.c
	at := int64(id) * c.pageSize
	if id < 2 || id >= c.pages || c.seen[id] || depth > boltDepthMax {
		c.bad(0, "invalid page reference %d", id)
		return
	}
	c.seen[id] = true
	b := make([]byte, c.pageSize)
	if _, err := c.f.ReadAt(b, at); err != nil {
		c.bad(at, "read page: %v", err)
		return
	}
	overflow := uint64(binary.NativeEndian.Uint32(b[12:]))
	switch {
	case binary.NativeEndian.Uint64(b) != id:
		c.bad(at, "page %d has id %d", id, binary.NativeEndian.Uint64(b))
		return
	case overflow > boltPageOverflow/uint64(c.pageSize) || id+overflow >= c.pages:
		c.bad(at, "page %d overflows into %d more", id, overflow)
		return
	case overflow > 0:
		b = make([]byte, (1+int64(overflow))*c.pageSize)
		if _, err := c.f.ReadAt(b, at); err != nil {
			c.bad(at, "read page: %v", err)
			return
		}
	}
	for i := range overflow {
		if c.seen[id+1+i] {
			c.bad(at, "page %d overflows into a page in use", id)
			return
		}
		c.seen[id+1+i] = true
	}
	t.elements(at, b, depth)
}

// elements walks the elements of a page with the content b.
func (t *treeWalk) elements(at int64, b []byte, depth int) {
	c := t.c
	flags := binary.NativeEndian.Uint16(b[8:])
	count := int(binary.NativeEndian.Uint16(b[10:]))
	if flags != boltBranch && flags != boltLeaf || flags == boltBranch && count == 0 {
		c.bad(at, "page has flags %#x and %d elements", flags, count)
		return
	}
	next := boltPageHeader + count*boltElementBytes // expected offset of the next key
	for i := range count {
		el := boltPageHeader + i*boltElementBytes
		if next > len(b) {
			c.bad(at, "elements do not fit their page")
			return
		}
		e := b[el : el+boltElementBytes]
		var elFlags, pos, keySize, valueSize uint32
		if flags == boltBranch {
			pos, keySize = binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:])
		} else {
			elFlags, pos = binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:])
			keySize, valueSize = binary.NativeEndian.Uint32(e[8:]), binary.NativeEndian.Uint32(e[12:])
		}
		end := int64(next) + int64(keySize) + int64(valueSize)
		if el+int(pos) != next || keySize == 0 || end > int64(len(b)) {
			c.bad(at+int64(el), "element %d is misplaced", i)
			return
		}
		key, value := b[next:next+int(keySize)], b[next+int(keySize):end]
		if t.leaf != nil && bytes.Compare(key, t.leaf) <= 0 || bytes.Compare(key, t.low) < 0 {
			c.bad(at+int64(next), "key %x is out of order", key)
			return
		}
		next = int(end)
		if flags == boltBranch {
			t.low = key
			t.page(binary.NativeEndian.Uint64(e[8:]), depth+1)
		} else {
			t.leaf = key
			t.f(at+int64(next)-int64(len(value)), elFlags, key, value)
		}
	}
}

// bucket checks a bucket of the file, given its element in the root tree.
func (c *boltCheck) bucket(at int64, flags uint32, name string, value []byte) {
	var f visit
	switch name {
	case logBucket:
		f = c.entry
	case stableBucket:
		f = c.stable
	}
	if f == nil || flags != boltBucketElement || len(value) < boltBucketBytes {
		c.bad(at, "unexpected bucket %q", name)
		return
	}
	if id := binary.NativeEndian.Uint64(value); id != 0 {
		c.tree(id, f)
		return
	}
	// The only page of a small bucket is stored inline.
	inline := value[boltBucketBytes:]
	if len(inline) < boltPageHeader || binary.NativeEndian.Uint16(inline[8:]) != boltLeaf {
		c.bad(at, "bucket %q has no page", name)
		return
	}
	t := &treeWalk{c: c, f: f}
	t.elements(at+boltBucketBytes, inline, 0)
}

// checkLog is CheckLog for a log in another store, of which it checks each value and entry.
func (open OpenFunc) checkLog(fsys vfs.FS, file string) (LogSummary, []error, error) {
	c := &boltCheck{name: file}
	if _, _, err := fsys.Stat(file); err != nil { // do not create it
		return c.sum, nil, fmt.Errorf("check log: %w", err)
	}
	backend, err := open(file)
	if err != nil {
		return c.sum, nil, fmt.Errorf("check log: %w", err)
	}
	if err := errors.Join(c.backend(backend), backend.Close()); err != nil {
		return c.sum, c.problems, fmt.Errorf("check log: %w", err)
	}
	return c.sum, c.problems, nil
}

// stableKeys are raft's keys and ours.
var stableKeys = []string{"CurrentTerm", "LastVoteTerm", stableVoteCand, StableServerID, StableJoining, StableInvitationTerm, StableInvitationIndex}

func (c *boltCheck) backend(b Backend) error {
	for _, key := range stableKeys {
		value, err := b.Get([]byte(key))
		switch {
		case err == nil:
			c.stable(0, 0, []byte(key), value)
		case err.Error() != "not found": // as raft compares it
			return err
		}
	}
	first, err := b.FirstIndex()
	if err != nil {
		return err
	}
	last, err := b.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	for index := first; index <= last; index++ {
		var l raft.Log
		switch err := b.GetLog(index, &l); {
		case errors.Is(err, raft.ErrLogNotFound):
			c.bad(0, "log entry %d is missing", index)
		case err != nil:
			return err
		default:
			c.decoded(0, index, &l)
		}
	}
	return nil
}

// stable checks one value of raft's stable store.
func (c *boltCheck) stable(at int64, flags uint32, key, value []byte) {
	b, bad := cutStable(key, value)
	text := string(key) == stableVoteCand || string(key) == StableServerID
	if bad == "" && !text && len(b) != 8 {
		bad = fmt.Sprintf("value of %q has %d bytes, not 8", key, len(b))
	}
	if bad == "" && flags != 0 {
		bad = fmt.Sprintf("value of %q has flags", key)
	}
	switch {
	case bad != "":
		c.bad(at, "%s", bad)
	case string(key) == StableServerID:
		c.sum.ServerID = string(b)
	case string(key) == StableJoining:
		c.sum.Joining = binary.BigEndian.Uint64(b) != 0
	case string(key) == StableInvitationTerm:
		c.sum.Invitation.Term = binary.BigEndian.Uint64(b)
	case string(key) == StableInvitationIndex:
		c.sum.Invitation.Index = binary.BigEndian.Uint64(b)
	}
}

// entry checks one log entry.
func (c *boltCheck) entry(at int64, flags uint32, key, value []byte) {
	if len(key) != 8 || flags != 0 {
		c.bad(at, "key %x is not an index", key)
		return
	}
	index := binary.BigEndian.Uint64(key)
	l, err := decodeEntry(value)
	if err != nil {
		c.bad(at, "log entry %d: %v", index, err)
		return
	}
	c.decoded(at, index, &l)
}

// decoded checks the entry stored at index.
func (c *boltCheck) decoded(at int64, index uint64, l *raft.Log) {
	if bad := checkEntry(index, l); bad != "" {
		c.bad(at, "%s", bad)
		return
	}
	s := &c.sum
	if s.Last != 0 && index != s.Last+1 {
		c.bad(at, "log entry %d follows entry %d", index, s.Last)
	}
	if l.Term < s.lastTerm {
		c.bad(at, "log entry %d of term %d follows an entry of term %d", index, l.Term, s.lastTerm)
	}
	if s.First == 0 {
		s.First = index
	}
	s.Last, s.lastTerm = index, l.Term
	s.Sizes = append(s.Sizes, int32(entryBytes(l)))
	if l.Type == raft.LogCommand {
		c.command(at, index, l.Data)
	}
}

// command checks that this program can decode the command of an entry.
func (c *boltCheck) command(at int64, index uint64, b []byte) {
	_, err := fsm.DecodeCommand(b)
	var newer *fsm.VersionError
	switch {
	case errors.As(err, &newer) && len(c.problems) < corruptionsMax:
		newer.File = c.name
		c.problems = append(c.problems, newer)
	case err != nil:
		c.bad(at, "log entry %d: %v", index, err)
	}
}

// decodeEntry reads an entry in raft-boltdb's encoding: a map from the names of raft.Log's fields,
// with byte strings written as text. The data and the checksum alias b.
func decodeEntry(b []byte) (raft.Log, error) {
	var l raft.Log
	d := wire.NewDecoder(b)
	for range d.Map() {
		switch name := d.Str(); name {
		case "Index":
			l.Index = d.Uint()
		case "Term":
			l.Term = d.Uint()
		case "Type":
			l.Type = raft.LogType(d.Uint())
		case "Data":
			if !d.IsNil() {
				l.Data = d.Bytes()
			}
		case "Extensions":
			if !d.IsNil() {
				l.Extensions = d.Bytes()
			}
		case "AppendedAt":
			if err := l.AppendedAt.UnmarshalBinary(d.Bytes()); err != nil && d.Err() == nil {
				return l, err
			}
		default:
			return l, fmt.Errorf("unknown field %q", name)
		}
	}
	if d.Err() == nil && d.More() {
		return l, errors.New("trailing bytes")
	}
	return l, d.Err()
}
