package gossip

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// First bytes of memberlist's messages, and of the label before them.
const (
	pingType     = 0
	requestType  = 1
	ackType      = 2
	suspectType  = 3
	aliveType    = 4
	deadType     = 5
	listType     = 6
	manyType     = 7
	compressType = 9
	cryptType    = 10
	nackType     = 11
	crcType      = 12
	errorType    = 13
	labelType    = 244
)

// labelLength returns the length of the label at the start of a stream, 1 if it has none. It
// consumes nothing.
func labelLength(in *bufio.Reader) (int, error) {
	b, err := in.Peek(1)
	if err != nil || b[0] != labelType {
		return 1, err
	}
	b, err = in.Peek(2)
	if err != nil {
		return 0, err
	}
	n := 2 + int(b[1])
	_, err = in.Peek(n)
	return n, err
}

// announced returns the memory that memberlist will allocate at once for the message that begins
// here. It consumes nothing.
func announced(in *bufio.Reader, keyed bool) (memory int64, err error) {
	b, err := in.Peek(1)
	if err != nil {
		return 0, err
	}
	switch {
	case b[0] == cryptType && keyed:
		if b, err = in.Peek(5); err != nil {
			return 0, err
		}
		n := int64(binary.BigEndian.Uint32(b[1:]))
		if n > streamBytesMax {
			return 0, errTooLong(n)
		}
		return n, nil // for the copy that is checked before memberlist gets it
	case keyed || b[0] == cryptType, b[0] == pingType, b[0] == ackType, b[0] == errorType:
		return 0, nil // memberlist rejects it, or it is small
	case b[0] == listType:
		return listMemory(in)
	}
	return 0, reject("unknown message type %d", b[0])
}

// listMemory returns the memory for an announced list in the clear.
func listMemory(in *bufio.Reader) (int64, error) {
	b, err := in.Peek(1 + listHeaderMax) // every list is longer
	if err != nil && !errors.Is(err, io.EOF) || len(b) == 0 {
		return 0, err
	}
	nodes, notes, err := listHeader(b[1:])
	return nodes*memoryPerState + notes, err
}
