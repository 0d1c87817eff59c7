package sstable

import (
	"bytes"
	"strconv"

	"github.com/steledb/stele/table"
)

// Meta describes a table.
type Meta struct {
	Size           int64  // bytes of the file
	Entries        uint64 // keys
	FirstKey       []byte // nil if there is no entry
	LastKey        []byte
	RawBytes       uint64 // keys and values as added
	DataBlocks     uint64
	DataBytes      uint64 // data blocks as stored, with trailers
	DictBytes      uint64 // dictionary as stored, with trailer
	IndexBytes     uint64 // index as stored, with trailers
	FilterBytes    uint64 // filter as stored, with trailers
	FilterPrefixes uint64 // prefixes in the filter
	FilterName     string
	BlockBytes     int
	Compression    table.Compression
}

// Names of the package's own properties. The caller's names must not begin with ownPrefix.
const (
	ownPrefix          = "sstable."
	propBlockBytes     = ownPrefix + "block-bytes"
	propCompression    = ownPrefix + "compression"
	propDataBlocks     = ownPrefix + "data-blocks"
	propDataBytes      = ownPrefix + "data-bytes"
	propDictBytes      = ownPrefix + "dictionary-bytes"
	propEntries        = ownPrefix + "entries"
	propFilterBytes    = ownPrefix + "filter-bytes"
	propFilterName     = ownPrefix + "filter-name"
	propFilterPrefixes = ownPrefix + "filter-prefixes"
	propFirstKey       = ownPrefix + "first-key"
	propIndexBytes     = ownPrefix + "index-bytes"
	propLastKey        = ownPrefix + "last-key"
	propRawBytes       = ownPrefix + "raw-bytes"
)

// properties returns the package's own properties. Numbers are decimal, so that a dump is readable.
func (m *Meta) properties() map[string][]byte {
	num := func(n uint64) []byte { return strconv.AppendUint(nil, n, 10) }
	p := map[string][]byte{
		propBlockBytes:     num(uint64(m.BlockBytes)),
		propCompression:    num(uint64(m.Compression)),
		propDataBlocks:     num(m.DataBlocks),
		propDataBytes:      num(m.DataBytes),
		propEntries:        num(m.Entries),
		propFilterBytes:    num(m.FilterBytes),
		propFilterPrefixes: num(m.FilterPrefixes),
		propIndexBytes:     num(m.IndexBytes),
		propRawBytes:       num(m.RawBytes),
	}
	if m.DictBytes > 0 {
		p[propDictBytes] = num(m.DictBytes)
	}
	if m.FilterName != "" {
		p[propFilterName] = []byte(m.FilterName)
	}
	if m.Entries > 0 {
		p[propFirstKey] = m.FirstKey
		p[propLastKey] = m.LastKey
	}
	return p
}

// setOwn sets the field of one of the package's own properties. Unknown names come from later
// versions and are ignored. It returns false if the value is malformed.
func (m *Meta) setOwn(name string, value []byte) bool {
	var small uint64
	var to *uint64
	switch name {
	case propBlockBytes, propCompression:
		to = &small
	case propDataBlocks:
		to = &m.DataBlocks
	case propDataBytes:
		to = &m.DataBytes
	case propDictBytes:
		to = &m.DictBytes
	case propEntries:
		to = &m.Entries
	case propFilterBytes:
		to = &m.FilterBytes
	case propFilterPrefixes:
		to = &m.FilterPrefixes
	case propIndexBytes:
		to = &m.IndexBytes
	case propRawBytes:
		to = &m.RawBytes
	case propFirstKey:
		m.FirstKey = value
		return true
	case propLastKey:
		m.LastKey = value
		return true
	case propFilterName:
		m.FilterName = string(value)
		return true
	default:
		return true
	}
	n, err := strconv.ParseUint(string(value), 10, 63)
	if err != nil {
		return false
	}
	*to = n
	switch name {
	case propBlockBytes:
		m.BlockBytes = int(n)
	case propCompression:
		m.Compression = table.Compression(n)
		return n <= 255
	}
	return true
}

// consistent reports whether the numbers are consistent as far as readers rely on them.
func (m *Meta) consistent() bool {
	if m.DataBytes > uint64(m.Size) || m.IndexBytes > uint64(m.Size) || m.FilterBytes > uint64(m.Size) || m.DictBytes > uint64(m.Size) ||
		m.DataBlocks > m.Entries || (m.DataBlocks == 0) != (m.Entries == 0) {
		return false
	}
	if m.Entries == 0 {
		return m.FirstKey == nil && m.LastKey == nil
	}
	return m.FirstKey != nil && m.LastKey != nil && bytes.Compare(m.FirstKey, m.LastKey) <= 0
}
