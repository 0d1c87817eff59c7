package local

import (
	"encoding/binary"
	"errors"

	"github.com/steledb/stele/internal/crc"
)

// The package comment specifies the layout of the holder file.
const (
	holdersMagic      = "STELEHLD"
	holderFrameMagic  = 0x444c4f48 // "HOLD"
	holdersVersion    = 1
	holderFrameBytes  = 24 // of a frame's header
	holderRecordBytes = 29 // of a record without its nodes
	holderFrameAlign  = 16
)

var errHolderRecord = errors.New("invalid holder record")

// holderHeader returns the header of the file.
func holderHeader() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte(holdersMagic), holdersVersion)
	return le.AppendUint32(b, crc.Sum(b))
}

// appendNodes appends each name with its length in front.
func appendNodes(b []byte, nodes []string) []byte {
	for _, n := range nodes {
		b = append(append(b, byte(len(n))), n...)
	}
	return b
}

// splitNodes is the inverse of appendNodes. It returns false if b is invalid.
func splitNodes(b []byte) ([]string, bool) {
	var nodes []string
	for len(b) > 0 {
		n := int(b[0])
		if n == 0 || len(b) < 1+n {
			return nil, false
		}
		nodes = append(nodes, string(b[1:1+n]))
		b = b[1+n:]
	}
	return nodes, true
}

func appendHolderRecord(b []byte, id ExtentID, h Holders) []byte {
	le := binary.LittleEndian
	b = append(b, id.Blob[:]...)
	b = le.AppendUint32(b, uint32(id.Index))
	b = le.AppendUint64(b, h.Epoch)
	b = append(b, byte(len(h.Nodes)))
	return appendNodes(b, h.Nodes)
}

// decodeHolderRecord decodes a record and returns the bytes after it.
func decodeHolderRecord(b []byte) (id ExtentID, h Holders, rest []byte, err error) {
	if len(b) < holderRecordBytes {
		return id, h, nil, errHolderRecord
	}
	le := binary.LittleEndian
	id.Blob = ID(b[:16])
	id.Index = int(le.Uint32(b[16:]))
	h.Epoch = le.Uint64(b[20:])
	end := holderRecordBytes
	for range b[28] {
		if end >= len(b) || end+1+int(b[end]) > len(b) {
			return id, h, nil, errHolderRecord
		}
		end += 1 + int(b[end])
	}
	nodes, ok := splitNodes(b[holderRecordBytes:end])
	h.Nodes = nodes
	if !ok || h.Epoch == 0 || id.Index >= ExtentsMax || h.Validate() != nil {
		return id, h, nil, errHolderRecord
	}
	return id, h, b[end:], nil
}

// sealHolderFrame pads a frame that has n records and fills in its header. at is the frame's offset
// in the file.
func sealHolderFrame(frame []byte, n int, at int64) []byte {
	for len(frame)%holderFrameAlign != 0 {
		frame = append(frame, 0)
	}
	le := binary.LittleEndian
	le.PutUint32(frame[4:], holderFrameMagic)
	le.PutUint32(frame[8:], uint32(len(frame)))
	le.PutUint32(frame[12:], uint32(n))
	le.PutUint64(frame[16:], uint64(at))
	le.PutUint32(frame, crc.Sum(frame[4:]))
	return frame
}

// holderFrame returns the frame at offset at, or nil if there is no valid one.
func holderFrame(content []byte, at int) []byte {
	b := content[at:]
	le := binary.LittleEndian
	if len(b) < holderFrameBytes || le.Uint32(b[4:]) != holderFrameMagic || le.Uint64(b[16:]) != uint64(at) {
		return nil
	}
	n := le.Uint32(b[8:])
	if n < holderFrameBytes || uint64(n) > uint64(len(b)) || n%holderFrameAlign != 0 || crc.Sum(b[4:n]) != le.Uint32(b) {
		return nil
	}
	return b[:n]
}

// scanHolders calls found for each record, in order. Invalid bytes before a valid frame are damage;
// after the last valid frame they are a torn end. end is the offset after the last valid frame.
func scanHolders(content []byte, path string, found func(ExtentID, Holders)) (end int64, damage []*CorruptError) {
	start := len(holderHeader())
	if len(content) < start || string(content[:start]) != string(holderHeader()) {
		damage = append(damage, &CorruptError{File: path, Reason: "unknown version of holder lists"})
	}
	end = int64(start)
	for at := start; at < len(content); {
		frame := holderFrame(content, at)
		if frame == nil {
			at += holderFrameAlign
			continue
		}
		if int64(at) > end {
			damage = append(damage, &CorruptError{File: path, Offset: end, Reason: "invalid frame of holder lists"})
		}
		rest := frame[holderFrameBytes:]
		for range binary.LittleEndian.Uint32(frame[12:]) {
			id, h, after, err := decodeHolderRecord(rest)
			if err != nil {
				damage = append(damage, &CorruptError{File: path, Offset: int64(at), Reason: err.Error()})
				break
			}
			found(id, h)
			rest = after
		}
		at += len(frame)
		end = int64(at)
	}
	return end, damage
}
