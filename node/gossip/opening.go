package gossip

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// First bytes of what memberlist sends, of messages and of the label before them.
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

// labelLength returns how long the label is that a stream begins with, 1 if it has none. It takes nothing.
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

// announced looks at how a message begins, and returns the memory that memberlist will take at once for what it announces. It
// takes nothing.
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
		return n, nil // for it is looked at before memberlist gets it
	case keyed || b[0] == cryptType, b[0] == pingType, b[0] == ackType, b[0] == errorType:
		return 0, nil // memberlist refuses it, or it is small
	case b[0] == listType:
		return listMemory(in)
	}
	return 0, refuse("a message of type %d is not known", b[0])
}

// listMemory returns the memory for a list that is announced in the clear.
func listMemory(in *bufio.Reader) (int64, error) {
	b, err := in.Peek(1 + listHeaderMax) // any list is longer
	if err != nil && !errors.Is(err, io.EOF) || len(b) == 0 {
		return 0, err
	}
	nodes, notes, err := listHeader(b[1:])
	return nodes*memoryPerState + notes, err
}
